"""Decides whether a queue's access policy lets a topic send, and writes a policy that does. Calls nothing.

Existing statements are kept. A statement in a form that is not understood here counts as absent, so that at worst a
topic is allowed twice. A statement that denies wins over every statement that allows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from ..errors import AWSError

SEND = "sqs:SendMessage"
SNS = "sns.amazonaws.com"

#: What compares an ARN or an account with one, or with a pattern; and what wants it to be another.
_COMPARE = frozenset({"arnequals", "arnlike", "stringequals", "stringlike"})
_DIFFER = frozenset({"arnnotequals", "arnnotlike", "stringnotequals", "stringnotlike"})


def allows(policy: str | None, queue_arn: str, topic_arn: str) -> bool:
    """Whether a queue's policy lets a topic send to it. Raises AWSError if it cannot be read."""
    return _says("Allow", policy, queue_arn, topic_arn) and not denies(policy, queue_arn, topic_arn)


def denies(policy: str | None, queue_arn: str, topic_arn: str) -> bool:
    """Whether a queue's policy forbids a topic to send to it, whatever else it allows."""
    return _says("Deny", policy, queue_arn, topic_arn)


def allowing(policy: str | None, queue_arn: str, topic_arn: str) -> str:
    """A queue's policy with one more statement, which lets this very topic send to it."""
    document = _read(policy, queue_arn)
    statements = _statements(document)
    taken = {statement.get("Sid") for statement in statements}
    sid = next(name for name in _sids(topic_arn) if name not in taken)
    added = {
        "Sid": sid,
        "Effect": "Allow",
        "Principal": {"Service": SNS},
        "Action": SEND,
        "Resource": queue_arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": topic_arn}},
    }
    document = {"Version": "2012-10-17", **document, "Statement": [*statements, added]}
    return msgspec.json.encode(document).decode()


def _read(policy: str | None, queue_arn: str) -> dict[str, Any]:
    if not policy:
        return {}
    try:
        document = msgspec.json.decode(policy, type=dict[str, Any])
        if all(isinstance(statement, dict) for statement in _statements(document)):
            return document
    except msgspec.DecodeError:
        pass
    name = queue_arn.rpartition(":")[2]
    raise AWSError(f"The access policy of the SQS queue {name} cannot be read; write it anew, or remove it.")


def _statements(document: dict[str, Any]) -> list[Any]:
    return _list(document.get("Statement", []))


def _sids(topic_arn: str) -> Iterator[str]:
    """Names for a statement, which must be letters and digits, and the only ones of their policy."""
    name = f"Laneway{hashlib.sha256(topic_arn.encode()).hexdigest()[:16]}"
    yield name
    for number in range(2, 1_000):
        yield f"{name}n{number}"


# -- reading a statement -------------------------------------------------------------------------------


def _says(effect: str, policy: str | None, queue_arn: str, topic_arn: str) -> bool:
    statements = _statements(_read(policy, queue_arn))
    return any(each.get("Effect") == effect and _is_about(each, queue_arn, topic_arn) for each in statements)


def _is_about(statement: dict[str, Any], queue_arn: str, topic_arn: str) -> bool:
    """Whether a statement is about what a topic sends to a queue."""
    return (
        any(_fits(SEND.lower(), str(action).lower()) for action in _list(statement.get("Action", [])))
        and any(_fits(queue_arn, str(resource)) for resource in _list(statement.get("Resource", [])))
        and _is_sns(statement.get("Principal"))
        and _holds(statement.get("Condition") or {}, topic_arn)
    )


def _is_sns(principal: object) -> bool:
    if not isinstance(principal, dict):
        return principal == "*"
    return "*" in _list(principal.get("AWS", [])) or SNS in _list(principal.get("Service", []))


def _holds(condition: dict[str, Any], topic_arn: str) -> bool:
    """Whether all that a statement asks for is so when this topic sends."""
    known = {"aws:sourcearn": topic_arn, "aws:sourceaccount": topic_arn.split(":")[4]}
    for operator, wanted in condition.items():
        differs = operator.lower() in _DIFFER
        if not (differs or operator.lower() in _COMPARE) or not isinstance(wanted, dict):
            return False
        for key, patterns in wanted.items():
            value = known.get(key.lower())
            if value is None or any(_fits(value, str(pattern)) for pattern in _list(patterns)) is differs:
                return False
    return True


def _fits(value: str, pattern: str) -> bool:
    return fnmatchcase(value, pattern.replace("[", "[[]"))  # only * and ? mean something to AWS


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
