"""A message published to an SNS topic: its allowed content and its size."""

from __future__ import annotations

import base64
import binascii
import json
import re
import uuid
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from tests.support.aws.fake.faults import Refusal
from tests.support.aws.fake.messages import Attributes

MAX_BYTES = 262_144
_MAX_SUBJECT = 100
_KINDS = re.compile(r"(String|Number|Binary)(\.[\w.-]+)?")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,256}")
#: What cannot be written in XML, and so not be sent on to a queue.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass
class Publication:
    message: str
    attributes: Attributes
    subject: str | None = None
    group: str | None = None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))


def publication(entry: dict[str, Any]) -> Publication:
    """What is to be published, if SNS would take it. Its attributes are checked by themselves, and before."""
    message, subject = entry.get("Message") or "", entry.get("Subject")
    if not message:
        raise _invalid("Empty message")
    if _FORBIDDEN.search(message):
        raise _invalid("Message Reason: it contains a character that is not allowed")
    if subject is not None and not (0 < len(subject) <= _MAX_SUBJECT and subject.isprintable()):
        raise _invalid("Subject")
    if "MessageStructure" in entry:
        raise _invalid("MessageStructure Reason: this fake has none")
    if "MessageDeduplicationId" in entry:
        reason = "The request includes MessageDeduplicationId parameter that is not valid for this topic type"
        raise _invalid(f"MessageDeduplicationId Reason: {reason}")
    return Publication(message, entry.get("MessageAttributes") or {}, subject, entry.get("MessageGroupId"))


def size(entry: dict[str, Any]) -> int:
    """Bytes of the message, and of the names, types and values of attributes."""
    total = len((entry.get("Message") or "").encode())
    for name, value in (entry.get("MessageAttributes") or {}).items():
        total += len(name.encode()) + len(value["DataType"].encode()) + len(_bytes(value))
    return total


def check_attributes(entry: dict[str, Any]) -> None:
    for name, value in (entry.get("MessageAttributes") or {}).items():
        _check_name(name)
        _check_value(name, value)


def _check_name(name: str) -> None:
    if len(name) > 256:
        raise _wrong("Length of message attribute name must be less than 256 bytes.")
    if not _NAME.fullmatch(name):
        raise _wrong(
            "Invalid non-alphanumeric character was found in the message attribute name. "
            "Can only include alphanumeric characters, hyphens, underscores, or dots."
        )
    if name.startswith(".") or name.endswith("."):
        where = "starting" if name.startswith(".") else "ending"
        raise _wrong(f"Invalid message attribute name {where} with character '.' was found.")
    if ".." in name:
        raise _wrong("Message attribute name can not have successive '.' character.")
    if name.lower().startswith(("aws.", "amazon.")):
        raise _wrong("Message attribute name can not start with 'AWS.' or 'Amazon.'.")


def _check_value(name: str, value: dict[str, str]) -> None:
    kind = value.get("DataType", "")
    if not _KINDS.fullmatch(kind):
        raise _wrong(
            f"The message attribute '{name}' has an invalid message attribute type, "
            "the set of supported type prefixes is Binary, Number, and String."
        )
    base = "Binary" if kind.startswith("Binary") else "String"
    if f"{base}Value" not in value and len(value) > 1:
        raise _wrong(f"The message attribute '{name}' with type '{kind}' must use field '{base}'.")
    if not _bytes(value):
        raise _wrong(
            f"The message attribute '{name}' must contain non-empty message attribute value for message "
            f"attribute type '{kind}'."
        )
    text = value.get("StringValue", "")
    if _FORBIDDEN.search(text):
        raise _wrong(f"The message attribute '{name}' contains a character that is not allowed.")
    if kind.startswith("Number") and not _is_number(text):
        raise _wrong(f"Could not cast message attribute '{name}' value to number.")
    if kind == "String.Array" and not _is_array(text):
        raise _wrong(f"The message attribute '{name}' must be a JSON array of strings, numbers, true, false or null.")


def _is_number(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except InvalidOperation:
        return False


def _is_array(text: str) -> bool:
    try:
        values = json.loads(text)
    except ValueError:
        return False
    return isinstance(values, list) and not any(isinstance(each, (list, dict)) for each in values)


def _bytes(value: dict[str, str]) -> bytes:
    if "BinaryValue" not in value:
        return value.get("StringValue", "").encode()
    try:
        return base64.b64decode(value["BinaryValue"], validate=True)
    except binascii.Error:
        raise _invalid("BinaryValue") from None


def _invalid(reason: str) -> Refusal:
    return Refusal("InvalidParameter", f"Invalid parameter: {reason}")


def _wrong(message: str) -> Refusal:
    return Refusal("ParameterValueInvalid", message)
