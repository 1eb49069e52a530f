"""Declares tasks: `@app.task` and `@app.collect`, their types and every check that they make.

The checks of names, handlers and lists also serve `declare_listener.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar, cast, overload

from ..config import CollectOptions, Isolation, TaskOptions, name_problem, raise_problems
from ..context import Context
from ..errors import DeclarationError
from ..jobs.data import Kind
from ..jobs.merge import MAX_PAYLOADS
from ..jobs.settlement import RetryIn, default_retry_in
from ..jobs.shards import DEFAULT_SHARDS
from .batch import Batch
from .collecting import Collecting, SelfKeyed
from .listener import Listener
from .registry import Registry
from .signature import is_kind, is_method, positional, run_parameters
from .task import Runnable, Task

if TYPE_CHECKING:
    from ..app import Laneway
    from ..jobs.data import JobView


def name_of(target: Any, name: str | None, aliases: tuple[str, ...] = (), what: str = "task") -> str:
    """The name under which something is declared; raises DeclarationError for one that cannot be."""
    if isinstance(target, (Task, Collecting, Listener)):
        kind = "listener" if isinstance(target, Listener) else "task"
        raise DeclarationError(f"{target.name} is a {kind} already; declare it once.")
    name = name if name is not None else getattr(target, "__name__", None)
    for each in (name, *aliases):
        if not isinstance(each, str) or not each.isprintable() or not 1 <= len(each) <= 200:
            raise DeclarationError(f"A {what}'s name must be 1 to 200 printable characters, not {each!r}.")
    assert isinstance(name, str)
    if name == "<lambda>":
        raise DeclarationError("A lambda has no name to be found by; give it one with name=… or use def.")
    if is_method(target):
        raise DeclarationError(
            f"{what.capitalize()} {name}: a method cannot be a {what}, because nothing says which instance it belongs "
            f"to; declare a function{', or the class with a run()' if what == 'task' else ''}."
        )
    return name


def ensure_no_generator(name: str, handler: Any, what: str = "task") -> None:
    """Raise DeclarationError for a handler that yields."""
    if is_kind(inspect.isgeneratorfunction, handler) or is_kind(inspect.isasyncgenfunction, handler):
        raise DeclarationError(
            f"{what.capitalize()} {name}: a generator does nothing when it is called; a {what} must not yield."
        )


def several(what: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """What was given as a list; raises DeclarationError for one thing alone."""
    if isinstance(values, (str, type)) or not isinstance(values, Iterable):
        raise DeclarationError(f"{what} must be a list, even of one; write {what}=[…].")
    return tuple(values)


P = ParamSpec("P")
T = TypeVar("T")
Result = TypeVar("Result")
Class = TypeVar("Class", bound=Runnable)
Exhausted = Callable[["list[JobView]"], object]


class TaskDecorator(Protocol):
    """What `@app.task(…)` returns: it makes a function a Task and leaves a class a class."""

    # A class is a callable too; for one with run() the first overload is meant, and is taken.
    @overload
    def __call__(self, target: type[Class], /) -> type[Class]: ...  # type: ignore[overload-overlap]  # pyright: ignore[reportOverlappingOverload]

    @overload
    def __call__(self, target: Callable[P, Result], /) -> Task[P, P, Result]: ...


class ContextTaskDecorator(Protocol):
    """What `@app.task(context=True, …)` returns: callers of `enqueue` do not give the context."""

    def __call__(
        self, target: Callable[Concatenate[Context, P], Result], /
    ) -> Task[P, Concatenate[Context, P], Result]: ...


class CollectDecorator(Protocol):
    """What `@app.collect(…)` returns."""

    def __call__(self, target: Callable[[Batch[T]], object], /) -> Collecting[T]: ...


class ContextCollectDecorator(Protocol):
    """What `@app.collect(context=True, …)` returns."""

    def __call__(self, target: Callable[[Context, Batch[T]], object], /) -> Collecting[T]: ...


class SelfKeyedCollectDecorator(Protocol):
    """What `@app.collect(key=…)` returns."""

    def __call__(self, target: Callable[[Batch[T]], object], /) -> SelfKeyed[T]: ...


class ContextSelfKeyedCollectDecorator(Protocol):
    """What `@app.collect(context=True, key=…)` returns."""

    def __call__(self, target: Callable[[Context, Batch[T]], object], /) -> SelfKeyed[T]: ...


class TaskDeclarations:
    """The part of an app that tasks are declared with."""

    registry: Registry

    # As in TaskDecorator: a class with run() stays a class.
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
        max_retry_count: int | None = None,
        retry_in: RetryIn = ...,
        bury_on: Iterable[type[Exception]] = (),
        retries_exhausted: Exhausted | None = None,
        max_payloads: int | None = None,
        time_limit: float | timedelta | None = None,
        isolation: Isolation | None = None,
    ) -> ContextTaskDecorator: ...

    @overload
    def task(
        self,
        /,
        *,
        context: Literal[False] = False,
        name: str | None = None,
        queue: str | None = None,
        aliases: Iterable[str] = (),
        max_retry_count: int | None = None,
        retry_in: RetryIn = ...,
        bury_on: Iterable[type[Exception]] = (),
        retries_exhausted: Exhausted | None = None,
        max_payloads: int | None = None,
        time_limit: float | timedelta | None = None,
        isolation: Isolation | None = None,
    ) -> TaskDecorator: ...

    def task(
        self,
        target: Any = None,
        /,
        *,
        context: bool = False,
        name: str | None = None,
        queue: str | None = None,
        aliases: Iterable[str] = (),
        max_retry_count: int | None = None,
        retry_in: RetryIn = default_retry_in,
        bury_on: Iterable[type[Exception]] = (),
        retries_exhausted: Exhausted | None = None,
        max_payloads: int | None = None,
        time_limit: float | timedelta | None = None,
        isolation: Isolation | None = None,
    ) -> Any:
        """TaskDecorator a function, or a class with `run`, as a task.

        Calls of a task with a parameter `Annotated[…, Key]` run in order, one at a time, for each key.

        Args:
            context: Hand the function a Context as its first argument. (`run` gets one when it takes one.)
            name: The name in tickets, instead of the function's own.
            queue: The queue of its jobs.
            aliases: Older names under which stored tickets still find it.
            max_retry_count: How often a failed job is run again: 25 unless said, for calls with a key 5; 0 for never.
            retry_in: Seconds before retry n, counted from 0.
            bury_on: Exception types that are never retried: the job goes to the morgue.
            retries_exhausted: Called with the jobs just buried.
            max_payloads: The calls of a key that a worker takes at once.
            time_limit: Seconds, or a timedelta, that a run may take; then it has failed. An async task is cancelled; a
                sync one runs in another process, as with isolation="process", and that process is ended.
            isolation: "process": run it in another process, one of a few that are used again. "fresh": in a process of
                its own each time.
        """
        options = TaskOptions(
            queue=queue,
            aliases=several("aliases", aliases),
            max_retry_count=max_retry_count,
            retry_in=retry_in,
            bury_on=several("bury_on", bury_on),
            retries_exhausted=retries_exhausted,
            max_payloads=max_payloads,
            time_limit=time_limit,
            isolation=isolation,
        )

        def register(target: Any) -> Any:
            task = _task(app := cast("Laneway", self), target, name, context, options)
            app.ensure_supported(task)
            self.registry.add(task)
            return target if isinstance(target, type) else task

        return register if target is None else register(target)

    @overload
    def collect(self, target: Callable[[Batch[T]], object], /) -> Collecting[T]: ...

    @overload
    def collect(
        self,
        /,
        *,
        context: Literal[True],
        key: Callable[[Any], object],
        name: str | None = None,
        queue: str | None = None,
        shards: int = ...,
        batch_size: int = ...,
        max_retry_count: int | None = None,
        retry_in: RetryIn = ...,
        bury_on: Iterable[type[Exception]] = (),
        retries_exhausted: Exhausted | None = None,
        grace: float | timedelta | None = None,
        max_wait: float | timedelta | None = None,
        max_size: int | None = None,
        max_payloads: int = ...,
        score: Callable[[Any], float] | None = None,
        time_limit: float | timedelta | None = None,
        isolation: Isolation | None = None,
    ) -> ContextSelfKeyedCollectDecorator: ...

    @overload
    def collect(
        self,
        /,
        *,
        context: Literal[True],
        name: str | None = None,
        queue: str | None = None,
        shards: int = ...,
        batch_size: int = ...,
        max_retry_count: int | None = None,
        retry_in: RetryIn = ...,
        bury_on: Iterable[type[Exception]] = (),
        retries_exhausted: Exhausted | None = None,
        grace: float | timedelta | None = None,
        max_wait: float | timedelta | None = None,
        max_size: int | None = None,
        max_payloads: int = ...,
        score: Callable[[Any], float] | None = None,
        time_limit: float | timedelta | None = None,
        isolation: Isolation | None = None,
    ) -> ContextCollectDecorator: ...

    @overload
    def collect(
        self,
        /,
        *,
        key: Callable[[Any], object],
        context: Literal[False] = False,
        name: str | None = None,
        queue: str | None = None,
        shards: int = ...,
        batch_size: int = ...,
        max_retry_count: int | None = None,
        retry_in: RetryIn = ...,
        bury_on: Iterable[type[Exception]] = (),
        retries_exhausted: Exhausted | None = None,
        grace: float | timedelta | None = None,
        max_wait: float | timedelta | None = None,
        max_size: int | None = None,
        max_payloads: int = ...,
        score: Callable[[Any], float] | None = None,
        time_limit: float | timedelta | None = None,
        isolation: Isolation | None = None,
    ) -> SelfKeyedCollectDecorator: ...

    @overload
    def collect(
        self,
        /,
        *,
        context: Literal[False] = False,
        name: str | None = None,
        queue: str | None = None,
        shards: int = ...,
        batch_size: int = ...,
        max_retry_count: int | None = None,
        retry_in: RetryIn = ...,
        bury_on: Iterable[type[Exception]] = (),
        retries_exhausted: Exhausted | None = None,
        grace: float | timedelta | None = None,
        max_wait: float | timedelta | None = None,
        max_size: int | None = None,
        max_payloads: int = ...,
        score: Callable[[Any], float] | None = None,
        time_limit: float | timedelta | None = None,
        isolation: Isolation | None = None,
    ) -> CollectDecorator: ...

    def collect(
        self,
        target: Any = None,
        /,
        *,
        context: bool = False,
        name: str | None = None,
        queue: str | None = None,
        shards: int = DEFAULT_SHARDS,
        batch_size: int = 1,
        max_retry_count: int | None = None,
        retry_in: RetryIn = default_retry_in,
        bury_on: Iterable[type[Exception]] = (),
        retries_exhausted: Exhausted | None = None,
        grace: float | timedelta | None = None,
        max_wait: float | timedelta | None = None,
        max_size: int | None = None,
        max_payloads: int = MAX_PAYLOADS[Kind.COLLECTING],
        key: Callable[[Any], object] | None = None,
        score: Callable[[Any], float] | None = None,
        time_limit: float | timedelta | None = None,
        isolation: Isolation | None = None,
    ) -> Any:
        """TaskDecorator a function as a collecting task: it is handed a Batch of all payloads that came for some keys.

        Args:
            context: Hand the function a Context before the batch.
            name: Its name, instead of the function's own.
            queue: Its queue, which no other task may use; its name unless said.
            shards: The shards that the queue is made with.
            batch_size: The keys in a batch at most.
            max_retry_count: How often a failed key is run again: 25 unless said, 0 for never.
            retry_in: Seconds before retry n, counted from 0.
            bury_on: Exception types that are never retried: the payloads go to the morgue.
            retries_exhausted: Called with the jobs just buried.
            grace: Wait until no payload has come for a key for so long.
            max_wait: But no longer than this after the first.
            max_size: Or until so many have come.
            max_payloads: The payloads of a key in a batch at most; the rest follow.
            key: The key of a payload that is enqueued without one.
            score: The score of a payload that is enqueued without one; else they are in order of arrival.
            time_limit: Seconds, or a timedelta, that a run may take, as for `task`.
            isolation: "process" or "fresh", as for `task`.
        """
        options = {
            "shards": shards,
            "batch_size": batch_size,
            "max_retry_count": max_retry_count,
            "retry_in": retry_in,
            "bury_on": several("bury_on", bury_on),
            "retries_exhausted": retries_exhausted,
            "grace": grace,
            "max_wait": max_wait,
            "max_size": max_size,
            "max_payloads": max_payloads,
            "key": key,
            "score": score,
            "time_limit": time_limit,
            "isolation": isolation,
        }

        def register(target: Any) -> Collecting[Any]:
            task = _collecting(app := cast("Laneway", self), target, name, queue, context, options)
            app.ensure_supported(task)
            self.registry.add_collecting(task)
            return task

        return register if target is None else register(target)


def _task(app: Laneway, target: Any, name: str | None, context: bool, options: TaskOptions) -> Task[Any, Any, Any]:
    """Check a declaration and make the task of it."""
    if not callable(target):
        raise DeclarationError(f"A task is a function or a class with run(), not {type(target).__name__}.")
    name = name_of(target, name, options.aliases)
    handler = target
    if isinstance(target, type):
        handler = getattr(target, "run", None)
        if not callable(handler):
            raise DeclarationError(f"The class {name} has no run() method, so it cannot be a task; give it one.")
        if context:
            raise DeclarationError(
                f"Task {name}: a class's run() gets the context when it takes one; drop context=True."
            )
        if len(run_parameters(target)) > 1:
            raise DeclarationError(f"Task {name}: run() may take the context and nothing else.")
    elif context and not positional(inspect.signature(target))[:1]:
        raise DeclarationError(f"Task {name}: with context=True its first parameter must be for the context.")
    ensure_no_generator(name, handler)
    raise_problems(options.validate(), DeclarationError, f"Task {name}: ")
    return Task(app, target, name=name, context=context, options=options)


def _collecting(
    app: Laneway, target: Any, name: str | None, queue: str | None, context: bool, given: dict[str, Any]
) -> Collecting[Any]:
    """Check the declaration of a collecting task and make it."""
    if not callable(target) or isinstance(target, type):
        kind = f"the class {target.__name__}" if isinstance(target, type) else type(target).__name__
        raise DeclarationError(f"A collecting task is a function of a batch, not {kind}.")
    name = name_of(target, name)
    options = CollectOptions(queue=name if queue is None else queue, **given)
    problems = options.validate()
    if queue is None and (problem := name_problem("queue", name)):
        problems.remove(problem)
        problems.insert(0, f"its name cannot be that of its queue, which {problem[6:-1]}; give it one with queue=….")
    raise_problems(problems, DeclarationError, f"Task {name}: ")
    ensure_no_generator(name, target)
    make: type[Collecting[Any]] = Collecting if options.key is None else SelfKeyed
    return make(app, target, name=name, context=context, options=options)
