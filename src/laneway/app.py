"""The app: where tasks are declared, where jobs are sent from, and what everything else hangs on."""

from __future__ import annotations

import importlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from .brokers.common import check_jobs
from .codec import Params, Refused
from .collecting import Collecting
from .config import (
    DEFAULT_QUEUE,
    check_url,
    name_problem,
    open_broker,
    raise_problems,
    resolve_url,
    without_secrets,
)
from .context import Context
from .declaring import Declaring
from .errors import ConfigError, EnqueueError
from .handle import Handle, PayloadHandle
from .ids import RunIds, new_id
from .job import Kind, NewJob
from .keys import UNSET
from .merge import identity_of
from .middleware import Middleware, overriding, surround
from .refusing import refusal_for, refusal_of, see_possible
from .registry import Registry
from .sending import Sender, Sending
from .shards import DEFAULT_SHARDS
from .task import Runnable, Task, TicketTask
from .telemetry import Enqueueing, JobsEnqueued, Telemetry
from .ticket import Serializer, takes_id

if TYPE_CHECKING:
    from .broker import Broker
    from .origin import Origin
    from .task import AnyTask

ErrorHandler = Callable[[BaseException, Context], object]
What = TypeVar("What")


class Laneway(Declaring):
    """An app: its tasks, its broker, and what surrounds them.

    Args:
        url: The broker; without one LANEWAY_URL, SQS_QUEUE_URL, REDIS_URL, else sqlite:///laneway.db.
        name: The app's name: the source of what it publishes.
        env: Kept apart from other environments of the same name.
        broker: A ready broker instead of a URL.
        serializer: A Serializer class (or a function of the registry) that reads and writes bodies.
        logger: Where the worker and `context.logger` write; `logging.getLogger("laneway")` by default.
        middleware: Outermost first.
        error_handlers: Called with (error, context) after every run that raised.
        imports: Modules that declare tasks, loaded before a worker fetches.
        dump_payload: Makes text of a collecting task's payload, instead of canonical JSON. Equal texts are one payload.
        load_payload: Makes a payload of that text again.
        format_error: Makes text of the exception that a run ended with, instead of its traceback.
        dump_error: Makes of that text what is stored.
        load_error: Makes of what is stored what is shown.
        on_start: Called when a worker process starts, before it fetches.
        last_words: Called with the exception when a worker process ends by one.
        scheduler: Chooses among the shards of a queue.
        splitter: Chooses the shards of a queue that a worker process serves.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        name: str | None = None,
        env: str | None = None,
        broker: Broker | None = None,
        serializer: Callable[[Registry], Serializer] = Serializer,
        logger: logging.Logger | None = None,
        middleware: Iterable[Middleware] = (),
        error_handlers: Iterable[ErrorHandler] = (),
        imports: Iterable[str] = (),
        dump_payload: Callable[[Any], str] | None = None,
        load_payload: Callable[[str], Any] | None = None,
        format_error: Callable[[BaseException], str] | None = None,
        dump_error: Callable[[str], str] | None = None,
        load_error: Callable[[str], str] | None = None,
        on_start: Callable[[], object] | None = None,
        last_words: Callable[[BaseException], object] | None = None,
        scheduler: Callable[[str, Mapping[int, float]], Sequence[int]] | None = None,
        splitter: Callable[[str, int], Iterable[int]] | None = None,
    ) -> None:
        problems = [name_problem(what, value) for what, value in (("name", name), ("env", env)) if value is not None]
        raise_problems([problem for problem in problems if problem])
        functions: dict[str, object] = {
            "dump_payload": dump_payload,
            "load_payload": load_payload,
            "format_error": format_error,
            "dump_error": dump_error,
            "load_error": load_error,
            "on_start": on_start,
            "last_words": last_words,
            "scheduler": scheduler,
            "splitter": splitter,
        }
        wrong = {what: value for what, value in functions.items() if value is not None and not callable(value)}
        raise_problems([f"{what} must be a function, not {value!r}." for what, value in wrong.items()])
        if (dump_payload is None) is not (load_payload is None):
            raise ConfigError("Give dump_payload and load_payload together: what one writes only the other can read.")
        if url is not None and broker is not None:
            raise ConfigError("Give a url or a broker, not both.")
        if isinstance(imports, str):
            raise ConfigError(f"imports must be a list of modules, such as [{imports!r}], not a text.")
        if url is not None and not isinstance(url, str):
            raise ConfigError(f"url must be text such as sqlite:///laneway.db, not {type(url).__name__}.")
        if url:
            check_url(url)
        if isinstance(broker, (str, type)) or hasattr(broker, "execute_command"):  # a client of redis-py's
            raise ConfigError(
                f"broker must be a broker, such as RedisBroker.of(…) makes of a client, not {type(broker).__name__}; "
                "for a URL there is url."
            )
        self.name = name
        self.env = env
        self.registry = Registry()
        self.serializer = serializer(self.registry)
        self.logger = logger or logging.getLogger("laneway")
        self.telemetry = Telemetry()
        self._enqueueing = self.telemetry.of(Enqueueing)
        self._enqueued = self.telemetry.of(JobsEnqueued)
        self.middleware: Sequence[Middleware] = tuple(middleware)
        for each in self.middleware:
            if not isinstance(each, Middleware):
                kind = each.__name__ + "()" if isinstance(each, type) else "an instance of a Middleware"
                raise ConfigError(f"middleware must be instances of Middleware; give {kind}, not {each!r}.")
        self.error_handlers: Sequence[ErrorHandler] = tuple(error_handlers)
        self.imports: Sequence[str] = tuple(imports)
        self.dump_payload = dump_payload
        self.load_payload = load_payload
        self.format_error = format_error
        self.dump_error: Callable[[str], str] = dump_error or _as_it_is
        self.load_error: Callable[[str], str] = load_error or _as_it_is
        self.on_start = on_start
        self.last_words = last_words
        self.scheduler = scheduler
        self.splitter = splitter
        #: Where other processes can load the app from, if somebody has said so; see `origin.py`.
        self.origin: Origin | None = None
        self._writes_ids = takes_id(self.serializer)
        self._around_enqueue = overriding(self.middleware, "around_enqueue")
        self._given_url = url
        self._given_broker = broker
        self._broker = broker
        self._opening = threading.Lock()
        #: Queues that were seen to be there.
        self._made: set[str] = set()

    # -- its tasks -------------------------------------------------------------------------------------

    def load(self) -> None:
        """Import the modules named in `imports`."""
        for module in self.imports:
            importlib.import_module(module)

    def queues(self) -> list[str]:
        """The queues of the app's tasks, in the order of their declaration."""
        return list(dict.fromkeys(task.options.queue or DEFAULT_QUEUE for task in self.registry))

    def shards_of(self, queue: str) -> int:
        """The shards that a queue is made with; once it is made, the broker knows how many it has."""
        task = self.registry.collector_of(queue)
        return DEFAULT_SHARDS if task is None else task.options.shards

    def see_possible(self, task: AnyTask) -> None:
        """Raise DeclarationError for a task that the broker cannot serve; for that it need not be opened."""
        broker = self._broker
        refusal = refusal_for(resolve_url(self._given_url)[0]) if broker is None else refusal_of(broker)
        see_possible(refusal, [task])

    # -- sending ---------------------------------------------------------------------------------------

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
    ) -> Sender:
        """Options for instances that are enqueued, as for a task: `app.using(delay=60).enqueue(SendMail(…))`."""
        sending = Sending().with_options(
            queue=queue, delay=delay, perform_at=perform_at, key=key, group=group, cancellable=cancellable
        )
        return Sender(self, sending)

    def enqueue_body(self, body: str, *, queue: str = DEFAULT_QUEUE) -> Handle:
        """Store a body as it is, for the serializer to make sense of when it is run."""
        self.check_body(body, "The body")
        queue = Sending().with_options(queue=queue).queue or DEFAULT_QUEUE
        self._see_not_collecting(queue, "A body")
        return self.send([NewJob(queue=queue, key=new_id(), body=body)])[0]

    def outgoing(
        self,
        what: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        fallback: str = DEFAULT_QUEUE,
        sending: Sending | None = None,
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
        except Refused as error:
            raise EnqueueError(f"Task {task.name}: {error}.") from None
        self.check_body(body, "Task {}: its body", task.name)
        queue = options.queue or task.options.queue
        if queue is None:
            # What a collecting task's run enqueues cannot go to that task's queue, which is its alone.
            queue = fallback if fallback not in self.registry.collectors else DEFAULT_QUEUE
        elif options.queue is not None:
            self._see_not_collecting(queue, "Task {}: its job", task.name)
        if key is None:
            job = NewJob(
                queue=queue,
                key=new_id(),
                body=body,
                delay_s=options.delay_s,
                perform_at=options.perform_at,
                group=options.group,
                cancellable=options.cancellable,
            )
        elif options.group:
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
                cancellable=options.cancellable,
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

    def all_or_none(self, make: Callable[[What], NewJob], items: Iterable[What]) -> list[NewJob]:
        """Make a job of every item; the error names the item that was refused, and nothing has been stored."""
        jobs: list[NewJob] = []
        try:
            for item in items:
                jobs.append(make(item))
        except EnqueueError as error:
            raise EnqueueError(f"Item {len(jobs)}: {error} Nothing was stored.") from error.__cause__
        return jobs

    def send(self, jobs: list[NewJob]) -> list[Handle]:
        """Store jobs, inside the middleware."""
        broker = self.broker
        all_jobs = jobs.copy()  # a middleware may take some out of the list
        if jobs:
            self.around_enqueue(jobs, self._store)
        plain = Kind.PLAIN  # here and not in `handle_on`: a call for each of a million jobs would be felt
        return [
            Handle(broker, job.queue, job.key) if job.kind is plain else PayloadHandle(broker, job) for job in all_jobs
        ]

    def _store(self, jobs: list[NewJob]) -> None:
        queue = jobs[0].queue if jobs and jobs[0].kind is Kind.COLLECTING else None
        if queue is not None and queue not in self._made:
            # The first job would make it with as many shards as a queue has that nobody has declared.
            self.broker.declare(queue, self.shards_of(queue))
            self._made.add(queue)
        self.broker.enqueue(jobs)
        if self._enqueued:
            self.tell_enqueued(jobs)

    def tell_enqueued(self, jobs: Iterable[NewJob]) -> None:
        """Tell whoever listens that these are stored."""
        for queue, count in Counter(job.queue for job in jobs).items():
            self.telemetry.emit(JobsEnqueued(queue, count))

    def _ask_for_headers(self, jobs: list[NewJob]) -> None:
        """Have whoever listens give jobs headers, before they are stored or held back."""
        for queue, count in Counter(job.queue for job in jobs).items():
            event = Enqueueing(queue, count, {})
            self.telemetry.emit(event)
            if event.headers:
                for job in jobs:
                    if job.queue == queue and job.kind is not Kind.COLLECTING:
                        job.headers = {**event.headers, **(job.headers or {})}

    def around_enqueue(self, jobs: list[NewJob], store: Callable[[list[NewJob]], None]) -> bool:
        """Have `store` called inside the middleware; False if one of them did not call on."""
        if not self._around_enqueue:
            if self._enqueueing:
                self._ask_for_headers(jobs)
            store(jobs)
            return True

        bodies = {id(job): job.body for job in jobs}

        def step() -> None:
            for job in jobs:
                self.check_body(job.body, "After the middleware the body of the job {}", job.key)
                Sending().with_options(queue=job.queue)
                if job.kind is not Kind.COLLECTING:
                    self._see_not_collecting(job.queue, "After the middleware the job {}", job.key)
                elif job.body is not bodies.get(id(job)):
                    job.identity = identity_of(job.body)  # another payload than it was
            check_jobs(jobs)
            if self._enqueueing:
                self._ask_for_headers(jobs)
            store(jobs)

        reached, _ = surround(self._around_enqueue, (jobs,), step)
        if not reached:
            self.logger.warning("a middleware did not call on: %d jobs were not enqueued", len(jobs))
        return reached

    def _see_not_collecting(self, queue: str, what: str, name: str = "") -> None:
        """See that a queue is for tickets; `what` is put together only for an error."""
        if task := self.registry.collector_of(queue):
            raise EnqueueError(
                f"{what.format(name)} cannot go to the queue {queue}, which belongs to the collecting task {task.name} "
                "alone; give another queue."
            )

    def _task_of(self, instance: object, with_arguments: bool) -> TicketTask:
        task = self.registry.of(type(instance))
        if task is not None and not with_arguments:
            return task
        kind = getattr(instance, "__name__", type(instance).__name__)
        if task is not None:
            raise EnqueueError(f"Task {task.name}: an instance carries its own arguments; give it alone.")
        if isinstance(instance, type) and self.registry.of(instance):
            raise EnqueueError(f"Task {kind}: enqueue an instance, such as {kind}(…), not the class.")
        if kind == "<lambda>":
            raise EnqueueError("A lambda is not a task; declare a named function with @app.task.")
        raise EnqueueError(f"{kind} is not a task of this app; declare it with @app.task.")

    def check_body(self, body: str, what: str, name: str = "") -> None:
        """See that a broker can store a body; `what` is put together only for an error."""
        if not isinstance(body, str):
            raise EnqueueError(f"{what.format(name)} must be text, not {type(body).__name__}.")
        limit = self.broker.max_body
        if len(body) <= limit and body.isascii():
            return
        try:
            size = len(body.encode())
        except UnicodeEncodeError:
            raise EnqueueError(f"{what.format(name)} holds half of a surrogate pair; give valid Unicode.") from None
        if size > limit:
            raise EnqueueError(
                f"{what.format(name)} is {size} bytes, and this broker takes {limit} at most; store the data "
                "elsewhere and enqueue where it is."
            )

    # -- the broker ------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The broker's URL as it may be printed."""
        if self._given_broker is not None:
            return type(self._given_broker).__name__
        return without_secrets(resolve_url(self._given_url)[0])

    @property
    def full_url(self) -> str | None:
        """The broker's URL with its secrets, for another process of this app; None if it was made with a broker."""
        return None if self._given_broker is not None else resolve_url(self._given_url)[0]

    @property
    def broker(self) -> Broker:
        """The broker; opened when it is first used."""
        if self._broker is None:
            with self._opening:  # two threads must not open two brokers: what is in memory would be in one of them
                if self._broker is None:
                    self._broker = self._opened(*resolve_url(self._given_url))
        return self._broker

    def _opened(self, url: str, source: str = "the url given") -> Broker:
        """The broker of a URL, if it can serve the tasks that are declared."""
        broker = open_broker(url, source)
        try:
            see_possible(refusal_of(broker), self.registry)
        except BaseException:
            broker.close()
            raise
        return broker

    def use(self, url: str) -> None:
        """Move the app to another broker than the one it was made with: for tests, and for `--url`."""
        broker = self._opened(url)
        self.close()
        self._given_url, self._given_broker, self._broker = url, None, broker
        self._made.clear()

    def close(self) -> None:
        """Let go of the broker's files and connections; using the app opens them again."""
        if self._broker is not None:
            self._broker.close()

    def __repr__(self) -> str:
        return f"<Laneway {self.name or ''} on {self.url}>"


def _foreign(name: str) -> EnqueueError:
    return EnqueueError(f"Task {name} belongs to another app; enqueue it there.")


def _as_it_is(text: str) -> str:
    return text
