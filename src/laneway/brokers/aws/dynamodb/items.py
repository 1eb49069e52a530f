"""Encodes a delayed job as a row of the table and decodes it. Never calls AWS.

A row holds the message as it would have been sent, and is sent as it is stored:

    scheduler               laneway-0 … laneway-(N-1), by the job's id: the partition
    job_id                  the job's id: a plain job's key, a keyed call's own id
    perform_at              unix seconds
    queue                   the Laneway queue
    sqs_message_body        the ticket, as text
    sqs_message_attributes  the message attributes in the form that SQS takes, including `laneway`
    cancellable             true, if the job must stay cancellable until it is due
    claim, claim_until      the holder of a claim on the item, and when the claim ends

Items of the Ruby original have the partition `shoryuken-waiter`. Their body is a map, which is sent as JSON to the
queue that it names itself, and their attributes are spelled as in Ruby.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any
from zlib import crc32

import msgspec

from ....config import DEFAULT_QUEUE
from ....errors import EnqueueError
from ..settings import AWSSettings
from ..sqs.attributes import packed
from ..sqs.message import ATTRIBUTE, MessageNote, OutgoingMessage, attributes_of
from .client import Row, RowKey

RUBY = "shoryuken-waiter"
#: The group of the Ruby original's messages on FIFO queues.
RUBY_GROUP = "ShoryukenMessage"
INDEX = "scheduler-perform_at-index"
#: The largest item that DynamoDB takes.
LARGEST_ITEM = 400 * 1024

_json = msgspec.json.Encoder(order="sorted", decimal_format="number")
_read_note = msgspec.json.Decoder(MessageNote)


class DelayedItem(msgspec.Struct, kw_only=True):
    """A job that is stored in a table, or is to be stored there."""

    #: The job's id: a plain job's key, a keyed call's own; always that of `outgoing.note`.
    job_id: str
    perform_at: float
    #: The Laneway queue that it is for, and whether for its FIFO queue.
    queue: str
    fifo: bool = False
    outgoing: OutgoingMessage
    #: It must be possible to cancel it until it is due.
    cancellable: bool = False
    #: Empty for one that is to be stored: its id decides.
    partition: str = ""
    #: The process that is sending it, if there is one, and until when.
    claim: str = ""
    claim_until: float = 0.0
    #: Its message attributes as they are stored.
    attributes: dict[str, Any] = {}
    #: `perform_at` as it is stored, digit by digit.
    stored_at: Decimal = Decimal(0)

    @property
    def row_key(self) -> RowKey:
        return self.partition, self.job_id

    @property
    def stays(self) -> bool:
        """Whether it leaves the table when it is due, and no sooner. A FIFO queue does not delay single messages, and
        what SQS delays cannot be cancelled."""
        return self.fifo or self.cancellable

    def claimed(self, now: float, *, by_others_than: str = "") -> bool:
        """Whether another process is sending it now."""
        return bool(self.claim) and self.claim_until >= now and self.claim != by_others_than


class UnreadableError(ValueError):
    """An item does not describe a message; the text says why."""


def partition_of(job_id: str, partitions: int) -> str:
    """The partition of a new item."""
    return f"laneway-{crc32(job_id.encode()) % partitions}"


def partition_names(partitions: int) -> list[str]:
    """All partitions that may have items."""
    return [*(f"laneway-{n}" for n in range(partitions)), RUBY]


def queue_named(settings: AWSSettings, name: str) -> tuple[str, bool]:
    """The Laneway queue of an SQS queue's name, and whether that is its FIFO one."""
    base, fifo = name.removesuffix(".fifo"), name.endswith(".fifo")
    if base == settings.default:
        return DEFAULT_QUEUE, fifo
    if not base.startswith(settings.prefix):
        raise UnreadableError(f"it is for the SQS queue {name}, whose name does not begin with {settings.prefix!r}")
    return base.removeprefix(settings.prefix), fifo


# -- writing -------------------------------------------------------------------------------------------


def row_of(item: DelayedItem, partitions: int) -> Row:
    """The row of a job. Raises EnqueueError if it is too large for DynamoDB."""
    outgoing = item.outgoing
    row = {
        "scheduler": item.partition or partition_of(item.job_id, partitions),
        "job_id": item.job_id,
        "perform_at": item.perform_at,
        "queue": item.queue,
        "sqs_message_body": outgoing.body,
        "sqs_message_attributes": attributes_of(outgoing),
    }
    if item.cancellable:
        row["cancellable"] = True
    size = _size(row)
    if size > LARGEST_ITEM:
        key = outgoing.note.key or item.job_id
        raise EnqueueError(
            f"The job {key!r} of the queue {item.queue} is {size} bytes in the table in which it would wait, and "
            f"DynamoDB takes {LARGEST_ITEM} at most; store the data elsewhere and give the job its address.",
            place=(item.queue, key),
        )
    return row


def _size(value: Any) -> int:
    """The bytes of a value as DynamoDB counts them, or a few more."""
    match value:
        case str():
            return len(value.encode())
        case bytes():
            return len(value)
        case Mapping():
            return 3 + sum(1 + len(name.encode()) + _size(each) for name, each in value.items())
        case _:
            return len(str(value)) // 2 + 2


def moved_note(item: DelayedItem, perform_at: float) -> str | None:
    """Its note as text with another due time; None for a third-party item, which has no note."""
    if ATTRIBUTE not in item.attributes:
        return None
    note = msgspec.structs.replace(item.outgoing.note, due=perform_at)
    text: str = attributes_of(OutgoingMessage(item.outgoing.body, note))[ATTRIBUTE]["StringValue"]
    return text


# -- reading -------------------------------------------------------------------------------------------


def item_of(row: Row, settings: AWSSettings, home: str) -> DelayedItem:
    """The job of a row in the table of the queue `home`. Raises UnreadableError if the row is not a job."""
    read = _ruby if row["scheduler"] == RUBY else _ours
    try:
        queue, fifo, outgoing, attributes = read(row, settings, home)
        return DelayedItem(
            job_id=row["job_id"],
            perform_at=float(row["perform_at"]),
            queue=queue,
            fifo=fifo,
            outgoing=outgoing,
            cancellable=row.get("cancellable") is True,
            partition=row["scheduler"],
            claim=row.get("claim", ""),
            claim_until=float(row.get("claim_until", 0.0)),
            attributes=attributes,
            stored_at=row["perform_at"],
        )
    except UnreadableError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, msgspec.MsgspecError) as error:
        # Without the text of the error, which may quote the arguments.
        raise UnreadableError(f"its message cannot be read ({type(error).__name__})") from error


_Read = tuple[str, bool, OutgoingMessage, dict[str, Any]]


def _ours(row: Row, settings: AWSSettings, home: str) -> _Read:
    attributes: dict[str, Any] = row["sqs_message_attributes"]
    note = _read_note.decode(attributes[ATTRIBUTE]["StringValue"])
    others = {name: each for name, each in attributes.items() if name != ATTRIBUTE}
    outgoing = OutgoingMessage(msgspec.convert(row["sqs_message_body"], str), note, others)
    return msgspec.convert(row["queue"], str), bool(note.key), outgoing, attributes


def _ruby(row: Row, settings: AWSSettings, home: str) -> _Read:
    body = row["sqs_message_body"]
    text = body if isinstance(body, str) else _json.encode(body).decode()
    name = msgspec.json.decode(text).get("queue_name")
    if not name and not home:
        raise UnreadableError("it does not say which queue it is for")
    queue, fifo = queue_named(settings, name) if name else (home, False)
    stored = row.get("sqs_message_attributes") or {}
    attributes = {name: {_camel(part): each for part, each in parts.items()} for name, parts in stored.items()}
    kept, more = packed(attributes)
    note = MessageNote(row["job_id"], key=RUBY_GROUP if fifo else "", due=float(row["perform_at"]), more=more)
    return queue, fifo, OutgoingMessage(text, note, kept), attributes


def _camel(name: str) -> str:
    """`string_value` as SQS spells it; what is spelled so already stays."""
    return name if name[:1].isupper() else "".join(part.capitalize() for part in name.split("_"))
