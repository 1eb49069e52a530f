"""Tests of the fault proxy: a refused call is not carried out, a call whose response is lost is carried out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.integration.aws.boto_calls import bodies, code, fill, item, jobs, receive, send
from tests.support.aws.fault_proxy import (
    ERROR_500,
    ERROR_503,
    FAULTS,
    LOST,
    REQUEST_THROTTLED,
    RESET,
    THROTTLED,
    FaultProxy,
    Partly,
)
from tests.support.aws.servers import FakeServer, Place


@pytest.fixture
def proxy(server: Place) -> Iterator[FaultProxy]:
    with FaultProxy(server.endpoint) as proxy:
        proxy.create_queue("q")
        yield proxy


def attempt(proxy: FaultProxy, body: str) -> str:
    """Send; what came of it."""
    try:
        proxy.sqs_client.send_message(QueueUrl=proxy.queue_url("q"), MessageBody=body)
    except ClientError as error:
        return f"{error.response['ResponseMetadata']['HTTPStatusCode']} {error.response['Error']['Code']}"
    except BotoCoreError as error:
        return type(error).__name__
    return "sent"


@pytest.mark.parametrize(
    ("fault", "seen", "carried_out"),
    [
        (ERROR_500, ("500 InternalError",), False),
        (ERROR_503, ("503 ServiceUnavailable",), False),
        (THROTTLED, ("400 ThrottlingException",), False),
        (REQUEST_THROTTLED, ("403 RequestThrottled",), False),
        (RESET, ("ConnectionClosedError", "EndpointConnectionError"), False),
        (LOST, ("ConnectionClosedError",), True),
    ],
)
def test_the_nth_call_fails(
    proxy: FaultProxy, server: Place, fault: str, seen: tuple[str, ...], carried_out: bool
) -> None:
    assert fault in FAULTS
    rule = proxy.rule(fault, "SendMessage", nth=2)
    assert attempt(proxy, "one") == "sent"
    assert attempt(proxy, "two") in seen
    assert attempt(proxy, "three") == "sent"
    assert (rule.happened, rule.seen) == (1, 3)
    expected = ["one", "two", "three"] if carried_out else ["one", "three"]
    assert bodies(receive(server, "q")) == expected
    faults = [call.fault for call in proxy.log if call.operation == "SendMessage"]
    assert faults == [None, fault, None]


def test_a_share_of_all_calls_fails_the_same_way_each_time(proxy: FaultProxy) -> None:
    outcomes = []
    for _ in range(2):
        proxy.clear()
        rule = proxy.rule(ERROR_500, "SendMessage", share=0.4, seed=3)
        outcomes.append([attempt(proxy, "x") for _ in range(12)])
        assert rule.happened == outcomes[-1].count("500 InternalError")
    assert outcomes[0] == outcomes[1]
    assert 0 < outcomes[0].count("sent") < 12


@pytest.mark.parametrize("sender_fault", [True, False])
def test_some_entries_of_a_batch_are_not_carried_out(proxy: FaultProxy, server: Place, sender_fault: bool) -> None:
    proxy.rule(Partly({0, 2}, sender_fault=sender_fault), nth=1)
    answer = send(proxy, "q", "one", "two", "three", "four")
    assert [each["Id"] for each in answer["Successful"]] == ["1", "3"]
    assert [each["Id"] for each in answer["Failed"]] == ["0", "2"]
    assert {each["SenderFault"] for each in answer["Failed"]} == {sender_fault}
    got = receive(server, "q")
    assert bodies(got) == ["two", "four"]
    proxy.rule(Partly(range(10)), "DeleteMessageBatch")
    entries = [{"Id": str(place), "ReceiptHandle": each["ReceiptHandle"]} for place, each in enumerate(got)]
    answer = proxy.sqs_client.delete_message_batch(QueueUrl=proxy.queue_url("q"), Entries=entries)
    assert len(answer["Failed"]) == 2
    assert server.counts("q") == (0, 2, 0)


def test_a_share_of_entries(proxy: FaultProxy, server: Place) -> None:
    rule = proxy.rule(Partly(share=0.5), "SendMessageBatch")
    failed = 0
    for start in range(0, 40, 10):
        answer = send(proxy, "q", *(str(number) for number in range(start, start + 10)))
        assert answer["Failed"]
        failed += len(answer["Failed"])
    assert rule.happened == 4
    assert 4 < failed < 36
    assert sum(server.counts("q")) == 40 - failed


def test_dynamodb_has_faults_of_its_own(proxy: FaultProxy, server: Place) -> None:
    db = fill(proxy)
    proxy.rule(THROTTLED, "PutItem", nth=1)
    with pytest.raises(db.exceptions.ProvisionedThroughputExceededException):
        db.put_item(TableName="t", Item=item("a"))
    proxy.rule(ERROR_500, "dynamodb.PutItem", nth=1)
    with pytest.raises(ClientError) as error:
        db.put_item(TableName="t", Item=item("a"))
    assert code(error) == "InternalServerError"
    assert server.items("t") == []


def test_items_of_a_batch_stay_unprocessed(proxy: FaultProxy, server: Place) -> None:
    db = fill(proxy)
    puts: list[dict[str, Any]] = [{"PutRequest": {"Item": item(job)}} for job in "abc"]
    proxy.rule(Partly({1}), "BatchWriteItem", nth=1)
    answer = db.batch_write_item(RequestItems={"t": puts})
    assert answer["UnprocessedItems"] == {"t": [puts[1]]}
    assert sorted(jobs(server.items("t"))) == ["a", "c"]
    db.batch_write_item(RequestItems=answer["UnprocessedItems"])
    proxy.rule(Partly({0}), "BatchGetItem", nth=1)
    asked = {"t": {"Keys": [item(job) for job in "abc"], "ConsistentRead": True}}
    answer = db.batch_get_item(RequestItems=asked)
    assert sorted(jobs(answer["Responses"]["t"])) == ["b", "c"]
    assert answer["UnprocessedKeys"] == {"t": {"Keys": [item("a")], "ConsistentRead": True}}


def test_an_answer_can_be_kept_back_when_the_call_has_been_carried_out(proxy: FaultProxy, server: Place) -> None:
    url = proxy.queue_url("q")
    stored: list[tuple[int, int, int]] = []
    proxy.after = lambda call: stored.append(server.counts("q"))
    proxy.sqs_client.send_message(QueueUrl=url, MessageBody="one")
    proxy.after = lambda call: None
    assert stored == [(1, 0, 0)]


def test_the_end_cuts_what_waits(fake: FakeServer) -> None:
    proxy = FaultProxy(fake.endpoint)
    url = proxy.create_queue("q")
    client = proxy.client("sqs")

    def end(call: object) -> None:
        proxy.before = lambda call: None
        fake.sqs_client.send_message(QueueUrl=url, MessageBody="beside the proxy")

    proxy.before = end
    assert bodies(client.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]) == ["beside the proxy"]
    client.close()
    proxy.end()
    with pytest.raises(BotoCoreError):
        proxy.client("sqs", connect_timeout=2).get_queue_url(QueueName="q")


def test_it_counts_what_came_by_and_is_a_place_like_any_other(proxy: FaultProxy) -> None:
    send(proxy, "q", "one")
    assert proxy.requests["sqs.SendMessageBatch"] == 1
    assert proxy.counts("q") == (1, 0, 0)
