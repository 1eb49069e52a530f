"""Enqueuer: builds jobs from a task with arguments, an instance of a task class, or a raw body."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from ..config import DEFAULT_QUEUE
from ..errors import EnqueueError
from ..handle import Handle
from ..ids import RunIds, new_id
from ..jobs.data import Kind, NewJob
from ..jobs.keys import UNSET
from ..jobs.ticket import Serializer, execute_after
from ..tasks.collecting import Collecting
from ..tasks.listener import Listener
from ..tasks.signature import Params, UnstorableValueError
from ..tasks.task import Runnable, Task, TicketTask
from .options import EnqueueOptions, InstanceSender
from .pipeline import EnqueuePipeline


class Enqueuer(EnqueuePipeline):
    """The part of an app that enqueues."""

    serializer: Serializer
    #: Whether that takes the ids of keyed calls.
    _writes_ids: bool

    def enqueue(self, instance: Runnable, /) -> Handle:
        """Store a job that runs an instance of a task class."""
        return self.send([self.outgoing(instance, (), {})])[0]

    def enqueue_many(self, instances: Iterable[Runnable], /) -> list[Handle]:
        """Store jobs for many instances of task classes, all checked before any is stored."""
        return self.using().enqueue_many(instances)

    def using(
        self,
        *,
        queue: str | None = None,
        delay: float | timedelta | None = None,
        perform_at: float | datetime | None = None,
        key: object = UNSET,
        group: str | None = None,
        cancellable: bool | None = None,
    ) -> InstanceSender:
        """Options for instances that are enqueued, as for a task: `app.using(delay=60).enqueue(SendMail(…))`."""
        sending = EnqueueOptions().with_options(
            queue=queue, delay=delay, perform_at=perform_at, key=key, group=group, cancellable=cancellable
        )
        return InstanceSender(self, sending)

    def enqueue_body(self, body: str, *, queue: str = DEFAULT_QUEUE) -> Handle:
        """Store a body as it is, for the serializer to make sense of when it is run.

        A ticket that says `_execute_after` waits until then.
        """
        self.check_body(body, "The body")
        options = EnqueueOptions().with_options(queue=queue, perform_at=execute_after(body))
        queue = options.queue or DEFAULT_QUEUE
        self.ensure_ticket_queue(queue, "A body")
        return self.send([NewJob(queue=queue, key=new_id(), body=body, perform_at=options.perform_at)])[0]

    def outgoing(
        self,
        what: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        sending: EnqueueOptions | None = None,
        ids: RunIds | None = None,
    ) -> NewJob:
        """Make the job for a task with arguments, or for an instance; raises EnqueueError and stores nothing.

        `ids` makes its id, instead of chance.
        """
        is_task = isinstance(what, Task)
        if not is_task and isinstance(what, Collecting):
            if what.app is not self:
                raise _foreign(what.name)
            return what.outgoing(args, kwargs, sending)
        task: TicketTask = what if is_task else self._task_of(what, bool(args or kwargs))
        if task.app is not self:
            raise _foreign(task.name)
        options = sending or task.sending
        key, identity = options.key, ""
        try:
            params = task.signature.bind(args, kwargs) if is_task else task.params_of(what)
            if key is None and task.keys:
                key = task.key_of(params, None if is_task else what)
            if key is None or not self._writes_ids:
                body = self.serializer.dumps(task, params)
            else:
                body = self.serializer.dumps(task, params, id=(identity := new_id()))
        except UnstorableValueError as error:
            raise EnqueueError(f"Task {task.name}: {error}.") from None
        self.check_body(body, "Task {}: its body", task.name)
        # Never the running job's: keys are exclusive within a queue, and one key in two queues would run twice at once.
        queue = options.queue or task.options.queue or DEFAULT_QUEUE
        if options.queue is not None:
            task.ensure_movable()
            self.ensure_ticket_queue(queue, "Task {}: its job", task.name)
        if key is None:
            job = NewJob(
                queue=queue,
                key=new_id(),
                body=body,
                delay_s=options.delay_s,
                perform_at=options.perform_at,
                hints=options.hints,
            )
        elif options.hints is not None and options.hints.group:
            raise EnqueueError(f"Task {task.name}: calls with a key are grouped by it; leave group or the key out.")
        else:
            job = NewJob(
                queue=queue,
                key=key,
                body=body,
                kind=Kind.KEYED,
                identity=identity or new_id(),
                delay_s=options.delay_s,
                perform_at=options.perform_at,
                hints=options.hints,
            )
        if ids is not None:
            self._identify(job, task, params, ids)
        return job

    def _identify(self, job: NewJob, task: TicketTask, params: Params, ids: RunIds) -> None:
        """Give a job that a run enqueues the id that it gets again if the run is repeated."""
        if job.kind is Kind.PLAIN:
            job.key = ids(job.queue, "", job.body)
            return
        bare = self.serializer.dumps(task, params) if self._writes_ids else job.body
        job.identity = ids(job.queue, job.key, bare)
        if self._writes_ids:
            job.body = self.serializer.dumps(task, params, id=job.identity)

    def _task_of(self, instance: object, with_arguments: bool) -> TicketTask:
        task = self.registry.of(type(instance))
        if task is not None and not with_arguments:
            return task
        kind = getattr(instance, "__name__", type(instance).__name__)
        if task is not None:
            raise EnqueueError(f"Task {task.name}: an instance carries its own arguments; give it alone.")
        if isinstance(instance, type) and self.registry.of(instance):
            raise EnqueueError(f"Task {kind}: enqueue an instance, such as {kind}(…), not the class.")
        if isinstance(instance, Listener):
            raise EnqueueError(
                f"{instance.name} is a listener; publish its event, or send it a value with app.sender(…)."
            )
        if kind == "<lambda>":
            raise EnqueueError("A lambda is not a task; declare a named function with @app.task.")
        raise EnqueueError(f"{kind} is not a task of this app; declare it with @app.task.")


def _foreign(name: str) -> EnqueueError:
    return EnqueueError(f"Task {name} belongs to another app; enqueue it there.")
