"""A task: declared code, and the ways to have it run later.

`Task[P, Call, Result]`: P are the parameters of `enqueue`, Call those of a plain call; they differ by the
context that a task with `context=True` is handed. Options never mix with arguments: they go through `using`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar

import msgspec

from .codec import Params, Refused, Signature
from .config import TaskOptions, name_problem, raise_problems
from .errors import DeclarationError, EnqueueError
from .handle import Handle, due
from .ticket import Call as TaskCall

if TYPE_CHECKING:
    from .app import Laneway
    from .context import Context
    from .job import NewJob

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

    def with_options(
        self,
        *,
        queue: str | None = None,
        delay: float | timedelta | None = None,
        perform_at: float | datetime | None = None,
    ) -> Sending:
        """The same with what is given here in its place; raises EnqueueError for what cannot be."""
        if queue is not None and (problem := name_problem("queue", queue)):
            raise EnqueueError(problem)
        when = due(delay, perform_at)
        delay_s, at = (self.delay_s, self.perform_at) if when is None else when
        return Sending(self.queue if queue is None else queue, delay_s, at)


class Item:
    """One call in `enqueue_many`, for those that need options of their own: `Item("a.png", 200, perform_at=…)`."""

    __slots__ = ("args", "key", "kwargs", "perform_at", "score")

    def __init__(
        self,
        *args: Any,
        key: object = None,
        score: float | None = None,
        perform_at: float | datetime | None = None,
        **kwargs: Any,
    ) -> None:
        self.args = args
        self.kwargs = kwargs
        self.key = key
        self.score = score
        self.perform_at = perform_at


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
            run = target.run  # type: ignore[attr-defined]  # seen to be there by `declare`
            self.takes_context = bool(_run_parameters(target))
            self.is_async = inspect.iscoroutinefunction(run)
            self.signature = Signature(name, target)
        else:
            self.takes_context = context
            self.is_async = _is(inspect.iscoroutinefunction, target)
            self.signature = Signature(name, target, skip=1 if context else 0)
            functools.update_wrapper(self, target, updated=())  # a function's own attributes stay its own
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
        outgoing = self.app.outgoing

        def job(item: tuple[Any, ...] | Item) -> NewJob:
            if isinstance(item, tuple):
                return outgoing(self, item, {})
            if not isinstance(item, Item):
                kind = type(item).__name__
                raise EnqueueError(f"Task {self.name}: enqueue_many takes tuples of arguments or Item(…), not {kind}.")
            if item.key is not None or item.score is not None:
                raise EnqueueError(f"Task {self.name}: its jobs have no key and no score of their own; leave them out.")
            sending = self.sending.with_options(perform_at=item.perform_at)
            return outgoing(self, item.args, item.kwargs, sending=sending)

        return self.app.send(self.app.all_or_none(job, items))

    def using(
        self,
        *,
        queue: str | None = None,
        delay: float | timedelta | None = None,
        perform_at: float | datetime | None = None,
    ) -> Task[P, Call, Result]:
        """The same task with options for what is enqueued through it; used again, it adds to them."""
        other: Task[P, Call, Result] = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.sending = self.sending.with_options(queue=queue, delay=delay, perform_at=perform_at)
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

    def params_of(self, instance: Any) -> Params:
        """The params from which this instance of a task class can be rebuilt."""
        if hasattr(instance, "to_dict"):
            params = instance.to_dict()
            if not isinstance(params, Mapping):
                raise Refused(f"its to_dict() must return a dict, not {type(params).__name__}")
            return self.signature.read_back(self.signature.bind((), {**params}))
        fields = _fields(instance)
        if fields is not None:
            if lost := [
                name for name in self.signature.defaults if name not in fields and _is_init_var(instance, name)
            ]:
                raise Refused(f"an instance does not keep its InitVar {lost[0]}; give the class a to_dict() that does")
            return self.signature.bind((), fields)
        if self.signature.required or self._has_changed(instance):
            raise Refused(
                "an instance cannot be rebuilt, because its class has neither fields nor to_dict(); make it a "
                "dataclass or give it a to_dict() that returns its constructor's arguments"
            )
        return {}

    def _has_changed(self, instance: Any) -> bool:
        """Whether an optional argument of the constructor was given, as far as attributes `name` and `_name` tell."""
        defaults = self.signature.defaults
        return any(
            getattr(instance, attribute, default) != default
            for name, default in defaults.items()
            for attribute in (name, f"_{name}")
        )

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
    if _is_method(target):
        raise DeclarationError(
            f"Task {name}: a method cannot be a task, because nothing says which instance it belongs to; declare a "
            "function, or the class with a run()."
        )
    handler = target
    if isinstance(target, type):
        handler = getattr(target, "run", None)
        if not callable(handler):
            raise DeclarationError(f"The class {name} has no run() method, so it cannot be a task; give it one.")
        if context:
            raise DeclarationError(
                f"Task {name}: a class's run() gets the context when it takes one; drop context=True."
            )
        if len(_run_parameters(target)) > 1:
            raise DeclarationError(f"Task {name}: run() may take the context and nothing else.")
    elif context and not _positional(inspect.signature(target))[:1]:
        raise DeclarationError(f"Task {name}: with context=True its first parameter must be for the context.")
    if _is(inspect.isgeneratorfunction, handler) or _is(inspect.isasyncgenfunction, handler):
        raise DeclarationError(f"Task {name}: a generator does nothing when it is called; a task must not yield.")
    raise_problems(options.validate(), DeclarationError, f"Task {name}: ")
    return Task(app, target, name=name, context=context, options=options)


def _is(kind: Callable[[Any], bool], target: Any) -> bool:
    """Whether a callable is of this kind, or its `__call__` is."""
    return kind(target) or kind(getattr(target, "__call__", None))  # noqa: B004 - its kind is asked for, not whether


def _is_method(target: Any) -> bool:
    """Whether a function is being declared inside a class."""
    if not inspect.isfunction(target) or not target.__qualname__.rpartition("<locals>.")[2].count("."):
        return False
    return next(iter(inspect.signature(target).parameters), None) in ("self", "cls")


def _positional(signature: inspect.Signature) -> list[inspect.Parameter]:
    return [p for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _run_parameters(target: Any) -> list[inspect.Parameter]:
    """What must be handed to a class's run(): the context or nothing, if it can be a task."""
    bound = isinstance(inspect.getattr_static(target, "run"), (staticmethod, classmethod))
    parameters = list(inspect.signature(target.run).parameters.values())[0 if bound else 1 :]
    return [
        p
        for p in parameters
        if p.name == "context" or (p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))
    ]


def _is_init_var(instance: Any, name: str) -> bool:
    field = getattr(instance, "__dataclass_fields__", {}).get(name)
    return field is not None and field not in dataclasses.fields(instance)


def _fields(instance: Any) -> Params | None:
    """An instance's fields: dataclass, Struct, pydantic model, attrs class or NamedTuple."""
    if dataclasses.is_dataclass(instance):
        return {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance) if field.init}
    if hasattr(instance, "__struct_fields__"):
        return {n: getattr(instance, n) for n in instance.__struct_fields__}
    if hasattr(type(instance), "model_fields"):
        known = inspect.signature(type(instance)).parameters
        fields = type(instance).model_fields.items()
        named = {n if n in known else field.alias or n: getattr(instance, n) for n, field in fields}
        return {**named, **(instance.model_extra or {})}
    if hasattr(instance, "__attrs_attrs__"):
        return {(a.alias or a.name): getattr(instance, a.name) for a in instance.__attrs_attrs__ if a.init}
    if isinstance(instance, tuple) and (names := getattr(instance, "_fields", None)):
        return dict(zip(names, instance, strict=True))
    return None
