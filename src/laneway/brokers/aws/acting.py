"""What can be done with delayed jobs."""

from __future__ import annotations

from typing import Any


class Acting:
    def __init__(self, *collaborators: Any, **options: Any) -> None:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError
