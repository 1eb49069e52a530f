"""A message on SQS: the ticket as its body, all else in one message attribute `laneway`.

Owns how jobs become messages and messages jobs. It never calls AWS. A body without that attribute, as the Ruby
original writes it, is a job too: its id is the message's.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ...job import Headers, Kind

#: The one message attribute that is ours.
ATTRIBUTE = "laneway"


class Channel(msgspec.Struct, frozen=True):
    """One SQS queue: the standard or the FIFO one of a Laneway queue, or the dead-letter queue of either."""

    #: The Laneway queue.
    queue: str
    #: The SQS queue's own name, `.fifo` included.
    name: str
    url: str
    fifo: bool = False


class Note(msgspec.Struct, omit_defaults=True):
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


class Outgoing(msgspec.Struct):
    """A message that is to be sent."""

    body: str
    note: Note
    #: Message attributes of others, in the form in which SQS takes them; kept whenever a message is sent on.
    attributes: dict[str, Any] = {}


class Message(msgspec.Struct, eq=False):
    """A message that was received and is not settled yet."""

    channel: Channel
    receipt: str
    #: SQS's own id of it.
    message_id: str
    body: str
    note: Note
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
