"""DynamoDB values such as `{"S": "text"}`: checks, comparison and size."""

from __future__ import annotations

import base64
from decimal import Decimal, InvalidOperation
from typing import Any

from tests.support.aws.fake.faults import Refusal

#: One value: its type and what it is.
Value = dict[str, Any]
Item = dict[str, Value]

_TYPES = {"S", "N", "B", "BOOL", "NULL", "L", "M", "SS", "NS", "BS"}
_DIGITS = 38


def invalid(message: str) -> Refusal:
    return Refusal("ValidationException", message)


def normal(value: Value) -> Value:
    """The value as it is stored: numbers have one spelling. Refuses what DynamoDB would not store."""
    if len(value) != 1 or (kind := next(iter(value))) not in _TYPES:
        raise invalid(
            "Supplied AttributeValue has more than one datatypes set, "
            "must contain exactly one of the supported datatypes"
        )
    content = value[kind]
    match kind:
        case "N":
            return {"N": spelled(number(content))}
        case "L":
            return {"L": [normal(each) for each in content]}
        case "M":
            return {"M": {name: normal(each) for name, each in content.items()}}
        case "SS" | "NS" | "BS":
            if not content:
                raise invalid("One or more parameter values were invalid: An set may not be empty")
            each = [spelled(number(n)) for n in content] if kind == "NS" else content
            if len(set(each)) != len(each):
                raise invalid("One or more parameter values were invalid: Input collection contains duplicates.")
            return {kind: each}
    return value


def number(text: Any) -> Decimal:
    try:
        read = Decimal(text)
        if not read.is_finite():
            raise InvalidOperation
    except (InvalidOperation, TypeError):
        raise invalid("The parameter cannot be converted to a numeric value") from None
    if len(read.normalize().as_tuple().digits) > _DIGITS:
        raise invalid("Attempting to store more than 38 significant digits in a Number")
    return read


def spelled(read: Decimal) -> str:
    return format(read.normalize(), "f") if read else "0"


def sortable(value: Value) -> Any:
    """Something that Python sorts as DynamoDB sorts values of one type: text by its bytes."""
    kind, content = next(iter(value.items()))
    match kind:
        case "S":
            return content.encode()
        case "N":
            return Decimal(content)
        case "B":
            return base64.b64decode(content)
    raise invalid(f"A value of type {kind} has no order.")


def equal(one: Value, other: Value) -> bool:
    (kind, content), (kind2, content2) = next(iter(one.items())), next(iter(other.items()))
    if kind != kind2:
        return False
    match kind:
        case "N":
            return bool(Decimal(content) == Decimal(content2))
        case "SS" | "NS" | "BS":
            return set(content) == set(content2)
        case "L":
            return len(content) == len(content2) and all(map(equal, content, content2))
        case "M":
            return content.keys() == content2.keys() and all(equal(v, content2[k]) for k, v in content.items())
    return bool(content == content2)


def size(item: Item) -> int:
    """About the bytes that DynamoDB would count."""
    return sum(len(name.encode()) + _size(value) for name, value in item.items())


def _size(value: Value) -> int:
    kind, content = next(iter(value.items()))
    match kind:
        case "S":
            return len(content.encode())
        case "B":
            return len(base64.b64decode(content))
        case "N":
            return len(content) // 2 + 2
        case "L":
            return 3 + sum(_size(each) + 1 for each in content)
        case "M":
            return 3 + sum(len(name.encode()) + _size(each) + 1 for name, each in content.items())
        case "SS" | "NS" | "BS":
            return sum(len(each) for each in content)
    return 1
