"""What a running job knows of itself, and what it may ask for."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, overload

from .delays import seconds
from .errors import EnqueueError
from .handle import Handle
from .outcome import OUTBOX_LIMIT

if TYPE_CHECKING:
    from .app import Laneway
    from .job import Claim, NewJob
    from .task import Runnable, Sending, Task

P = ParamSpec("P")


class Named(Protocol):
    """The task of a run, as far as its context needs it; a ticket that cannot be read has none but a name."""

    @property
    def name(self) -> str: ...


class Context:
    """Handed to a task that takes one. It belongs to one run."""

    __slots__ = ("_app", "_claim", "_logger", "_task", "outbox", "postponed_s")

    def __init__(self, app: Laneway, claim: Claim, task: Named) -> None:
        self._app = app
        self._claim = claim
        self._task = task
        self._logger: logging.LoggerAdapter[logging.Logger] | None = None
        #: The jobs held back until the run has succeeded.
        self.outbox: list[NewJob] = []
        #: Set by `postpone`.
        self.postponed_s: float | None = None

    @property
    def id(self) -> str:
        """The job's id."""
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
        return self._claim.attempt

    @property
    def retry_count(self) -> int:
        """-1 before the first failure, 0 after it, and so on."""
        return self._claim.retry_count

    @property
    def fence(self) -> int:
        """A number that only grows from claim to claim: hand it to your own store to refuse a late writer."""
        return self._claim.token

    @property
    def headers(self) -> dict[str, str]:
        """What travelled beside the ticket."""
        return self._claim.headers or {}

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose every line begins with the task's name and the job's id."""
        if self._logger is None:
            self._logger = _JobLogger(self._app.logger, {"task": self.task, "job": self.id})
        return self._logger

    @overload
    def enqueue(self, task: Task[P, ..., Any], /, *args: P.args, **kwargs: P.kwargs) -> Handle: ...

    @overload
    def enqueue(self, task: Runnable, /) -> Handle: ...

    def enqueue(self, task: Any, /, *args: Any, **kwargs: Any) -> Handle:
        """Enqueue a job if and only if this run succeeds.

        It goes to the queue given with `using`, else to the task's own, else to the running job's.
        """
        return self._hold(self._app.outgoing(task, args, kwargs, fallback=self.queue))

    def using(
        self,
        *,
        queue: str | None = None,
        delay: float | timedelta | None = None,
        perform_at: float | datetime | None = None,
    ) -> ContextSender:
        """Options for an instance that is enqueued from within a run; a function task has its own `using`."""
        from .task import Sending  # task.py needs Context for its types

        return ContextSender(self, Sending().with_options(queue=queue, delay=delay, perform_at=perform_at))

    def postpone(self, delay: float | timedelta) -> None:
        """Run this job again later, whatever else happens in this run: not a failure, and nothing is sent."""
        self.postponed_s = seconds(delay, "postpone")

    def _hold(self, job: NewJob) -> Handle:
        if len(self.outbox) >= OUTBOX_LIMIT:
            raise EnqueueError(
                f"A run may enqueue {OUTBOX_LIMIT} jobs at most; have it enqueue a job that goes on from there."
            )
        self._app.around_enqueue([job], self.outbox.extend)
        return Handle(self._app.broker, job.queue, job.key)


class ContextSender:
    """`context.using(…)`: enqueues instances with options, if the run succeeds."""

    __slots__ = ("_context", "_sending")

    def __init__(self, context: Context, sending: Sending) -> None:
        self._context = context
        self._sending = sending

    def enqueue(self, instance: Runnable, /) -> Handle:
        """Enqueue an instance of a task class if and only if the run succeeds."""
        context = self._context
        return context._hold(context._app.outgoing(instance, (), {}, fallback=context.queue, sending=self._sending))


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
