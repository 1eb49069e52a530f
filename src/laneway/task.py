"""A task: declared code, and the ways to have it run later.

`Task[P, Call, Result]`: P are the parameters of `enqueue`, Call those of a plain call; they differ by the
context that a task with `context=True` is handed. Options never mix with arguments: they go through `using`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar

import msgspec

from .codec import Params, Refused, Signature, decode, encode
from .config import TaskOptions, name_problem, raise_problems
from .errors import DeclarationError, EnqueueError
from .handle import Handle, due
from .ticket import Call as TaskCall

if TYPE_CHECKING:
    from .app import Laneway
    from .context import Context

P = ParamSpec("P")
Call = ParamSpec("Call")
Result = TypeVar("Result", covariant=True)


class Runnable(Protocol):
    """An instance of a task class."""

    @property
    def run(self) -> Callable[..., Any]: ...


class Sending(msgspec.Struct, frozen=True):
    """What `using` was given."""

    queue: str | None = None
    delay_s: float = 0.0
    perform_at: float | None = None


def sending(
    *,
    queue: str | None = None,
    delay: float | timedelta | None = None,
    perform_at: float | datetime | None = None,
) -> Sending:
    """Check the options of `using`."""
    if queue is not None and (problem := name_problem("queue", queue)):
        raise EnqueueError(problem)
    delay_s, at = due(delay, perform_at) or (0.0, None)
    return Sending(queue, delay_s, at)


class Item:
    """One call in `enqueue_many`, for those that need options of their own: `Item("a.png", 200, perform_at=…)`."""

    __slots__ = ("args", "kwargs", "sending")

    def __init__(self, *args: Any, perform_at: float | datetime | None = None, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs
        self.sending = None if perform_at is None else sending(perform_at=perform_at)


class Task(Generic[P, Call, Result]):
    """A declared task. Calling it just runs it; `enqueue` has a worker run it."""

    def __init__(
        self, app: Laneway, target: Callable[..., Any], *, name: str, context: bool, options: TaskOptions
    ) -> None:
        self.app = app
        self.target = target
        self.name = name
        self.options = options
        self.sending = Sending()
        if isinstance(target, type):
            run = inspect.signature(target.run).parameters  # type: ignore[attr-defined]  # checked when declared
            self.takes_context = len(run) > 1
            self.is_async = inspect.iscoroutinefunction(target.run)  # type: ignore[attr-defined]  # as above
            self.signature = Signature(name, target)
        else:
            self.takes_context = context
            self.is_async = inspect.iscoroutinefunction(target)
            self.signature = Signature(name, target, skip=1 if context else 0)
            functools.update_wrapper(self, target)
        self.pack = self.signature.pack

    def __call__(self, *args: Call.args, **kwargs: Call.kwargs) -> Result:
        """Run the task here and now, as if it were not one."""
        result: Result = self.target(*args, **kwargs)
        return result

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle:
        """Store a job that runs this task with these arguments. Once this has returned, the job is stored."""
        return self.app.send([self.app.outgoing(self, args, kwargs)])[0]

    def enqueue_many(self, items: Iterable[tuple[Any, ...] | Item]) -> list[Handle]:
        """Store many jobs at once. Everything is checked before anything is written; all are stored or none."""
        outgoing, plain = self.app.outgoing, self.sending
        jobs = []
        for number, item in enumerate(items):
            try:
                if isinstance(item, Item):
                    jobs.append(outgoing(self, item.args, item.kwargs, sending=_combined(plain, item.sending)))
                elif isinstance(item, tuple):
                    jobs.append(outgoing(self, item, {}))
                else:
                    raise EnqueueError(
                        f"Task {self.name}: enqueue_many takes tuples of arguments or Item(…), "
                        f"not {type(item).__name__}."
                    )
            except EnqueueError as error:
                raise EnqueueError(f"Item {number}: {error} Nothing was stored.") from None
        return self.app.send(jobs)

    def using(
        self,
        *,
        queue: str | None = None,
        delay: float | timedelta | None = None,
        perform_at: float | datetime | None = None,
    ) -> Task[P, Call, Result]:
        """The same task with options for what is enqueued through it."""
        other: Task[P, Call, Result] = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.sending = sending(queue=queue, delay=delay, perform_at=perform_at)
        return other

    def call(self, *args: P.args, **kwargs: P.kwargs) -> TaskCall:
        """The task with these arguments, as a serializer's `loads` may return it."""
        try:
            return TaskCall(self, self.signature.bind(args, kwargs))
        except Refused as error:
            raise EnqueueError(f"Task {self.name}: {error}.") from None

    def invoke(self, params: Params, context: Context) -> Any:
        """Call the handler; for an async task this returns what is to be awaited."""
        if isinstance(self.target, type):
            run = self.target(**params).run
            return run(context) if self.takes_context else run()
        if self.takes_context:
            return self.target(context, **params)
        return self.target(**params)

    def params_of(self, instance: object) -> Params:
        """The params from which this instance of a task class can be rebuilt."""
        if hasattr(instance, "to_dict"):
            return _plain(dict(instance.to_dict()))
        fields = _fields(instance)
        if fields is not None:
            return fields
        if self.signature.required:
            raise Refused(
                "an instance cannot be rebuilt, because its class has neither fields nor to_dict(); make it a "
                "dataclass or give it a to_dict() that returns its constructor's arguments"
            )
        return {}

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


AnyTask = Task[Any, Any, Any]


def declare(app: Laneway, target: Any, *, name: str | None, context: bool, options: TaskOptions) -> AnyTask:
    """Check a declaration and make the task of it."""
    if isinstance(target, Task):
        raise DeclarationError(f"{target.name} is a task already; declare it once.")
    if not callable(target):
        raise DeclarationError(f"A task is a function or a class with run(), not {type(target).__name__}.")
    name = name if name is not None else getattr(target, "__name__", None)
    for each in (name, *options.aliases):
        if not isinstance(each, str) or not each.isprintable() or not 1 <= len(each) <= 200:
            raise DeclarationError(f"A task's name must be 1 to 200 printable characters, not {each!r}.")
    assert isinstance(name, str)
    if name == "<lambda>":
        raise DeclarationError("A lambda has no name to be found by; give it one with @app.task(name=…) or use def.")
    if isinstance(target, type):
        if not callable(getattr(target, "run", None)):
            raise DeclarationError(f"The class {name} has no run() method, so it cannot be a task; give it one.")
        if context:
            raise DeclarationError(
                f"Task {name}: a class's run() gets the context when it takes one; drop context=True."
            )
        required = [
            p
            for p in list(inspect.signature(target.run).parameters.values())[1:]
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        if len(required) > 1:
            raise DeclarationError(f"Task {name}: run() may take the context and nothing else.")
    raise_problems(options.validate(), DeclarationError, f"Task {name}: ")
    return Task(app, target, name=name, context=context, options=options)


def _combined(outer: Sending, inner: Sending | None) -> Sending:
    if inner is None:
        return outer
    return Sending(outer.queue, inner.delay_s, inner.perform_at)


def _plain(params: Params) -> Params:
    """The params of a to_dict(): they must be JSON as they stand."""
    try:
        back = decode(encode(params))
    except Exception as error:
        raise Refused(f"to_dict() returned what cannot be stored: {error}") from None
    if back != params:
        raise Refused("to_dict() returned what does not survive being stored as JSON")
    return params


def _fields(instance: Any) -> Params | None:
    """An instance's fields: dataclass, Struct, pydantic model, attrs class or NamedTuple."""
    if hasattr(instance, "__dataclass_fields__"):
        return {n: getattr(instance, n) for n, field in instance.__dataclass_fields__.items() if field.init}
    if hasattr(instance, "__struct_fields__"):
        return {n: getattr(instance, n) for n in instance.__struct_fields__}
    if hasattr(type(instance), "model_fields"):
        return {n: getattr(instance, n) for n in type(instance).model_fields}
    if hasattr(instance, "__attrs_attrs__"):
        return {(a.alias or a.name): getattr(instance, a.name) for a in instance.__attrs_attrs__ if a.init}
    if isinstance(instance, tuple) and hasattr(instance, "_asdict"):
        return dict(instance._asdict())
    return None
