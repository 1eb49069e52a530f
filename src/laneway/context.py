"""Context: a run's id, attempt, headers and logger, and the jobs and events that it sends if it succeeds.

A context belongs to one run; of a keyed task, to one call. Jobs and events are held in `outbox` until the run has
succeeded.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from .enqueue.options import EnqueueOptions
from .errors import EnqueueError
from .handle import Handle, PayloadHandle
from .ids import RunIds
from .jobs.data import Kind
from .jobs.delay import seconds
from .jobs.keys import UNSET
from .jobs.settlement import OUTBOX_LIMIT

if TYPE_CHECKING:
    from .app import Laneway
    from .events.event import Attributes
    from .jobs.data import Claim, NewJob
    from .tasks.collecting import Collecting, SelfKeyed
    from .tasks.task import Runnable, Task

P = ParamSpec("P")
T = TypeVar("T")


class NamedTask(Protocol):
    """The task of a run, as far as its context needs it; a ticket that cannot be read has none but a name."""

    @property
    def name(self) -> str: ...


class Context:
    """Handed to a task that takes one. It belongs to one run: of a keyed task, to one call.

    `call` says which payload of the claim that is. A collecting run has the first of its claims.
    """

    __slots__ = ("_app", "_call", "_claim", "_ids", "_logger", "_task", "outbox", "postponed_s")

    def __init__(self, app: Laneway, claim: Claim, task: NamedTask, call: int = 0) -> None:
        self._app = app
        self._claim = claim
        self._call = call
        self._task = task
        self._logger: logging.LoggerAdapter[logging.Logger] | None = None
        self._ids: RunIds | None = None
        #: The jobs held back until the run has succeeded.
        self.outbox: list[NewJob] = []
        #: Set by `postpone`.
        self.postponed_s: float | None = None

    @property
    def id(self) -> str:
        """The job's id; of a keyed task the call's own, of a collecting one the (first) key."""
        claim = self._claim
        return claim.payloads[self._call].identity if claim.kind is Kind.KEYED else claim.key

    @property
    def key(self) -> str:
        """The job's key; a plain job's is its id, and a batch has keys of its own."""
        return self._claim.key

    @property
    def queue(self) -> str:
        """The queue that the job came from."""
        return self._claim.queue

    @property
    def task(self) -> str:
        """The task's name."""
        return self._task.name

    @property
    def attempt(self) -> int:
        """1 in the first run; it grows with every further one, also after a crash."""
        claim = self._claim
        return claim.payloads[self._call].attempt if claim.kind is Kind.KEYED else claim.attempt

    @property
    def retry_count(self) -> int:
        """-1 before the first failure, 0 after it, and so on."""
        return -1 if self._call else self._claim.retry_count  # only a key's first call can have failed before

    @property
    def fence(self) -> int:
        """A number that only grows from claim to claim: hand it to your own store to refuse a late writer."""
        return self._claim.token

    @property
    def headers(self) -> dict[str, str]:
        """What travelled beside the job; of an event also its attributes, as texts."""
        claim = self._claim
        return (claim.payloads[self._call].headers if claim.kind is Kind.KEYED else claim.headers) or {}

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose every line begins with the task's name and the job's id."""
        if self._logger is None:
            self._logger = _JobLogger(self._app.logger, {"task": self.task, "job": self.id})
        return self._logger

    @overload
    def enqueue(self, task: Task[P, ..., Any], /, *args: P.args, **kwargs: P.kwargs) -> Handle: ...

    @overload
    def enqueue(self, task: Collecting[T], /, key: object, payload: T = ...) -> Handle: ...

    @overload
    def enqueue(self, task: SelfKeyed[T], /, *, payload: T) -> Handle: ...

    @overload
    def enqueue(self, task: Runnable, /) -> Handle: ...

    def enqueue(self, task: Any, /, *args: Any, **kwargs: Any) -> Handle:
        """Enqueue a job if and only if this run succeeds.

        It goes to the queue given with `using`, else to the task's own, never to the running job's by itself. A plain
        task follows its parent with `task.using(queue=context.queue)`.

        SQS cannot store it in the step that ends this run: there it is sent just before, and is sent though the run is
        repeated if the worker dies in between. A repeated run sends the same jobs again under the same ids, as long as
        they are the same: a task and arguments that differ make another job.
        """
        return self._hold(self._outgoing(task, args, kwargs))

    def publish(self, event: str, value: Any, *, generic: bool = False, attributes: Attributes | None = None) -> str:
        """Publish an event if and only if this run succeeds: `app.publish`, with what `enqueue` says of SQS.

        Returns the event's id. It goes to those who have subscribed now.
        """
        return self._publish(event, [value], generic, attributes)[0]

    def publish_many(
        self, event: str, values: Iterable[Any], *, generic: bool = False, attributes: Attributes | None = None
    ) -> list[str]:
        """Publish an event for each value if and only if this run succeeds: `publish`, for many. Returns their ids.

        All are checked before any is held back, and who has subscribed is asked once.
        """
        return self._publish(event, values, generic, attributes, "publish_many")

    def _publish(
        self, event: str, values: Iterable[Any], generic: bool, attributes: Attributes | None, many: str = ""
    ) -> list[str]:
        app, ids = self._app, self._run_ids()
        found = app.published(event, values, generic=generic, attributes=attributes, ids=ids, many=many)
        if found.jobs:
            self._keep(found.jobs)
        else:
            app.report_without_listeners(found)
        return found.ids

    def _outgoing(
        self, task: Any, args: tuple[Any, ...], kwargs: dict[str, Any], sending: EnqueueOptions | None = None
    ) -> NewJob:
        return self._app.outgoing(task, args, kwargs, sending=sending, ids=self._run_ids())

    def _run_ids(self) -> RunIds | None:
        """What makes the ids of what this run sends, if a repeated run must send it under the same."""
        # A collecting job's key comes again and again: nothing in it tells one run from the next.
        if self._ids is None and self._app.broker.capabilities.derives_ids and self._claim.kind is not Kind.COLLECTING:
            self._ids = RunIds(self.id)
        return self._ids

    def using(
        self,
        *,
        queue: str | None = None,
        delay: float | timedelta | None = None,
        perform_at: float | datetime | None = None,
        key: object = UNSET,
        group: str | None = None,
        cancellable: bool | None = None,
    ) -> ContextSender:
        """Options for an instance that is enqueued from within a run; a function task has its own `using`."""
        sending = EnqueueOptions().with_options(
            queue=queue, delay=delay, perform_at=perform_at, key=key, group=group, cancellable=cancellable
        )
        return ContextSender(self, sending)

    def postpone(self, delay: float | timedelta) -> None:
        """Run this job again later, whatever else happens in this run: not a failure, and nothing is sent."""
        self.postponed_s = seconds(delay, "postpone")

    def _keep(self, jobs: list[NewJob]) -> None:
        if len(self.outbox) + len(jobs) > OUTBOX_LIMIT:
            raise EnqueueError(
                f"A run may enqueue {OUTBOX_LIMIT} jobs at most, copies of events among them; have it enqueue a job "
                "that goes on from there."
            )
        self._app.around_enqueue(jobs, self.outbox.extend)

    def _hold(self, job: NewJob) -> Handle:
        self._keep([job])
        broker = self._app.broker
        return Handle(broker, job.queue, job.key) if job.kind is Kind.PLAIN else PayloadHandle(broker, job)


class ContextSender:
    """`context.using(…)`: enqueues instances with options, if the run succeeds."""

    __slots__ = ("_context", "_sending")

    def __init__(self, context: Context, sending: EnqueueOptions) -> None:
        self._context = context
        self._sending = sending

    def enqueue(self, instance: Runnable, /) -> Handle:
        """Enqueue an instance of a task class if and only if the run succeeds."""
        context = self._context
        return context._hold(context._outgoing(instance, (), {}, self._sending))


class _JobLogger(logging.LoggerAdapter[logging.Logger]):
    """Begins every line with `[task id]`, and hands both on as fields of the record."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if not self.isEnabledFor(level):
            return
        fields = self.extra or {}
        lead = f"[{fields['task']} {fields['job']}] "
        kwargs["extra"] = {**fields, **(kwargs.get("extra") or {})}
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1  # the line is the handler's, not ours
        # With arguments the message is a format, in which a task named "100%" must not take part.
        self.logger.log(level, (lead.replace("%", "%%") if args else lead) + str(msg), *args, **kwargs)
