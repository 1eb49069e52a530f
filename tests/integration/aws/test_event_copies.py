"""Tests of event copies on SQS: an id per queue, raw or in an SNS envelope, and stored as they were published."""

from __future__ import annotations

import json
from typing import Any

import pytest

from laneway.brokers.aws.sqs.message import SQSQueue, as_it_came, entry_of, read, resend_of, unwrapped
from laneway.jobs.data import EventCopy
from laneway.jobs.settlement import buried, done, failed, postponed
from laneway.testing.conformance.fixtures import ScriptedWorker, bodies, job, keys, numbers
from tests.integration.aws.event_topic import MAILER, STOCK, TOPIC, TRACE, event, hear, listening, note_in, theirs
from tests.support.aws.brokers import TABLE, opened
from tests.support.aws.endpoints import Place
from tests.support.aws.fake.server import FakeServer
from tests.support.aws.turn_bench import Bench, bench, virtual_server

__all__ = ["bench", "virtual_server"]

#: A value that looks like a ticket, and must not be read or written as one.
TRAP = '{"_job_class":"T","_job_params":null,"_execute_after":9999999999,"_job_id":"x"}'


def text(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


def publish(place: Place, body: str, **attributes: dict[str, Any]) -> None:
    """Publish as a program of others does."""
    arn = place.create_topic(TOPIC)
    place.sns_client.publish(TopicArn=arn, Message=body, MessageAttributes=attributes)


# -- two listeners -------------------------------------------------------------------------------------


def test_two_listeners_in_one_process_have_a_copy_each_and_one_retries_alone(aws: Place) -> None:
    with listening(aws, MAILER, STOCK) as broker:
        broker.enqueue([event("e1", '{"id":7}', beside={"n": 1})])
        hand = ScriptedWorker(broker)
        mail, stock = hand.one(MAILER), hand.one(STOCK)
        assert (mail.key, stock.key) == (f"e1@{MAILER}", f"e1@{STOCK}")
        assert (bodies(mail), bodies(stock)) == (['{"id":7}'], ['{"id":7}'])
        hand.settle(done(stock), queue=STOCK)
        hand.settle(failed(mail, "no", 5, 0.0), queue=MAILER)
        again = hand.one(MAILER)
        assert (again.key, again.attempt, again.error, again.headers) == (f"e1@{MAILER}", 2, "no", {"n": "1"})
        assert hand.claim(queue=STOCK) == []
        hand.settle(done(again), queue=MAILER)
        assert aws.counts(MAILER) == aws.counts(STOCK) == (0, 0, 0)


def test_a_copy_that_comes_twice_runs_once(fake: FakeServer) -> None:
    with listening(fake, MAILER, STOCK) as broker:
        fake.faults.duplicates = 1.0
        broker.enqueue([event(f"e{n}") for n in range(3)])
        hand = ScriptedWorker(broker)
        for queue in (MAILER, STOCK):
            ran: list[str] = []
            for _ in range(8):
                claims = hand.claim(queue=queue)
                ran += keys(claims)
                hand.settle(*map(done, claims), queue=queue)
            assert sorted(ran) == [f"e{n}@{queue}" for n in range(3)]


def test_copies_wait_in_one_table_and_are_known_by_their_own_ids(aws: Place) -> None:
    aws.create_table(TABLE)
    with listening(aws, MAILER, STOCK, table=TABLE, records=True) as broker:
        broker.enqueue([event("e1", TRAP, headers=TRACE)])
        hand = ScriptedWorker(broker)
        for queue in (MAILER, STOCK):
            hand.settle(failed(hand.one(queue), "no", 5, 5_000.0), queue=queue)
        for queue in (MAILER, STOCK):
            assert broker.status(queue, f"e1@{queue}") == "delayed"
            (view,) = broker.inspect.listing(queue, "delayed").jobs
            assert (view.key, bodies(view)) == (f"e1@{queue}", [TRAP])
        assert broker.operate.run_now(MAILER, [f"e1@{MAILER}"]) == 1
        claim = hand.one(MAILER)
        assert (bodies(claim), claim.headers, claim.attempt) == ([TRAP], TRACE, 2)
        hand.settle(done(claim), queue=MAILER)
        assert broker.status(MAILER, f"e1@{MAILER}") == "done"
        assert broker.status(STOCK, f"e1@{STOCK}") == "delayed"


# -- what others publish -------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [True, False])
def test_what_others_publish_has_the_id_of_its_message(aws: Place, raw: bool) -> None:
    texts = ['{"id":7}', TRAP.replace("_job_class", "x"), "not even JSON", '{"Type":"Notification"}']
    with listening(aws, raw=raw) as broker:
        for body in texts:
            publish(aws, body, traceparent=text("00-1-2-01"), n={"DataType": "Number", "StringValue": "5"})
            publish(aws, body)
        hand = ScriptedWorker(broker)
        claims = [claim for _ in range(3) for claim in hand.claim(queue=MAILER)]
        assert sorted(body for claim in claims for body in bodies(claim)) == sorted(texts * 2)
        assert len(set(keys(claims))) == 8
        assert "x" not in keys(claims)
        found = [claim.headers for claim in claims]
        assert found.count({"traceparent": "00-1-2-01", "n": "5"}) == found.count(None) == 4


@pytest.mark.parametrize("raw", [True, False])
def test_ours_is_the_same_in_an_envelope(aws: Place, raw: bool) -> None:
    beside = {"country": "DE", "cents": 5, "tags": ["a", "b"]}
    with listening(aws, raw=raw) as broker:
        broker.enqueue([event("e1", TRAP, beside=beside, headers={**TRACE, "tenant": "7"})])
        hand = ScriptedWorker(broker)
        for attempt in (1, 2):
            claim = hand.one(MAILER)
            assert (claim.key, claim.attempt, bodies(claim)) == (f"e1@{MAILER}", attempt, [TRAP])
            assert claim.headers == {"country": "DE", "cents": "5", "tags": '["a","b"]', **TRACE, "tenant": "7"}
            hand.settle(failed(claim, "no", 5, 0.0), queue=MAILER)
        (message,) = aws.receive_all(MAILER)
        assert message["Body"] == TRAP
        assert theirs(message).keys() == {*beside, *TRACE}
        assert note_in(message)["id"] == f"e1@{MAILER}"


def test_more_attributes_than_sqs_takes_come_in_an_envelope_and_stay(aws: Place) -> None:
    many = {f"a{n:02}": text(str(n)) for n in range(14)}
    with listening(aws, raw=False) as broker:
        publish(aws, "7", **many, blob={"DataType": "Binary", "BinaryValue": b"\xff\x00"})
        hand = ScriptedWorker(broker)
        key = ""
        for _ in range(3):
            claim = hand.one(MAILER)
            key = claim.key
            assert claim.headers == {name: value["StringValue"] for name, value in many.items()}
            hand.settle(failed(claim, "no", 5, 0.0), queue=MAILER)
        hand.settle(buried(hand.one(MAILER), "no"), queue=MAILER)
        assert broker.operate.revive(MAILER, [key]) == 1
        (message,) = aws.receive_all(MAILER)
    found = read(SQSQueue(MAILER, MAILER, ""), message, 0.0, 30.0)
    assert found.attributes == {**many, "blob": {"DataType": "Binary", "BinaryValue": b"\xff\x00"}}
    assert len(message["MessageAttributes"]) == 10


# -- an envelope, and what only looks like one ---------------------------------------------------------

ENVELOPE = {
    "Type": "Notification",
    "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
    "TopicArn": f"arn:aws:sns:us-east-1:123456789012:{TOPIC}",
    "Message": '{"id":7}',
    "Timestamp": "2026-05-02T00:54:06.655Z",
    "SignatureVersion": "1",
    "Signature": "EXAMPLE",
}


def test_an_envelope_is_told_from_a_value_that_looks_like_one() -> None:
    assert unwrapped(json.dumps(ENVELOPE, indent=2)) == ('{"id":7}', {})
    binary = {"b": {"Type": "Binary", "Value": "/wA="}, "s": {"Type": "String.Array", "Value": '["a"]'}}
    assert unwrapped(json.dumps({**ENVELOPE, "MessageAttributes": binary})) == (
        '{"id":7}',
        {
            "b": {"DataType": "Binary", "BinaryValue": b"\xff\x00"},
            "s": {"DataType": "String.Array", "StringValue": '["a"]'},
        },
    )
    for other in (
        {**ENVELOPE, "Type": "SubscriptionConfirmation"},
        {**ENVELOPE, "Message": {"id": 7}},
        {**ENVELOPE, "MessageAttributes": {"b": {"Type": "Binary", "Value": "no base64"}}},
        {name: value for name, value in ENVELOPE.items() if name != "Timestamp"},
    ):
        assert unwrapped(json.dumps(other)) is None
    assert unwrapped('["TopicArn"]') is unwrapped('{"TopicArn"') is unwrapped('{"TopicArn":' * 9_000) is None


def test_an_envelope_that_was_published_stays_one(aws: Place) -> None:
    """Ours is known by its note, also when it is retried: only what SNS has wrapped is unwrapped."""
    body = json.dumps(ENVELOPE)
    with listening(aws) as broker:
        broker.enqueue([event("e1", body)])
        hand = ScriptedWorker(broker)
        hand.settle(failed(hand.one(MAILER), "no", 5, 0.0), queue=MAILER)
        assert bodies(hand.one(MAILER)) == [body]


def test_what_has_no_room_for_a_note_is_buried_with_as_many_attributes_as_sqs_takes() -> None:
    many = {f"a{n:02}": {"Type": "String", "Value": "x"} for n in range(14)}
    raw = {"MessageId": "m1", "ReceiptHandle": "r", "Body": json.dumps({**ENVELOPE, "MessageAttributes": many})}
    message = read(SQSQueue(MAILER, MAILER, ""), raw, 0.0, 30.0)
    entry = entry_of(as_it_came(message, resend_of(message)), "0", message.sqs_queue, 0)
    assert (entry["MessageBody"], list(entry["MessageAttributes"])) == ('{"id":7}', [f"a{n:02}" for n in range(10)])


# -- later ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("straight", [False, True])
def test_a_retry_beyond_what_sqs_delays_leaves_the_value_alone(bench: Bench, straight: bool) -> None:
    """Without a table it goes from hop to hop, and its time is in the note: never early, and never within the value."""
    rig, server, clock = bench.virtual()
    hear(server, MAILER)
    body = '{"_execute_after":1,"_job_class":"T","a":[1.50]}'
    key = "j1" if straight else f"e1@{MAILER}"
    new = job("j1", body, queue=MAILER, event=EventCopy(attributes={})) if straight else event("e1", body)
    rig.enqueue([new])
    hand = rig.hand()
    hand.settle(failed(hand.one(MAILER), "no", 25, 2_000.0), queue=MAILER)
    due = clock.now() + 2_000
    while clock.now() < due - 1:
        (waiting,) = server.queues[MAILER].messages
        assert waiting.body == body
        clock.advance(min(300.0, due - 1 - clock.now()))
        assert hand.claim(queue=MAILER) == []
    clock.advance(2)
    claim = hand.one(MAILER)
    assert (claim.key, bodies(claim), claim.attempt, claim.perform_at) == (key, [body], 2, due)
    assert hand.settle(done(claim), queue=MAILER) == []
    assert server.counts(MAILER) == (0, 0, 0)


def test_a_delay_of_what_goes_straight_into_a_queue_leaves_the_value_alone(bench: Bench) -> None:
    rig, server, clock = bench.virtual()
    hear(server, MAILER)
    rig.enqueue([job("j1", TRAP, queue=MAILER, event=EventCopy(attributes={}), delay_s=1_000)])
    hand = rig.hand()
    clock.advance(901)
    assert hand.claim(queue=MAILER) == []
    clock.advance(100)
    claim = hand.one(MAILER)
    assert (claim.key, bodies(claim)) == ("j1", [TRAP])


@pytest.mark.parametrize("error", [None, "ValueError: no"])
def test_a_postponed_event_is_hidden_and_nothing_is_deleted_or_sent(bench: Bench, error: str | None) -> None:
    rig, server, clock = bench.virtual()
    hear(server, MAILER)
    rig.enqueue([event("e1")])
    hand = rig.hand()
    claim = hand.one(MAILER)
    asked: list[str] = []

    def watch(operation: str, params: dict[str, Any], answer: dict[str, Any] | None) -> None:
        if answer is None:
            asked.append(operation)

    with rig.watched(watch):
        settlement = postponed(claim, 600.0)
        settlement.error = error
        hand.settle(settlement, queue=MAILER)
    assert [each for each in asked if each != "get_queue_attributes"] == ["change_message_visibility_batch"]
    assert server.counts(MAILER) == (0, 1, 0)
    clock.advance(599)
    assert hand.claim(queue=MAILER) == []
    clock.advance(2)
    claim = hand.one(MAILER)
    assert (claim.key, claim.attempt, claim.retry_count) == (f"e1@{MAILER}", 2, -1)


# -- dead ----------------------------------------------------------------------------------------------


def test_dead_letters_keep_what_was_published_beside_them(aws: Place) -> None:
    with listening(aws, MAILER, STOCK) as broker:
        broker.declare(MAILER, 1)
        broker.enqueue([event("e1", beside={"country": "DE"}, headers=TRACE)])
        hand = ScriptedWorker(broker)
        hand.settle(buried(hand.one(MAILER), "no"), queue=MAILER)
        (view,) = broker.inspect.listing(MAILER, "dead").jobs
        assert (view.key, view.error, bodies(view)) == (f"e1@{MAILER}", "no", ['{"id":7}'])
        (letter,) = aws.receive_all(f"{MAILER}-deadletter")
        assert letter["Body"] == '{"id":7}'
        assert theirs(letter) == {
            "country": ("String", "DE"),
            **{name: ("String", value) for name, value in TRACE.items()},
        }
    with opened(aws, table=None) as other:
        aws.sqs_client.change_message_visibility(
            QueueUrl=aws.queue_url(f"{MAILER}-deadletter"), ReceiptHandle=letter["ReceiptHandle"], VisibilityTimeout=0
        )
        assert other.operate.revive(MAILER, [f"e1@{MAILER}"]) == 1
        claim = ScriptedWorker(other).one(MAILER)
        assert (claim.key, claim.headers, claim.retry_count) == (f"e1@{MAILER}", {"country": "DE", **TRACE}, -1)
        assert numbers(other, MAILER).dead == 0


def test_what_sqs_itself_has_moved_there_is_the_copy_of_its_queue(fake: FakeServer) -> None:
    """Two queues may share one dead-letter queue, and have a copy of the same event there."""
    with listening(fake, MAILER, STOCK) as broker:
        shared = json.dumps({"deadLetterTargetArn": fake.arn(f"{MAILER}-deadletter"), "maxReceiveCount": 1})
        for queue in (MAILER, STOCK):
            url = fake.queue_url(queue)
            fake.sqs_client.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": shared})
        broker.enqueue([event("e1")])
        for queue in (MAILER, STOCK):
            for _ in range(2):  # the second time SQS moves it instead
                fake.sqs_client.receive_message(QueueUrl=fake.queue_url(queue), VisibilityTimeout=0)
        for queue in (MAILER, STOCK):
            assert keys(broker.inspect.listing(queue, "dead").jobs) == [f"e1@{queue}"]
        assert broker.operate.revive(STOCK, [f"e1@{STOCK}"]) == 1
        assert keys(ScriptedWorker(broker).claim(queue=STOCK)) == [f"e1@{STOCK}"]
        assert keys(broker.inspect.listing(MAILER, "dead").jobs) == [f"e1@{MAILER}"]
