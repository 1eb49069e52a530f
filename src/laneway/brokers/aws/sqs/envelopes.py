"""The envelope that SNS puts an event into for a queue that has subscribed without raw delivery.

Pure functions. What is inside becomes what the message would have been without it.
"""

from __future__ import annotations

import base64
from typing import Any, Literal

import msgspec


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
