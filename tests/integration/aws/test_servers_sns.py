"""Tests that SNS behaves the same on moto's server and on the fake; else one of the two servers is wrong.

Where moto is known to differ from AWS, the fake follows AWS: see test_fake_sns.py and test_fake_sns_delivery.py. moto
ignores the policies of queues, accepts wrong attributes, changes an existing subscription, and loses the types of
list members.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.aws.boto_calls import RAW, bodies, code, number, receive, text
from tests.support.aws.servers import Place


def test_who_one_is_is_told_to_everybody(aws: Place) -> None:
    assert aws.sts_client.get_caller_identity()["Account"] == aws.account


def test_a_topic_is_made_once(aws: Place) -> None:
    arn = aws.create_topic("t")
    assert arn == f"arn:aws:sns:{aws.sns_client.meta.region_name}:{aws.account}:t"
    assert aws.create_topic("t") == arn
    assert [each["TopicArn"] for each in aws.sns_client.list_topics()["Topics"]] == [arn]
    assert aws.sns_client.get_topic_attributes(TopicArn=arn)["Attributes"]["TopicArn"] == arn
    aws.sns_client.delete_topic(TopicArn=arn)
    aws.sns_client.delete_topic(TopicArn=arn)
    with pytest.raises(aws.sns_client.exceptions.NotFoundException) as error:
        aws.sns_client.get_topic_attributes(TopicArn=arn)
    assert code(error) == "NotFound"


def test_what_is_published_comes_to_each_queue_as_it_is(aws: Place) -> None:
    for queue in ("q", "r", "s"):
        aws.create_queue(queue)
    arn = aws.create_topic("t", "q", "r", **RAW)
    attributes = {
        "laneway": text('{"id":"1"}'),
        "cents": number(12.5),
        "tags": {"DataType": "String.Array", "StringValue": '["a", "ü"]'},
    }
    message = '{"grüße":"<&>\\n"}'
    aws.sns_client.publish(TopicArn=arn, Message=message, MessageAttributes=attributes)
    for queue in ("q", "r"):
        [got] = receive(aws, queue)
        assert got["Body"] == message
        assert got["MessageAttributes"] == attributes
    assert receive(aws, "s") == []


def test_without_raw_delivery_it_comes_in_an_envelope(aws: Place) -> None:
    aws.create_queue("q")
    arn = aws.create_topic("t", "q")
    id = aws.sns_client.publish(TopicArn=arn, Message="one", MessageAttributes={"country": text("DE")})["MessageId"]
    aws.sns_client.publish(TopicArn=arn, Message="two", Subject="about it")
    first, second = (json.loads(body) for body in bodies(receive(aws, "q")))
    assert first | {"Type": "Notification", "MessageId": id, "TopicArn": arn, "Message": "one"} == first
    assert first["MessageAttributes"] == {"country": {"Type": "String", "Value": "DE"}}
    assert {"Timestamp", "SignatureVersion", "Signature", "SigningCertURL", "UnsubscribeURL"} <= first.keys()
    assert "Subject" not in first
    assert second["Subject"] == "about it"
    assert "MessageAttributes" not in second


def test_ten_are_published_at_once(aws: Place) -> None:
    aws.create_queue("q")
    arn = aws.create_topic("t", "q", **RAW)
    entries: list[dict[str, Any]] = [
        {"Id": str(place), "Message": f"m{place}", "MessageAttributes": {"n": number(place)}} for place in range(10)
    ]
    answer = aws.sns_client.publish_batch(TopicArn=arn, PublishBatchRequestEntries=entries)
    assert [each["Id"] for each in answer["Successful"]] == [each["Id"] for each in entries]
    assert len({each["MessageId"] for each in answer["Successful"]}) == 10
    assert not answer.get("Failed")
    got = {each["Body"]: each["MessageAttributes"]["n"]["StringValue"] for each in receive(aws, "q")}
    assert got == {f"m{place}": str(place) for place in range(10)}
    for wrong, expected in (
        ([*entries, {"Id": "10", "Message": "m10"}], "TooManyEntriesInBatchRequest"),
        ([entries[0], entries[0]], "BatchEntryIdsNotDistinct"),
    ):
        with pytest.raises(aws.sns_client.exceptions.ClientError) as error:
            aws.sns_client.publish_batch(TopicArn=arn, PublishBatchRequestEntries=wrong)
        assert code(error) == expected
    with pytest.raises(aws.sns_client.exceptions.NotFoundException):
        aws.sns_client.publish_batch(TopicArn=arn + "x", PublishBatchRequestEntries=entries)
    assert receive(aws, "q") == []


@pytest.mark.parametrize(
    ("policy", "passing", "failing"),
    [
        ({"c": ["DE", "AT"]}, [{"c": text("AT")}], [{"c": text("CH")}, {}, {"d": text("AT")}]),
        ({"c": ["DE"], "n": [1]}, [{"c": text("DE"), "n": number(1)}], [{"c": text("DE")}, {"n": number(1)}]),
        ({"c": [{"prefix": "A"}]}, [{"c": text("AT")}], [{"c": text("DE")}, {}]),
        ({"c": [{"suffix": "T"}]}, [{"c": text("AT")}], [{"c": text("AU")}]),
        ({"c": [{"anything-but": ["DE", "AT"]}]}, [{"c": text("CH")}], [{"c": text("AT")}, {}]),
        ({"c": [{"anything-but": {"prefix": "A"}}]}, [{"c": text("DE")}], [{"c": text("AT")}]),
        ({"n": [{"numeric": [">=", 1, "<", 2.5]}]}, [{"n": number(1)}], [{"n": number(2.5)}, {"n": text("x")}, {}]),
        ({"n": [{"numeric": ["=", 0]}, 7]}, [{"n": number(0)}, {"n": number(7)}], [{"n": number(1)}]),
        ({"c": [{"exists": True}]}, [{"c": text("x")}], [{"d": text("x")}]),
        ({"c": [{"exists": False}]}, [{"d": text("x")}], [{"c": text("x")}]),
        ({"t": ["a"]}, [{"t": {"DataType": "String.Array", "StringValue": '["b", "a"]'}}], [{"t": text("b")}]),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
def test_filters(
    aws: Place, policy: dict[str, Any], passing: list[dict[str, Any]], failing: list[dict[str, Any]]
) -> None:
    aws.create_queue("q")
    arn = aws.create_topic("t", "q", FilterPolicy=policy, **RAW)
    for kind, many in (("passing", passing), ("failing", failing)):
        for place, attributes in enumerate(many):
            aws.sns_client.publish(TopicArn=arn, Message=f"{kind} {place}", MessageAttributes=attributes)
    assert bodies(receive(aws, "q")) == [f"passing {place}" for place in range(len(passing))]


def test_subscriptions_are_listed_changed_and_ended(aws: Place) -> None:
    for queue in ("q", "r"):
        aws.create_queue(queue)
    one = aws.create_topic("one", "q", "r", **RAW)
    aws.create_topic("two", "r")
    sns = aws.sns_client
    listed = sns.list_subscriptions_by_topic(TopicArn=one)["Subscriptions"]
    assert [each["Endpoint"].rpartition(":")[2] for each in listed] == ["q", "r"]
    assert {each["Protocol"] for each in listed} == {"sqs"}
    assert len(sns.list_subscriptions()["Subscriptions"]) == 3
    first, second = (each["SubscriptionArn"] for each in listed)
    assert aws.subscribe(one, "q", **RAW) == first, "twice is once"

    sns.set_subscription_attributes(SubscriptionArn=first, AttributeName="FilterPolicy", AttributeValue='{"c": ["DE"]}')
    told = sns.get_subscription_attributes(SubscriptionArn=first)["Attributes"]
    assert json.loads(told["FilterPolicy"]) == {"c": ["DE"]}
    assert told["RawMessageDelivery"] == "true"
    sns.publish(TopicArn=one, Message="filtered")
    sns.set_subscription_attributes(SubscriptionArn=first, AttributeName="FilterPolicy", AttributeValue="{}")
    for _ in range(2):
        sns.unsubscribe(SubscriptionArn=second)
    sns.publish(TopicArn=one, Message="to one of them")
    assert bodies(receive(aws, "q")) == ["to one of them"]
    assert bodies(receive(aws, "r")) == ["filtered"]
    with pytest.raises(sns.exceptions.NotFoundException):
        sns.get_subscription_attributes(SubscriptionArn=second)
    sns.delete_topic(TopicArn=one)
    assert [each["TopicArn"].rpartition(":")[2] for each in sns.list_subscriptions()["Subscriptions"]] == ["two"]


@pytest.mark.parametrize(
    "policy",
    [
        '{"c": "DE"}',
        '{"c": {"d": ["DE"]}}',
        '{"c": [["DE"]]}',
        '{"c": [{"exists": "yes"}]}',
        '{"c": [{"resembles": "DE"}]}',
        '{"n": [{"numeric": ["!", 1]}]}',
        '{"n": [{"numeric": [">", 2, "<", 1]}]}',
        json.dumps({name: ["x"] for name in "abcdef"}),
        json.dumps({"a": [str(place) for place in range(151)]}),
    ],
)
def test_filters_that_are_none(aws: Place, policy: str) -> None:
    aws.create_queue("q")
    arn = aws.create_topic("t")
    with pytest.raises(aws.sns_client.exceptions.InvalidParameterException) as error:
        aws.subscribe(arn, "q", FilterPolicy=policy)
    assert code(error) == "InvalidParameter"


def test_what_is_wrong_with_a_request_has_the_names_of_aws(aws: Place) -> None:
    sns, arn = aws.sns_client, aws.create_topic("t")
    aws.create_queue("q.fifo")
    for wrong in ("with space", "dot.ted", "x" * 257):
        with pytest.raises(sns.exceptions.InvalidParameterException):
            sns.create_topic(Name=wrong)
    with pytest.raises(sns.exceptions.NotFoundException):
        sns.publish(TopicArn=arn + "x", Message="one")
    with pytest.raises(sns.exceptions.InvalidParameterException):
        sns.publish(TopicArn=arn, Message="x" * 262_145)
    with pytest.raises(sns.exceptions.NotFoundException):
        aws.subscribe(arn + "x", "q")
    with pytest.raises(sns.exceptions.InvalidParameterException):
        sns.subscribe(TopicArn=arn, Protocol="sqs", Endpoint="nonsense")
    with pytest.raises(sns.exceptions.InvalidParameterException):
        aws.subscribe(arn, "q.fifo")
    subscription = aws.subscribe(arn, "nowhere")  # a queue that is missing is no error
    with pytest.raises(sns.exceptions.InvalidParameterException):
        sns.set_subscription_attributes(SubscriptionArn=subscription, AttributeName="Nonsense", AttributeValue="x")
    with pytest.raises(sns.exceptions.NotFoundException):
        sns.set_subscription_attributes(
            SubscriptionArn=subscription + "x", AttributeName="FilterPolicy", AttributeValue="{}"
        )


def test_tags(aws: Place) -> None:
    arn, sns = aws.create_topic("t"), aws.sns_client
    sns.tag_resource(ResourceArn=arn, Tags=[{"Key": "app", "Value": "shop"}])
    assert sns.list_tags_for_resource(ResourceArn=arn)["Tags"] == [{"Key": "app", "Value": "shop"}]
