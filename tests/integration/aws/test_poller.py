"""Tests of the poller: it moves jobs that are due soon from the table to the queue, unchanged, and loses none."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from laneway.brokers.aws.clients import Clients
from laneway.brokers.aws.dynamodb.delayed_jobs import CLAIM_S
from laneway.brokers.aws.dynamodb.items import RUBY
from laneway.brokers.aws.dynamodb.locks import LockRows
from laneway.brokers.aws.sqs import send_batch
from laneway.clock import ManualClock
from laneway.errors import BrokerAwayError, BrokerError
from laneway.failpoints import armed
from tests.support.aws.delay_table import Sends, Waiters, most_often, waiting
from tests.support.aws.endpoints import Place
from tests.support.aws.fault_proxy import LOST, FaultProxy
from tests.support.aws.servers import FakeServer

#: The servers' own clocks go on, so that what is delayed by SQS stays invisible in these tests.
NOW = 1_700_000_000.0

#: `make chaos` kills processes at these places, 200 times.
CRASHES = 30
PLACES = ("after table claim", "before table send", "after table send", "before table delete")


@pytest.fixture(scope="module")
def bad_network(_fake: FakeServer) -> Iterator[tuple[FaultProxy, Clients]]:
    """A proxy before the fake, and clients that go through it and try again."""
    with FaultProxy(_fake.endpoint) as proxy:
        clients = Clients(proxy.settings())
        yield proxy, clients
        clients.close()


class Died(Exception):
    """Stands for the end of a process."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


def at(place: Place, clock: ManualClock) -> Waiters:
    waiters = Waiters(place, clock)
    waiters.make_table()
    waiters.make_queues("q", "q.fifo")
    return waiters


@pytest.fixture
def waiters(fake: Place, clock: ManualClock) -> Waiters:
    return at(fake, clock)


@pytest.fixture
def any_waiters(aws: Place, clock: ManualClock) -> Waiters:
    return at(aws, clock)


@pytest.fixture(autouse=True)
def disarmed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(send_batch, "PAUSES_S", (0.0, 0.0))
    yield
    armed.clear()


# -- what is taken -------------------------------------------------------------------------------------


def test_what_is_due_within_900_seconds_is_sent_with_the_delay_that_is_left(any_waiters: Waiters) -> None:
    waiters = any_waiters
    due = {"past": -5_000.0, "now": 0.0, "soon": 0.2, "later": 899.5, "edge": 900.0, "far": 900.5}
    waiters.table().delayed.put([waiting(id, NOW + seconds) for id, seconds in due.items()])
    sends = Sends(waiters)
    assert waiters.poller().round() == 300
    sent = {json.loads(entry["MessageAttributes"]["laneway"]["StringValue"])["id"]: entry for entry in sends.entries}
    assert {id: entry.get("DelaySeconds", 0) for id, entry in sent.items()} == {
        "past": 0, "now": 0, "soon": 1, "later": 900, "edge": 900,
    }  # fmt: skip
    assert waiters.waiting_ids() == ["far"]
    assert waiters.place.counts("q") == (2, 0, 3)


def test_a_message_is_sent_as_it_is_stored(any_waiters: Waiters) -> None:
    waiters = any_waiters
    item = waiting("a", NOW, retry_count=2, error="Boom", headers={"x": "y"})
    item.outgoing.attributes = {"theirs": {"DataType": "Binary", "BinaryValue": b"\0\1"}}
    waiters.table().delayed.put([item])
    (row,) = [row for row in waiters.rows() if "perform_at" in row]
    stored = row["sqs_message_attributes"]["M"]
    waiters.poller().round()
    (message,) = waiters.raw_messages()
    assert message["Body"] == row["sqs_message_body"]["S"]
    attributes = message["MessageAttributes"]
    assert attributes["laneway"]["StringValue"] == stored["laneway"]["M"]["StringValue"]["S"]
    assert attributes["theirs"]["BinaryValue"] == b"\0\1"
    assert set(attributes) == {"laneway", "theirs"}


def test_fifo_items_are_sent_when_they_are_due_and_the_next_round_is_no_later(
    any_waiters: Waiters, clock: ManualClock
) -> None:
    waiters = any_waiters
    calls = [("c1", 0, "k"), ("c2", 40, "k"), ("c3", 70, "j")]
    waiters.table().delayed.put([waiting(id, NOW + seconds, key=key) for id, seconds, key in calls])
    poller = waiters.poller()
    assert poller.round() == 40
    assert waiters.sent_ids("q.fifo") == ["c1"]
    clock.advance(40)
    assert poller.round() == 30
    clock.advance(30)
    assert poller.round() == 230
    assert sorted(waiters.sent_ids("q.fifo")) == ["c2", "c3"]


def test_calls_of_a_key_are_sent_in_order_of_due_time_then_arrival(waiters: Waiters) -> None:
    calls = [(f"c{n:03}", NOW - 50 + n // 4) for n in range(40)]
    shuffled = random.Random(7).sample(calls, len(calls))
    waiters.table().delayed.put([waiting(id, at, key=f"k{int(id[1:]) % 2}") for id, at in shuffled])
    waiters.poller().round()
    messages = waiters.raw_messages("q.fifo")
    for key in ("k0", "k1"):
        ids = [
            json.loads(each["MessageAttributes"]["laneway"]["StringValue"])["id"]
            for each in messages
            if each["Attributes"]["MessageGroupId"] == key
        ]
        assert ids == [id for id, _ in calls if f"k{int(id[1:]) % 2}" == key]


def test_large_ones_share_a_request_only_as_far_as_they_fit(any_waiters: Waiters) -> None:
    waiters = any_waiters
    waiters.table().delayed.put([waiting(f"j{n}", NOW, body=json.dumps("x" * 100_000)) for n in range(5)])
    sends = Sends(waiters)
    waiters.poller().round()
    assert sorted(sends.batches) == [1, 2, 2]
    assert len(waiters.sent_ids()) == 5


def test_a_ruby_item_goes_to_the_queue_that_its_body_names(any_waiters: Waiters) -> None:
    waiters = any_waiters
    waiters.make_queues("mails", "legacy.fifo")
    for id, name in (("r1", "mails"), ("r2", "legacy.fifo")):
        body = {
            "job_class": {"S": "MailJob"},
            "arguments": {
                "L": [{"N": "12345678901234567890"}, {"N": "1.5"}, {"BOOL": True}, {"M": {"ü": {"NULL": True}}}]
            },
            "queue_name": {"S": name},
        }
        attributes = {"shoryuken_class": {"M": {"string_value": {"S": "Wrapper"}, "data_type": {"S": "String"}}}}
        item = {
            "scheduler": {"S": RUBY}, "job_id": {"S": id}, "perform_at": {"N": str(NOW)},
            "sqs_message_body": {"M": body}, "sqs_message_attributes": {"M": attributes},
        }  # fmt: skip
        waiters.clients.dynamodb("put_item", TableName="q", Item=item)
    assert [(item.queue, item.job_id) for item in waiters.table().delayed.due()] == [("mails", "r1"), ("legacy", "r2")]
    waiters.poller().round()
    for name in ("mails", "legacy.fifo"):
        (message,) = waiters.raw_messages(name)
        assert message["Body"] == (
            f'{{"arguments":[12345678901234567890,1.5,true,{{"ü":null}}],"job_class":"MailJob","queue_name":"{name}"}}'
        )
        assert set(message["MessageAttributes"]) == {"shoryuken_class"}
        assert message["MessageAttributes"]["shoryuken_class"]["StringValue"] == "Wrapper"
    assert waiters.waiting_ids() == []


def test_a_shared_table_serves_queues_that_the_worker_does_not(aws: Place, clock: ManualClock) -> None:
    waiters = Waiters(aws, clock, table="jobs")
    waiters.make_table("jobs")
    waiters.make_queues("q", "other")
    waiters.table().delayed.put([waiting("a", NOW), waiting("b", NOW, queue="other")])
    waiters.poller("q").round()
    assert (waiters.sent_ids("q"), waiters.sent_ids("other")) == (["a"], ["b"])


def test_without_a_table_it_looks_again_in_a_minute(aws: Place, clock: ManualClock) -> None:
    waiters = Waiters(aws, clock)
    waiters.make_queues("q")
    poller = waiters.poller()
    assert poller.round() == 60
    waiters.make_table()
    clock.advance(60)
    assert poller.round() == 300


# -- what goes wrong -----------------------------------------------------------------------------------


def test_items_for_a_missing_queue_stay_and_the_others_go(
    waiters: Waiters, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    waiters.table().delayed.put([waiting("a", NOW, queue="nowhere"), waiting("b", NOW)])
    poller = waiters.poller()
    for _ in range(3):
        assert poller.round() <= 60
    assert waiters.sent_ids() == ["b"]
    assert waiters.waiting_ids() == ["a"]
    assert len([record for record in caplog.records if "nowhere" in record.getMessage()]) == 1
    waiters.make_queues("nowhere")
    clock.advance(60)
    poller.round()
    assert waiters.sent_ids("nowhere") == ["a"]


def test_what_sqs_did_not_take_of_a_batch_is_kept_and_tried_again(waiters: Waiters) -> None:
    waiters.table().delayed.put([waiting(f"j{n}", NOW) for n in range(10)])
    refused: list[dict[str, Any]] = []

    def some_fail(params: dict[str, Any]) -> dict[str, Any] | None:
        entries = params["Entries"]
        if len(refused) >= 5:
            return None
        bad = [entry for entry in entries if int(entry["Id"]) % 2]
        refused.extend(bad)
        good = [entry for entry in entries if entry not in bad]
        sends._ask("send_message_batch", QueueUrl=params["QueueUrl"], Entries=good)
        failed = [{"Id": entry["Id"], "SenderFault": False, "Code": "InternalError"} for entry in bad]
        return {"Successful": [{"Id": entry["Id"]} for entry in good], "Failed": failed}

    sends = Sends(waiters, some_fail)
    waiters.poller().round()
    assert sends.batches == [10, 5]
    assert sorted(waiters.sent_ids()) == [f"j{n}" for n in range(10)]
    assert waiters.waiting_ids() == []


def test_what_sqs_never_takes_stays_said_once_and_can_be_cancelled(
    waiters: Waiters, caplog: pytest.LogCaptureFixture
) -> None:
    waiters.table().delayed.put([waiting("good", NOW), waiting("bad", NOW)])

    def bad_fails(params: dict[str, Any]) -> dict[str, Any]:
        good = [entry for entry in params["Entries"] if '"good"' in str(entry)]
        if good:
            sends._ask("send_message_batch", QueueUrl=params["QueueUrl"], Entries=good)
        failed = [entry for entry in params["Entries"] if entry not in good]
        return {
            "Successful": [{"Id": entry["Id"]} for entry in good],
            "Failed": [{"Id": entry["Id"], "SenderFault": True, "Code": "InvalidMessageContents"} for entry in failed],
        }

    sends = Sends(waiters, bad_fails)
    poller = waiters.poller()
    for _ in range(2):
        assert poller.round() <= 60
    assert waiters.sent_ids() == ["good"]
    assert len(caplog.records) == 1
    assert waiters.table().delayed.remove("bad", NOW)


def test_a_call_never_overtakes_one_of_its_key_that_was_not_taken(waiters: Waiters) -> None:
    waiters.table().delayed.put(
        [waiting(f"c{n}", NOW - 10 + n, key="k") for n in range(4)] + [waiting("d", NOW, key="other")]
    )

    def second_fails(params: dict[str, Any]) -> dict[str, Any] | None:
        bad = [entry for entry in params["Entries"] if '"c1"' in str(entry)]
        if not bad:
            return None
        return {
            "Failed": [
                {"Id": entry["Id"], "SenderFault": False, "Code": "InternalError"} for entry in params["Entries"]
            ]
        }

    Sends(waiters, second_fails)
    with pytest.raises(BrokerAwayError, match="did not take 1 of 1"):
        waiters.poller().round()
    assert sorted(waiters.sent_ids("q.fifo")) == ["c0", "d"]
    assert waiters.waiting_ids() == ["c1", "c2", "c3"]


def test_a_call_never_overtakes_one_that_was_not_taken_long_before_it(
    waiters: Waiters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if so many are due that they are looked at in parts."""
    monkeypatch.setattr("laneway.brokers.aws.dynamodb.poller._BLOCK", 5)
    waiters.table().delayed.put([waiting(f"c{n}", NOW - 20 + n, key="k" if n % 2 else "other") for n in range(16)])

    def third_fails(params: dict[str, Any]) -> dict[str, Any] | None:
        bad = [entry for entry in params["Entries"] if '"c3"' in str(entry)]
        failed = [{"Id": entry["Id"], "SenderFault": True, "Code": "InvalidMessageContents"} for entry in bad]
        good = [entry for entry in params["Entries"] if entry not in bad]
        answer = sends._ask("send_message_batch", **{**params, "Entries": good}) if good else {}
        return {**answer, "Failed": failed}

    sends = Sends(waiters, third_fails)
    waiters.poller().round()
    assert sorted(waiters.sent_ids("q.fifo")) == sorted(["c1", *(f"c{n}" for n in range(0, 16, 2))])


def test_calls_are_left_to_another_poller_for_the_whole_round(
    waiters: Waiters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may end in the middle of it, and what it has not seen would be overtaken."""
    monkeypatch.setattr("laneway.brokers.aws.dynamodb.poller._BLOCK", 5)
    waiters.table().delayed.put([waiting(f"c{n:02}", NOW - 20 + n, key="k") for n in range(12)])
    held = iter([False])
    monkeypatch.setattr(LockRows, "hold", lambda *args: next(held, True))
    assert waiters.poller().round() == 5
    assert waiters.sent_ids("q.fifo") == []


def test_a_call_never_overtakes_one_of_its_key_that_another_poller_holds(waiters: Waiters, clock: ManualClock) -> None:
    waiters.table().delayed.put([waiting("c0", NOW - 1, key="k"), waiting("c1", NOW, key="k")])
    first = waiters.table().delayed.get("c0")
    assert first is not None
    assert waiters.table().delayed.claim(first, "a dead one", NOW)
    poller = waiters.poller()
    assert poller.round() <= CLAIM_S + 1
    assert waiters.sent_ids("q.fifo") == []
    clock.advance(CLAIM_S + 1)
    poller.round()
    assert waiters.sent_ids("q.fifo") == ["c0", "c1"]


def test_an_answer_that_is_lost_after_the_send_repeats_the_same_job(waiters: Waiters) -> None:
    waiters.table().delayed.put([waiting(f"j{n}", NOW) for n in range(3)])
    lost: list[int] = []

    def answer_is_lost(params: dict[str, Any]) -> dict[str, Any] | None:
        if lost:
            return None
        lost.append(1)
        sends._ask("send_message_batch", **params)
        raise BrokerAwayError("no answer")

    sends = Sends(waiters, answer_is_lost)
    poller = waiters.poller()
    with pytest.raises(BrokerAwayError, match="no answer"):
        poller.round()
    assert len(waiters.waiting_ids()) == 3
    poller.round()
    ids = waiters.sent_ids()
    assert set(ids) == {"j0", "j1", "j2"}
    assert len(ids) == 6
    assert waiters.waiting_ids() == []


@pytest.mark.parametrize("operation", ["query", "get_item", "update_item", "delete_item"])
def test_an_answer_that_is_lost_at_any_request_to_the_table_loses_nothing(waiters: Waiters, operation: str) -> None:
    waiters.table().delayed.put([waiting(f"j{n}", NOW) for n in range(4)])
    ask, lost = waiters.clients.dynamodb, []

    def once_lost(name: str, **params: Any) -> dict[str, Any]:
        answer = ask(name, **params)
        if name == operation and not lost:
            lost.append(name)
            raise BrokerAwayError("no answer")
        return answer

    waiters.clients.dynamodb = once_lost  # type: ignore[method-assign]  # every call still reaches the server
    poller = waiters.poller()
    with pytest.raises(BrokerError, match="no answer"):
        poller.round()
    poller.round()
    assert set(waiters.sent_ids()) == {f"j{n}" for n in range(4)}
    assert waiters.waiting_ids() == []


def test_many_crashes_between_table_and_queue_lose_nothing(fake: Place, clock: ManualClock) -> None:
    chance = random.Random(14)
    waiters = Waiters(fake, clock, partitions=1)
    waiters.make_table()
    waiters.make_queues("q", "q.fifo")
    crashes: Counter[str] = Counter()
    ids: list[str] = []

    def die() -> None:
        raise Died

    def poll() -> None:
        """One round of a poller that was not there before, when the claims of all before it have ended."""
        clock.advance(CLAIM_S + 1)
        waiters.renew_forwarder()
        waiters.poller().round()

    for n in range(CRASHES):
        new = [(f"j{n:03}", ""), (f"c{n:03}", f"k{n % 3}")][: chance.randint(1, 2)]
        waiters.table().delayed.put([waiting(id, clock.now(), key=key) for id, key in new])
        ids += [id for id, _ in new]
        place = chance.choice(PLACES)
        armed[place] = die
        with pytest.raises(Died):
            poll()
        crashes[place] += 1
        armed.clear()
        if n % 10 == 9:
            poll()
    assert crashes.total() == CRASHES
    assert set(waiters.sent_ids() + waiters.sent_ids("q.fifo")) == set(ids)
    assert waiters.waiting_ids() == []


@pytest.mark.parametrize(
    "operation",
    ["BatchWriteItem", "UpdateItem", "GetItem", "BatchGetItem", "Query", "SendMessageBatch", "DeleteItem"],
)
def test_an_answer_that_is_lost_on_the_way_is_repeated_by_boto3_and_loses_nothing(
    bad_network: tuple[FaultProxy, Clients], fake: Place, clock: ManualClock, operation: str
) -> None:
    proxy, clients = bad_network
    waiters = Waiters(fake, clock, clients=clients)
    waiters.make_table()
    waiters.make_queues("q")
    # Two at a time: boto3 tries three times, and all of them may be those of one request.
    lost = [proxy.rule(LOST, operation, nth=(1, 3))]
    table = waiters.table()
    table.delayed.put([waiting(f"j{n}", NOW) for n in range(3)] + [waiting(f"far{n}", NOW + 5_000) for n in range(3)])
    assert table.delayed.move("far0", NOW - 1, NOW)
    assert table.delayed.remove("far1", NOW)
    proxy.clear()
    lost.append(proxy.rule(LOST, operation, nth=(1, 3)))
    waiters.poller().round()
    assert any(rule.happened for rule in lost)
    proxy.clear()
    ids = waiters.sent_ids()
    assert set(ids) == {"far0", "j0", "j1", "j2"}
    assert most_often(ids) == (2 if operation == "SendMessageBatch" else 1)
    assert waiters.waiting_ids() == ["far2"]


# -- many ----------------------------------------------------------------------------------------------


def test_a_long_round_ends_early_and_the_next_begins_at_once(waiters: Waiters, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laneway.brokers.aws.dynamodb.poller._BLOCK", 5)
    monkeypatch.setattr("laneway.brokers.aws.dynamodb.poller._ENOUGH", 10)
    waiters.table().delayed.put([waiting(f"j{n:02}", NOW + n) for n in range(25)])
    poller = waiters.poller()
    assert poller.round() == 0
    assert len(waiters.waiting_ids()) == 15
    assert poller.round() == 0
    assert poller.round() == 300
    assert waiters.waiting_ids() == []


def test_calls_of_one_due_time_go_in_the_order_of_arrival_however_many_there_are(
    waiters: Waiters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laneway.brokers.aws.dynamodb.poller._BLOCK", 5)
    ids = [f"c{n:02}" for n in range(30)]
    waiters.table().delayed.put([waiting(id, NOW - 10 + n // 20, key="k") for n, id in enumerate(ids)])
    waiters.table().delayed.put([waiting(f"p{n:02}", NOW - 10) for n in range(12)])
    sends = Sends(waiters)
    assert waiters.poller().round() == 300
    calls = [entry for entry in sends.entries if "MessageGroupId" in entry]
    assert [json.loads(entry["MessageAttributes"]["laneway"]["StringValue"])["id"] for entry in calls] == ids
    assert len(waiters.sent_ids()) == 12
