"""Collecting: a task whose payloads are collected by key. A run gets all that have come since the last run.

It turns a payload into a job, and a stored body back into a payload. The task has a queue of its own, because
nothing in a payload names the task.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from ..config import CollectOptions, Isolation
from ..enqueue.options import EnqueueOptions, Item
from ..errors import DeclarationError, EnqueueError, TicketError
from ..handle import Handle
from ..jobs.data import Kind, NewJob
from ..jobs.keys import UNSET, key_text, score_number
from ..jobs.merge import identity_of
from .batch import Batch
from .signature import UnstorableValueError, ValueCodec, annotations_of, is_kind, positional

if TYPE_CHECKING:
    from ..app import Laneway
    from ..context import Context
    from .signature import Params

T = TypeVar("T")

#: The payload of what was enqueued with a key alone.
DEFAULT_PAYLOAD = ""

_ARGUMENTS = inspect.signature(lambda key=UNSET, payload=UNSET: None)


class Collecting(Generic[T]):
    """A declared collecting task. Calling it just runs it; `enqueue` adds a payload to those of a key."""

    def __init__(
        self, app: Laneway, target: Callable[..., Any], *, name: str, context: bool, options: CollectOptions
    ) -> None:
        self.app = app
        self.target = target
        self.name = name
        self.options = options
        self.sending = EnqueueOptions()
        self.takes_context = context
        self.is_async = is_kind(inspect.iscoroutinefunction, target)
        self.isolation: Isolation | None = options.isolated(self.is_async)
        assert options.queue is not None
        self.queue: str = options.queue
        self._quiet = options.quiet
        #: Of its jobs.
        self.kind = Kind.COLLECTING
        self._payload = ValueCodec(_payload_type(name, target, 1 if context else 0))
        self._may_be_left_out = self._payload.takes(DEFAULT_PAYLOAD)
        functools.update_wrapper(self, target, updated=())  # a function's own attributes stay its own

    @overload
    def __call__(self, batch: Batch[T], /) -> Any: ...

    @overload
    def __call__(self, context: Context, batch: Batch[T], /) -> Any: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task here and now, as if it were not one."""
        return self.target(*args, **kwargs)

    if TYPE_CHECKING:

        def enqueue(self, key: object, payload: T = ...) -> Handle:
            """Store a payload for a key. Once this has returned, it is stored. Without a payload it is `""`."""
            ...

    else:
        # Arguments are bound by `outgoing`, so that a wrong call is an EnqueueError that names the task.
        def enqueue(self, *args, **kwargs):
            """Store a payload for a key. Once this has returned, it is stored. Without a payload it is `""`."""
            return self.app.send([self.outgoing(args, kwargs)])[0]

    def enqueue_many(self, items: Iterable[tuple[object] | tuple[object, T] | Item]) -> list[Handle]:
        """Store many payloads at once. Everything is checked before anything is written; all are stored or none.

        Items are (key,), (key, payload) or Item(key, payload, score=…, perform_at=…).
        """

        def job(item: tuple[Any, ...] | Item) -> NewJob:
            if isinstance(item, tuple):
                return self.outgoing(item, {})
            if not isinstance(item, Item):
                kind = type(item).__name__
                raise EnqueueError(
                    f"Task {self.name}: enqueue_many takes tuples of key and payload or Item(…), not {kind}."
                )
            sending = self.sending.with_options(perform_at=item.perform_at, score=item.score)
            kwargs = item.kwargs if item.key is UNSET else {**item.kwargs, "key": item.key}
            return self.outgoing(item.args, kwargs, sending)

        return self.app.send(self.app.all_or_none(job, items))

    def using(
        self,
        *,
        score: float | None = None,
        delay: float | timedelta | None = None,
        perform_at: float | datetime | None = None,
        queue: None = None,
        key: None = None,
    ) -> Collecting[T]:
        """The same task with options for what is enqueued through it; used again, it adds to them.

        `queue` and `key` are here to be refused: its queue is its alone, and the key is an argument.
        """
        if queue is not None:
            raise EnqueueError(f"Task {self.name}: a collecting task has one queue, {self.queue}; leave queue out.")
        if key is not None:
            raise EnqueueError(f"Task {self.name}: the key is the first argument of enqueue; leave it out here.")
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.sending = self.sending.with_options(delay=delay, perform_at=perform_at, score=score)
        return other

    # -- out and in ------------------------------------------------------------------------------------

    def outgoing(self, args: tuple[Any, ...], kwargs: dict[str, Any], sending: EnqueueOptions | None = None) -> NewJob:
        """Make the job for a key and a payload; raises EnqueueError and stores nothing."""
        options = sending or self.sending
        try:
            if options.queue is not None or options.key is not None:
                raise UnstorableValueError(
                    "a collecting task has its own queue, and its key is an argument; leave both out"
                )
            key, payload = self._bind(args, kwargs)
            body = self._dump(payload)
            score = options.score
            if score is None and self.options.score is not None:
                score = score_number(self._computed("score", self.options.score, payload))
        except UnstorableValueError as error:
            raise EnqueueError(f"Task {self.name}: {error}.") from error.__cause__
        self.app.check_body(body, "Task {}: its payload", self.name)
        return NewJob(
            queue=self.queue,
            key=key,
            body=body,
            kind=Kind.COLLECTING,
            identity=identity_of(body),
            score=score,
            delay_s=options.delay_s,
            perform_at=options.perform_at,
            quiet=None if options.timed else self._quiet,
        )

    def load(self, body: str) -> T:
        """The payload that a body holds; raises TicketError for one that does not fit."""
        try:
            payload: T = self._payload.unpack(body) if self.app.load_payload is None else self.app.load_payload(body)
        except UnstorableValueError as error:
            raise TicketError(f"A payload does not fit the task {self.name}: {error}.", task=self) from None
        except Exception as error:
            raise TicketError(
                f"load_payload raised {type(error).__name__} for the task {self.name}.", task=self
            ) from error
        return payload

    def invoke(self, params: Params, context: Context) -> Any:
        """Call the handler with `params["batch"]`; for an async task this returns what is to be awaited."""
        if self.takes_context:
            return self.target(context, params["batch"])
        return self.target(params["batch"])

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, Any]:
        if not kwargs and 1 <= len(args) <= 2:
            key, payload = args[0], args[-1] if len(args) == 2 else UNSET
        else:
            try:
                given = _ARGUMENTS.bind(*args, **kwargs).arguments
            except TypeError as error:
                raise UnstorableValueError(f"it is given a key and a payload; {error}") from None
            key, payload = given.get("key", UNSET), given.get("payload", UNSET)
        if payload is UNSET:
            if key is UNSET:
                raise UnstorableValueError("it is given a key and a payload; both are missing")
            if self.options.key is not None:  # most likely the payload was given in the place of the key
                raise UnstorableValueError(
                    "its key comes from the payload; give the payload by its name, as in payload=…"
                )
            if self.app.dump_payload is None and not self._may_be_left_out:
                raise UnstorableValueError("its payloads have a type, so there is none by default; give a payload")
            payload = DEFAULT_PAYLOAD
        if key is UNSET:
            if self.options.key is None:
                raise UnstorableValueError("the key is missing; give it, or declare the task with key=…")
            key = self._computed("key", self.options.key, payload)
        return key_text(key), payload

    def _computed(self, what: str, function: Callable[[Any], Any], payload: Any) -> Any:
        try:
            return function(payload)
        except Exception as error:
            raise UnstorableValueError(f"{type(error).__name__} was raised by its {what} function") from error

    def _dump(self, payload: Any) -> str:
        dump = self.app.dump_payload
        if dump is None:
            return self._payload.pack(payload)
        try:
            return dump(payload)
        except Exception as error:
            raise UnstorableValueError(f"{type(error).__name__} was raised by dump_payload") from error

    def __repr__(self) -> str:
        return f"<Collecting {self.name}>"


class SelfKeyed(Collecting[T]):
    """A collecting task that was declared with `key=…`: a payload alone will do."""

    if TYPE_CHECKING:

        @overload  # type: ignore[override]  # a payload that keys come from cannot be left out
        def enqueue(self, key: object, payload: T) -> Handle: ...

        @overload
        def enqueue(self, *, payload: T) -> Handle: ...

        def enqueue(self, *args: Any, **kwargs: Any) -> Handle:
            """Store a payload, for the key that is given or for its own."""
            ...

        def using(
            self,
            *,
            score: float | None = None,
            delay: float | timedelta | None = None,
            perform_at: float | datetime | None = None,
            queue: None = None,
            key: None = None,
        ) -> SelfKeyed[T]: ...


def _payload_type(name: str, target: Callable[..., Any], skip: int) -> Any:
    """The T of the handler's `Batch[T]`; Any when it does not say."""
    signature = inspect.signature(target)
    try:
        signature.bind(*[None] * (skip + 1))
    except TypeError:
        given = "(context, batch: Batch)" if skip else "(batch: Batch)"
        raise DeclarationError(
            f"Task {name}: a collecting task is handed a batch and nothing else; declare it as def {name}{given}."
        ) from None
    parameters = positional(signature)[skip:]
    if not parameters:  # *args
        return Any
    batch = parameters[0]
    kind = annotations_of(target, frozenset((batch.name,))).get(batch.name, batch.annotation)
    if isinstance(kind, str):
        raise DeclarationError(
            f"Task {name}: the annotation {kind} of {batch.name} cannot be evaluated, so its payloads would lose their "
            "type; import what it names where it is also found at run time."
        )
    origin: Any = typing.get_origin(kind) or kind
    if origin is Batch:
        return next(iter(typing.get_args(kind)), Any)
    if origin not in (Any, batch.empty) and isinstance(origin, type) and origin not in Batch.__mro__:
        raise DeclarationError(
            f"Task {name}: a collecting task is handed a batch, and its parameter {batch.name} is for "
            f"{origin.__name__}; annotate it as Batch[…]."
        )
    return Any
