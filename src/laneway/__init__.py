"""Laneway runs background jobs for Python programs. What is listed here is public; all else may change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .app import Laneway
from .config import WorkerOptions
from .context import Context
from .enqueue.options import Item
from .errors import (
    BrokerAwayError,
    BrokerError,
    Bury,
    ConfigError,
    DeclarationError,
    EnqueueError,
    LanewayError,
    LeaseLost,
    NoQueueError,
    NotATicketError,
    NotInBatchError,
    Retry,
    TicketError,
    TimeLimitError,
)
from .events.publish import EventSender
from .handle import Handle
from .jobs.data import JobView, QueueStats
from .jobs.keys import Key
from .jobs.ticket import Call, Serializer
from .middleware import Middleware
from .tasks.batch import Batch
from .tasks.collecting import Collecting
from .tasks.listener import Listener
from .tasks.task import Task

if TYPE_CHECKING:
    from .worker import Worker
    from .worker.fetch.shards import by_node, lag, seq

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "BrokerAwayError",
    "BrokerError",
    "Bury",
    "Call",
    "Collecting",
    "ConfigError",
    "Context",
    "DeclarationError",
    "EnqueueError",
    "EventSender",
    "Handle",
    "Item",
    "JobView",
    "Key",
    "Laneway",
    "LanewayError",
    "LeaseLost",
    "Listener",
    "Middleware",
    "NoQueueError",
    "NotATicketError",
    "NotInBatchError",
    "QueueStats",
    "Retry",
    "Serializer",
    "Task",
    "TicketError",
    "TimeLimitError",
    "Worker",
    "WorkerOptions",
    "__version__",
    "by_node",
    "lag",
    "seq",
]


def __getattr__(name: str) -> object:
    # The worker brings threads and an event loop with it; programs that only enqueue need neither.
    if name == "Worker":
        from .worker import Worker

        return Worker
    if name in ("lag", "seq"):
        from .worker.fetch import shards

        return getattr(shards, name)
    if name == "by_node":
        from .worker.fetch.shards import by_node

        return by_node
    raise AttributeError(f"module 'laneway' has no attribute {name!r}")
