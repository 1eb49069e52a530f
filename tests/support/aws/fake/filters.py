"""Filter policies of SNS subscriptions: which policies SNS rejects, and which messages pass a policy.

Numbers are compared as decimals, exactly as written, not as floats. The operators `$or` and `cidr` of SNS are
missing.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from math import prod
from typing import Any

from tests.support.aws.fake.faults import Refusal

BY_ATTRIBUTES, BY_BODY = "MessageAttributes", "MessageBody"
_MAX_KEYS, _MAX_COMBINATIONS, _MAX_BYTES = 5, 150, 262_144
_TEXTS = ("prefix", "suffix", "equals-ignore-case")
_COMPARED = {
    "=": lambda one, other: one == other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}

#: A policy that was read: rules for each name, or for each field of a body, however deep.
Policy = dict[str, Any]


def read(text: str, scope: str, prefix: str) -> Policy:
    """A policy, if SNS would take it. `prefix` is what its errors begin with."""
    try:
        policy = json.loads(text or "{}", parse_int=Decimal, parse_float=Decimal, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Refusal("InvalidParameter", f"{prefix}FilterPolicy: failed to parse JSON.") from None
    try:
        _check(policy, scope)
        if len(text.encode()) > _MAX_BYTES:
            raise ValueError("FilterPolicy: Filter policy is too large")
    except ValueError as error:
        raise Refusal("InvalidParameter", f"{prefix}{error}") from None
    return dict(policy)


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


# -- what is taken -------------------------------------------------------------------------------------


def _check(policy: Any, scope: str) -> None:
    if not isinstance(policy, dict):
        raise ValueError("FilterPolicy: Filter is not an object")
    if len(policy) > _MAX_KEYS:
        raise ValueError("FilterPolicy: Filter policy can not have more than 5 keys")
    leaves = _leaves(policy, 1)
    if scope == BY_ATTRIBUTES and any(depth > 1 for depth, _ in leaves):
        raise ValueError("Filter policy scope MessageAttributes does not support nested filter policy")
    if prod(len(rules) * depth for depth, rules in leaves) > _MAX_COMBINATIONS:
        raise ValueError("FilterPolicy: Filter policy is too complex")
    for _, rules in leaves:
        for rule in rules:
            _check_rule(rule)


def _leaves(policy: dict[str, Any], depth: int) -> list[tuple[int, list[Any]]]:
    """The rules of each name, and how deep it is."""
    found: list[tuple[int, list[Any]]] = []
    for name, rules in policy.items():
        if name == "$or":
            raise ValueError("FilterPolicy: This fake has no $or")
        if isinstance(rules, dict):
            found += _leaves(rules, depth + 1)
        elif not isinstance(rules, list):
            raise ValueError(f'FilterPolicy: "{name}" must be an object or an array')
        elif not rules:
            raise ValueError("FilterPolicy: Empty arrays are not allowed")
        else:
            found.append((depth, rules))
    return found


def _check_rule(rule: Any) -> None:
    if rule is None or isinstance(rule, (str, bool, Decimal)):
        return
    if not isinstance(rule, dict):
        raise ValueError("FilterPolicy: Match value must be String, number, true, false, or null")
    if len(rule) != 1:
        raise ValueError("FilterPolicy: Only one key allowed in match expression")
    [(word, value)] = rule.items()
    if word in _TEXTS:
        if not isinstance(value, str):
            raise ValueError(f"FilterPolicy: {word} match pattern must be a string")
    elif word == "exists":
        if not isinstance(value, bool):
            raise ValueError("FilterPolicy: exists match pattern must be either true or false.")
    elif word == "anything-but":
        _check_anything_but(value)
    elif word == "numeric":
        _check_numeric(value)
    else:
        raise ValueError(f"FilterPolicy: Unrecognized match type {word}")


def _check_anything_but(value: Any) -> None:
    if isinstance(value, dict):
        for word in value:
            if word != "prefix":
                raise ValueError(f"FilterPolicy: Unsupported anything-but pattern: {word}")
        _check_rule(value)
        return
    values = value if isinstance(value, list) else [value]
    kinds = {type(each) for each in values}
    if len(kinds) != 1 or not kinds <= {str, Decimal}:
        raise ValueError("FilterPolicy: Inside anything-but list, either all values are number or string")


def _check_numeric(value: Any) -> None:
    terms = list(value) if isinstance(value, list) else []
    if not terms or not isinstance(terms[0], str):
        raise ValueError(f"FilterPolicy: Invalid member in numeric match: {terms[0] if terms else ']'}")
    if terms[0] not in _COMPARED:
        raise ValueError(f"FilterPolicy: Unrecognized numeric range operator: {terms[0]}")
    _check_number(terms, 0)
    if len(terms) == 2:
        return
    if terms[0] not in (">", ">="):
        raise ValueError("FilterPolicy: Too many elements in numeric expression")
    if not isinstance(terms[2], str):
        raise ValueError(f"FilterPolicy: Bad value in numeric range: {terms[2]}")
    if terms[2] not in ("<", "<="):
        raise ValueError(f"FilterPolicy: Bad numeric range operator: {terms[2]}")
    _check_number(terms, 2)
    if terms[3] <= terms[1]:
        raise ValueError("FilterPolicy: Bottom must be less than top")
    if len(terms) > 4:
        raise ValueError("FilterPolicy: Too many terms in numeric range expression")


def _check_number(terms: list[Any], at: int) -> None:
    if len(terms) <= at + 1 or not isinstance(terms[at + 1], Decimal):
        raise ValueError(f"FilterPolicy: Value of {'equals' if terms[at] == '=' else terms[at]} must be numeric")


# -- what passes ---------------------------------------------------------------------------------------


def passes_attributes(policy: Policy, attributes: dict[str, dict[str, str]]) -> bool:
    """Whether a message with these attributes, as they were published, goes to whoever has this policy."""
    return all(_passes(rules, _values(attributes.get(name))) for name, rules in policy.items())


def passes_body(policy: Policy, message: str) -> bool:
    """The same by what the message says, which must be a JSON object."""
    if not policy:
        return True
    try:
        body = json.loads(message, parse_int=Decimal, parse_float=Decimal)
    except ValueError:
        return False
    return isinstance(body, dict) and _passes_object(policy, body)


def _passes_object(policy: Policy, body: dict[str, Any]) -> bool:
    for name, rules in policy.items():
        found = body.get(name)
        many = found if isinstance(found, list) else [found] if name in body else []
        if isinstance(rules, dict):
            if not any(isinstance(each, dict) and _passes_object(rules, each) for each in many):
                return False
        elif not _passes(rules, [each for each in many if not isinstance(each, dict)]):
            return False
    return True


def _values(attribute: dict[str, str] | None) -> list[Any]:
    """What a filter sees of an attribute. What is binary it does not see."""
    kind, text = (attribute or {}).get("DataType", "Binary"), (attribute or {}).get("StringValue", "")
    if kind.startswith("Binary"):
        return []
    if kind == "String.Array":
        values = json.loads(text, parse_int=Decimal, parse_float=Decimal)
        return values if isinstance(values, list) else [values]
    if kind == "Number":
        try:
            return [Decimal(text)]
        except InvalidOperation:
            return []
    return [text]


def _passes(rules: list[Any], values: list[Any]) -> bool:
    return any(_fits(rule, values) for rule in rules)


def _fits(rule: Any, values: list[Any]) -> bool:
    if isinstance(rule, dict) and "exists" in rule:
        return bool(values) == rule["exists"]
    return any(_fits_one(rule, value) for value in values)


def _fits_one(rule: Any, value: Any) -> bool:
    if not isinstance(rule, dict):
        return type(rule) is type(value) and rule == value
    [(word, wanted)] = rule.items()
    match word:
        case "anything-but" if isinstance(wanted, dict):
            return not (isinstance(value, str) and value.startswith(wanted["prefix"]))
        case "anything-but":
            return value not in (wanted if isinstance(wanted, list) else [wanted])
        case "numeric":
            if not isinstance(value, Decimal):
                return False
            return all(_COMPARED[wanted[at]](value, wanted[at + 1]) for at in range(0, len(wanted), 2))
    if not isinstance(value, str):
        return False
    match word:
        case "prefix":
            return value.startswith(wanted)
        case "suffix":
            return value.endswith(wanted)
    return value.lower() == wanted.lower()
