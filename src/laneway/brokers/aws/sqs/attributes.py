"""Third-party message attributes, and those published with an event: beyond nine, packed into ours.

SQS takes ten attributes per message, and one of them is ours. The rest travels inside ours. The format is that of
SQS, except that bytes are base64, because our attribute is JSON. Published attributes come first: filters see only
the message's own attributes. Pure functions.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from ....events import event
from ....events.attributes import TRACES, texts_of
from ....jobs.data import Headers

#: The most third-party attributes of a message besides ours.
MOST = 9

Attributes = dict[str, Any]


def published(beside: event.Attributes, headers: Mapping[str, str]) -> tuple[Attributes, Headers]:
    """What goes beside an event as message attributes, and the headers that are left. What was published comes first:
    filters go by it, and they see the message's own attributes only."""
    traces = {name: headers[name] for name in TRACES if headers.get(name)}
    values = {**beside, **{name: text for name, text in traces.items() if name not in beside}}
    made = {name: {"DataType": _type(values[name]), "StringValue": text} for name, text in texts_of(values).items()}
    return made, {name: text for name, text in headers.items() if name not in made}


def texts(attributes: Attributes) -> Headers:
    """What can be read of attributes."""
    return {name: value["StringValue"] for name, value in attributes.items() if "StringValue" in value}


def _type(value: event.Attribute) -> str:
    if isinstance(value, str):
        return "String"
    return "String.Array" if isinstance(value, list) else "Number"


def packed(attributes: Attributes) -> tuple[Attributes, dict[str, dict[str, str]] | None]:
    """Those that go along as they are, and those that travel inside our own attribute."""
    if len(attributes) <= MOST:
        return attributes, None
    names = list(attributes)
    more = {name: {part: _text(value) for part, value in attributes[name].items()} for name in names[MOST:]}
    return {name: attributes[name] for name in names[:MOST]}, more


def unpacked(attributes: Attributes, more: dict[str, dict[str, str]] | None) -> Attributes:
    """All of them again."""
    if not more:
        return attributes
    return {**attributes, **{name: {part: _value(part, text) for part, text in more[name].items()} for name in more}}


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else base64.b64encode(value).decode()


def _value(part: str, text: str) -> str | bytes:
    try:
        return base64.b64decode(text) if part == "BinaryValue" else text
    except ValueError:  # only Laneway writes it, but no message may stop the next from being read
        return text.encode()
