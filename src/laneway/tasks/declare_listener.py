"""Declares listeners: `@app.listener`, its types and every check that it makes.

It is not a part of `listener.py`, because it imports `declare.py`, which imports `listener.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast, overload

from ..config import Isolation, TaskOptions, raise_problems
from ..context import Context
from ..errors import DeclarationError
from ..events.event import EventNames, FilterPolicy
from ..events.filters import filter_problem
from ..events.names import parts_problem, queue_problem
from ..jobs.settlement import RetryIn, default_retry_in
from .declare import Exhausted, ensure_no_generator, name_of, several
from .listener import Listener
from .registry import Registry

if TYPE_CHECKING:
    from ..app import Laneway

T = TypeVar("T")


class ListenerDecorator(Protocol):
    """What `@app.listener(…)` returns."""

    def __call__(self, target: Callable[[T], object], /) -> Listener[T]: ...


class ContextListenerDecorator(Protocol):
    """What `@app.listener(…, context=True)` returns."""

    def __call__(self, target: Callable[[Context, T], object], /) -> Listener[T]: ...


class ListenerDeclarations:
    """The part of an app that listeners are declared with."""

    registry: Registry
    names: EventNames
    name: str | None

    @overload
    def listener(
        self,
        event: str,
        /,
        *,
        context: Literal[True],
        source: str | None = None,
        destination: str | None = None,
        name: str | None = None,
        filter: FilterPolicy | None = None,
        max_retry_count: int | None = None,
        retry_in: RetryIn = ...,
        bury_on: Iterable[type[Exception]] = (),
        retries_exhausted: Exhausted | None = None,
        time_limit: float | timedelta | None = None,
        isolation: Isolation | None = None,
    ) -> ContextListenerDecorator: ...

    @overload
    def listener(
        self,
        event: str,
        /,
        *,
        context: Literal[False] = False,
        source: str | None = None,
        destination: str | None = None,
        name: str | None = None,
        filter: FilterPolicy | None = None,
        max_retry_count: int | None = None,
        retry_in: RetryIn = ...,
        bury_on: Iterable[type[Exception]] = (),
        retries_exhausted: Exhausted | None = None,
        time_limit: float | timedelta | None = None,
        isolation: Isolation | None = None,
    ) -> ListenerDecorator: ...

    def listener(
        self,
        event: str,
        /,
        *,
        context: bool = False,
        source: str | None = None,
        destination: str | None = None,
        name: str | None = None,
        filter: FilterPolicy | None = None,
        max_retry_count: int | None = None,
        retry_in: RetryIn = default_retry_in,
        bury_on: Iterable[type[Exception]] = (),
        retries_exhausted: Exhausted | None = None,
        time_limit: float | timedelta | None = None,
        isolation: Isolation | None = None,
    ) -> Any:
        """Declare a function as a listener: it is run with the value of every such event that is published.

        Its queue is its alone, and has a copy of each event from when a worker has first served it on, or from
        `laneway subscribe`.

        Args:
            event: The name of the event.
            context: Hand the function a Context before the value.
            source: The name of the app that publishes it; without one it is generic, and any app may.
            destination: Stands in the name of its queue instead of the app's own name.
            name: Its name, instead of the function's own.
            filter: Conditions on an event's attributes, in the words of SNS: {"country": ["DE"]}. Others do not come.
            max_retry_count: How often a failed job is run again: 25 unless said, 0 for never.
            retry_in: Seconds before retry n, counted from 0.
            bury_on: Exception types that are never retried: the job goes to the morgue.
            retries_exhausted: Called with the jobs just buried.
            time_limit: Seconds, or a timedelta, that a run may take, as for `task`.
            isolation: "process" or "fresh", as for `task`.
        """
        if callable(event):
            raise DeclarationError(
                "A listener needs the name of its event; declare it with @app.listener('order_placed', source='shop')."
            )
        given = {
            "max_retry_count": max_retry_count,
            "retry_in": retry_in,
            "bury_on": several("bury_on", bury_on),
            "retries_exhausted": retries_exhausted,
            "time_limit": time_limit,
            "isolation": isolation,
        }

        def register(target: Any) -> Listener[Any]:
            app = cast("Laneway", self)
            listener = _listener(app, target, name, context, event, source, destination, filter, given)
            app.ensure_supported(listener)
            self.registry.add_listener(listener)
            return listener

        return register

    def listeners(self) -> list[Listener[Any]]:
        """The listeners that are declared, in the order of their declaration."""
        return [*self.registry.listeners.values()]


def _listener(
    app: Laneway,
    target: Any,
    name: str | None,
    context: bool,
    event: str,
    source: str | None,
    destination: str | None,
    filter: FilterPolicy | None,
    given: dict[str, Any],
) -> Listener[Any]:
    """Check a declaration and make the listener of it."""
    if not callable(target) or isinstance(target, type):
        kind = f"the class {target.__name__}" if isinstance(target, type) else type(target).__name__
        raise DeclarationError(f"A listener is a function of an event's value, not {kind}.")
    name = name_of(target, name, what="listener")
    about = f"Listener {name}: "
    if problem := parts_problem(event, source=source, destination=destination):
        raise DeclarationError(about + problem)
    if app.name is None:
        raise DeclarationError(
            f"{about}listening needs the app's name, which stands in the names of its queues; give it as "
            "Laneway(name=…)."
        )
    destination = app.name if destination is None else destination
    queue = app.names.queue(destination, event, source)
    if problem := queue_problem(queue) or (None if filter is None else filter_problem(filter)):
        raise DeclarationError(about + problem)
    options = TaskOptions(queue=queue, **given)
    raise_problems(options.validate(), DeclarationError, about)
    ensure_no_generator(name, target, "listener")
    return Listener(
        app,
        target,
        name=name,
        context=context,
        event=event,
        source=source,
        destination=destination,
        filter=deepcopy(filter),
        options=options,
    )
