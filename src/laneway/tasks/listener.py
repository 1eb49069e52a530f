"""Listener: declared code that runs for every event in its queue, and the subscription that it needs.

It turns a stored body back into an event's value. The listener has a queue of its own, because nothing in a body
names the listener.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ..config import Isolation, TaskOptions
from ..errors import DeclarationError, TicketError
from ..events.event import FilterPolicy, Subscription
from ..jobs.data import Kind
from .signature import UnstorableValueError, ValueCodec, annotation_of, annotations_of, as_text, is_kind, positional

if TYPE_CHECKING:
    from ..app import Laneway
    from ..context import Context
    from .signature import Params

T = TypeVar("T")


class Listener(Generic[T]):
    """A declared listener. Calling it just runs it; `app.publish` has it run, wherever it is served."""

    def __init__(
        self,
        app: Laneway,
        target: Callable[..., Any],
        *,
        name: str,
        context: bool,
        event: str,
        source: str | None,
        destination: str,
        filter: FilterPolicy | None,
        options: TaskOptions,
    ) -> None:
        self.app = app
        self.target = target
        self.name = name
        self.options = options
        self.event = event
        #: The app that publishes; None: many may, the event is generic.
        self.source = source
        self.destination = destination
        self.filter = filter
        self.topic = app.names.topic(event, source)
        assert options.queue is not None
        self.queue: str = options.queue
        self.takes_context = context
        self.is_async = is_kind(inspect.iscoroutinefunction, target)
        self.isolation: Isolation | None = options.isolated(self.is_async)
        #: Of its jobs.
        self.kind = Kind.PLAIN
        self._value = ValueCodec(_value_type(name, target, 1 if context else 0))
        functools.update_wrapper(self, target, updated=())  # a function's own attributes stay its own

    @property
    def subscription(self) -> Subscription:
        """What must be in the broker for events to come."""
        return Subscription(self.topic, self.queue, self.filter)

    @overload
    def __call__(self, value: T, /) -> Any: ...

    @overload
    def __call__(self, context: Context, value: T, /) -> Any: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the listener here and now, as if it were not one."""
        return self.target(*args, **kwargs)

    def load(self, body: str) -> T:
        """The value that a body holds; raises TicketError for one that does not fit."""
        try:
            value: T = self._value.unpack(body)
        except UnstorableValueError as error:
            raise TicketError(f"The value does not fit the listener {self.name}: {error}.", task=self) from None
        return value

    def invoke(self, params: Params, context: Context) -> Any:
        """Call the handler with `params["value"]`; for an async listener this returns what is to be awaited."""
        if self.takes_context:
            return self.target(context, params["value"])
        return self.target(params["value"])

    def __repr__(self) -> str:
        return f"<Listener {self.name}>"


def _value_type(name: str, target: Callable[..., Any], skip: int) -> Any:
    """The type of the value that the handler takes; Any when it does not say."""
    signature = inspect.signature(target)
    try:
        signature.bind(*[None] * (skip + 1))
    except TypeError:
        given = "(context, value)" if skip else "(value)"
        raise DeclarationError(
            f"Listener {name}: a listener is handed an event's value and nothing else; declare it as def {name}{given}."
        ) from None
    parameters = positional(signature)[skip:]
    if not parameters:  # *args
        return Any
    value = parameters[0]
    found = annotations_of(target, frozenset((value.name,)))
    kind = found.get(value.name, annotation_of(value))
    if value.name not in found and (text := as_text(value.annotation)):
        raise DeclarationError(
            f"Listener {name}: the annotation {text} of {value.name} cannot be evaluated, so the value would lose its "
            "type; import what it names where it is also found at run time."
        )
    if kind not in (Any, object) and ValueCodec(kind).kind is Any:
        raise DeclarationError(
            f"Listener {name}: {getattr(kind, '__name__', kind)}, the type of {value.name}, cannot be read from JSON; "
            "annotate it with dict, a dataclass, a Struct or a pydantic model."
        )
    return Any if kind is object else kind
