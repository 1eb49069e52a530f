"""Encodes jobs as SQS messages and decodes messages into jobs. Never calls AWS.

The body is the ticket or the value of an event. All else is in one message attribute, `laneway`. A body without that
attribute, as the Ruby original writes it, is a job, too. Its id is that of the message; on a FIFO queue, that of the
ticket if it has an id. SNS wraps an event in an envelope for a queue that is subscribed without raw delivery; after
unwrapping, the message is the same as without an envelope.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import math
import re
from typing import Any, Literal

import msgspec

from ....events.event import copy_key
from ....jobs.data import Headers, Kind, NewJob
from ...shared import storable
from .attributes import MOST, packed, published, texts, unpacked
from .hop_delay import id_in
from .hop_delay import waits_until as waits_until
from .hop_delay import with_execute_after as with_execute_after


class _Attribute(msgspec.Struct):
    kind: str = msgspec.field(name="Type")
    value: str = msgspec.field(name="Value")


class _Envelope(msgspec.Struct):
    """What SNS writes, as far as it matters here. That it is all there tells it from an event that looks alike."""

    kind: Literal["Notification"] = msgspec.field(name="Type")
    id: str = msgspec.field(name="MessageId")
    topic: str = msgspec.field(name="TopicArn")
    message: str = msgspec.field(name="Message")
    sent_at: str = msgspec.field(name="Timestamp")
    attributes: dict[str, _Attribute] = msgspec.field(name="MessageAttributes", default={})


_read = msgspec.json.Decoder(_Envelope).decode


def unwrapped(body: str) -> tuple[str, dict[str, Any]] | None:
    """The body and the message attributes that are in an envelope; None: it is none."""
    if not body.startswith("{") or '"TopicArn"' not in body:
        return None
    try:
        envelope = _read(body)
        return envelope.message, {name: _attribute(each) for name, each in envelope.attributes.items()}
    except (ValueError, RecursionError):  # msgspec's errors are among the first, and so are those of base64
        return None


def _attribute(told: _Attribute) -> dict[str, Any]:
    if told.kind.startswith("Binary"):
        return {"DataType": told.kind, "BinaryValue": base64.b64decode(told.value, validate=True)}
    return {"DataType": told.kind, "StringValue": told.value}


#: The one message attribute that is ours.
ATTRIBUTE = "laneway"

#: Bytes that a message may grow by after it was enqueued, its error aside: counts, and `_execute_after`.
ROOM = 256
#: The most bytes of an error that travel with a message.
MAX_ERROR = 16_384

#: What SQS takes as MessageGroupId and MessageDeduplicationId: letters, digits and punctuation, of ASCII.
_ID = re.compile(r"[!-~]{1,128}")
#: What SQS takes neither as a body nor as the text of an attribute.
_REFUSED = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class SQSQueue(msgspec.Struct, frozen=True):
    """One SQS queue: the standard or the FIFO one of a Laneway queue, or the dead-letter queue of either."""

    #: The Laneway queue.
    queue: str
    #: The SQS queue's own name, `.fifo` included.
    name: str
    url: str
    fifo: bool = False


class MessageNote(msgspec.Struct, omit_defaults=True):
    """What travels beside the ticket, in the attribute `laneway`, as JSON."""

    #: The job's id: a plain job's key, a keyed call's identity.
    id: str
    #: A keyed call's key.
    key: str = ""
    #: When it was to be run, in unix seconds; None: when it arrives.
    due: float | None = None
    retry_count: int = -1
    #: How often it was handed out before this message was sent.
    attempt: int = 0
    deaths: int = 0
    #: How often it was sent on since it was enqueued: with id and attempt it makes the deduplication id.
    hop: int = 0
    error: str | None = None
    #: In the morgue: when it was buried.
    buried_at: float | None = None
    headers: Headers | None = None
    #: The MessageGroupId of a plain job, for SQS fair queues.
    group: str = ""
    expires: float | None = None
    #: In the morgue: the queue that it was buried from; several may share a dead-letter queue.
    queue: str = ""
    #: Message attributes of others, those beyond the number that SQS takes.
    more: dict[str, dict[str, str]] | None = None
    #: It was published, under the event's id: a queue that gets a copy has it under an id of its own.
    event: bool = False
    #: The body is the value of an event and no ticket: nothing in it is read, and nothing is written there.
    value: bool = False


class OutgoingMessage(msgspec.Struct):
    """A message that is to be sent."""

    body: str
    note: MessageNote
    #: Message attributes of others, in the form in which SQS takes them; kept whenever a message is sent on.
    attributes: dict[str, Any] = {}
    #: It goes without our attribute, as it came, because there is no room for that.
    is_bare: bool = False


class Message(msgspec.Struct, eq=False):
    """A message that was received and is not settled yet."""

    channel: SQSQueue
    receipt: str
    #: SQS's own id of it.
    message_id: str
    body: str
    note: MessageNote
    attributes: dict[str, Any]
    kind: Kind
    receive_count: int
    #: Unix seconds, when it was sent.
    sent_at: float
    #: Its place in a FIFO queue.
    sequence: int = 0
    #: On the monotonic clock: when it was received, and until when nobody else gets it.
    received_at: float = 0.0
    hidden_until: float = 0.0
    #: It came without our attribute.
    is_bare: bool = False


_read_note = msgspec.json.Decoder(MessageNote).decode
_write = msgspec.json.Encoder().encode
_log = logging.getLogger("laneway")


# -- out -----------------------------------------------------------------------------------------------


def outgoing_of(job: NewJob, due: float | None = None) -> OutgoingMessage:
    """The message of a new job; `due` is its time in unix seconds, if it has one."""
    if job.kind is Kind.KEYED:
        id, key, group = job.identity, job.key, ""
    else:
        id, key, group = job.key, "", job.hints.group if job.hints else ""
    note = MessageNote(id, key, due, headers=job.headers or None, group=group, expires=job.expires, event=job.to_topic)
    if job.event is None:
        return OutgoingMessage(job.body, note)
    note.value = not job.to_topic
    attributes, headers = published(job.event.attributes or {}, job.headers or {})
    note.headers = headers or None
    attributes, note.more = packed(attributes)
    return OutgoingMessage(job.body, note, attributes)


def resend_of(message: Message, **changes: Any) -> OutgoingMessage:
    """A message that was received, to be sent on under another deduplication id; `changes` are those of its note."""
    attributes, more = packed(message.attributes)
    note = msgspec.structs.replace(message.note, **{"hop": message.note.hop + 1, "more": more, **changes})
    return OutgoingMessage(message.body, note, attributes)


def as_it_came(message: Message, letter: OutgoingMessage) -> OutgoingMessage:
    """What fits whenever `letter`, the same with all that is known of it, does not."""
    if message.is_bare:
        # Its note is not written, but makes its deduplication id; and it is buried as what it was.
        note = msgspec.structs.replace(letter.note, buried_at=None)
        attributes = dict(list(message.attributes.items())[: MOST + 1])  # an envelope may have held more
        return OutgoingMessage(message.body, note, attributes, is_bare=True)
    attributes, more = packed(message.attributes)
    return OutgoingMessage(message.body, msgspec.structs.replace(message.note, more=more), attributes)


def entry_of(outgoing: OutgoingMessage, id: str, channel: SQSQueue, delay_s: int) -> dict[str, Any]:
    """A message as SendMessageBatch takes it; `id` names it among those of its request."""
    entry: dict[str, Any] = {"Id": id, "MessageBody": outgoing.body, "MessageAttributes": attributes_of(outgoing)}
    note = outgoing.note
    if channel.fifo:
        # The dead are in no order, and each is a group of its own: SQS shows no more than 10 of a group at once.
        entry["MessageGroupId"] = group_of((note.key if note.buried_at is None else "") or note.id)
        entry["MessageDeduplicationId"] = _fitting(f"{note.id}-{note.attempt}-{note.hop}")
    else:
        if note.group:
            entry["MessageGroupId"] = note.group
        if delay_s > 0:
            entry["DelaySeconds"] = delay_s
    return entry


def attributes_of(outgoing: OutgoingMessage) -> dict[str, Any]:
    """The message attributes with which a message is sent, ours included."""
    if outgoing.is_bare:
        return dict(outgoing.attributes)
    return {**outgoing.attributes, ATTRIBUTE: {"DataType": "String", "StringValue": _note_text(outgoing.note)}}


def size_of(outgoing: OutgoingMessage) -> int:
    """The bytes that SQS counts: the body, and the names, types and values of the attributes."""
    size = _bytes(outgoing.body)
    if not outgoing.is_bare:
        size += len(ATTRIBUTE) + len("String") + _bytes(_note_text(outgoing.note))
    for name, value in outgoing.attributes.items():
        size += _bytes(name) + _bytes(value.get("DataType", ""))
        size += len(value.get("BinaryValue", b"")) + _bytes(value.get("StringValue", ""))
    return size


def fitted(outgoing: OutgoingMessage, limit: int) -> OutgoingMessage:
    """The same with as much of its error as a message of `limit` bytes has room for: no retry may fail by its error.

    If there is no room without it either, those attributes of others go that SQS would not have taken.
    """
    made = _cut(outgoing, limit)
    more = outgoing.note.more
    if outgoing.is_bare or not more or size_of(made) <= limit:
        return made
    _log.warning(
        "the job %s is sent on without %d message attribute%s of others (%s): its message has no room for more",
        outgoing.note.id,
        len(more),
        "" if len(more) == 1 else "s",
        ", ".join(more),
    )
    note = msgspec.structs.replace(outgoing.note, more=None)
    return _cut(OutgoingMessage(outgoing.body, note, outgoing.attributes), limit)


def _cut(outgoing: OutgoingMessage, limit: int) -> OutgoingMessage:
    error = None if outgoing.is_bare else storable(outgoing.note.error)
    if not error or (len(error) * 6 <= MAX_ERROR and size_of(outgoing) <= limit):
        return outgoing
    without = OutgoingMessage(outgoing.body, msgspec.structs.replace(outgoing.note, error=None), outgoing.attributes)
    room = min(MAX_ERROR, limit - size_of(without) - len(',"error":""'))
    if room >= _quoted_bytes(error):
        return outgoing
    kept = error[-max(room, 1) :]  # the end of a traceback says more than its beginning
    while kept and (over := _quoted_bytes(f"…{kept}") - room) > 0:
        kept = kept[math.ceil(over / 6) :]  # in JSON a character is up to six bytes
    without.note.error = f"…{kept}" if kept else None
    return without


def group_of(key: str) -> str:
    """The MessageGroupId of a key: itself, or a digest of what SQS does not take as one."""
    # No key is taken for the digest of another.
    return _fitting(key) if not key.startswith("#") else _digest(key)


def _fitting(text: str) -> str:
    return text if _ID.fullmatch(text) else _digest(text)


def _digest(text: str) -> str:
    return "#" + hashlib.sha256(text.encode()).hexdigest()


def is_group(text: str) -> bool:
    """Whether SQS takes a text as a MessageGroupId."""
    return _ID.fullmatch(text) is not None


def refused_character(text: str) -> str | None:
    """The first character that SQS does not take, as U+FFFE, if there is one."""
    found = None if text.isascii() and text.isprintable() else _REFUSED.search(text)
    return f"U+{ord(found[0]):04X}" if found else None


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _quoted_bytes(text: str) -> int:
    return _bytes(_json(text)) - 2


def _note_text(note: MessageNote) -> str:
    try:
        return _json(note)
    except UnicodeEncodeError:  # file names that are no UTF-8 bring half characters into errors
        return _json(msgspec.structs.replace(note, error=storable(note.error)))


def _json(value: MessageNote | str) -> str:
    # Those that JSON leaves as they are and SQS refuses; all others are escaped already.
    return _write(value).decode().replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")


# -- in ------------------------------------------------------------------------------------------------


def read(channel: SQSQueue, raw: dict[str, Any], now_monotonic: float, hidden_s: float) -> Message:
    """A message as ReceiveMessage brings it, hidden from others for `hidden_s` from `now_monotonic` on."""
    system: dict[str, str] = raw.get("Attributes") or {}
    body: str = raw.get("Body") or ""
    attributes = {
        name: {part: value[part] for part in ("DataType", "StringValue", "BinaryValue") if part in value}
        for name, value in (raw.get("MessageAttributes") or {}).items()
    }
    # SNS puts the attributes into the envelope: a message that has some is none.
    envelope = None if attributes else unwrapped(body)
    if envelope is not None:
        body, attributes = envelope
    known = _note_of(attributes.pop(ATTRIBUTE, None))
    # Only keyed calls carry an id in their tickets, and only FIFO queues hold them: no event can name its own.
    note = known or MessageNote((id_in(body) if channel.fifo else None) or raw["MessageId"], value=envelope is not None)
    if note.event:
        note.id, note.event, note.value = copy_key(note.id, channel.queue), False, True
    attributes, note.more = unpacked(attributes, note.more), None
    if channel.fifo and not note.key:
        note.key = system.get("MessageGroupId", "") or note.id
    elif not channel.fifo and not note.group:
        note.group = system.get("MessageGroupId", "")
    return Message(
        channel=channel,
        receipt=raw["ReceiptHandle"],
        message_id=raw["MessageId"],
        body=body,
        note=note,
        attributes=attributes,
        kind=Kind.KEYED if channel.fifo else Kind.PLAIN,
        receive_count=int(system.get("ApproximateReceiveCount", 1)),
        sent_at=int(system.get("SentTimestamp", 0)) / 1_000,
        sequence=int(system.get("SequenceNumber", 0)),
        received_at=now_monotonic,
        hidden_until=now_monotonic + hidden_s,
        is_bare=known is None,
    )


def headers_of(message: Message) -> Headers | None:
    """What came beside a job: the headers that it was enqueued with, and the attributes of others that are text.

    A copy: a handler may change it, and a retry is sent with the headers that the job came with.
    """
    headers = {**texts(message.attributes), **(message.note.headers or {})}
    return headers or None


def _note_of(attribute: dict[str, Any] | None) -> MessageNote | None:
    """Our note; one that cannot be read is nobody's, and the message a job all the same."""
    try:
        note = _read_note((attribute or {}).get("StringValue", ""))
    except msgspec.DecodeError:
        return None
    return note if note.id else None
