"""The due time inside a ticket that waits 15 minutes at a time, when there is no table.

Owns the edits of a ticket's text; everything else in the ticket, and its order, stays. A body that is not a ticket,
such as the value of an event, is never changed: its due time is in its `MessageNote` (the attribute `laneway`). This
file does not decide how a job waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ....jobs.ticket import DECODE_ERRORS, execute_after
from ....tasks.signature import encode

if TYPE_CHECKING:
    from .message import MessageNote

_AFTER = "_execute_after"
_JOB_ID = "_job_id"


class _TicketFields(msgspec.Struct):
    """The fields of a ticket that are used here. A third party may have written it: they may have any type."""

    id: Any = msgspec.field(name=_JOB_ID, default=None)
    task: Any = msgspec.field(name="_job_class", default=None)


_read = msgspec.json.Decoder(_TicketFields).decode
_read_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _ticket(body: str) -> _TicketFields | None:
    """The ticket, if the body is one or at least an object of JSON."""
    try:
        return _read(body)
    except DECODE_ERRORS:
        return None


def id_in(body: str) -> str | None:
    """The id of a keyed call that its ticket carries."""
    ticket = _ticket(body) if _JOB_ID in body else None
    return ticket.id if ticket is not None and isinstance(ticket.id, str) and ticket.id else None


def task_in(body: str) -> str | None:
    """The name of the task that a ticket is for."""
    ticket = _ticket(body)
    return ticket.task if ticket is not None and isinstance(ticket.task, str) else None


def with_execute_after(body: str, at: int | None) -> str:
    """The ticket with this time in it, or with none. What is no object of JSON stays as it is."""
    if at is None and _AFTER not in body:
        return body
    try:
        parts = _read_parts(body)
    except DECODE_ERRORS:
        return body
    parts.pop(_AFTER, None)
    if at is not None:
        id = parts.pop(_JOB_ID, None)
        parts[_AFTER] = msgspec.Raw(b"%d" % at)
        if id is not None:
            parts[_JOB_ID] = id
    return "{" + ",".join(f"{encode(name).decode()}:{bytes(part).decode()}" for name, part in parts.items()) + "}"


def carries_time(body: str, note: MessageNote) -> bool:
    """Whether a body is a ticket, and has room for a time. A listener must get a value as it was published."""
    return not note.value and task_in(body) is not None


def waits_until(body: str, note: MessageNote) -> float | None:
    """Until when a message that has arrived is to be sent on rather than run: what its ticket says, else its note."""
    if note.due is None and _AFTER not in body:
        return None
    return execute_after(body) if carries_time(body, note) else note.due
