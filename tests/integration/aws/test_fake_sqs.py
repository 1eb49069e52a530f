"""Tests of the fake's SQS: as strict as AWS where moto is not, on the clock of the test, with faults on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from laneway.clock import ManualClock
from tests.integration.aws.boto_calls import bodies, code, delete, hide, receive, send
from tests.support.aws.servers import FakeProcess, FakeServer

HOUR = 3600


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def slow(clock: ManualClock) -> Iterator[FakeServer]:
    """A fake whose time stands still until the clock moves, with a queue of each kind."""
    server = FakeServer.start(clock)
    server.create_queue("q")
    server.create_queue("q.fifo")
    yield server
    server.end()


# -- refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queue", "entry", "wrong"),
    [
        ("q", {"MessageBody": ""}, "MissingParameter"),
        ("q", {"MessageBody": "x", "DelaySeconds": -1}, "InvalidParameterValue"),
        ("q", {"MessageBody": "\x00"}, "InvalidMessageContents"),
        ("q", {"MessageBody": "\ufffe"}, "InvalidMessageContents"),
        ("q", {"MessageBody": "x" * 262_145}, "BatchRequestTooLong"),
        ("q", {"MessageBody": "x", "MessageDeduplicationId": "1"}, "InvalidParameterValue"),
        ("q", {"MessageBody": "x", "MessageGroupId": "with space"}, "InvalidParameterValue"),
        ("q.fifo", {"MessageBody": "x", "MessageGroupId": "ü"}, "InvalidParameterValue"),
        ("q.fifo", {"MessageBody": "x", "MessageGroupId": "a", "DelaySeconds": 1}, "InvalidParameterValue"),
    ],
    ids=[
        "empty",
        "negative delay",
        "NUL",
        "no character",
        "too large",
        "id on standard",
        "group with space",
        "group with umlaut",
        "delay on FIFO",
    ],
)
def test_what_is_not_taken(fake: FakeServer, queue: str, entry: dict[str, Any], wrong: str) -> None:
    url = fake.create_queue(queue)
    if queue.endswith(".fifo"):
        entry = {"MessageDeduplicationId": "1", **entry}
    with pytest.raises(ClientError) as error:
        fake.sqs_client.send_message(QueueUrl=url, **entry)
    assert code(error) in (wrong, "InvalidParameterValue")
    if "TooLong" in wrong:
        with pytest.raises(ClientError) as error:
            fake.sqs_client.send_message_batch(QueueUrl=url, Entries=[{"Id": "bad", **entry}])
        assert code(error).endswith(wrong)
    else:
        good = {"MessageBody": "good", "MessageGroupId": "a"}
        if queue.endswith(".fifo"):
            good["MessageDeduplicationId"] = "2"
        entries = [{"Id": "bad", **entry}, {"Id": "good", **good}]
        answer = fake.sqs_client.send_message_batch(QueueUrl=url, Entries=entries)
        assert [(each["Id"], each["SenderFault"], each["Code"]) for each in answer["Failed"]] == [("bad", True, wrong)]
        assert fake.queues[queue].bodies == ["good"]


def test_the_limit_counts_attributes_and_the_whole_batch_and_can_be_raised(fake: FakeServer) -> None:
    url = fake.create_queue("q")
    half = {"MessageBody": "x" * 130_900, "MessageAttributes": {"a": {"DataType": "String", "StringValue": "y" * 100}}}
    entries = [{"Id": str(number), **half} for number in range(2)]
    fake.sqs_client.send_message_batch(QueueUrl=url, Entries=entries)
    entries.append({"Id": "small", "MessageBody": "x"})
    entries[0]["MessageBody"] = "x" * 131_100
    with pytest.raises(ClientError) as error:
        fake.sqs_client.send_message_batch(QueueUrl=url, Entries=[*entries])
    assert code(error).endswith("BatchRequestTooLong")
    fake.sqs_client.set_queue_attributes(QueueUrl=url, Attributes={"MaximumMessageSize": "1048576"})
    fake.sqs_client.send_message_batch(QueueUrl=url, Entries=entries)


def test_one_entry_without_a_group_fails_the_whole_batch(fake: FakeServer) -> None:
    url = fake.create_queue("q.fifo")
    good = {"Id": "good", "MessageBody": "x", "MessageGroupId": "a", "MessageDeduplicationId": "1"}
    for bad in ({"MessageDeduplicationId": "2"}, {"MessageGroupId": "a"}):
        with pytest.raises(ClientError) as error:
            fake.sqs_client.send_message_batch(QueueUrl=url, Entries=[good, {"Id": "bad", "MessageBody": "y", **bad}])
        assert code(error) == "InvalidParameterValue"
    assert fake.queues["q.fifo"].bodies == []


def test_nobody_lists_queues(fake: FakeServer) -> None:
    with pytest.raises(ClientError) as error:
        fake.sqs_client.list_queues()
    assert code(error) == "AccessDenied"
    assert fake.requests == Counter({"sqs.ListQueues": 1})


def test_another_account_has_other_queues(fake: FakeServer) -> None:
    fake.create_queue("q")
    with pytest.raises(fake.sqs_client.exceptions.QueueDoesNotExist):
        fake.sqs_client.get_queue_url(QueueName="q", QueueOwnerAWSAccountId="210987654321")


def test_an_old_receipt_deletes_nothing(fake: FakeServer) -> None:
    fake.create_queue("q")
    send(fake, "q", "one")
    [old] = receive(fake, "q")
    hide(fake, "q", old, 0)
    [new] = receive(fake, "q")
    assert not delete(fake, "q", old).get("Failed")
    assert fake.queues["q"].counts.in_flight == 1
    delete(fake, "q", new)
    assert fake.queues["q"].counts.all == 0
    with pytest.raises(ClientError) as error:
        hide(fake, "q", new, 5)
    assert code(error) == "InvalidParameterValue"


# -- on a clock of the test's --------------------------------------------------------------------------


def test_nothing_waits_on_a_clock_that_stands_still(slow: FakeServer, clock: ManualClock) -> None:
    send(slow, "q", "later", DelaySeconds=900)
    assert receive(slow, "q", WaitTimeSeconds=20) == []
    clock.advance(899)
    assert slow.queues["q"].counts.delayed == 1
    assert receive(slow, "q") == []
    clock.advance(1)
    assert bodies(receive(slow, "q", VisibilityTimeout=10)) == ["later"]
    clock.step(HOUR)
    assert receive(slow, "q") == [], "a step of the clock is not AWS's"
    clock.advance(10)
    assert bodies(receive(slow, "q")) == ["later"]


def test_five_minutes_long_a_deduplication_id_is_remembered(slow: FakeServer, clock: ManualClock) -> None:
    first = send(slow, "q.fifo", "one", MessageGroupId="a")["Successful"][0]
    delete(slow, "q.fifo", *receive(slow, "q.fifo"))
    clock.advance(299)
    assert send(slow, "q.fifo", "one", MessageGroupId="a")["Successful"][0]["MessageId"] == first["MessageId"]
    assert slow.queues["q.fifo"].counts.all == 0, "also of what was deleted"
    clock.advance(1)
    send(slow, "q.fifo", "one", MessageGroupId="a")
    assert slow.queues["q.fifo"].bodies == ["one"]


def test_twelve_hours_count_from_the_receive(slow: FakeServer, clock: ManualClock) -> None:
    send(slow, "q", "one")
    clock.advance(20 * HOUR)
    [got] = receive(slow, "q", VisibilityTimeout=6 * HOUR)
    clock.advance(5 * HOUR)
    hide(slow, "q", got, 7 * HOUR)
    with pytest.raises(ClientError) as error:
        hide(slow, "q", got, 7 * HOUR + 1)
    assert "beyond the limit" in str(error.value)
    clock.advance(7 * HOUR)
    hide(slow, "q", got, 0)
    assert slow.queues["q"].counts.visible == 1, "too late, and AWS does not say so"
    assert not delete(slow, "q", got).get("Failed"), "nobody has received it since"
    assert slow.queues["q"].counts.all == 0


def test_an_expired_receipt_of_a_fifo_queue_is_refused(slow: FakeServer, clock: ManualClock) -> None:
    send(slow, "q.fifo", "one", MessageGroupId="a")
    [got] = receive(slow, "q.fifo", VisibilityTimeout=5)
    clock.advance(5)
    [failed] = delete(slow, "q.fifo", got)["Failed"]
    assert (failed["Code"], failed["SenderFault"]) == ("ReceiptHandleIsInvalid", True)
    assert failed["Message"] == "The receipt handle has expired"
    with pytest.raises(ClientError) as error:
        slow.sqs_client.delete_message(QueueUrl=slow.queue_url("q.fifo"), ReceiptHandle=got["ReceiptHandle"])
    assert code(error) == "InvalidParameterValue"
    with pytest.raises(ClientError) as error:
        hide(slow, "q.fifo", got, 5)
    assert code(error) == "InvalidParameterValue"
    assert slow.queues["q.fifo"].counts.all == 1


def test_an_attempt_that_is_repeated_gets_the_same_messages(slow: FakeServer, clock: ManualClock) -> None:
    send(slow, "q.fifo", "a1", "a2", MessageGroupId="a")
    first = receive(slow, "q.fifo", ReceiveRequestAttemptId="one", VisibilityTimeout=30)
    clock.advance(20)
    again = receive(slow, "q.fifo", ReceiveRequestAttemptId="one", VisibilityTimeout=30)
    assert [each["ReceiptHandle"] for each in again] == [each["ReceiptHandle"] for each in first]
    clock.advance(20)
    assert receive(slow, "q.fifo", ReceiveRequestAttemptId="two") == [], "they were hidden anew"
    delete(slow, "q.fifo", again[0])
    assert receive(slow, "q.fifo", ReceiveRequestAttemptId="one") == [], "one of them was touched"


def test_messages_are_kept_for_so_long(slow: FakeServer, clock: ManualClock) -> None:
    send(slow, "q", "old")
    clock.advance(4 * 24 * HOUR)
    send(slow, "q", "new")
    clock.advance(1)
    assert slow.queues["q"].bodies == ["new"]
    assert bodies(receive(slow, "q")) == ["new"]


def test_a_group_whose_head_is_delivered_too_often_goes_on_without_it(slow: FakeServer, clock: ManualClock) -> None:
    slow.create_with_dead_letters("d.fifo", max_receives=1)
    send(slow, "d.fifo", "a1", "a2", MessageGroupId="a")
    receive(slow, "d.fifo", MaxNumberOfMessages=1, VisibilityTimeout=5)
    clock.advance(5)
    assert bodies(receive(slow, "d.fifo")) == ["a2"]
    [dead] = receive(slow, "d-deadletter.fifo")
    assert dead["Body"] == "a1"
    assert dead["Attributes"]["MessageGroupId"] == "a"
    assert dead["Attributes"]["DeadLetterQueueSourceArn"].endswith(":d.fifo")


# -- faults --------------------------------------------------------------------------------------------


def drain(server: FakeServer, name: str) -> list[str]:
    seen: list[str] = []
    while got := receive(server, name):
        seen += bodies(got)
        delete(server, name, *got)
    return seen


def fill(server: FakeServer, name: str, count: int, **more: Any) -> list[str]:
    sent = [f"{number:04}" for number in range(count)]
    for start in range(0, count, 10):
        send(server, name, *sent[start : start + 10], **more)
    return sent


def test_without_faults_messages_come_once_and_in_order(fake: FakeServer) -> None:
    fake.create_queue("q")
    assert fill(fake, "q", 100) == drain(fake, "q")


def test_some_come_twice(fake: FakeServer) -> None:
    fake.create_queue("q")
    fake.faults.duplicates = 0.05
    sent = fill(fake, "q", 300)
    seen = Counter(drain(fake, "q"))
    assert set(seen) == set(sent)
    twice = [body for body, times in seen.items() if times == 2]
    assert len(twice) == fake.faults.duplicated
    assert 3 <= len(twice) <= 40
    assert fake.queues["q"].counts.all == 0


def test_some_are_overtaken(fake: FakeServer) -> None:
    fake.create_queue("q")
    fake.faults.reordered = 0.2
    sent = fill(fake, "q", 300)
    seen = drain(fake, "q")
    assert seen != sent
    assert sorted(seen) == sent
    assert fake.faults.overtaken > 20


def test_a_batch_of_a_group_may_be_listed_in_any_order(fake: FakeServer) -> None:
    fake.create_queue("q.fifo")
    fake.faults.reordered = 1.0
    sent = fill(fake, "q.fifo", 30, MessageGroupId="a")
    for start in range(0, 30, 10):
        got = receive(fake, "q.fifo")
        assert bodies(got) != sent[start : start + 10]
        assert (
            bodies(sorted(got, key=lambda each: int(each["Attributes"]["SequenceNumber"]))) == sent[start : start + 10]
        )
        delete(fake, "q.fifo", *got)


def test_a_short_poll_may_miss_what_is_there(fake: FakeServer) -> None:
    fake.create_queue("q")
    send(fake, "q", "one")
    fake.faults.misses = 1.0
    assert receive(fake, "q") == []
    assert bodies(receive(fake, "q", WaitTimeSeconds=1)) == ["one"]
    assert fake.faults.missed == 1


# -- as a process --------------------------------------------------------------------------------------


def test_as_a_process_it_is_the_same() -> None:
    server = FakeProcess.start()
    try:
        server.create_queue("q")
        server.set(duplicates=1.0, seed=7)
        send(server, "q", "one")
        assert bodies(receive(server, "q") + receive(server, "q")) == ["one", "one"]
        assert server.faults["duplicated"] == 1
        assert server.requests["sqs.ReceiveMessage"] == 2
        server.reset()
        assert server.requests == Counter()
    finally:
        server.end()
    assert not server.alive()
