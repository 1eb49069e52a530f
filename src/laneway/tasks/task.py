"""Task: a declared function or class, with `enqueue` and `using`.

In `Task[P, Call, Result]`, P are the parameters of `enqueue` and Call those of a plain call. They differ by the
context that a task with `context=True` is handed. Options never mix with arguments: they go through `using`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeAlias, TypeVar

from ..config import Isolation, TaskOptions
from ..enqueue.options import EnqueueOptions, Item
from ..errors import EnqueueError
from ..handle import Handle
from ..jobs.data import Kind
from ..jobs.keys import UNSET, key_parameters, key_text
from ..jobs.ticket import Call as TaskCall
from .signature import Params, Signature, UnstorableValueError, fields_of, is_init_var, is_kind, run_parameters

if TYPE_CHECKING:
    from ..app import Laneway
    from ..context import Context
    from ..jobs.data import NewJob
    from .collecting import Collecting
    from .listener import Listener

P = ParamSpec("P")
Call = ParamSpec("Call")
Result = TypeVar("Result", covariant=True)


class Runnable(Protocol):
    """An instance of a task class."""

    @property
    def run(self) -> Callable[..., Any]: ...


class Task(Generic[P, Call, Result]):
    """A declared task. Calling it just runs it; `enqueue` has a worker run it."""

    def __init__(
        self, app: Laneway, target: Callable[..., Any], *, name: str, context: bool, options: TaskOptions
    ) -> None:
        self.app = app
        self.target = target
        self.name = name
        self.options = options
        self.sending = EnqueueOptions()
        if isinstance(target, type):
            run = target.run  # type: ignore[attr-defined]  # seen to be there by `declare`
            self.takes_context = bool(run_parameters(target))
            self.is_async = inspect.iscoroutinefunction(run)
            self.signature = Signature(name, target)
        else:
            self.takes_context = context
            self.is_async = is_kind(inspect.iscoroutinefunction, target)
            self.signature = Signature(name, target, skip=1 if context else 0)
            functools.update_wrapper(self, target, updated=())  # a function's own attributes stay its own
        self.isolation: Isolation | None = options.isolated(self.is_async)
        self.pack = self.signature.pack
        #: The parameters that make the key of a call.
        self.keys = key_parameters(name, self.signature.kinds, self.signature.unresolved)
        #: Of its jobs, unless they are given a key by `using`.
        self.kind = Kind.KEYED if self.keys else Kind.PLAIN

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
            if item.score is not None:
                raise EnqueueError(f"Task {self.name}: only payloads of collecting tasks have a score; leave it out.")
            sending = self.sending.with_options(perform_at=item.perform_at, key=item.key)
            return outgoing(self, item.args, item.kwargs, sending=sending)

        return self.app.send(self.app.all_or_none(job, items))

    def using(
        self,
        *,
        queue: str | None = None,
        delay: float | timedelta | None = None,
        perform_at: float | datetime | None = None,
        key: object = UNSET,
        group: str | None = None,
        cancellable: bool | None = None,
    ) -> Task[P, Call, Result]:
        """The same task with options for what is enqueued through it; used again, it adds to them.

        Calls with the same `key` run in order and one at a time; it comes before a parameter marked with Key. Keys are
        exclusive within a queue, so a task with such a parameter takes no `queue` here.

        `group` names a tenant, or whatever else must not crowd out others, on SQS fair queues: 1 to 128 letters, digits
        or punctuation marks, for jobs without a key. `cancellable` has SQS keep a delay of any length in the
        table, where it can be cancelled until it is over. Other brokers ignore both: they hand out jobs in order, and
        cancel what has not begun.
        """
        if queue is not None:
            self.ensure_movable()
        other: Task[P, Call, Result] = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.sending = self.sending.with_options(
            queue=queue, delay=delay, perform_at=perform_at, key=key, group=group, cancellable=cancellable
        )
        return other

    def ensure_movable(self) -> None:
        """Raise EnqueueError if calls of this task must not be given another queue: a key in two queues runs twice."""
        if self.keys:
            raise EnqueueError(
                f"Task {self.name}: it has a Key parameter, and keys are exclusive within a queue; leave queue out, "
                "and declare it with @app.task(queue=…)."
            )

    def call(self, *args: P.args, **kwargs: P.kwargs) -> TaskCall:
        """The task with these arguments, as a serializer's `loads` may return it."""
        try:
            return TaskCall(self, self.signature.bind(args, kwargs))
        except UnstorableValueError as error:
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
                raise UnstorableValueError(f"its to_dict() must return a dict, not {type(params).__name__}")
            return self.signature.read_back(self.signature.bind((), {**params}))
        fields = fields_of(instance)
        if fields is not None:
            if lost := [name for name in self.signature.defaults if name not in fields and is_init_var(instance, name)]:
                raise UnstorableValueError(
                    f"an instance does not keep its InitVar {lost[0]}; give the class a to_dict() that does"
                )
            return self.signature.bind((), fields)
        if self.signature.required or self._has_changed(instance):
            raise UnstorableValueError(
                "an instance cannot be rebuilt, because its class has neither fields nor to_dict(); make it a "
                "dataclass or give it a to_dict() that returns its constructor's arguments"
            )
        return {}

    def key_of(self, params: Params, instance: object = None) -> str:
        """The key of a call, from the parameters marked with Key; raises UnstorableValueError for what cannot be one.

        One that was left out is the instance's attribute of that name, if there is one, else the default.
        """
        values = [
            params[name] if name in params else getattr(instance, name, self.signature.defaults.get(name))
            for name in self.keys
        ]
        return key_text(":".join(map(key_text, values)))

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


#: A task whose jobs are tickets: every one that is neither a collecting task nor a listener.
TicketTask = Task[Any, Any, Any]

#: A task of any kind: whatever has runs.
AnyTask: TypeAlias = "Task[Any, Any, Any] | Collecting[Any] | Listener[Any]"
