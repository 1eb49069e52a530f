"""The worker: a process that runs jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .worker import Worker

__all__ = ["Worker"]


def __getattr__(name: str) -> object:
    # An app may name its scheduler or splitter, which lie here, without bringing in threads and an event loop.
    if name == "Worker":
        from .worker import Worker

        return Worker
    raise AttributeError(f"module 'laneway.worker' has no attribute {name!r}")
