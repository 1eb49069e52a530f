"""The poller: from the table into the queue."""

from __future__ import annotations

from typing import Any


class Poller:
    name = "poller"

    def __init__(self, *collaborators: Any, **options: Any) -> None:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError
