"""Access policies of queues: whether a policy lets SNS send from a topic. Without a policy SNS may not send."""

from __future__ import annotations

import json
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from tests.support.aws.endpoints import ACCOUNT
from tests.support.aws.fake.faults import Refusal

_SNS = "sns.amazonaws.com"
_SEND = "sqs:sendmessage"
_EQUAL: dict[str, Callable[[str, str], bool]] = {
    "stringequals": str.__eq__,
    "stringequalsignorecase": lambda one, other: one.lower() == other.lower(),
    "stringlike": fnmatchcase,
    # AWS makes no difference between these two.
    "arnequals": fnmatchcase,
    "arnlike": fnmatchcase,
}


def check_policy(text: str) -> None:
    """Refuse what is no policy of a queue; an empty one takes away what was there."""
    if not text:
        return
    try:
        statements = _many(json.loads(text)["Statement"])
        sound = bool(statements) and all(_is_sound(each) for each in statements)
    except (ValueError, KeyError, TypeError):
        sound = False
    if not sound:
        raise Refusal("InvalidAttributeValue", "Invalid value for the parameter Policy.")


def allows(text: str, queue_arn: str, topic_arn: str) -> bool:
    """Whether what is published to a topic may come into the queue whose policy it is."""
    if not text:
        return False
    about = {"aws:sourcearn": topic_arn, "aws:sourceaccount": ACCOUNT, "aws:sourceowner": ACCOUNT}
    effects = {each["Effect"] for each in _many(json.loads(text)["Statement"]) if _applies(each, queue_arn, about)}
    return effects == {"Allow"}


def _is_sound(statement: dict[str, Any]) -> bool:
    actions = _many(statement["Action"])
    return (
        statement["Effect"] in ("Allow", "Deny")
        and statement["Principal"] != {}
        and all(action == "*" or action.lower().startswith("sqs:") for action in actions)
        and bool(actions)
        and bool(_many(statement["Resource"]))
    )


def _applies(statement: dict[str, Any], queue_arn: str, about: dict[str, str]) -> bool:
    principal = statement["Principal"]
    services = _many(principal.get("Service", [])) if isinstance(principal, dict) else []
    everybody = principal == "*" or (isinstance(principal, dict) and "*" in _many(principal.get("AWS", [])))
    return (
        (everybody or _SNS in services)
        and any(fnmatchcase(_SEND, action.lower()) for action in _many(statement["Action"]))
        and any(fnmatchcase(queue_arn, resource) for resource in _many(statement["Resource"]))
        and all(
            _holds(operator, about.get(key.lower()), _many(wanted), allow=statement["Effect"] == "Allow")
            for operator, keys in statement.get("Condition", {}).items()
            for key, wanted in keys.items()
        )
    )


def _holds(operator: str, actual: str | None, wanted: list[str], *, allow: bool) -> bool:
    """What this server cannot judge neither lets anything pass nor keeps a denial from being one."""
    if operator.lower() not in _EQUAL:
        return not allow
    return actual is not None and any(_EQUAL[operator.lower()](actual, each) for each in wanted)


def _many(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
