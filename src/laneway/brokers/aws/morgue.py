"""The dead-letter queues as a morgue."""

from __future__ import annotations

from typing import Any


class Morgue:
    def __init__(self, *collaborators: Any, **options: Any) -> None:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError
