"""Values as DynamoDB's protocol has them, and back. It never calls AWS and knows no attribute by name.

Numbers are texts there, with 38 digits: they are read as Decimal, so that a stranger's come through unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

Attribute = dict[str, Any]
Item = dict[str, Attribute]

#: What DynamoDB takes of numbers; a float may be larger and smaller.
_LARGEST = 9e125
_SMALLEST = 1e-129


def number(value: float) -> Attribute:
    """A number as an attribute. One that DynamoDB has no room for becomes the nearest that it has."""
    value = max(-_LARGEST, min(_LARGEST, value))
    return {"N": repr(0.0 if abs(value) < _SMALLEST else value)}


def attribute(value: Any) -> Attribute:
    """A text, number, bytes, bool, None, list or dict as an attribute."""
    match value:
        case str():
            return {"S": value}
        case bool():
            return {"BOOL": value}
        case int() | float():
            return number(value)
        case bytes():
            return {"B": value}
        case None:
            return {"NULL": True}
        case Mapping():
            return {"M": {name: attribute(each) for name, each in value.items()}}
        case _:
            return {"L": [attribute(each) for each in value]}


def value(attribute: Attribute) -> Any:
    """What an attribute holds; numbers as Decimal, sets as lists."""
    ((kind, held),) = attribute.items()
    match kind:
        case "N":
            return Decimal(held)
        case "NULL":
            return None
        case "M":
            return {name: value(each) for name, each in held.items()}
        case "L":
            return [value(each) for each in held]
        case "NS":
            return [Decimal(each) for each in held]
        case _:
            return held


def text(item: Item, name: str) -> str:
    """A text of an item; empty if it has none of that name."""
    held = item.get(name, {}).get("S", "")
    return held if isinstance(held, str) else ""


def real(item: Item, name: str) -> float:
    """A number of an item; 0 if it has none of that name."""
    return float(item.get(name, {}).get("N", 0.0))


def size(attribute: Attribute) -> int:
    """The bytes of an attribute's value as DynamoDB counts them, or a few more."""
    ((kind, held),) = attribute.items()
    match kind:
        case "S":
            return len(held.encode())
        case "N":
            return len(held) // 2 + 2
        case "B":
            return len(held)
        case "M":
            return 3 + sum(1 + len(name.encode()) + size(each) for name, each in held.items())
        case "L":
            return 3 + sum(1 + size(each) for each in held)
        case _:
            return 1
