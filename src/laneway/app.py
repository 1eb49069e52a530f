"""The app: where tasks are declared, where jobs are sent from, and what everything else hangs on."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, overload

from .brokers.common import check_jobs
from .codec import Refused
from .config import (
    DEFAULT_QUEUE,
    TaskOptions,
    name_problem,
    open_broker,
    raise_problems,
    resolve_url,
    without_secrets,
)
from .context import Context
from .errors import ConfigError, DeclarationError, EnqueueError
from .handle import Handle
from .ids import new_id
from .job import NewJob
from .middleware import Middleware, overriding, surround
from .registry import Registry
from .retry import DEFAULT_MAX_RETRY_COUNT, RetryIn, default_retry_in
from .task import AnyTask, Runnable, Sending, Task, declare
from .telemetry import Telemetry
from .ticket import Serializer

if TYPE_CHECKING:
    from .broker import Broker
    from .job import JobView

P = ParamSpec("P")
Result = TypeVar("Result")
Class = TypeVar("Class", bound=Runnable)
ErrorHandler = Callable[[BaseException, Context], object]
What = TypeVar("What")


class Declare(Protocol):
    """What `@app.task(…)` returns: it makes a function a Task and leaves a class a class."""

    # A class is a callable too; for one with run() the first overload is meant, and is taken.
    @overload
    def __call__(self, target: type[Class], /) -> type[Class]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]

    @overload
    def __call__(self, target: Callable[P, Result], /) -> Task[P, P, Result]: ...


class DeclareWithContext(Protocol):
    """What `@app.task(context=True, …)` returns: callers of `enqueue` do not give the context."""

    def __call__(
        self, target: Callable[Concatenate[Context, P], Result], /
    ) -> Task[P, Concatenate[Context, P], Result]: ...


class Laneway:
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
    ) -> None:
        problems = [name_problem(what, value) for what, value in (("name", name), ("env", env)) if value is not None]
        raise_problems([problem for problem in problems if problem])
        if url is not None and broker is not None:
            raise ConfigError("Give a url or a broker, not both.")
        if isinstance(imports, str):
            raise ConfigError(f"imports must be a list of modules, such as [{imports!r}], not a text.")
        if url is not None and not isinstance(url, str):
            raise ConfigError(f"url must be text such as sqlite:///laneway.db, not {type(url).__name__}.")
        self.name = name
        self.env = env
        self.registry = Registry()
        self.serializer = serializer(self.registry)
        self.logger = logger or logging.getLogger("laneway")
        self.telemetry = Telemetry()
        self.middleware: Sequence[Middleware] = tuple(middleware)
        for each in self.middleware:
            if not isinstance(each, Middleware):
                kind = each.__name__ + "()" if isinstance(each, type) else "an instance of a Middleware"
                raise ConfigError(f"middleware must be instances of Middleware; give {kind}, not {each!r}.")
        self.error_handlers: Sequence[ErrorHandler] = tuple(error_handlers)
        self.imports: Sequence[str] = tuple(imports)
        self._around_enqueue = overriding(self.middleware, "around_enqueue")
        self._given_url = url
        self._given_broker = broker
        self._broker = broker
        self._opening = threading.Lock()

    # -- declaring -------------------------------------------------------------------------------------

    # As in Declare: a class with run() stays a class.
    @overload
    def task(self, target: type[Class], /) -> type[Class]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]

    @overload
    def task(self, target: Callable[P, Result], /) -> Task[P, P, Result]: ...

    @overload
    def task(
        self,
        /,
        *,
        context: Literal[True],
        name: str | None = None,
        queue: str | None = None,
        aliases: Iterable[str] = (),
        max_retry_count: int = ...,
        retry_in: RetryIn = ...,
        bury_on: Iterable[type[Exception]] = (),
        retries_exhausted: Callable[[list[JobView]], object] | None = None,
    ) -> DeclareWithContext: ...

    @overload
    def task(
        self,
        /,
        *,
        context: Literal[False] = False,
        name: str | None = None,
        queue: str | None = None,
        aliases: Iterable[str] = (),
        max_retry_count: int = ...,
        retry_in: RetryIn = ...,
        bury_on: Iterable[type[Exception]] = (),
        retries_exhausted: Callable[[list[JobView]], object] | None = None,
    ) -> Declare: ...

    def task(
        self,
        target: Any = None,
        /,
        *,
        context: bool = False,
        name: str | None = None,
        queue: str | None = None,
        aliases: Iterable[str] = (),
        max_retry_count: int = DEFAULT_MAX_RETRY_COUNT,
        retry_in: RetryIn = default_retry_in,
        bury_on: Iterable[type[Exception]] = (),
        retries_exhausted: Callable[[list[JobView]], object] | None = None,
    ) -> Any:
        """Declare a function, or a class with `run`, as a task.

        Args:
            context: Hand the function a Context as its first argument. (`run` gets one when it takes one.)
            name: The name in tickets, instead of the function's own.
            queue: The queue of its jobs.
            aliases: Older names under which stored tickets still find it.
            max_retry_count: How often a failed job is run again: 25 unless said, 0 for never.
            retry_in: Seconds before retry n, counted from 0.
            bury_on: Exception types that are never retried: the job goes to the morgue.
            retries_exhausted: Called with the jobs just buried.
        """
        options = TaskOptions(
            queue=queue,
            aliases=_several("aliases", aliases),
            max_retry_count=max_retry_count,
            retry_in=retry_in,
            bury_on=_several("bury_on", bury_on),
            retries_exhausted=retries_exhausted,
        )

        def register(target: Any) -> Any:
            task = declare(self, target, name=name, context=context, options=options)
            self.registry.add(task)
            return target if isinstance(target, type) else task

        return register if target is None else register(target)

    def load(self) -> None:
        """Import the modules named in `imports`."""
        for module in self.imports:
            importlib.import_module(module)

    def queues(self) -> list[str]:
        """The queues of the app's tasks, in the order of their declaration."""
        return list(dict.fromkeys(task.options.queue or DEFAULT_QUEUE for task in self.registry))

    # -- sending ---------------------------------------------------------------------------------------

    def enqueue(self, instance: Runnable, /) -> Handle:
        """Store a job that runs an instance of a task class."""
        return self.send([self.outgoing(instance, (), {})])[0]

    def enqueue_many(self, instances: Iterable[Runnable], /) -> list[Handle]:
        """Store jobs for many instances of task classes: all of them or none."""
        return self.using().enqueue_many(instances)

    def using(
        self,
        *,
        queue: str | None = None,
        delay: float | timedelta | None = None,
        perform_at: float | datetime | None = None,
    ) -> Sender:
        """Options for instances that are enqueued: `app.using(delay=60).enqueue(SendMail(…))`."""
        return Sender(self, Sending().with_options(queue=queue, delay=delay, perform_at=perform_at))

    def enqueue_body(self, body: str, *, queue: str = DEFAULT_QUEUE) -> Handle:
        """Store a body as it is, for the serializer to make sense of when it is run."""
        self._check(body, "The body")
        queue = Sending().with_options(queue=queue).queue or DEFAULT_QUEUE
        return self.send([NewJob(queue=queue, key=new_id(), body=body)])[0]

    def outgoing(
        self,
        what: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        fallback: str = DEFAULT_QUEUE,
        sending: Sending | None = None,
    ) -> NewJob:
        """Make the job for a task with arguments, or for an instance; raises EnqueueError and stores nothing."""
        is_task = isinstance(what, Task)
        task: AnyTask = what if is_task else self._task_of(what, bool(args or kwargs))
        if task.app is not self:
            raise EnqueueError(f"Task {task.name} belongs to another app; enqueue it there.")
        try:
            body = self.serializer.dumps(task, task.signature.bind(args, kwargs) if is_task else task.params_of(what))
        except Refused as error:
            raise EnqueueError(f"Task {task.name}: {error}.") from None
        self._check(body, "Task {}: its body", task.name)
        options = sending or task.sending
        return NewJob(
            queue=options.queue or task.options.queue or fallback,
            key=new_id(),
            body=body,
            delay_s=options.delay_s,
            perform_at=options.perform_at,
        )

    def all_or_none(self, make: Callable[[What], NewJob], items: Iterable[What]) -> list[NewJob]:
        """Make a job of every item; the error names the item that was refused, and nothing has been stored."""
        jobs: list[NewJob] = []
        try:
            for item in items:
                jobs.append(make(item))
        except EnqueueError as error:
            raise EnqueueError(f"Item {len(jobs)}: {error} Nothing was stored.") from None
        return jobs

    def send(self, jobs: list[NewJob]) -> list[Handle]:
        """Store jobs, inside the middleware."""
        broker = self.broker
        all_jobs = jobs.copy()  # a middleware may take some out of the list
        if jobs:
            self.around_enqueue(jobs, broker.enqueue)
        return [Handle(broker, job.queue, job.key) for job in all_jobs]

    def around_enqueue(self, jobs: list[NewJob], store: Callable[[list[NewJob]], None]) -> bool:
        """Have `store` called inside the middleware; False if one of them did not call on."""
        if not self._around_enqueue:
            store(jobs)
            return True

        def step() -> None:
            for job in jobs:
                self._check(job.body, "After the middleware the body of the job {}", job.key)
                Sending().with_options(queue=job.queue)
            check_jobs(jobs)
            store(jobs)

        reached, _ = surround(self._around_enqueue, (jobs,), step)
        if not reached:
            self.logger.warning("a middleware did not call on: %d jobs were not enqueued", len(jobs))
        return reached

    def _task_of(self, instance: object, with_arguments: bool) -> AnyTask:
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

    def _check(self, body: str, what: str, name: str = "") -> None:
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
    def broker(self) -> Broker:
        """The broker; opened when it is first used."""
        if self._broker is None:
            with self._opening:  # two threads must not open two brokers: what is in memory would be in one of them
                if self._broker is None:
                    self._broker = open_broker(*resolve_url(self._given_url))
        return self._broker

    def use(self, url: str) -> None:
        """Move the app to another broker than the one it was made with: for tests, and for `--url`."""
        broker = open_broker(url)
        self.close()
        self._given_url, self._given_broker, self._broker = url, None, broker

    def close(self) -> None:
        """Let go of the broker's files and connections; using the app opens them again."""
        if self._broker is not None:
            self._broker.close()

    def __repr__(self) -> str:
        return f"<Laneway {self.name or ''} on {self.url}>"


class Sender:
    """`app.using(…)`: enqueues instances with options."""

    __slots__ = ("_app", "_sending")

    def __init__(self, app: Laneway, sending: Sending) -> None:
        self._app = app
        self._sending = sending

    def enqueue(self, instance: Runnable, /) -> Handle:
        """Store a job that runs an instance of a task class."""
        return self._app.send([self._job(instance)])[0]

    def enqueue_many(self, instances: Iterable[Runnable], /) -> list[Handle]:
        """Store jobs for many instances of task classes: all of them or none."""
        return self._app.send(self._app.all_or_none(self._job, instances))

    def _job(self, instance: Runnable) -> NewJob:
        return self._app.outgoing(instance, (), {}, sending=self._sending)


def _several(what: str, values: Iterable[Any]) -> tuple[Any, ...]:
    if isinstance(values, (str, type)) or not isinstance(values, Iterable):
        raise DeclarationError(f"{what} must be a list, even of one; write {what}=[…].")
    return tuple(values)
