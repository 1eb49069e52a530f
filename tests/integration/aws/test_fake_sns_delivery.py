"""Tests of the fake's SNS: the messages it delivers and loses, permissions, and faults on request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from laneway.brokers.aws.errors import DeniedError
from tests.integration.aws.boto_calls import RAW, TOPIC, bodies, code, publish, receive, text
from tests.support.aws.fake.sns import DENIED, NO_QUEUE, REFUSED, TOO_MANY_ATTRIBUTES
from tests.support.aws.fault_proxy import (
    ERROR_500,
    ERROR_503,
    LOST,
    REQUEST_THROTTLED,
    RESET,
    THROTTLED,
    FaultProxy,
    Partly,
)
from tests.support.aws.iam_guard import guarded
from tests.support.aws.servers import FakeProcess, FakeServer, Place
from tests.support.aws.workers import wait_until

QUEUE = "arn:aws:sqs:us-east-1:123456789012:q"


@pytest.fixture
def ready(fake: FakeServer) -> FakeServer:
    """With a topic `t` whose messages go into the queue `q` as they are."""
    fake.create_queue("q")
    assert fake.create_topic("t", "q", **RAW) == TOPIC
    return fake


# -- what is lost --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"Principal": {"Service": "events.amazonaws.com"}},
        {"Principal": {"AWS": "arn:aws:iam::123456789012:root"}},
        {"Action": "sqs:ReceiveMessage"},
        {"Resource": QUEUE + "x"},
        {"Condition": {"ArnEquals": {"aws:SourceArn": TOPIC + "x"}}},
        {"Condition": {"ArnEquals": {"aws:SourceArn": TOPIC}, "Bool": {"aws:SecureTransport": "true"}}},
        {"Effect": "Deny"},
    ],
)
def test_a_queue_takes_only_what_its_policy_lets_in(ready: FakeServer, change: dict[str, Any]) -> None:
    url = ready.queue_url("q")
    good: dict[str, Any] = {
        "Effect": "Allow",
        "Principal": {"Service": ["sns.amazonaws.com"]},
        "Action": ["SQS:Send*"],
        "Resource": "arn:aws:sqs:*:*:q",
        "Condition": {"ArnLike": {"AWS:SourceArn": ["other", TOPIC[:-1] + "*"]}},
    }
    for place, statement in enumerate((good, {**good, "Principal": "*", "Condition": {}}, {**good, **change})):
        policy = {"Version": "2012-10-17", "Statement": [statement]}
        ready.sqs_client.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(policy)})
        publish(ready, str(place))
    assert ready.queues["q"].bodies == ["0", "1"]
    assert [(each.topic, each.queue, each.message, each.why) for each in ready.lost] == [("t", "q", "2", DENIED)]


def test_a_denial_is_stronger_and_no_policy_lets_nothing_in(ready: FakeServer) -> None:
    url = ready.queue_url("q")
    allow = {"Effect": "Allow", "Principal": "*", "Action": "sqs:*", "Resource": QUEUE}
    policy = json.dumps({"Statement": [allow, {**allow, "Effect": "Deny"}]})
    for value in (policy, ""):
        ready.sqs_client.set_queue_attributes(QueueUrl=url, Attributes={"Policy": value})
        publish(ready)
    assert [each.why for each in ready.lost] == [DENIED, DENIED]
    for wrong in ("nonsense", "{}", json.dumps({"Statement": [{**allow, "Action": "sns:Publish"}]})):
        with pytest.raises(ClientError) as error:
            ready.sqs_client.set_queue_attributes(QueueUrl=url, Attributes={"Policy": wrong})
        assert code(error) == "InvalidAttributeValue"


def test_what_no_queue_can_take_is_lost(ready: FakeServer) -> None:
    publish(ready, "ten", **{f"a{place}": text("x") for place in range(10)})
    publish(ready, "eleven", **{f"a{place}": text("x") for place in range(11)})
    ready.sqs_client.set_queue_attributes(QueueUrl=ready.queue_url("q"), Attributes={"MaximumMessageSize": "1024"})
    publish(ready, "x" * 1025)
    assert ready.queues["q"].bodies == ["ten"]
    ready.sqs_client.delete_queue(QueueUrl=ready.queue_url("q"))
    publish(ready)
    assert [each.why for each in ready.lost] == [TOO_MANY_ATTRIBUTES, REFUSED, NO_QUEUE]


def test_an_envelope_has_room_for_more_attributes(fake: FakeServer) -> None:
    fake.create_queue("q")
    fake.create_topic("t", "q")
    attributes: dict[str, Any] = {f"a{place}": text("x") for place in range(11)}
    publish(fake, b={"DataType": "Binary", "BinaryValue": b"\x00\xff"}, **attributes)
    [got] = receive(fake, "q")
    assert "MessageAttributes" not in got
    told = json.loads(got["Body"])["MessageAttributes"]
    assert len(told) == 12
    assert told["b"] == {"Type": "Binary", "Value": "AP8="}


def test_what_is_binary_comes_as_it_is(ready: FakeServer) -> None:
    attributes = {"b": {"DataType": "Binary.png", "BinaryValue": b"\x00\xff"}}
    publish(ready, "line\r\nline", **attributes)
    [got] = receive(ready, "q")
    assert (got["Body"], got["MessageAttributes"]) == ("line\r\nline", attributes)


def test_a_long_poll_ends_with_what_is_published(ready: FakeServer) -> None:
    queue = ready.queues["q"]
    with ThreadPoolExecutor(1) as pool:
        got = pool.submit(receive, ready, "q", WaitTimeSeconds=20)
        wait_until(lambda: bool(queue.waiting))
        publish(ready)
        assert bodies(got.result(timeout=15)) == ["one"], "and not when its time is up"


# -- who may, and what fails ---------------------------------------------------------------------------


def test_what_nobody_may(ready: FakeServer) -> None:
    ready.denied |= {"sns.Publish", "sts.GetCallerIdentity", "sqs.SendMessage"}
    with pytest.raises(ready.sns_client.exceptions.AuthorizationErrorException) as error:
        publish(ready)
    assert code(error) == "AuthorizationError"
    for act in (
        ready.sts_client.get_caller_identity,
        lambda: ready.sqs_client.send_message(QueueUrl=ready.queue_url("q"), MessageBody="x"),
    ):
        with pytest.raises(ClientError) as error:
            act()
        assert code(error).startswith("AccessDenied")
    ready.sns_client.publish_batch(TopicArn=TOPIC, PublishBatchRequestEntries=[{"Id": "1", "Message": "one"}])
    assert ready.queues["q"].bodies == ["one"]
    ready.reset()
    assert ready.sts_client.get_caller_identity()["Account"] == "123456789012"


def test_policies_of_people_name_topics(ready: FakeServer) -> None:
    def statement(action: str, resource: str) -> dict[str, list[str]]:
        return {"Action": [action], "Resource": [resource]}

    statements = [
        statement("sns:Publish", TOPIC),
        statement("sns:CreateTopic", TOPIC),
        statement("sns:ListSubscriptions", "*"),
    ]
    clients = guarded(ready, ready.settings(), {"Statement": statements})
    clients.sns("publish", TopicArn=TOPIC, Message="one")
    clients.sns("publish_batch", TopicArn=TOPIC, PublishBatchRequestEntries=[{"Id": "1", "Message": "two"}])
    clients.sns("create_topic", Name="t")
    clients.sns("list_subscriptions")
    clients.sts("get_caller_identity")
    for operation, params, where in (
        ("publish", {"TopicArn": TOPIC + "x", "Message": "one"}, TOPIC + "x"),
        ("create_topic", {"Name": "u"}, TOPIC[:-1] + "u"),
        ("list_subscriptions_by_topic", {"TopicArn": TOPIC}, TOPIC),
        ("unsubscribe", {"SubscriptionArn": f"{TOPIC}:1"}, "*"),
    ):
        with pytest.raises(DeniedError):
            clients.sns(operation, **params)
        assert clients.denied[-1][1] == where
    assert ready.queues["q"].bodies == ["one", "two"]


@pytest.fixture
def proxy(server: Place) -> Iterator[FaultProxy]:
    with FaultProxy(server.endpoint) as proxy:
        proxy.create_queue("q")
        proxy.create_topic("t", "q", **RAW)
        yield proxy


@pytest.mark.parametrize(
    ("fault", "seen", "carried_out"),
    [
        (ERROR_500, "500 InternalError", False),
        (ERROR_503, "503 ServiceUnavailable", False),
        (THROTTLED, "400 Throttling", False),
        (REQUEST_THROTTLED, "429 Throttled", False),
        (RESET, "cut", False),
        (LOST, "cut", True),
    ],
)
def test_publishing_fails(proxy: FaultProxy, server: Place, fault: str, seen: str, carried_out: bool) -> None:
    rule = proxy.rule(fault, "sns.Publish", nth=2)
    outcomes = []
    for message in ("one", "two", "three"):
        try:
            publish(proxy, message)
            outcomes.append("published")
        except ClientError as error:
            outcomes.append(f"{error.response['ResponseMetadata']['HTTPStatusCode']} {error.response['Error']['Code']}")
        except BotoCoreError:
            outcomes.append("cut")
    assert outcomes == ["published", seen, "published"]
    assert (rule.seen, rule.happened) == (3, 1)
    assert bodies(receive(server, "q")) == ["one", *(["two"] if carried_out else []), "three"]
    assert [call.params["Message"] for call in proxy.log if call.name == "sns.Publish"] == ["one", "two", "three"]


@pytest.mark.parametrize("sender_fault", [True, False])
def test_some_are_not_published(proxy: FaultProxy, server: Place, sender_fault: bool) -> None:
    proxy.rule(Partly({0, 2}, sender_fault=sender_fault), "PublishBatch", nth=1)
    proxy.rule(Partly(range(10)), "PublishBatch", nth=2)
    entries = [
        {"Id": id, "Message": f"grüße & {id}", "MessageAttributes": {"a": text("a=b&c"), "id": text(id)}}
        for id in ("x", "y", "z")
    ]
    answer = proxy.sns_client.publish_batch(TopicArn=TOPIC, PublishBatchRequestEntries=entries)
    assert [each["Id"] for each in answer["Successful"]] == ["y"]
    assert [(each["Id"], each["SenderFault"], each["Code"]) for each in answer["Failed"]] == [
        ("x", sender_fault, "InternalError"),
        ("z", sender_fault, "InternalError"),
    ]
    [got] = receive(server, "q")
    assert (got["Body"], got["MessageAttributes"]) == ("grüße & y", entries[1]["MessageAttributes"])
    answer = proxy.sns_client.publish_batch(TopicArn=TOPIC, PublishBatchRequestEntries=entries)
    assert (answer["Successful"], len(answer["Failed"])) == ([], 3)
    assert receive(server, "q") == []


def test_it_counts_what_it_is_asked(ready: FakeServer) -> None:
    publish(ready)
    ready.sts_client.get_caller_identity()
    counted = {name: number for name, number in ready.requests.items() if name.startswith(("sns.", "sts."))}
    assert counted == {"sns.CreateTopic": 1, "sns.Subscribe": 1, "sns.Publish": 1, "sts.GetCallerIdentity": 1}
    with pytest.raises(ClientError) as error:
        ready.sns_client.list_platform_applications()
    assert code(error) == "UnknownOperationException"


def test_as_a_process_it_is_the_same() -> None:
    server = FakeProcess.start()
    try:
        server.create_queue("q")
        server.create_topic("t", "q", **RAW)
        server.subscribe(TOPIC, "gone")
        publish(server)
        assert bodies(receive(server, "q")) == ["one"]
        assert server.lost == [{"topic": "t", "queue": "gone", "message": "one", "why": NO_QUEUE}]
        assert server.requests["sns.Publish"] == 1
        server.set(denied=["sns.Publish"])
        with pytest.raises(server.sns_client.exceptions.AuthorizationErrorException):
            publish(server)
        server.reset()
        with pytest.raises(server.sns_client.exceptions.NotFoundException):
            publish(server)
    finally:
        server.end()
