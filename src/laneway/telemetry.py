"""What happens inside, as events with documented fields. Logging, metrics and traces subscribe to them.

An event is built only when somebody has subscribed to its type. Subscribers are called in the thread where it
happened and must be quick; what they raise is reported once and harms nothing. No event holds arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from .outcome import Verdict


class RunStarted(msgspec.Struct):
    """A handler is about to be called: for a job, for one call of a key, or for a batch."""

    queue: str
    task: str
    #: Of a batch, the first one.
    key: str
    attempt: int
    #: A keyed call's own id; empty for others, whose key is enough.
    id: str = ""
    #: How many keys a batch has.
    keys: int = 1


class RunEnded(msgspec.Struct):
    """A run has ended and is about to be settled. `error` is None when it succeeded.

    Of a batch there is one for the keys that ended alike, and one for each key that its handler said has failed.
    """

    queue: str
    task: str
    #: Of several, the first one.
    key: str
    attempt: int
    verdict: Verdict
    duration_s: float
    #: Seconds until it runs again, for retry and postpone.
    delay_s: float = 0.0
    #: The first line of the error's text.
    error: str | None = None
    #: The exception itself, for those who want its traceback.
    exception: BaseException | None = None
    #: A keyed call's own id; empty for others, whose key is enough.
    id: str = ""
    #: How many keys of a batch it is about.
    keys: int = 1


class SettlementRefused(msgspec.Struct):
    """A run's end came too late: its claim belongs to another worker by now."""

    queue: str
    keys: list[str]


class WorkerStarted(msgspec.Struct):
    """A worker begins to fetch."""

    worker: str
    queues: list[str]
    concurrency: int
    tasks: int


class WorkerStopping(msgspec.Struct):
    """A worker has stopped fetching and waits for what runs."""

    worker: str
    running: list[str]


class WorkerWaiting(msgspec.Struct):
    """A worker that is stopping still waits for these, and will for so many seconds at most."""

    worker: str
    running: list[str]
    left_s: float


class WorkerStopped(msgspec.Struct):
    """A worker has ended. `abandoned` jobs were running or not settled, and will be taken over."""

    worker: str
    abandoned: int
    processed: int
    failed: int


class LeaseEnded(msgspec.Struct):
    """This worker was declared dead while it lived; it goes on under a new id."""

    worker: str


class Reclaimed(msgspec.Struct):
    """Claims of dead workers were given back."""

    count: int
    workers: list[str]


class ProcessStarted(msgspec.Struct):
    """A supervisor has started one of its processes."""

    number: int
    pid: int


class ProcessEnded(msgspec.Struct):
    """One of a supervisor's processes has ended, in an orderly way or not."""

    number: int
    pid: int
    #: How, in words that follow "it".
    ending: str
    #: Whether it had been told to, or had nothing more to do.
    orderly: bool
    #: Runs that had begun in it and count a death.
    blamed: int
    #: Seconds until another is started in its place; None: there will be none.
    again_in_s: float | None


class ProcessGivenUp(msgspec.Struct):
    """A supervisor ends one of its processes, with everything that it has started."""

    number: int
    pid: int
    why: str


class ProcessReplaced(msgspec.Struct):
    """A supervisor has told one of its processes to finish, and starts another in its place."""

    number: int
    pid: int
    why: str


class BrokerAway(msgspec.Struct):
    """The broker does not answer; it is tried again until it does."""

    error: str


class BrokerBack(msgspec.Struct):
    """The broker answers again."""

    away_s: float


Event = TypeVar("Event", bound=msgspec.Struct)
_log = logging.getLogger("laneway")


class Telemetry:
    """Who wants to know of what."""

    def __init__(self) -> None:
        self._subscribers: dict[type, list[Callable[[Any], None]]] = {}

    def subscribe(self, kind: type[Event], callback: Callable[[Event], None]) -> None:
        """Have `callback` called with every event of this type."""
        self.of(kind).append(callback)

    def unsubscribe(self, kind: type[Event], callback: Callable[[Event], None]) -> None:
        """Undo `subscribe`."""
        self.of(kind).remove(callback)

    def of(self, kind: type[Any]) -> list[Callable[[Any], None]]:
        """The live list of subscribers to a type: empty means that the event need not be built."""
        return self._subscribers.setdefault(kind, [])

    def emit(self, event: msgspec.Struct) -> None:
        """Tell everyone who subscribed to this type of event."""
        for callback in self._subscribers.get(type(event), ()):
            try:
                callback(event)
            except Exception:
                _log.exception("a subscriber to %s failed", type(event).__name__)
