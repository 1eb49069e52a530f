"""Attributes of an event: checks them, and encodes them as the text that a listener finds in its headers.

The limits come from SQS and SNS, and hold on every broker.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from ..errors import EnqueueError
from ..jobs.data import Headers
from ..tasks.signature import encode
from .event import Attribute, Attributes

#: SQS takes ten with a message: ours, four of the trace, and these.
MOST_ATTRIBUTES = 5

_NAME = re.compile(r"(?!(?i:aws|amazon)\.)[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
#: What tracing sends beside an event: an attribute of that name would end the trace, or be replaced by it.
TRACES = ("traceparent", "tracestate", "baggage", "sentry-trace")
#: Numbers of SNS have 38 digits.
_TOO_LARGE = 1e38
#: What SQS cannot carry: control characters, lone surrogates, and the two that are none.
_UNSENDABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def attribute_name_problem(name: object) -> str | None:
    """A sentence, if an attribute cannot be called so."""
    if isinstance(name, str) and name.lower() in TRACES:
        return f"an attribute cannot be called {name}, which is what tracing sends beside an event; use another name."
    if isinstance(name, str) and len(name) <= 256 and _NAME.fullmatch(name) and name.lower() != "laneway":
        return None
    return (
        "the name of an attribute must be 1 to 256 letters, digits, '_', '-' or single dots within, neither 'laneway' "
        f"nor beginning with 'AWS.' or 'Amazon.', not {name!r}."
    )


def checked(attributes: Attributes | None, about: str) -> dict[str, Attribute]:
    """The attributes, copied; raises EnqueueError for what cannot be one on some broker."""
    if attributes is None:
        return {}
    if not isinstance(attributes, Mapping):
        raise EnqueueError(f"{about}: attributes must be a dict, not {type(attributes).__name__}.")
    if len(attributes) > MOST_ATTRIBUTES:
        raise EnqueueError(
            f"{about}: it may have {MOST_ATTRIBUTES} attributes, not {len(attributes)}; put the others into the value."
        )
    found: dict[str, Attribute] = {}
    for name, value in attributes.items():
        if problem := attribute_name_problem(name) or _value_problem(name, value):
            raise EnqueueError(f"{about}: {problem}")
        found[name] = _plain(value)
    return found


def texts_of(attributes: Attributes) -> Headers:
    """The attributes as a listener finds them in its headers: numbers as they are written, lists as JSON."""
    return {name: _text(value) for name, value in attributes.items()}


def bytes_of(attributes: Attributes) -> int:
    """What they add to what is stored: their names and their texts."""
    return sum(len(name) + len(text.encode()) for name, text in texts_of(attributes).items())


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether an attribute, or a condition on one, is a number: True and False are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _plain(value: Attribute) -> Attribute:
    """The value without what an enum, or another subclass, has added to it: it is written in several ways."""
    if isinstance(value, list):
        return [str.__str__(text) for text in value]
    if isinstance(value, str):
        return str.__str__(value)
    return int(value) if isinstance(value, int) else float(value)


def _text(value: Attribute) -> str:
    if isinstance(value, str):
        return value
    return encode(value).decode() if isinstance(value, list) else repr(value)


def _value_problem(name: str, value: Any) -> str | None:
    texts = value if isinstance(value, list) else [value] if isinstance(value, str) else None
    if texts is not None:
        if not texts or not all(isinstance(text, str) for text in texts) or value == "":
            return f"the attribute {name} must not be empty, and a list must hold texts; leave it out, or mend it."
        if any(_UNSENDABLE.search(text) for text in texts):
            return f"the attribute {name} holds control or lone surrogates, which cannot be sent; leave them out."
        return None
    given = type(value).__name__
    if is_number(value):
        if abs(value) < _TOO_LARGE:  # so asked, an int may be larger than any float
            return None
        is_none = isinstance(value, float) and not math.isfinite(value)
        given = "a number that is none" if is_none else "a larger one"
    return f"the attribute {name} must be text, a number of 38 digits at most or a list of texts, not {given}."
