"""Which SQS queues belong to a Laneway queue."""

from __future__ import annotations

from typing import Any


class Channels:
    def __init__(self, *collaborators: Any, **options: Any) -> None:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError
