"""Laneway runs background jobs for Python programs. The names in `__all__` are public; all else may change.

`Worker`, `lag`, `seq` and `by_node` are imported on first use. The worker brings threads and an event loop, and a
program that only enqueues needs neither.

- `app`: Laneway, the app: its registry, its broker, its middleware
- `tasks/`: tasks, collecting tasks and listeners: declaration, signatures, registry
- `enqueue/`: builds jobs from calls and hands them to the broker
- `events/`: names, attributes, filters and publishing of events
- `jobs/`: the values that the core and the brokers exchange, and the decisions about them
- `broker`: the broker contract: Broker, Turn, Answer, Page
- `brokers/`: the brokers: memory, SQLite, Redis, AWS
- `worker/`: the worker: fetches jobs, runs them, keeps its lease; supervisor, isolation, metrics
- `cli/`: the command `laneway`
- `unsupported`: refuses tasks that the broker cannot serve, at declaration if possible
- `context`: Context: a run's id, attempt, headers and logger, and the jobs and events that it sends
- `handle`: Handle: status, cancel and reschedule of an enqueued job
- `middleware`: generators around enqueueing, deserialization and execution
- `config`: names and options of tasks, collecting tasks and workers, and a sentence for each wrong value
- `errors`: every error that Laneway raises; tells which items of a list were not stored
- `urls`: parses broker URLs and opens the broker
- `origin`: where an app was loaded from, so that another process can load it
- `ids`: ids of jobs and workers; ids derived from a run
- `clock`: the time, real or set by a test
- `telemetry`: the events that logs, metrics and traces subscribe to
- `logs/`: writes telemetry to the app's logger: plain, rich or JSON
- `otel`: spans and metrics for OpenTelemetry
- `sentinel`: detects that a job has closed the file descriptors of this process
- `failpoints`: named places where a test kills, fails or delays the process
- `testing/`: the test kit for authors of brokers: the conformance suite and FaultyBroker
- `demo`: the shop that `laneway demo` runs
- `__main__`: `python -m laneway`
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .app import Laneway
from .config import WorkerOptions
from .context import Context
from .enqueue.options import Item
from .errors import (
    BrokerAwayError,
    BrokerError,
    BrokerRefusedError,
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
    "BrokerRefusedError",
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
