"""`RunDecoder`: decodes stored bodies to a call, an event's value for a listener, or a batch of payloads.

It runs no task. A body that cannot be decoded fails its run like any other error. The queue and the key decide
whether a body is a ticket or an event's value, because a published value must never call a task.
"""

from __future__ import annotations

from asyncio import CancelledError
from typing import TYPE_CHECKING, Any, cast

from ...config import TaskOptions
from ...errors import TicketError
from ...events.event import is_copy
from ...jobs.data import Claim, Kind, Payload
from ...jobs.ticket import Call, Serializer
from ...middleware import overriding, surround
from ...tasks.batch import Batch
from .run import BatchClaims

if TYPE_CHECKING:
    from ...app import Laneway
    from ...tasks.collecting import Collecting
    from ...tasks.task import AnyTask

#: What counts as a failure of the handler, or of reading for it. Anything else ends the worker.
FAILURES = (Exception, CancelledError)


class _Unreadable:
    """Stands for the task of a job whose body could not be read."""

    name = "?"
    options = TaskOptions()
    is_async = False
    isolation = None


#: It is never invoked: all that is asked of it is there.
UNREADABLE = cast("AnyTask", _Unreadable())


class RunDecoder:
    """Reads bodies, inside the app's middleware."""

    def __init__(self, app: Laneway) -> None:
        self._app = app
        self._loads = app.serializer.loads
        self._listeners = app.registry.listeners
        self._around = overriding(app.middleware, "around_deserialization")
        #: Whether reading is more than it looks: done here and again in another process, it would be done twice.
        self.is_surrounded = bool(self._around)

    def call(self, payload: Payload, claim: Claim) -> Call | None:
        """The call that a payload describes; None if there is no use for it.

        Whose queue it came from decides whether it is one, and its key: a listener's queue holds values, whatever they
        look like, and an event's value must not run a task where the listener is missing.
        """
        body = payload.body
        if not body:
            return None
        if not self._around:
            return self._read(body, claim)
        reached, call = surround(self._around, (body, claim), lambda: self._read(body, claim))
        if not reached:
            self._app.logger.warning("a middleware did not call on: job %s is taken as done", claim.key)
        return call if reached else None

    def batch(self, claims: list[Claim]) -> tuple[BatchClaims, list[tuple[Claim, BaseException]]]:
        """The payloads of several keys, and those keys of which one cannot be read, with the error."""
        readable: list[Claim] = []
        broken: list[tuple[Claim, BaseException]] = []
        payloads: dict[str, list[Any]] = {}
        scores: dict[str, list[float]] = {}
        for claim in claims:
            try:
                values, their_scores = self._values(claim)
            except FAILURES as error:
                broken.append((claim, error))
                continue
            readable.append(claim)
            if values:
                payloads[claim.key] = values
                scores[claim.key] = their_scores
        return BatchClaims(readable, Batch.of(payloads, scores)), broken

    def _values(self, claim: Claim) -> tuple[list[Any], list[float]]:
        """A key's payloads and their scores, without those that a middleware has kept back."""
        load = self.collector_of(claim.queue).load
        if not self._around:
            return [load(payload.body) for payload in claim.payloads], [payload.score for payload in claim.payloads]
        values: list[Any] = []
        scores: list[float] = []
        for payload in claim.payloads:
            body = payload.body
            reached, value = surround(self._around, (body, claim), lambda body=body: load(body))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
            if reached:
                values.append(value)
                scores.append(payload.score)
            else:
                self._app.logger.warning("a middleware did not call on: a payload of %s is left out", claim.key)
        return values, scores

    def collector_of(self, queue: str) -> Collecting[Any]:
        """The collecting task of a queue; raises TicketError if this app has none."""
        collector = self._app.registry.collector_of(queue)
        if collector is None:
            raise TicketError(
                f"There is no collecting task for the queue {queue} in this app; declare it with @app.collect, or "
                "delete the job."
            )
        return collector

    def task_of(self, claim: Claim, payload: Payload) -> AnyTask | None:
        """The task that a payload is for; None if that cannot be told."""
        try:
            if claim.kind == Kind.COLLECTING:
                return self.collector_of(claim.queue)
            if listener := self._listeners.get(claim.queue):
                return listener
            call = self._ticket(payload.body, claim)
        except BaseException:  # a serializer that exits, too: what it did to its process has been counted
            return None
        return None if call is None else call.task

    def task_named(self, claim: Claim, payload: Payload) -> AnyTask | None:
        """The task that a payload is for, if that can be told without code that is not ours; else None."""
        if claim.kind is Kind.COLLECTING:
            return self._app.registry.collector_of(claim.queue)
        if listener := self._listeners.get(claim.queue):
            return listener if payload.body else None
        serializer, is_event = self._app.serializer, claim.kind is Kind.PLAIN and is_copy(claim.key, claim.queue)
        return None if is_event or not isinstance(serializer, Serializer) else serializer.task_of(payload.body)

    def _read(self, body: str, claim: Claim) -> Call | None:
        listener = self._listeners.get(claim.queue)
        return self._ticket(body, claim) if listener is None else Call(listener, {"value": listener.load(body)})

    def _ticket(self, body: str, claim: Claim) -> Call | None:
        """The call that a ticket describes; raises TicketError for a body that is an event's value."""
        queue = claim.queue
        if claim.kind is Kind.PLAIN and is_copy(claim.key, queue):
            raise TicketError(
                f"There is no listener for the queue {queue} in this app; declare it with @app.listener, or delete the "
                "job."
            )
        return self._as_call(self._loads(body))

    def _as_call(self, loaded: Any) -> Call | None:
        """What a serializer returned, as a call: it may also be an instance of a task class."""
        if loaded is None or isinstance(loaded, Call):
            return loaded
        task = self._app.registry.of(type(loaded))
        if task is None:
            raise TicketError(f"The serializer returned {type(loaded).__name__}, which is not a task of this app.")
        return Call(task, task.params_of(loaded))
