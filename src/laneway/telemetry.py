"""The events that logs, metrics and traces subscribe to, with documented fields.

An event is built only if its type has a subscriber. Subscribers are called in the thread where the event happened
(of an async run: in its asyncio task) and must be quick. An error in a subscriber is logged and harms nothing. No
event holds arguments. `docs/telemetry.md` lists all events, and a test compares that page with this file.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from .jobs.data import Headers
from .jobs.settlement import Verdict

#: Numbers for runs, from 1 on, each used once in a process.
next_run = itertools.count(1).__next__

# -- jobs ----------------------------------------------------------------------------------------------


class Enqueueing(msgspec.Struct):
    """Jobs of one queue, or events of one topic, are about to be stored or, from within a run, held back until it has
    succeeded.

    This one is a question: what subscribers put into `headers` travels beside each of these jobs (not beside
    collecting ones, which have none), unless a middleware has given the job a header of that name.
    """

    #: The queue; of events, the topic.
    queue: str
    #: How many jobs, or events: their copies have the same headers.
    count: int
    headers: Headers
    #: Whether these are events.
    published: bool = False


class JobsEnqueued(msgspec.Struct):
    """Jobs of one queue were stored: by a program, or with the end of the run that enqueued them."""

    queue: str
    #: How many jobs were handed to the broker; a collecting one may have merged with others.
    count: int


class EventsPublished(msgspec.Struct):
    """Events of one topic were published: by a program, or with the end of the run that published them."""

    topic: str
    #: How many events.
    count: int
    #: How many copies of them were stored, each for a queue; None where the broker makes the copies.
    copies: int | None


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
    #: A number that no other run of this process has; the end of the run has the same.
    run: int = 0
    #: Seconds since it was due, by this machine's clock: what it waited for a free worker.
    waited_s: float = 0.0
    #: What travelled beside the job; None for a batch, and when there is nothing.
    headers: Headers | None = None


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
    #: The number that its RunStarted had; 0 if it never started, because its body could not be read.
    run: int = 0
    #: Another RunEnded of the same run follows: it was a batch, and its keys ended in different ways.
    more: bool = False


class OutboxRefused(msgspec.Struct):
    """What a run enqueued or published was refused when it was to be stored with the run's end, so that the run has
    failed after all, though its RunEnded has said that it was done."""

    queue: str
    task: str
    #: Of a batch, the first one.
    key: str
    attempt: int
    #: What becomes of it by its task's rule: retry or bury.
    verdict: Verdict
    #: Seconds until it runs again, for retry.
    delay_s: float
    #: The first line of the error's text.
    error: str
    exception: BaseException
    #: A keyed call's own id; empty for others, whose key is enough.
    id: str = ""
    #: How many keys of a batch have failed by it.
    keys: int = 1


class RunAbandoned(msgspec.Struct):
    """A run has ended that is not settled: its handler raised what is not an Exception, and that ends the worker."""

    queue: str
    task: str
    key: str
    attempt: int
    duration_s: float
    #: The first line of the error's text.
    error: str
    exception: BaseException
    #: A keyed call's own id; empty for others, whose key is enough.
    id: str = ""
    #: The number that its RunStarted had.
    run: int = 0


class RunSent(msgspec.Struct):
    """A run has started and is about to be handed to an isolated process.

    This one is a question: what subscribers put into `headers` goes with the run, and its RunEntered has it.
    """

    queue: str
    task: str
    headers: Headers


class RunEntered(msgspec.Struct):
    """In an isolated process: a handler is about to be called. The run itself is told in the worker that sent it."""

    queue: str
    task: str
    #: What was given to its RunSent.
    headers: Headers


class RunLeft(msgspec.Struct):
    """In an isolated process: the run that was entered is over, however it ended. There is one at a time."""

    queue: str
    task: str


class SettlementRefused(msgspec.Struct):
    """A run's end came too late: its claim belongs to another worker by now."""

    queue: str
    keys: list[str]


# -- a worker ------------------------------------------------------------------------------------------


class WorkerStarted(msgspec.Struct):
    """A worker begins to fetch."""

    #: Its id.
    worker: str
    queues: list[str]
    #: Jobs that it runs at once.
    concurrency: int
    #: How many tasks and listeners its app has.
    tasks: int


class WorkerStopping(msgspec.Struct):
    """A worker has stopped fetching and waits for what runs."""

    worker: str
    #: The task and the key of each.
    running: list[str]


class WorkerWaiting(msgspec.Struct):
    """A worker that is stopping still waits for these."""

    worker: str
    #: The task and the key of each; empty when it waits for the broker.
    running: list[str]
    #: Seconds until it gives up; None: it waits for as long as it takes.
    left_s: float | None


class WorkerStopped(msgspec.Struct):
    """A worker has ended. `abandoned` jobs were running or not settled, and will be taken over."""

    worker: str
    abandoned: int
    #: Settlements that the broker has taken, counted in keys: those with something done, and those that failed.
    processed: int
    failed: int


class LeaseEnded(msgspec.Struct):
    """This worker was declared dead while it lived, or the broker was emptied; it goes on under a new id."""

    #: The id that it had.
    worker: str
    #: Whether nobody has declared it dead, and the broker does not know it any more: it was emptied.
    forgotten: bool = False


class Reclaimed(msgspec.Struct):
    """Claims of dead workers were given back."""

    count: int
    #: Those that were declared dead just now.
    workers: list[str]


class BrokerAway(msgspec.Struct):
    """The broker does not answer, or refuses; it is tried again until it does."""

    error: str
    #: Whether it answers: then somebody has to mend what the error says.
    refused: bool = False


class BrokerBack(msgspec.Struct):
    """The broker answers again."""

    #: Seconds since it was first missed.
    away_s: float


class QueueMissing(msgspec.Struct):
    """The broker has no such queue, and does not make it by itself; it is looked for again, and the others go on."""

    queue: str
    error: str


class QueueFound(msgspec.Struct):
    """A queue that was missing is there."""

    queue: str
    #: Seconds since it was first missed.
    away_s: float


class DutyFailed(msgspec.Struct):
    """Something that a broker has done besides running jobs, such as polling a table, fails; it is tried again."""

    duty: str
    error: str


class DutyBack(msgspec.Struct):
    """It succeeds again."""

    duty: str
    #: Seconds since it first failed.
    away_s: float


class Subscribed(msgspec.Struct):
    """A worker has subscribed the queue of a listener: what is published from now on gets there."""

    topic: str
    queue: str


class SubscriptionFailed(msgspec.Struct):
    """A worker could not subscribe the queues of listeners, so that no events get there; it is tried again."""

    queues: list[str]
    error: str


# -- a supervisor --------------------------------------------------------------------------------------


class ProcessStarted(msgspec.Struct):
    """A supervisor has started one of its processes."""

    #: Its place among the supervisor's processes; whoever replaces it gets the same.
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


Event = TypeVar("Event", bound=msgspec.Struct)
_log = logging.getLogger("laneway")


class Telemetry:
    """Who wants to know of what."""

    def __init__(self) -> None:
        self._subscribers: dict[type, list[Callable[[Any], None]]] = {}
        self._unusual: list[Callable[[RunEnded], None]] = []
        #: A run that went well is unusual when it took so many seconds; never, if nobody wants to know.
        self.slow_s = math.inf

    def subscribe(self, kind: type[Event], callback: Callable[[Event], None]) -> None:
        """Have `callback` called with every event of this type."""
        self.of(kind).append(callback)

    def unsubscribe(self, kind: type[Event], callback: Callable[[Event], None]) -> None:
        """Undo `subscribe`."""
        self.of(kind).remove(callback)

    def subscribe_unusual(self, callback: Callable[[RunEnded], None], slow_s: float) -> None:
        """Have `callback` called with the end of every run that failed or took `slow_s` seconds; maybe with others too.

        Nobody pays then for the many runs that go well.
        """
        self._unusual.append(callback)
        self.slow_s = min(self.slow_s, slow_s)

    def unsubscribe_unusual(self, callback: Callable[[RunEnded], None]) -> None:
        """Undo `subscribe_unusual`."""
        self._unusual.remove(callback)
        if not self._unusual:
            self.slow_s = math.inf

    def of(self, kind: type[Any]) -> list[Callable[[Any], None]]:
        """The live list of subscribers to a type: empty means that the event need not be built."""
        return self._subscribers.setdefault(kind, [])

    def emit(self, event: msgspec.Struct) -> None:
        """Tell everyone who subscribed to this type of event."""
        callbacks = [*self._subscribers.get(type(event), ())]  # a copy: one of them may unsubscribe
        if type(event) is RunEnded:
            callbacks += self._unusual
        for callback in callbacks:
            try:
                callback(event)
            except Exception:
                _log.exception("a subscriber to %s failed", type(event).__name__)
