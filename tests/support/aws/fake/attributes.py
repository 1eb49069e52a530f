"""The settings of an SQS queue: their names and the values that each allows."""

from __future__ import annotations

import json
import re

from tests.support.aws.fake.faults import Refusal, invalid, invalid_value
from tests.support.aws.fake.policies import check_policy

#: Each with its range and with what it is when nobody said anything.
NUMBERS = {
    "DelaySeconds": (0, 900, 0),
    # AWS's own upper limit and default have been 1 MiB since 2025. This server begins with the older quarter of it, so
    # that whoever wants more must say so; a batch may be as large as one message.
    "MaximumMessageSize": (1024, 1_048_576, 262_144),
    "MessageRetentionPeriod": (60, 1_209_600, 345_600),
    "ReceiveMessageWaitTimeSeconds": (0, 20, 0),
    "VisibilityTimeout": (0, 43_200, 30),
}
_FIFO = {
    "FifoQueue": ("true",),
    "ContentBasedDeduplication": ("true", "false"),
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
}
_TEXTS = {
    "Policy",
    "RedrivePolicy",
    "RedriveAllowPolicy",
    "SqsManagedSseEnabled",
    "KmsMasterKeyId",
    "KmsDataKeyReusePeriodSeconds",
}
#: What can be asked for beyond what can be set.
_TOLD = {
    "All",
    "QueueArn",
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")


def check_name(name: str, attributes: dict[str, str]) -> None:
    if not _NAME.fullmatch(name):
        raise invalid_value("Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length")
    if name.endswith(".fifo") != (attributes.get("FifoQueue") == "true"):
        raise invalid_value(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
            "must end with .fifo suffix and be 1 to 80 in length."
        )


def check_attributes(attributes: dict[str, str], *, fifo: bool) -> None:
    for name, value in attributes.items():
        if name in NUMBERS:
            least, most, _ = NUMBERS[name]
            if not value.isdecimal() or not least <= int(value) <= most:
                raise Refusal("InvalidAttributeValue", f"Invalid value for the parameter {name}.")
        elif name in _FIFO:
            if not fifo:
                raise Refusal("InvalidAttributeName", f"Unknown Attribute {name}.")
            if value not in _FIFO[name]:
                raise Refusal("InvalidAttributeValue", f"Invalid value for the parameter {name}.")
        elif name == "Policy":
            check_policy(value)
        elif name not in _TEXTS:
            raise Refusal("InvalidAttributeName", f"Unknown Attribute {name}.")


def check_asked(names: list[str]) -> None:
    for name in names:
        if name not in NUMBERS and name not in _FIFO and name not in _TEXTS and name not in _TOLD:
            raise Refusal("InvalidAttributeName", f"Unknown Attribute {name}.")


def redrive_of(policy: str) -> tuple[str, int] | None:
    """The ARN of the dead-letter queue, and after how many receives a message goes there."""
    if not policy:
        return None
    try:
        read = json.loads(policy)
        arn, most = read["deadLetterTargetArn"], int(read["maxReceiveCount"])
    except (ValueError, KeyError, TypeError):
        raise invalid("RedrivePolicy", policy, "Amazon SQS can't create the redrive policy.") from None
    if not 1 <= most <= 1000:
        raise invalid("RedrivePolicy", policy, "Invalid value for maxReceiveCount: it must be from 1 to 1000.")
    return arn, most
