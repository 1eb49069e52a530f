"""Encodes a delayed job as a DynamoDB item and decodes it. Never calls AWS.

An item holds the message as it would have been sent, and is sent as it is stored:

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

from typing import Any
from zlib import crc32

import msgspec

from ....errors import EnqueueError
from ..settings import AWSSettings
from ..sqs.attributes import packed
from ..sqs.message import ATTRIBUTE, MessageNote, OutgoingMessage, attributes_of
from .client import Item, attribute, number, real, size, text, value

RUBY = "shoryuken-waiter"
#: The group of the Ruby original's messages on FIFO queues.
RUBY_GROUP = "ShoryukenMessage"
INDEX = "scheduler-perform_at-index"
#: DynamoDB takes no larger item.
LARGEST_ITEM = 400 * 1024

_json = msgspec.json.Encoder(order="sorted", decimal_format="number")
_read_note = msgspec.json.Decoder(MessageNote)


class DelayedItem(msgspec.Struct, kw_only=True):
    """A job that waits in a table, or is to be put there."""

    #: The job's id: a plain job's key, a keyed call's own; always that of `outgoing.note`.
    job_id: str
    perform_at: float
    #: The Laneway queue that it is for, and whether for its FIFO channel.
    queue: str
    fifo: bool = False
    outgoing: OutgoingMessage
    #: It must be possible to cancel it until it is due.
    cancellable: bool = False
    #: Where it lies; one that is to be put there is told by its id.
    partition: str = ""
    #: Who is sending it, if anybody, and until when.
    claim: str = ""
    claim_until: float = 0.0
    #: Its message attributes as they are stored.
    attributes: dict[str, Any] = {}
    #: `perform_at` as it is stored, digit by digit.
    seen: str = ""

    @property
    def stays(self) -> bool:
        """Whether it leaves the table when it is due, and no sooner. A FIFO queue does not delay single messages, and
        what SQS delays cannot be cancelled."""
        return self.fifo or self.cancellable

    def claimed(self, now: float, *, by_others_than: str = "") -> bool:
        """Whether somebody is sending it now."""
        return bool(self.claim) and self.claim_until >= now and self.claim != by_others_than


class UnreadableError(ValueError):
    """An item does not describe a message; the text says why."""


def partition_of(job_id: str, partitions: int) -> str:
    """The partition of a new item."""
    return f"laneway-{crc32(job_id.encode()) % partitions}"


def names(partitions: int) -> list[str]:
    """All partitions that items may lie in."""
    return [*(f"laneway-{n}" for n in range(partitions)), RUBY]


def sqs_name(settings: AWSSettings, queue: str) -> str:
    """The name that a Laneway queue has on AWS, without `.fifo`."""
    return settings.default if queue == "default" else settings.prefix + queue


def queue_named(settings: AWSSettings, name: str) -> tuple[str, bool]:
    """The Laneway queue of an SQS queue's name, and whether that is its FIFO one."""
    base, fifo = name.removesuffix(".fifo"), name.endswith(".fifo")
    if base == settings.default:
        return "default", fifo
    if not base.startswith(settings.prefix):
        raise UnreadableError(f"it is for the SQS queue {name}, whose name does not begin with {settings.prefix!r}")
    return base.removeprefix(settings.prefix), fifo


# -- writing -------------------------------------------------------------------------------------------


def item_of(waiting: DelayedItem, partitions: int) -> Item:
    """The item of a job; raises EnqueueError when DynamoDB would not take it."""
    outgoing = waiting.outgoing
    item = {
        "scheduler": {"S": waiting.partition or partition_of(waiting.job_id, partitions)},
        "job_id": {"S": waiting.job_id},
        "perform_at": number(waiting.perform_at),
        "queue": {"S": waiting.queue},
        "sqs_message_body": {"S": outgoing.body},
        "sqs_message_attributes": attribute(attributes_of(outgoing)),
    }
    if waiting.cancellable:
        item["cancellable"] = attribute(True)
    in_all = sum(len(name) + size(each) for name, each in item.items())
    if in_all > LARGEST_ITEM:
        key = outgoing.note.key or waiting.job_id
        raise EnqueueError(
            f"The job {key!r} of the queue {waiting.queue} is {in_all} bytes in the table in which it would wait, and "
            f"DynamoDB takes {LARGEST_ITEM} at most; store the data elsewhere and give the job its address.",
            place=(waiting.queue, key),
        )
    return item


def moved_note(waiting: DelayedItem, perform_at: float) -> str | None:
    """Its note as text with another due time; None for a stranger's item, which has none."""
    if ATTRIBUTE not in waiting.attributes:
        return None
    note = msgspec.structs.replace(waiting.outgoing.note, due=perform_at)
    text: str = attributes_of(OutgoingMessage(waiting.outgoing.body, note))[ATTRIBUTE]["StringValue"]
    return text


# -- reading -------------------------------------------------------------------------------------------


def waiting_of(item: Item, settings: AWSSettings, home: str) -> DelayedItem:
    """The job of an item in the table of the queue `home`; raises UnreadableError when it is none."""
    partition, job_id = text(item, "scheduler"), text(item, "job_id")
    read = _ruby if partition == RUBY else _ours
    try:
        queue, fifo, outgoing, attributes = read(item, job_id, settings, home)
    except UnreadableError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, msgspec.MsgspecError) as error:
        # Not what the error says: it may quote the arguments.
        raise UnreadableError(f"its message cannot be read ({type(error).__name__})") from error
    return DelayedItem(
        job_id=job_id,
        perform_at=real(item, "perform_at"),
        queue=queue,
        fifo=fifo,
        outgoing=outgoing,
        cancellable=item.get("cancellable", {}).get("BOOL") is True,
        partition=partition,
        claim=text(item, "claim"),
        claim_until=real(item, "claim_until"),
        attributes=attributes,
        seen=item["perform_at"]["N"],
    )


_Read = tuple[str, bool, OutgoingMessage, dict[str, Any]]


def _ours(item: Item, job_id: str, settings: AWSSettings, home: str) -> _Read:
    attributes: dict[str, Any] = value(item["sqs_message_attributes"])
    note = _read_note.decode(attributes[ATTRIBUTE]["StringValue"])
    others = {name: each for name, each in attributes.items() if name != ATTRIBUTE}
    outgoing = OutgoingMessage(item["sqs_message_body"]["S"], note, others)
    return item["queue"]["S"], bool(note.key), outgoing, attributes


def _ruby(item: Item, job_id: str, settings: AWSSettings, home: str) -> _Read:
    body = value(item["sqs_message_body"])
    words = body if isinstance(body, str) else _json.encode(body).decode()
    name = msgspec.json.decode(words).get("queue_name")
    if not name and not home:
        raise UnreadableError("it does not say which queue it is for")
    queue, fifo = queue_named(settings, name) if name else (home, False)
    held = value(item["sqs_message_attributes"]) if "sqs_message_attributes" in item else None
    attributes = {name: {_camel(part): each for part, each in parts.items()} for name, parts in (held or {}).items()}
    kept, more = packed(attributes)
    note = MessageNote(job_id, key=RUBY_GROUP if fifo else "", due=real(item, "perform_at"), more=more)
    return queue, fifo, OutgoingMessage(words, note, kept), attributes


def _camel(name: str) -> str:
    """`string_value` as SQS spells it; what is spelled so already stays."""
    return name if name[:1].isupper() else "".join(part.capitalize() for part in name.split("_"))
