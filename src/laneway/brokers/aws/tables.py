"""Which table belongs to a queue."""

from __future__ import annotations

from typing import Any


class Tables:
    def __init__(self, *collaborators: Any, **options: Any) -> None:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError
