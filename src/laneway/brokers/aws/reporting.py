"""What others are told of a worker."""

from __future__ import annotations

from typing import Any


class Reporter:
    name = "reporter"

    def __init__(self, *collaborators: Any, **options: Any) -> None:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError
