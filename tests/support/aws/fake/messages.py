"""A message as SQS stores it: its allowed content, its size and its checksums."""

from __future__ import annotations

import base64
import hashlib
import re
import struct
from typing import Any

from tests.support.aws.fake.faults import Refusal, invalid, invalid_value, missing

MAX_DELAY_S = 900
MAX_ATTRIBUTES = 10
#: What may not be in a body or in the value of an attribute.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_TOKEN = re.compile(r"[a-zA-Z0-9!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}")
_ATTRIBUTE_NAME = re.compile(r"(?!\.)(?!.*\.\.)[a-zA-Z0-9_.\-]{1,256}(?<!\.)")
_DATA_TYPE = re.compile(r"(String|Number|Binary)(\..+)?")
_NOT_FOR_THIS_TYPE = "The request include parameter that is not valid for this queue type"

Attributes = dict[str, dict[str, str]]


class Message:
    """What was sent, and what has become of it since."""

    __slots__ = (
        "attributes",
        "body",
        "dead_letter_of",
        "deduplication_id",
        "first_received_at",
        "group",
        "handles",
        "id",
        "received_at",
        "receives",
        "sent_at",
        "sequence",
        "stored",
        "system",
        "version",
        "visible_at",
    )

    def __init__(self, id: str, entry: dict[str, Any], sent_at: float, visible_at: float) -> None:
        self.id = id
        self.body: str = entry["MessageBody"]
        self.attributes: Attributes = entry.get("MessageAttributes") or {}
        self.system: Attributes = entry.get("MessageSystemAttributes") or {}
        self.group: str | None = entry.get("MessageGroupId")
        self.deduplication_id: str | None = entry.get("MessageDeduplicationId")
        self.sent_at = sent_at
        #: When it may be received (again).
        self.visible_at = visible_at
        #: When it was last received: the 12 hours count from then.
        self.received_at = 0.0
        self.first_received_at: float | None = None
        self.receives = 0
        #: Receipts by which it can be deleted now.
        self.handles: set[str] = set()
        #: Whether it is in a queue: not deleted, not expired, not moved.
        self.stored = True
        self.dead_letter_of: str | None = None
        self.sequence: int | None = None
        #: Counts its moves: entries of heaps that speak of an older one are void.
        self.version = 0

    def shown(self, handle: str, system: set[str], wanted: list[str]) -> dict[str, Any]:
        """As a receive answers, with the attributes that were asked for."""
        answer: dict[str, Any] = {
            "MessageId": self.id,
            "ReceiptHandle": handle,
            "MD5OfBody": md5(self.body),
            "Body": self.body,
        }
        if own := self._system(system):
            answer["Attributes"] = own
        prefixes = tuple(name[:-2] for name in wanted if name.endswith(".*"))
        if "All" in wanted:
            attributes = self.attributes
        else:
            attributes = {
                n: v for n, v in self.attributes.items() if n in wanted or (prefixes and n.startswith(prefixes))
            }
        if attributes:
            answer["MessageAttributes"] = attributes
            answer["MD5OfMessageAttributes"] = md5_of_attributes(attributes)
        return answer

    def _system(self, wanted: set[str]) -> dict[str, str]:
        if not wanted:
            return {}
        first = self.first_received_at
        known: dict[str, str | None] = {
            "SenderId": "AIDAFAKEFAKEFAKEFAKE0",
            "SentTimestamp": str(int(self.sent_at * 1000)),
            "ApproximateReceiveCount": str(self.receives),
            "ApproximateFirstReceiveTimestamp": None if first is None else str(int(first * 1000)),
            "MessageGroupId": self.group,
            "MessageDeduplicationId": self.deduplication_id,
            "SequenceNumber": None if self.sequence is None else str(self.sequence),
            "DeadLetterQueueSourceArn": self.dead_letter_of,
            "AWSTraceHeader": self.system.get("AWSTraceHeader", {}).get("StringValue"),
        }
        return {n: value for n, value in known.items() if value is not None and ("All" in wanted or n in wanted)}


def check(entry: dict[str, Any], *, fifo: bool, content_based: bool, max_size: int) -> None:
    """Refuse what SQS would not take into a queue."""
    body = entry.get("MessageBody")
    if not body:
        raise missing("MessageBody")
    if (delay := entry.get("DelaySeconds")) is not None:
        if not 0 <= delay <= MAX_DELAY_S:
            raise invalid("DelaySeconds", delay, "DelaySeconds must be >= 0 and <= 900.")
        if fifo and delay:
            raise invalid("DelaySeconds", delay, f"{_NOT_FOR_THIS_TYPE}.")
    _check_characters(body)
    _check_attributes(entry.get("MessageAttributes") or {})
    if size(entry) > max_size:
        raise invalid_value(
            f"One or more parameters are invalid. Reason: Message must be shorter than {max_size} bytes."
        )
    for name in ("MessageGroupId", "MessageDeduplicationId"):
        if (token := entry.get(name)) is not None and not _TOKEN.fullmatch(token):
            reason = f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length."
            raise invalid(name, token, reason)
    if not fifo:
        if "MessageDeduplicationId" in entry:
            raise invalid("MessageDeduplicationId", entry["MessageDeduplicationId"], f"{_NOT_FOR_THIS_TYPE}.")
        return
    check_group(entry, content_based=content_based)


def check_group(entry: dict[str, Any], *, content_based: bool) -> None:
    """Refuse what does not say to which group of a FIFO queue it belongs, or whether it is a repeat."""
    if "MessageGroupId" not in entry:
        raise missing("MessageGroupId")
    if "MessageDeduplicationId" not in entry and not content_based:
        raise invalid_value(
            "The queue should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly"
        )


def size(entry: dict[str, Any]) -> int:
    """Bytes of the body, and of the names, types and values of attributes."""
    total = len(entry["MessageBody"].encode())
    for name, value in (entry.get("MessageAttributes") or {}).items():
        total += len(name.encode()) + len(value.get("DataType", "").encode()) + len(_value(value))
    return total


def md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def md5_of_attributes(attributes: Attributes) -> str:
    """The checksum that boto3 would make too."""
    digest = hashlib.md5(usedforsecurity=False)
    for name, value in sorted(attributes.items()):
        for part in (name.encode(), value["DataType"].encode()):
            digest.update(struct.pack("!I", len(part)) + part)
        data = _value(value)
        digest.update((b"\x02" if "BinaryValue" in value else b"\x01") + struct.pack("!I", len(data)) + data)
    return digest.hexdigest()


def _value(value: dict[str, str]) -> bytes:
    return base64.b64decode(value["BinaryValue"]) if "BinaryValue" in value else value.get("StringValue", "").encode()


def _check_characters(text: str) -> None:
    if found := _FORBIDDEN.search(text):
        raise Refusal(
            "InvalidMessageContents",
            f"Invalid binary character '#x{ord(found[0]):x}' was found in the message body, the set of allowed "
            "characters is #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
        )


def _check_attributes(attributes: Attributes) -> None:
    if len(attributes) > MAX_ATTRIBUTES:
        raise invalid_value(f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum [10].")
    for name, value in attributes.items():
        if not _ATTRIBUTE_NAME.fullmatch(name) or name.lower().startswith(("aws.", "amazon.")):
            raise invalid_value(f"The message attribute name '{name}' is invalid.")
        if not _DATA_TYPE.fullmatch(kind := value.get("DataType", "")):
            raise invalid_value(f"The type of message (user) attribute '{name}' is invalid: '{kind}'.")
        if not _value(value):
            raise invalid_value(
                f"Message (user) attribute '{name}' must contain a non-empty value of type '{kind.partition('.')[0]}'."
            )
        if ("BinaryValue" in value) != kind.startswith("Binary"):
            raise invalid_value(f"The message (user) attribute '{name}' has a value that is not of type '{kind}'.")
        _check_characters(value.get("StringValue", ""))
