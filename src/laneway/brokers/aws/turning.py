"""A worker's turns on SQS."""

from __future__ import annotations

from typing import Any


class Turns:
    def __init__(self, *collaborators: Any, **options: Any) -> None:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError
