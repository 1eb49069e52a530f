"""Tests of sending jobs to SQS or the table: all are checked first, sent in tens and in order; errors name jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from laneway.brokers.aws.clients import Clients
from laneway.brokers.aws.dynamodb.delayed_jobs import DelayedJobs
from laneway.brokers.aws.errors import BatchRefusedError, MissingError
from laneway.brokers.aws.sqs import send_batch
from laneway.brokers.aws.sqs.message import (
    ROOM,
    Message,
    MessageNote,
    OutgoingMessage,
    outgoing_of,
    read,
    resend_of,
    size_of,
)
from laneway.brokers.aws.sqs.send import TimedMessage
from laneway.clock import ManualClock, SystemClock
from laneway.errors import BrokerAwayError, BrokerError, EnqueueError
from laneway.jobs.data import Hints, Kind, NewJob
from laneway.jobs.ticket import execute_after
from tests.support.aws.brokers import make_broker
from tests.support.aws.fault_proxy import ERROR_500, LOST, REQUEST_THROTTLED, RESET, FaultProxy, Partly
from tests.support.aws.servers import FakeServer, MotoServer, Place

AWS = FakeServer | MotoServer
TICKET = '{"_job_class":"Mail","_job_params":null}'


class Flaky(Clients):
    """Has SQS not take some messages, by their ids, and is away from a request of a number on. Notes what is sent."""

    def reset(self) -> None:
        self.requests.clear()
        self.failed: dict[str, dict[str, Any]] = {}
        self.times = 99
        self.breaks_at = math.inf
        self.batches: list[list[str]] = []
        self.entries: list[dict[str, Any]] = []

    def sqs(self, operation: str, **params: Any) -> dict[str, Any]:
        if operation != "send_message_batch":
            return super().sqs(operation, **params)
        self.entries += params["Entries"]
        ids = {entry["Id"]: _note(entry)["id"] for entry in params["Entries"]}
        self.batches.append(list(ids.values()))
        if len(self.batches) >= self.breaks_at:
            raise BrokerAwayError("SQS is away.")
        failed = [{"Id": n, **self.failed[id]} for n, id in ids.items() if id in self.failed and self.times > 0]
        self.times -= bool(failed)
        names = {each["Id"] for each in failed}
        left = [entry for entry in params["Entries"] if entry["Id"] not in names]
        answer = super().sqs(operation, **{**params, "Entries": left}) if left else {}
        return {"Successful": answer.get("Successful", []), "Failed": failed}


def _note(message: dict[str, Any]) -> Any:
    return msgspec.json.decode(message["MessageAttributes"]["laneway"]["StringValue"])


class Rig:
    """A sender on a server that has the queues q and other, both kinds of each."""

    def __init__(self, server: Place, clock: ManualClock | SystemClock | None = None, **options: Any) -> None:
        self.server = server
        self.clock = clock or SystemClock()
        settings = server.settings(**options)
        self.clients = _clients.setdefault(server.endpoint, Flaky(settings))  # making one takes longer than a test
        self.clients.reset()
        broker = make_broker(server, clock=self.clock, clients=self.clients, **options)
        self.account, self.sender = broker.account, broker.sender
        for name in ("q", "q.fifo", "other"):
            server.create_queue(name, MaximumMessageSize=settings.max_body)

    def messages(self, name: str = "q") -> list[Message]:
        sqs_queue = self.account.queues.of(name.removesuffix(".fifo"), name.endswith(".fifo"))
        return [read(sqs_queue, raw, 0.0, 30.0) for raw in self.server.receive_all(name)]

    def ids(self, name: str = "q") -> list[str]:
        return [message.note.id for message in self.messages(name)]

    def nothing(self) -> bool:
        return all(self.server.counts(name) == (0, 0, 0) for name in ("q", "q.fifo", "other"))


_clients: dict[str, Flaky] = {}


@pytest.fixture(scope="module", autouse=True)
def _closing() -> Iterator[None]:
    yield
    while _clients:
        _clients.popitem()[1].close()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_batch, "PAUSES_S", (0.0,) * 5)


@pytest.fixture
def rig(fake: FakeServer) -> Rig:
    return Rig(fake)


def job(key: str, body: str = TICKET, queue: str = "q", **options: Any) -> NewJob:
    return NewJob(queue=queue, key=key, body=body, **options)


def jobs(count: int, first: int = 0, **options: Any) -> list[NewJob]:
    return [job(f"k{n}", **options) for n in range(first, first + count)]


def call(key: str, identity: str, **options: Any) -> NewJob:
    return NewJob(queue="q", key=key, body=TICKET, kind=Kind.KEYED, identity=identity, **options)


# -- enqueueing ---------------------------------------------------------------------------------------


def test_jobs_are_sent_in_tens(aws: AWS) -> None:
    rig = Rig(aws)
    rig.sender.enqueue([*jobs(25), job("o", queue="other"), call("key", "c1", headers={"a": "b"})])
    assert sorted(rig.ids()) == sorted(f"k{n}" for n in range(25))
    assert rig.ids("other") == ["o"]
    (message,) = rig.messages("q.fifo")
    assert (message.note, message.body) == (MessageNote("c1", "key", headers={"a": "b"}), TICKET)
    assert list(map(len, rig.clients.batches)) == [10, 10, 5, 1, 1]
    assert [id for batch in rig.clients.batches[:3] for id in batch] == [f"k{n}" for n in range(25)]
    rig.sender.enqueue([])
    assert len(rig.clients.batches) == 5


def test_requests_are_split_by_bytes_and_keep_their_order(aws: AWS) -> None:
    rig = Rig(aws)
    big, small = "b" * 100_000, "s"
    rig.sender.enqueue([job(f"k{n}", big if n in (0, 1, 2, 5) else small) for n in range(8)])
    assert rig.clients.batches == [["k0", "k1"], ["k2", "k3", "k4", "k5", "k6", "k7"]]
    assert sorted(rig.ids()) == [f"k{n}" for n in range(8)]


def test_the_largest_that_is_not_refused_is_stored_and_can_be_sent_on(aws: AWS) -> None:
    rig = Rig(aws)
    beside = size_of(outgoing_of(job("k"))) - len(TICKET)
    size = 262_144 - beside - ROOM
    with pytest.raises(EnqueueError, match="beside its body, and this queue takes 262144 at most; store the data else"):
        rig.sender.enqueue([job("k", "b" * (size + 1))])
    rig.sender.enqueue([job("k", "b" * size)])
    (message,) = rig.messages()
    later = resend_of(message, retry_count=24, attempt=25, deaths=2, error="x" * 100_000, hop=99_999)
    rig.sender.dispatch([TimedMessage("q", False, later, None)])
    assert [len(found.body) for found in rig.messages()] == [size]


def test_larger_messages_are_an_option(fake: FakeServer) -> None:
    rig = Rig(fake, max_body=1_048_576)
    rig.sender.enqueue([job("k", "b" * 1_000_000), job("l", "b" * 100_000)])
    assert rig.clients.batches == [["k"], ["l"]]


def test_calls_of_a_key_keep_their_order_and_never_stand_in_one_request(aws: AWS) -> None:
    rig = Rig(aws)
    calls = [call(key, f"{key}{n}") for n in range(4) for key in "abc"]
    rig.sender.enqueue(calls)
    assert rig.clients.batches == [[f"{key}{n}" for key in "abc"] for n in range(4)]
    arrived = []
    for _ in range(12):  # one at a time: a group is locked until what was received of it is deleted
        url = aws.queue_url("q.fifo")
        got = aws.sqs_client.receive_message(
            QueueUrl=url, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"]
        )["Messages"][0]
        arrived.append((got["Attributes"]["MessageGroupId"], _note(got)["id"]))
        aws.sqs_client.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
    for key in "abc":
        assert [id for group, id in arrived if group == key] == [f"{key}{n}" for n in range(4)]


def test_a_call_that_is_sent_again_is_stored_once_on_a_fifo_queue(aws: AWS) -> None:
    rig = Rig(aws)
    for _ in range(2):  # as after an answer that was lost
        rig.sender.enqueue([call("k", "c1"), job("p")])
    assert aws.counts("q.fifo")[0] == 1
    assert rig.ids() == ["p", "p"]


def test_a_group_for_fair_queues_is_sent_along(aws: AWS) -> None:
    rig = Rig(aws)
    rig.sender.enqueue([job("k", hints=Hints(group="tenant-1"))])
    (raw,) = aws.receive_all("q")
    assert raw["Attributes"]["MessageGroupId"] == "tenant-1"


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (
            NewJob(queue="q", key="bad", body='"v"', kind=Kind.COLLECTING, identity="i"),
            "The job 'bad' cannot be enqueued: SQS cannot gather payloads; use Redis or SQLite",
        ),
        (job("bad", priority=3), "Task Mail: the job 'bad' cannot be enqueued: SQS has no priorities; leave it out"),
        (job("bad", priority=2**80), "SQS has no priorities"),
        (job("bad", ""), "The job 'bad' cannot be enqueued: its body is empty, which SQS does not take"),
        (
            job("bad", "a\x00b"),
            "its body holds the character U+0000, which SQS does not take; leave it out, or escape it.",
        ),
        (job("bad", "a\uffff"), "its body holds the character U+FFFF"),
        (job("bad", "a\ud800"), "its body holds the character U+D800"),
        (job("bad", "b" * 262_144), "bytes with all that travels beside its body"),
        (job("bad", "é" * 131_000), "bytes with all that travels beside its body"),
        (job("bad", headers={"a": "b" * 262_144}), "bytes with all that travels beside its body"),
        (
            job("bad", hints=Hints(group="ten ant")),
            "its group must be 1 to 128 letters, digits and punctuation of ASCII on SQS",
        ),
        (job("bad", hints=Hints(group="t" * 129)), "its group must be 1 to 128"),
        (job("bad", perform_at=math.nan), "finite"),
        (job("bad", delay_s=math.inf), "finite"),
        (job("bad \ud800"), "lone surrogates"),
        (call("", "i"), "must not be empty"),
        (call("bad", ""), "no identity"),
        (
            call("bad", "i", delay_s=1.0),
            "Task Mail: the job 'bad' cannot be enqueued: a keyed call cannot be delayed on SQS without a DynamoDB "
            "table for the queue q; create one with `laneway aws create`, or use Redis or SQLite.",
        ),
        (
            job("bad", delay_s=1.0, hints=Hints(cancellable=True)),
            "a delayed job cannot be cancelled on SQS without a DynamoDB table for the queue q; create one",
        ),
    ],
)
def test_what_cannot_be_stored_is_refused_before_anything_is(rig: Rig, bad: NewJob, sentence: str) -> None:
    with pytest.raises(EnqueueError) as caught:
        rig.sender.enqueue([*jobs(12), call("good", "g"), bad])
    assert sentence in str(caught.value)
    assert rig.clients.batches == []
    assert rig.nothing()


def test_a_refused_job_is_named_by_its_place(rig: Rig) -> None:
    with pytest.raises(EnqueueError) as caught:
        rig.sender.enqueue([job("bad", priority=1)])
    assert caught.value.place == ("q", "bad")


def test_nothing_is_sent_when_one_of_the_queues_is_missing(rig: Rig) -> None:
    with pytest.raises(MissingError, match=r"no SQS queue other.fifo .* keyed tasks of the queue other"):
        rig.sender.enqueue([job("k"), NewJob(queue="other", key="a", body="b", kind=Kind.KEYED, identity="c")])
    with pytest.raises(MissingError, match="no SQS queue nowhere"):
        rig.sender.enqueue([job("k"), job("l", queue="nowhere", perform_at=1e10)])
    assert rig.nothing()


def test_a_queue_that_is_gone_is_told_and_looked_for_again(rig: Rig) -> None:
    rig.sender.enqueue([job("k")])
    rig.server.sqs_client.delete_queue(QueueUrl=rig.server.queue_url("q"))
    with pytest.raises(MissingError, match="The SQS queue q is gone; create it with `laneway aws create`"):
        rig.sender.enqueue([job("l")])
    assert rig.account.queues.existing("q") == [rig.account.queues.of("q", True)]


def test_a_queue_that_was_missing_takes_jobs_as_soon_as_it_is_made(rig: Rig) -> None:
    with pytest.raises(MissingError, match="no SQS queue new"):
        rig.sender.enqueue([job("k", queue="new")])
    rig.server.create_queue("new")
    rig.sender.enqueue([job("k", queue="new")])
    assert rig.ids("new") == ["k"]


# -- failures -----------------------------------------------------------------------------------------

AGAIN = {"SenderFault": False, "Code": "InternalError", "Message": "Try again."}
FAULT = {"SenderFault": True, "Code": "InvalidMessageContents", "Message": "Bad character."}


def test_messages_that_were_not_taken_are_sent_alone(rig: Rig) -> None:
    rig.clients.failed, rig.clients.times = {"k1": AGAIN, "k3": AGAIN}, 2
    rig.sender.enqueue(jobs(12))
    assert rig.clients.batches[1:3] == [["k1", "k3"], ["k1", "k3"]]
    assert sorted(rig.ids()) == sorted(f"k{n}" for n in range(12))


def test_nothing_overtakes_a_call_that_was_not_taken(rig: Rig) -> None:
    rig.clients.failed, rig.clients.times = {"a0": AGAIN}, 3
    rig.sender.enqueue([call("a", "a0"), call("a", "a1"), call("b", "b0")])
    assert rig.clients.batches == [["a0", "b0"], ["a0"], ["a0"], ["a0"], ["a1"]]
    rig.clients.times = 99
    with pytest.raises(BrokerAwayError):
        rig.sender.enqueue([call("a", "a0", headers={"again": "1"}), call("a", "a2"), call("b", "b1")])
    assert ["a2"] not in rig.clients.batches


def test_what_sqs_refuses_is_named(rig: Rig) -> None:
    rig.clients.failed = {"k1": FAULT, "k4": FAULT}
    with pytest.raises(EnqueueError) as caught:
        rig.sender.enqueue(jobs(15))
    assert str(caught.value) == (
        "Items 1, 4 and 10 to 14 of 15 were not stored: SQS does not take items 1 and 4 (InvalidMessageContents: Bad "
        "character)."
    )
    assert caught.value.unstored == [1, 4, *range(10, 15)]
    assert caught.value.place == ("q", "k1")
    assert len(rig.ids()) == 8
    with pytest.raises(EnqueueError) as caught:
        rig.sender.enqueue([job("k4")])
    assert str(caught.value) == "SQS does not take the job 'k4' (InvalidMessageContents: Bad character)."


def test_refused_entries_have_their_numbers_in_the_call(rig: Rig) -> None:
    rig.clients.failed = {"c1": FAULT}
    items = [TimedMessage("q", False, OutgoingMessage(TICKET, MessageNote("p")), None)]
    items += [TimedMessage("q", True, OutgoingMessage(TICKET, MessageNote(f"c{n}", f"k{n}")), None) for n in range(3)]
    with pytest.raises(BatchRefusedError) as caught:
        rig.sender.dispatch(items)
    assert caught.value.entries == [2]
    assert caught.value.code == "InvalidMessageContents"


def test_a_failure_midway_names_what_was_not_stored(rig: Rig) -> None:
    rig.clients.breaks_at = 3
    sent: list[int] = []
    with pytest.raises(BrokerAwayError) as caught:
        rig.sender.enqueue([*jobs(1_234)], sent.append)
    assert str(caught.value) == (
        "1,214 of 1,234 jobs may not have been stored, the jobs 'k20', 'k21', 'k22' and 1,211 more: SQS is away."
    )
    assert sent == list(range(20))
    assert len(rig.ids()) == 20
    with pytest.raises(BrokerAwayError) as caught:
        rig.sender.enqueue([job("alone")])
    assert str(caught.value) == "SQS is away."


@pytest.mark.parametrize("fault", [ERROR_500, REQUEST_THROTTLED, RESET])
def test_a_request_that_failed_is_repeated(server: AWS, fault: str) -> None:
    with FaultProxy(server.endpoint) as proxy:
        rig = Rig(proxy)
        rule = proxy.rule(fault, "SendMessageBatch", nth=1)
        rig.sender.enqueue([*jobs(3), call("a", "c1")])
        assert rule.happened == 1
        assert sorted(rig.ids()) == ["k0", "k1", "k2"]
        assert rig.ids("q.fifo") == ["c1"]
        rig.clients.close()


def test_after_a_lost_answer_repeats_carry_the_same_ids(server: AWS) -> None:
    with FaultProxy(server.endpoint) as proxy:
        rig = Rig(proxy)
        rule = proxy.rule(LOST, "SendMessageBatch", nth=(1, 3))
        rig.sender.enqueue([*jobs(3), call("a", "c1")])
        assert rule.happened == 2
        assert sorted(rig.ids()) == ["k0", "k0", "k1", "k1", "k2", "k2"]  # SQS cannot know them
        assert rig.ids("q.fifo") == ["c1"]
        rig.clients.close()


def test_some_entries_that_failed_are_repeated_alone(server: AWS) -> None:
    with FaultProxy(server.endpoint) as proxy:
        rig = Rig(proxy)
        rule = proxy.rule(Partly(), "SendMessageBatch", nth=(1, 2))
        rig.sender.enqueue(jobs(10))
        assert rule.happened == 2
        assert sorted(rig.ids()) == [f"k{n}" for n in range(10)]
        rig.clients.close()


def test_sqs_that_stays_away_is_told(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("laneway.brokers.aws.clients.ATTEMPTS", 2)
    with FaultProxy(fake.endpoint) as proxy:
        rig = Rig(proxy)
        proxy.rule(REQUEST_THROTTLED, "SendMessageBatch")
        with pytest.raises(BrokerAwayError) as caught:
            rig.sender.enqueue(jobs(2))
        assert str(caught.value).startswith(
            f"Items 0 to 1 of 2 may not have been stored: SQS at {proxy.endpoint} is asked more often "
            "than it allows, and sqs:SendMessageBatch was not carried out"
        )
        assert rig.clients.requests["sqs.SendMessageBatch"] == 2
        rig.clients.close()


def test_what_is_sent_by_itself_is_named_too(rig: Rig) -> None:
    rig.clients.failed = {"k1": FAULT}
    sqs_queue = rig.account.queues.of("q", False)
    with pytest.raises(BatchRefusedError) as caught:
        rig.sender.send(sqs_queue, [(OutgoingMessage(TICKET, MessageNote(f"k{n}")), 0) for n in range(3)])
    assert str(caught.value) == (
        "1 of 3 jobs was not stored, the job 'k1': SQS does not take the job 'k1' "
        "(InvalidMessageContents: Bad character)."
    )
    assert caught.value.entries == [1]


def test_a_queue_with_a_smaller_limit_than_the_url_says_is_told(fake: FakeServer) -> None:
    rig = Rig(fake, max_body=1_048_576)
    fake.sqs_client.set_queue_attributes(QueueUrl=fake.queue_url("q"), Attributes={"MaximumMessageSize": "262144"})
    with pytest.raises((BrokerError, EnqueueError), match="max_body"):
        rig.sender.enqueue([job("k", "b" * 500_000)])


# -- delays -------------------------------------------------------------------------------------------

NOW = 1_700_000_000.0


@pytest.fixture
def later(fake: FakeServer) -> Rig:
    """A rig on a clock that stands still."""
    return Rig(fake, ManualClock(NOW))


def delays(entries: Sequence[dict[str, Any]]) -> dict[str, int]:
    return {_note(entry)["id"]: entry.get("DelaySeconds", 0) for entry in entries}


def test_short_delays_are_sqs_own_rounded_up(later: Rig) -> None:
    rig, entries = later, later.clients.entries
    rig.sender.enqueue(
        [
            job("now"),
            job("past", perform_at=NOW - 1e6),
            job("long ago", perform_at=-1e300),
            job("negative", delay_s=-5.0),
            job("tiny", delay_s=0.001),
            job("some", delay_s=59.2),
            job("at", perform_at=NOW + 61.0),
            job("longest", delay_s=900.0),
        ]
    )
    assert delays(entries) == {
        "now": 0,
        "past": 0,
        "long ago": 0,
        "negative": 0,
        "tiny": 1,
        "some": 60,
        "at": 61,
        "longest": 900,
    }
    notes = {_note(entry)["id"]: _note(entry).get("due") for entry in entries}
    assert (notes["now"], notes["past"], notes["some"]) == (None, NOW - 1e6, NOW + 59.2)
    assert not any("_execute_after" in entry["MessageBody"] for entry in entries)
    assert not any(name.startswith("dynamodb") for name in rig.clients.requests)


def test_without_a_table_longer_ones_hop(later: Rig) -> None:
    rig, entries = later, later.clients.entries
    rig.sender.enqueue([job("hop", delay_s=2_000.5), job("text", "no ticket", delay_s=2_000.0)])
    assert delays(entries) == {"hop": 900, "text": 900}
    assert entries[0]["MessageBody"] == TICKET[:-1] + f',"_execute_after":{int(NOW) + 2_001}}}'
    assert (entries[1]["MessageBody"], _note(entries[1])["due"]) == ("no ticket", NOW + 2_000)


def test_a_hop_keeps_its_time_until_it_is_due(later: Rig) -> None:
    rig, entries = later, later.clients.entries
    clock = rig.clock
    assert isinstance(clock, ManualClock)
    rig.sender.enqueue([job("hop", delay_s=2_000.5)])
    waited = []
    while True:
        entry = entries.pop()
        waited.append(entry.get("DelaySeconds", 0))
        clock.advance(waited[-1])
        raw = {"Body": entry["MessageBody"], "MessageId": "m", "ReceiptHandle": "r"}
        message = read(
            rig.account.queues.of("q", False), {**raw, "MessageAttributes": entry["MessageAttributes"]}, 0.0, 30.0
        )
        at = execute_after(message.body)
        assert at == int(NOW) + 2_001
        if at <= clock.now():
            break
        rig.sender.dispatch([TimedMessage("q", False, resend_of(message), at)])
    assert waited == [900, 900, 201]


def test_a_time_that_is_too_late_is_taken_out_of_a_ticket(later: Rig) -> None:
    rig, entries = later, later.clients.entries
    body = TICKET[:-1] + f',"_execute_after":{int(NOW) + 5_000}}}'
    outgoing = OutgoingMessage(body, MessageNote("k"))
    rig.sender.dispatch([TimedMessage("q", False, outgoing, None), TimedMessage("q", False, outgoing, NOW + 10)])
    assert [entry["MessageBody"] for entry in entries] == [TICKET, TICKET]
    assert (outgoing.body, outgoing.note.due) == (body, None)


def test_with_a_table_longer_delays_and_all_of_keyed_calls_wait_there(later: Rig) -> None:
    rig, entries = later, later.clients.entries
    rig.server.create_table("q")
    sent: list[int] = []
    rig.sender.enqueue(
        [
            job("short", delay_s=900.0),
            job("long", delay_s=900.1, headers={"a": "b"}),
            call("key", "call", delay_s=0.5),
            call("key", "now"),
            job("kept", delay_s=5.0, hints=Hints(cancellable=True)),
            job("at once", hints=Hints(cancellable=True)),
        ],
        sent.append,
    )
    assert delays(entries) == {"short": 900, "now": 0, "at once": 0}
    items = {
        item["job_id"]["S"]: item for item in rig.server.items("q") if item["scheduler"]["S"].startswith("laneway-")
    }
    assert {id: float(item["perform_at"]["N"]) for id, item in items.items()} == {
        "long": NOW + 900.1,
        "call": NOW + 0.5,
        "kept": NOW + 5.0,
    }
    assert items["long"]["sqs_message_body"]["S"] == TICKET
    assert sorted(sent) == list(range(6))
    with pytest.raises(EnqueueError, match="table for the queue other"):
        rig.sender.enqueue([job("k", queue="other", delay_s=5.0, hints=Hints(cancellable=True))])


def test_a_table_that_fails_is_told(later: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig, entries = later, later.clients.entries
    rig.server.create_table("q")
    monkeypatch.setattr(DelayedJobs, "put", _fail)
    with pytest.raises(BrokerError) as caught:
        rig.sender.enqueue([job("now"), *jobs(30, delay_s=1_000.0)])
    assert str(caught.value) == "Items 0 to 30 of 31 may not have been stored: DynamoDB is away."
    assert entries == []


def test_a_table_that_is_gone_is_told_and_looked_for_again(later: Rig) -> None:
    rig = later
    rig.server.create_table("q")
    rig.sender.enqueue([job("a", delay_s=1_000.0)])
    rig.server.dynamodb_client.delete_table(TableName="q")
    with pytest.raises(MissingError, match="The table q is gone; create it with `laneway aws create`"):
        rig.sender.enqueue([job("b", delay_s=1_000.0)])
    rig.server.create_table("q")
    rig.sender.enqueue([job("b", delay_s=1_000.0)])
    assert "b" in {item["job_id"]["S"] for item in rig.server.items("q")}


def _fail(*_: Any) -> None:
    raise BrokerAwayError("DynamoDB is away.")


def test_what_does_not_fit_into_the_table_hops_or_is_refused(fake: FakeServer) -> None:
    rig = Rig(fake, ManualClock(NOW), max_body=1_048_576)
    fake.create_table("q")
    rig.sender.enqueue([job("hop", "b" * 500_000, delay_s=1_000.0)])
    assert fake.counts("q")[2] == 1
    for bad in (
        NewJob(queue="q", key="bad", body="b" * 500_000, kind=Kind.KEYED, identity="i", delay_s=1.0),
        job("bad", "b" * 500_000, delay_s=1.0, hints=Hints(cancellable=True)),
    ):
        with pytest.raises(EnqueueError, match="DynamoDB, where it would wait, takes 400000 at most"):
            rig.sender.enqueue([bad])


def test_a_long_call_asks_for_its_queue_once(fake: FakeServer) -> None:
    rig = Rig(fake)
    rig.sender.enqueue(jobs(500))
    assert fake.counts("q")[0] == 500
    assert rig.clients.requests == {"sqs.GetQueueUrl": 1, "sqs.SendMessageBatch": 50}
