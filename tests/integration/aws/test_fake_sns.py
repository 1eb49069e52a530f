"""Tests that the fake's SNS is as strict as AWS where moto is not: rejected requests and filters."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.integration.aws.boto_calls import RAW, TOPIC, code, publish, text
from tests.support.aws.servers import FakeServer


@pytest.fixture
def ready(fake: FakeServer) -> FakeServer:
    """With a topic `t` whose messages go into the queue `q` as they are."""
    fake.create_queue("q")
    assert fake.create_topic("t", "q", **RAW) == TOPIC
    return fake


# -- what is not taken ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("a b", text("x")),
        ("ä", text("x")),
        (".a", text("x")),
        ("a.", text("x")),
        ("a..b", text("x")),
        ("AWS.a", text("x")),
        ("amazon.a", text("x")),
        ("a" * 257, text("x")),
        ("a", text("")),
        ("a", text("x", "Text")),
        ("a", text("x", "")),
        ("a", text("twelve", "Number")),
        ("a", text("NaN", "Number")),
        ("a", text("a, b", "String.Array")),
        ("a", text('{"a": 1}', "String.Array")),
        ("a", text('[["a"]]', "String.Array")),
        ("a", text("\x00")),
        ("a", {"DataType": "String", "BinaryValue": b"x"}),
        ("a", text("x", "Binary")),
        ("a", {"DataType": "String"}),
    ],
)
def test_attributes_that_are_none(ready: FakeServer, name: str, value: dict[str, Any]) -> None:
    with pytest.raises(ready.sns_client.exceptions.InvalidParameterValueException) as error:
        publish(ready, **{name: value})
    assert code(error) == "ParameterValueInvalid"
    entries = [{"Id": "good", "Message": "good"}, {"Id": "bad", "Message": "x", "MessageAttributes": {name: value}}]
    with pytest.raises(ready.sns_client.exceptions.InvalidParameterValueException):
        ready.sns_client.publish_batch(TopicArn=TOPIC, PublishBatchRequestEntries=entries)
    assert ready.queues["q"].bodies == [], "one wrong attribute fails all"


@pytest.mark.parametrize(
    "wrong",
    [
        {"Message": ""},
        {"Message": "\x00"},
        {"Subject": ""},
        {"Subject": "x" * 101},
        {"Subject": "two\nlines"},
        {"MessageDeduplicationId": "1"},
    ],
)
def test_messages_that_are_none(ready: FakeServer, wrong: dict[str, Any]) -> None:
    with pytest.raises(ready.sns_client.exceptions.InvalidParameterException):
        ready.sns_client.publish(**{"TopicArn": TOPIC, "Message": "x", **wrong})
    entries = [{"Id": "bad", "Message": "x", **wrong}, {"Id": "good", "Message": "good"}]
    answer = ready.sns_client.publish_batch(TopicArn=TOPIC, PublishBatchRequestEntries=entries)
    assert [(each["Id"], each["Code"], each["SenderFault"]) for each in answer["Failed"]] == [
        ("bad", "InvalidParameter", True)
    ]
    assert [each["Id"] for each in answer["Successful"]] == ["good"]
    assert ready.queues["q"].bodies == ["good"]


def test_a_batch_is_as_large_as_one_message_with_its_attributes(ready: FakeServer) -> None:
    half = "ü" * (131_072 // 2)
    entries: list[dict[str, Any]] = [{"Id": "1", "Message": half}, {"Id": "2", "Message": half}]
    ready.sns_client.publish_batch(TopicArn=TOPIC, PublishBatchRequestEntries=entries)
    entries[1] |= {"MessageAttributes": {"a": text("x")}}
    with pytest.raises(ready.sns_client.exceptions.BatchRequestTooLongException) as error:
        ready.sns_client.publish_batch(TopicArn=TOPIC, PublishBatchRequestEntries=entries)
    assert code(error) == "BatchRequestTooLong"
    with pytest.raises(ready.sns_client.exceptions.InvalidParameterException):
        publish(ready, half * 2, a=text("x"))
    assert ready.queues["q"].bodies == [half, half]


@pytest.mark.parametrize(
    ("ids", "wrong"),
    [
        ([], "EmptyBatchRequest"),
        (["a b"], "InvalidBatchEntryId"),
        ([""], "InvalidBatchEntryId"),
        (["x" * 81], "InvalidBatchEntryId"),
    ],
)
def test_ids_of_a_batch(ready: FakeServer, ids: list[str], wrong: str) -> None:
    entries = [{"Id": id, "Message": "x"} for id in ids]
    with pytest.raises(ClientError) as error:
        ready.sns_client.publish_batch(TopicArn=TOPIC, PublishBatchRequestEntries=entries)
    assert code(error) == wrong


def test_a_topic_is_not_made_again_otherwise(fake: FakeServer) -> None:
    sns = fake.sns_client
    tags = [{"Key": "app", "Value": "shop"}]
    sns.create_topic(Name="t", Attributes={"DisplayName": "T"}, Tags=tags)
    sns.create_topic(Name="t", Attributes={"DisplayName": "T"}, Tags=tags)
    sns.create_topic(Name="t")
    for wrong in ({"Attributes": {"DisplayName": "other"}}, {"Tags": [{"Key": "app", "Value": "other"}]}):
        with pytest.raises(sns.exceptions.InvalidParameterException, match="already exists with different"):
            sns.create_topic(Name="t", **wrong)
    with pytest.raises(sns.exceptions.InvalidParameterException):
        sns.create_topic(Name="u", Attributes={"Nonsense": "x"})
    sns.set_topic_attributes(TopicArn=TOPIC, AttributeName="DisplayName", AttributeValue="other")
    assert sns.get_topic_attributes(TopicArn=TOPIC)["Attributes"]["DisplayName"] == "other"
    assert list(fake.topics) == ["t"]


def test_a_subscription_is_not_made_again_otherwise(ready: FakeServer) -> None:
    [known] = ready.topics["t"].subscriptions.values()
    assert ready.subscribe(TOPIC, "q") == known.arn
    assert ready.subscribe(TOPIC, "q", RawMessageDelivery="True") == known.arn
    for wrong in ({"RawMessageDelivery": "false"}, {"FilterPolicy": {"a": ["b"]}}):
        with pytest.raises(ready.sns_client.exceptions.InvalidParameterException) as error:
            ready.subscribe(TOPIC, "q", **wrong)
        assert str(error.value).endswith(
            "Invalid parameter: Attributes Reason: Subscription already exists with different attributes"
        )
    told = ready.sns_client.get_subscription_attributes(SubscriptionArn=known.arn)["Attributes"]
    assert told["RawMessageDelivery"] == "true"
    assert "FilterPolicy" not in told


@pytest.mark.parametrize(
    "wrong",
    [
        {"RawMessageDelivery": "yes"},
        {"FilterPolicyScope": "Everything"},
        {"FilterPolicy": "nonsense"},
        {"FilterPolicy": '["a"]'},
        {"FilterPolicy": '{"a": []}'},
        {"FilterPolicy": '{"a": [{}]}'},
        {"FilterPolicy": '{"a": [{"prefix": "b", "suffix": "c"}]}'},
        {"FilterPolicy": '{"a": [{"prefix": 1}]}'},
        {"FilterPolicy": '{"a": [{"anything-but": []}]}'},
        {"FilterPolicy": '{"a": [{"anything-but": ["b", 1]}]}'},
        {"FilterPolicy": '{"a": [{"anything-but": {"numeric": ["=", 1]}}]}'},
        {"FilterPolicy": '{"a": [{"numeric": []}]}'},
        {"FilterPolicy": '{"a": [{"numeric": ["=", "1"]}]}'},
        {"FilterPolicy": '{"a": [{"numeric": ["<", 2, ">", 1]}]}'},
        {"FilterPolicy": '{"a": [{"numeric": [">", 1, "<", 2, "<", 3]}]}'},
        {"FilterPolicy": '{"a": [{"numeric": [">", 1, 2]}]}'},
        {"FilterPolicy": '{"a": [NaN]}'},
        {"FilterPolicy": {name: ["x", "y", "z"] for name in "abcde"}},
    ],
)
def test_settings_of_a_subscription_that_are_none(ready: FakeServer, wrong: dict[str, Any]) -> None:
    [known] = ready.topics["t"].subscriptions.values()
    ready.create_queue("r")
    with pytest.raises(ready.sns_client.exceptions.InvalidParameterException):
        ready.subscribe(TOPIC, "r", **wrong)
    assert len(ready.topics["t"].subscriptions) == 1
    [(name, value)] = wrong.items()
    value = value if isinstance(value, str) else json.dumps(value)
    with pytest.raises(ready.sns_client.exceptions.InvalidParameterException):
        ready.sns_client.set_subscription_attributes(
            SubscriptionArn=known.arn, AttributeName=name, AttributeValue=value
        )
    publish(ready)
    assert ready.queues["q"].bodies == ["one"], "it is as it was"


def test_pages_have_a_hundred(fake: FakeServer) -> None:
    arn, sns = fake.create_topic("t"), fake.sns_client
    for place in range(101):
        fake.subscribe(arn, f"q{place}")
        fake.create_topic(f"u{place}")
    for name, field, more in (
        ("list_subscriptions", "Subscriptions", {}),
        ("list_subscriptions_by_topic", "Subscriptions", {"TopicArn": arn}),
        ("list_topics", "Topics", {}),
    ):
        pages = [page[field] for page in sns.get_paginator(name).paginate(**more)]
        assert len(pages[0]) == 100
        each = [tuple(entry.values()) for page in pages for entry in page]
        assert len(each) == len(set(each)) == (102 if field == "Topics" else 101)
    with pytest.raises(sns.exceptions.InvalidParameterException):
        sns.list_topics(NextToken="nonsense")


# -- filters -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "attribute", "passes"),
    [
        ([1], text("1.0", "Number"), True),
        ([1], text("1"), False),
        (["1"], text("1", "Number"), False),
        ([0.1], text("0.1", "Number"), True),
        ([{"numeric": ["=", 0.3]}], text("0.3", "Number"), True),
        ([{"numeric": [">", 1]}], text("2"), False),
        ([{"prefix": "1"}], text("12", "Number"), False),
        ([{"anything-but": 5}], text("5.0", "Number"), False),
        ([{"anything-but": "5"}], text("5", "Number"), True),
        ([{"anything-but": {"prefix": "5"}}], text("5", "Number"), True),
        ([{"anything-but": {"prefix": "a"}}], text('["a", "c"]', "String.Array"), True),
        ([{"anything-but": ["a", "b"]}], text('["a", "c"]', "String.Array"), True),
        ([{"anything-but": ["a", "b"]}], text('["a", "b"]', "String.Array"), False),
        ([{"prefix": "c"}], text('["a", "cd"]', "String.Array"), True),
        ([{"numeric": ["<", 2]}], text('["a", 1]', "String.Array"), True),
        ([True], text("[true]", "String.Array"), True),
        ([1], text("[true]", "String.Array"), False),
        ([None], text("[null]", "String.Array"), True),
        ([{"exists": False}], text("[]", "String.Array"), True),
        ([{"equals-ignore-case": "aBc"}], text("AbC"), True),
        ([{"equals-ignore-case": "abc"}], text("abcd"), False),
        ([{"exists": True}], {"DataType": "Binary", "BinaryValue": b"x"}, False),
        (["x"], text("x", "String.custom"), True),
    ],
)
def test_filters_go_by_the_kind_of_a_value(fake: FakeServer, rules: list[Any], attribute: Any, passes: bool) -> None:
    fake.create_queue("q")
    fake.create_topic("t", "q", FilterPolicy={"a": rules}, **RAW)
    publish(fake, a=attribute)
    assert fake.queues["q"].bodies == (["one"] if passes else [])
    assert fake.filtered == (0 if passes else 1)
    assert fake.lost == []


def test_filters_may_go_by_what_the_message_says(fake: FakeServer) -> None:
    fake.create_queue("q")
    policy = {"order": {"lines": {"sku": [{"prefix": "A"}]}}, "cents": [{"numeric": [">", 5]}]}
    fake.create_topic("t", "q", FilterPolicy=policy, FilterPolicyScope="MessageBody", **RAW)
    passing = {"order": {"lines": [{"sku": "B"}, {"sku": "A1"}]}, "cents": 6}
    for message in (passing, {**passing, "cents": 5}, {"cents": 6}, {**passing, "order": {"lines": []}}, ["A"]):
        publish(fake, json.dumps(message))
    publish(fake, "no JSON")
    assert fake.queues["q"].bodies == [json.dumps(passing)]
