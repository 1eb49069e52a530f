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
    """The fields of an SNS envelope that matter here. An event that looks like an envelope lacks some of them."""

    kind: Literal["Notification"] = msgspec.field(name="Type")
    id: str = msgspec.field(name="MessageId")
    topic: str = msgspec.field(name="TopicArn")
    message: str = msgspec.field(name="Message")
    sent_at: str = msgspec.field(name="Timestamp")
    attributes: dict[str, _Attribute] = msgspec.field(name="MessageAttributes", default={})


_read = msgspec.json.Decoder(_Envelope).decode


def unwrapped(body: str) -> tuple[str, dict[str, Any]] | None:
    """The body and the message attributes in an envelope; None if it is not an envelope."""
    if not body.startswith("{") or '"TopicArn"' not in body:
        return None
    try:
        envelope = _read(body)
        return envelope.message, {name: _attribute(each) for name, each in envelope.attributes.items()}
    except (ValueError, RecursionError):  # those of msgspec and base64 are ValueErrors
        return None


def _attribute(attribute: _Attribute) -> dict[str, Any]:
    if attribute.kind.startswith("Binary"):
        return {"DataType": attribute.kind, "BinaryValue": base64.b64decode(attribute.value, validate=True)}
    return {"DataType": attribute.kind, "StringValue": attribute.value}


#: Our message attribute.
ATTRIBUTE = "laneway"

#: Bytes that a message may grow by after it was enqueued, not counting its error: counters, and `_execute_after`.
ROOM = 256
#: The most bytes of an error in a message.
MAX_ERROR = 16_384

#: What SQS accepts as MessageGroupId and MessageDeduplicationId: ASCII letters, digits and punctuation.
_ID = re.compile(r"[!-~]{1,128}")
#: Characters that SQS rejects in a body and in the text of an attribute.
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
    """The data of a job besides the ticket: JSON in the attribute `laneway`."""

    #: The job's id: a plain job's key, a keyed call's identity.
    id: str
    #: A keyed call's key.
    key: str = ""
    #: The due time in unix seconds; None: on arrival.
    due: float | None = None
    retry_count: int = -1
    #: How often the job was handed out before this message was sent.
    attempt: int = 0
    deaths: int = 0
    #: How often it was sent on since it was enqueued. Id, attempt and hop make up the deduplication id.
    hop: int = 0
    error: str | None = None
    #: In the morgue: when it was buried.
    buried_at: float | None = None
    headers: Headers | None = None
    #: The MessageGroupId of a plain job, for SQS fair queues.
    group: str = ""
    expires: float | None = None
    #: In the morgue: the queue that it was buried from. Several queues may share a dead-letter queue.
    queue: str = ""
    #: The third-party message attributes beyond the number that SQS accepts.
    more: dict[str, dict[str, str]] | None = None
    #: It was published, under the event's id. The copy in each queue gets an id of its own.
    event: bool = False
    #: The body is the value of an event, not a ticket. It is neither parsed nor changed.
    value: bool = False


class OutgoingMessage(msgspec.Struct):
    """A message that is to be sent."""

    body: str
    note: MessageNote
    #: Third-party message attributes, in the format of SQS. They are kept when a message is sent on.
    attributes: dict[str, Any] = {}
    #: It is sent without our attribute, as it came, because there is no room for the attribute.
    is_bare: bool = False

    @property
    def key(self) -> str:
        """The key of its job. A plain job's is its id."""
        return self.note.key or self.note.id


class Message(msgspec.Struct, eq=False):
    """A message that was received and is not settled yet."""

    sqs_queue: SQSQueue
    receipt: str
    #: SQS's own id of the message.
    message_id: str
    body: str
    note: MessageNote
    attributes: dict[str, Any]
    kind: Kind
    receive_count: int
    #: Unix seconds, when it was sent.
    sent_at: float
    #: Its sequence number in a FIFO queue.
    sequence: int = 0
    #: On the monotonic clock: when it was received, and until when no other receiver gets it.
    received_at: float = 0.0
    hidden_until: float = 0.0
    #: It came without our attribute.
    is_bare: bool = False


_read_note = msgspec.json.Decoder(MessageNote).decode
_write = msgspec.json.Encoder().encode
_log = logging.getLogger("laneway")


# -- out -----------------------------------------------------------------------------------------------


def outgoing_of(job: NewJob, due: float | None = None) -> OutgoingMessage:
    """The message of a new job. `due` is its due time in unix seconds, if it has one."""
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
    """A received message, to be sent on under another deduplication id. `changes` are changes of its note."""
    attributes, more = packed(message.attributes)
    note = msgspec.structs.replace(message.note, **{"hop": message.note.hop + 1, "more": more, **changes})
    return OutgoingMessage(message.body, note, attributes)


def as_it_came(message: Message, letter: OutgoingMessage) -> OutgoingMessage:
    """The message as it was received. It fits even if `letter`, which holds more data about the job, does not."""
    if message.is_bare:
        # Its note is not written, but its deduplication id comes from the note. Without `buried_at` it keeps its group.
        note = msgspec.structs.replace(letter.note, buried_at=None)
        attributes = dict(list(message.attributes.items())[: MOST + 1])  # an envelope may have more
        return OutgoingMessage(message.body, note, attributes, is_bare=True)
    attributes, more = packed(message.attributes)
    return OutgoingMessage(message.body, msgspec.structs.replace(message.note, more=more), attributes)


def entry_of(outgoing: OutgoingMessage, id: str, sqs_queue: SQSQueue, delay_s: int) -> dict[str, Any]:
    """The entry of a message for SendMessageBatch. `id` identifies it within the request."""
    entry: dict[str, Any] = {"Id": id, "MessageBody": outgoing.body, "MessageAttributes": attributes_of(outgoing)}
    note = outgoing.note
    if sqs_queue.fifo:
        # Dead jobs have no order. Each is a group of its own, because SQS delivers at most 10 of a group at once.
        entry["MessageGroupId"] = group_of((note.key if note.buried_at is None else "") or note.id)
        entry["MessageDeduplicationId"] = _fitting(f"{note.id}-{note.attempt}-{note.hop}")
    else:
        if note.group:
            entry["MessageGroupId"] = note.group
        if delay_s > 0:
            entry["DelaySeconds"] = delay_s
    return entry


def attributes_of(outgoing: OutgoingMessage) -> dict[str, Any]:
    """The attributes that a message is sent with, including ours."""
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
    """The message with its error cut to fit into `limit` bytes, so that no retry fails because of its error.

    If it does not fit without the error either, the third-party attributes beyond the number of SQS are dropped.
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
    """The MessageGroupId of a key: the key itself, or its digest if SQS does not accept the key."""
    # A key that begins with # is hashed, too, so that no key equals the digest of another.
    return _fitting(key) if not key.startswith("#") else _digest(key)


def _fitting(text: str) -> str:
    return text if _ID.fullmatch(text) else _digest(text)


def _digest(text: str) -> str:
    return "#" + hashlib.sha256(text.encode()).hexdigest()


def is_group(text: str) -> bool:
    """Whether SQS accepts a text as a MessageGroupId."""
    return _ID.fullmatch(text) is not None


def refused_character(text: str) -> str | None:
    """The first character that SQS rejects, written like U+FFFE, if there is one."""
    found = None if text.isascii() and text.isprintable() else _REFUSED.search(text)
    return f"U+{ord(found[0]):04X}" if found else None


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _quoted_bytes(text: str) -> int:
    return _bytes(_json(text)) - 2


def _note_text(note: MessageNote) -> str:
    try:
        return _json(note)
    except UnicodeEncodeError:  # file names that are not UTF-8 put lone surrogates into errors
        return _json(msgspec.structs.replace(note, error=storable(note.error)))


def _json(value: MessageNote | str) -> str:
    # SQS rejects these two, and JSON does not escape them. All other rejected characters are escaped already.
    return _write(value).decode().replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")


# -- in ------------------------------------------------------------------------------------------------


def read(sqs_queue: SQSQueue, raw: dict[str, Any], now_monotonic: float, hidden_s: float) -> Message:
    """Decode a message from ReceiveMessage. Other receivers do not get it for `hidden_s` from `now_monotonic` on."""
    system: dict[str, str] = raw.get("Attributes") or {}
    body: str = raw.get("Body") or ""
    attributes = {
        name: {part: value[part] for part in ("DataType", "StringValue", "BinaryValue") if part in value}
        for name, value in (raw.get("MessageAttributes") or {}).items()
    }
    # SNS puts the attributes into the envelope: a message with attributes is not an envelope.
    envelope = None if attributes else unwrapped(body)
    if envelope is not None:
        body, attributes = envelope
    known = _note_of(attributes.pop(ATTRIBUTE, None))
    # Only keyed calls have an id in their tickets, and they are only in FIFO queues. So no event can choose its id.
    note = known or MessageNote(
        (id_in(body) if sqs_queue.fifo else None) or raw["MessageId"], value=envelope is not None
    )
    if note.event:
        note.id, note.event, note.value = copy_key(note.id, sqs_queue.queue), False, True
    attributes, note.more = unpacked(attributes, note.more), None
    if sqs_queue.fifo and not note.key:
        note.key = system.get("MessageGroupId", "") or note.id
    elif not sqs_queue.fifo and not note.group:
        note.group = system.get("MessageGroupId", "")
    return Message(
        sqs_queue=sqs_queue,
        receipt=raw["ReceiptHandle"],
        message_id=raw["MessageId"],
        body=body,
        note=note,
        attributes=attributes,
        kind=Kind.KEYED if sqs_queue.fifo else Kind.PLAIN,
        receive_count=int(system.get("ApproximateReceiveCount", 1)),
        sent_at=int(system.get("SentTimestamp", 0)) / 1_000,
        sequence=int(system.get("SequenceNumber", 0)),
        received_at=now_monotonic,
        hidden_until=now_monotonic + hidden_s,
        is_bare=known is None,
    )


def headers_of(message: Message) -> Headers | None:
    """The headers of a job: those that it was enqueued with, and the third-party attributes that are text.

    Returns a copy, because a handler may change it. A retry is sent with the headers that the job came with.
    """
    headers = {**texts(message.attributes), **(message.note.headers or {})}
    return headers or None


def _note_of(attribute: dict[str, Any] | None) -> MessageNote | None:
    """Our note; None if there is none, or if it cannot be read. The message is a job in either case."""
    try:
        note = _read_note((attribute or {}).get("StringValue", ""))
    except msgspec.DecodeError:
        return None
    return note if note.id else None
