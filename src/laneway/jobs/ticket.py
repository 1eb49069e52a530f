"""The ticket: the JSON text that names a task and its params, as every broker stores it.

    {"_job_class":"Name","_job_params":{…}|null}

A keyed call also has `"_job_id":"…"` at its end, so that two equal calls of a key are two payloads. A ticket that
Sqewer has delayed has `"_execute_after":…`, in unix seconds.

The format is that of Sqewer, the Ruby original: each of the two reads the other's tickets. Decoding a ticket only
looks up registered tasks. It never imports code, and never builds a class that was not declared.
"""

from __future__ import annotations

import inspect
import math
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import NotATicketError, TicketError
from ..tasks.signature import Params, UnstorableValueError, encode
from .data import Kind

if TYPE_CHECKING:
    from ..tasks.registry import Registry
    from ..tasks.task import AnyTask, TicketTask


class Call:
    """A task together with its arguments: what a body is read into, and what a run carries out."""

    __slots__ = ("params", "task")

    def __init__(self, task: AnyTask, params: Params) -> None:
        self.task = task
        self.params = params

    def __repr__(self) -> str:
        return f"<Call of {self.task.name}>"


class _Ticket(msgspec.Struct):
    name: str = msgspec.field(name="_job_class")
    params: msgspec.Raw = msgspec.field(name="_job_params", default_factory=lambda: msgspec.Raw(b"null"))


class _Delayed(msgspec.Struct):
    name: str = msgspec.field(name="_job_class")
    after: Any = msgspec.field(name="_execute_after", default=None)


_read = msgspec.json.Decoder(_Ticket).decode
_read_delayed = msgspec.json.Decoder(_Delayed).decode
#: What msgspec raises for a text that it cannot decode.
DECODE_ERRORS = (msgspec.DecodeError, RecursionError, UnicodeEncodeError)


def execute_after(body: str) -> int | None:
    """The time before which a ticket must not run, in unix seconds; None if it says none, or if it is no ticket."""
    if "_execute_after" not in body:
        return None
    try:
        after = _read_delayed(body).after
    except DECODE_ERRORS:
        return None
    # What is no time counts as none: a text, NaN, a number beyond all that floats can count in seconds.
    if isinstance(after, bool) or not isinstance(after, (int, float)) or not abs(after) < 2**53:
        return None
    return math.ceil(after)


def takes_id(serializer: Serializer) -> bool:
    """Whether a serializer, which may be somebody's own, takes the id of a keyed call."""
    try:
        parameters = inspect.signature(serializer.dumps).parameters.values()
    except (AttributeError, TypeError, ValueError):  # it only reads, or Python cannot look into it
        return False
    return any(p.kind is p.VAR_KEYWORD or (p.name == "id" and p.kind is not p.POSITIONAL_ONLY) for p in parameters)


class Serializer:
    """Turns calls into bodies and bodies into calls. Subclass it to read bodies that others have written.

    `loads` may return a Call (`task.call(…)`), an instance of a task class, or None: then the job is deleted.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._heads: dict[str, bytes] = {}

    def dumps(self, task: TicketTask, params: Params, id: str | None = None) -> str:
        """Return the body for a call of `task`; raises UnstorableValueError for params that would not survive.

        `id` is a keyed call's own. A subclass that does not take it writes tickets without: that is all right too.
        """
        head = self._heads.get(task.name)
        if head is None:
            head = self._heads[task.name] = b'{"_job_class":' + encode(task.name) + b',"_job_params":'
        if id is None:
            return (head + task.pack(params) + b"}").decode()
        return (head + task.pack(params) + b',"_job_id":' + encode(id) + b"}").decode()

    def task_of(self, body: str) -> TicketTask | None:
        """The task that `body` names, without reading its params; None if that cannot be told."""
        try:
            # A subclass may read other bodies, and only its `loads` knows how.
            return self.registry.find(_read(body).name) if type(self).loads is Serializer.loads else None
        except DECODE_ERRORS:
            return None

    def loads(self, body: str) -> Call | Any | None:
        """Return the call that `body` describes, None for an empty one; raises TicketError when it describes none.

        A NotATicketError buries the job at once; after any other error it is retried, because a deploy may mend it.
        """
        if not body:
            return None
        try:
            ticket = _read(body)
        except DECODE_ERRORS as error:
            raise NotATicketError(f"The body is not a ticket: {error}.") from None
        task = self.registry.find(ticket.name)
        if task is None:
            if other := self.registry.not_by_tickets(ticket.name):
                kind = "collecting task" if other.kind is Kind.COLLECTING else "listener"
                raise TicketError(f"{ticket.name!r} is a {kind}, and is not run by tickets; delete the job.")
            raise TicketError(
                f"There is no task named {ticket.name!r} in this app; declare it, give its successor that name as an "
                "alias, or delete the job."
            )
        try:
            return Call(task, task.signature.unpack(bytes(ticket.params)))
        except UnstorableValueError as error:
            raise TicketError(f"The params do not fit the task {task.name}: {error}.", task=task) from None
