"""Messages on their way to SQS, or into the table."""

from __future__ import annotations

from typing import Any


class Sender:
    def __init__(self, *collaborators: Any, **options: Any) -> None:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError
