"""Handle: asks for the status of an enqueued job, cancels it or reschedules it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from .errors import EnqueueError, NoQueueError
from .jobs.data import Kind
from .jobs.delay import seconds, unix_time

if TYPE_CHECKING:
    from .broker import Broker
    from .jobs.data import NewJob, Status

Answer = TypeVar("Answer")


class Handle:
    """What `enqueue` returns: of a keyed task it is about one call, of a collecting one about one payload."""

    __slots__ = ("_broker", "id", "queue")

    def __init__(self, broker: Broker, queue: str, id: str) -> None:
        self._broker = broker
        self.queue = queue
        #: The job's id; of a keyed task the call's own, of a collecting one the key.
        self.id = id

    @property
    def key(self) -> str:
        """The job's key; a plain job's is its id."""
        return self.id

    @property
    def _where(self) -> tuple[str, str] | tuple[str, str, str]:
        """What the broker's verbs are given: queue, key and, for one of several payloads, its identity."""
        return self.queue, self.id

    def status(self) -> Status:
        """delayed, queued, running, dead, cancelled, gone or, where it is kept how jobs end, done; elsewhere a finished
        job is gone."""
        return self._unless_gone(lambda: self._broker.status(*self._where), "gone")

    def cancel(self) -> bool:
        """Remove the job, call or payload from its queue. False if it is running or gone."""
        return self._unless_gone(lambda: self._broker.cancel(*self._where), False)

    def reschedule(self, *, delay: float | timedelta | None = None, perform_at: float | datetime | None = None) -> bool:
        """Move the job or call to another time; a key's payloads that are collected are moved together. False if it
        is running or gone."""
        when = due(delay, perform_at)
        if when is None:
            raise EnqueueError("reschedule needs a delay or a perform_at.")
        delay_s, at = when
        return self._unless_gone(lambda: self._broker.reschedule(*self._where, delay_s=delay_s, perform_at=at), False)

    def _unless_gone(self, ask: Callable[[], Answer], gone: Answer) -> Answer:
        """Ask the broker. A job that was kept back, by a run or a middleware, may be in a queue that never was."""
        try:
            return ask()
        except NoQueueError:
            return gone

    def __repr__(self) -> str:
        return f"<Handle {self.id} in {self.queue}>"


class PayloadHandle(Handle):
    """A handle on one of the payloads that a key may have."""

    __slots__ = ("_identity", "_key")

    def __init__(self, broker: Broker, job: NewJob) -> None:
        super().__init__(broker, job.queue, job.identity if job.kind is Kind.KEYED else job.key)
        self._key = job.key
        self._identity = job.identity

    @property
    def key(self) -> str:
        """The job's key."""
        return self._key

    @property
    def _where(self) -> tuple[str, str, str]:
        return self.queue, self._key, self._identity


def due(delay: float | timedelta | None, perform_at: float | datetime | None) -> tuple[float, float | None] | None:
    """Delay and time as the broker takes them; None when neither is given."""
    if delay is not None and perform_at is not None:
        raise EnqueueError("Give a delay or a perform_at, not both.")
    if delay is not None:
        return seconds(delay, "delay"), None
    if perform_at is not None:
        return 0.0, unix_time(perform_at, "perform_at")
    return None
