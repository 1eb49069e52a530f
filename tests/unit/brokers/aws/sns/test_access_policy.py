"""Tests of the access policies of queues: Laneway understands who may send, and keeps existing statements."""

from __future__ import annotations

import json
from typing import Any

import pytest

from laneway.brokers.aws.errors import AWSError
from laneway.brokers.aws.sns.access_policy import allowing, allows, denies

TOPIC = "arn:aws:sns:eu-central-1:123456789012:eventboss-shop-sold"
QUEUE = "arn:aws:sqs:eu-central-1:123456789012:mail-eventboss-shop-sold"
OTHER = f"{TOPIC}-again"


def statement(**changes: Any) -> dict[str, Any]:
    whole = {
        "Effect": "Allow",
        "Principal": {"Service": "sns.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": QUEUE,
        "Condition": {"ArnEquals": {"aws:SourceArn": TOPIC}},
        **changes,
    }
    return {name: value for name, value in whole.items() if value is not None}


def policy(*statements: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        # As the Ruby original writes it.
        {"Sid": "queue-policy", "Principal": "*", "Action": ["SQS:SendMessage"]},
        {"Principal": {"AWS": "*"}, "Action": "SQS:*", "Condition": {"ArnLike": {"AWS:SourceArn": [OTHER, TOPIC]}}},
        {"Resource": "*", "Action": ["sqs:ReceiveMessage", "sqs:Send*"], "Condition": None},
        {"Condition": {"StringLike": {"aws:SourceArn": "arn:aws:sns:*:123456789012:eventboss-*"}}},
        {"Condition": {"StringEquals": {"aws:SourceAccount": "123456789012"}, "ArnEquals": {"aws:SourceArn": TOPIC}}},
    ],
)
def test_a_statement_that_allows_it(changes: dict[str, Any]) -> None:
    elsewhere = statement(Sid="before", Effect="Deny", Resource=f"{QUEUE}-deadletter")
    assert allows(policy(elsewhere, statement(**changes)), QUEUE, TOPIC)
    assert allows(json.dumps({"Statement": statement(**changes)}), QUEUE, TOPIC)


@pytest.mark.parametrize(
    "changes",
    [
        {"Principal": {"Service": "events.amazonaws.com"}},
        {"Principal": {"AWS": "arn:aws:iam::123456789012:root"}},
        {"Principal": None},
        {"Action": "sqs:ReceiveMessage"},
        {"Resource": f"{QUEUE}-deadletter"},
        {"Condition": {"ArnEquals": {"aws:SourceArn": OTHER}}},
        {"Condition": {"ArnNotEquals": {"aws:SourceArn": TOPIC}}},
        {"Condition": {"ArnEquals": {"aws:SourceArn": TOPIC}, "Bool": {"aws:SecureTransport": "true"}}},
        {"Condition": {"StringEquals": {"aws:SourceAccount": "999999999999"}}},
        {"Condition": {"StringLike": {"aws:SourceArn": "arn:aws:sns:[a-z]*"}}},
    ],
)
def test_a_statement_that_does_not(changes: dict[str, Any]) -> None:
    before = policy(statement(**changes))
    assert not allows(before, QUEUE, TOPIC)
    after = allowing(before, QUEUE, TOPIC)
    assert allows(after, QUEUE, TOPIC)
    assert json.loads(after)["Statement"][0] == statement(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"Principal": "*", "Action": "sqs:*", "Resource": "*", "Condition": None},
        {"Principal": "*", "Condition": {"ArnNotEquals": {"aws:SourceArn": [OTHER, f"{OTHER}-2"]}}},
        {"Principal": "*", "Condition": {"StringNotEquals": {"aws:SourceAccount": "999999999999"}}},
    ],
)
def test_what_is_denied_no_other_statement_allows(changes: dict[str, Any]) -> None:
    denying = policy(statement(), statement(Effect="Deny", **changes))
    assert denies(denying, QUEUE, TOPIC)
    assert not allows(denying, QUEUE, TOPIC)


@pytest.mark.parametrize(
    "changes",
    [
        {"Condition": {"Bool": {"aws:SecureTransport": "false"}}},  # SNS does not come without TLS
        {"Condition": {"ArnNotLike": {"aws:SourceArn": f"{TOPIC}*"}}},
        {"Condition": {"ArnEquals": {"aws:SourceArn": OTHER}}},
        {"Principal": {"AWS": "arn:aws:iam::123456789012:root"}, "Condition": None},
        {"Action": "sqs:ReceiveMessage", "Condition": None},
    ],
)
def test_what_is_denied_to_others_is_not_denied(changes: dict[str, Any]) -> None:
    whole = policy(statement(Effect="Deny", **changes), statement())
    assert not denies(whole, QUEUE, TOPIC)
    assert allows(whole, QUEUE, TOPIC)


@pytest.mark.parametrize("before", [None, ""])
def test_without_a_policy_nobody_may_and_then_this_topic_alone(before: str | None) -> None:
    assert not allows(before, QUEUE, TOPIC)
    after = allowing(before, QUEUE, TOPIC)
    assert allows(after, QUEUE, TOPIC)
    assert not allows(after, QUEUE, OTHER)
    assert not allows(after, f"{QUEUE}-x", TOPIC)
    [made] = json.loads(after)["Statement"]
    assert made.pop("Sid").isalnum()
    assert made == statement()


def test_all_else_of_a_policy_is_kept() -> None:
    before = {"Version": "2008-10-17", "Id": "mine", "Statement": statement(Sid="x", Principal="*", Action="sqs:*")}
    after = json.loads(allowing(json.dumps(before), QUEUE, OTHER))
    assert (after["Version"], after["Id"]) == ("2008-10-17", "mine")
    assert after["Statement"][0] == before["Statement"]


def test_statements_have_names_of_their_own() -> None:
    one = json.loads(allowing(None, QUEUE, TOPIC))
    one["Statement"][0]["Effect"] = "Deny"  # somebody has changed it, and it stays
    two = json.loads(allowing(allowing(json.dumps(one), QUEUE, TOPIC), QUEUE, OTHER))
    assert len({each["Sid"] for each in two["Statement"]}) == 3


@pytest.mark.parametrize("text", ["{", "[]", '{"Statement": ["x"]}'])
def test_a_policy_that_cannot_be_read_is_told_and_never_written_over(text: str) -> None:
    for act in (allows, allowing):
        with pytest.raises(AWSError, match="access policy of the SQS queue mail-eventboss-shop-sold cannot be read"):
            act(text, QUEUE, TOPIC)
