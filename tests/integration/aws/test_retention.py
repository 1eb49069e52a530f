"""Tests of message age: a job is sent again, or buried with a reason, before SQS deletes or moves its message.

A message keeps aging while it is hidden. A keyed call cannot be sent again, because it would lose its place.
"""

from __future__ import annotations

import pytest

from laneway.brokers.aws.errors import DeniedError
from laneway.errors import BrokerError, BrokerRefusedError
from laneway.jobs.settlement import done, failed, postponed
from laneway.testing.conformance.fixtures import bodies, calls, put
from tests.integration.aws.test_settle import notes
from tests.support.aws.turn_bench import Bench, bench, sentences, virtual_server

__all__ = ["bench", "virtual_server"]

HOUR, DAY = 3_600.0, 86_400.0
TICKET = '{"_job_class":"T","_job_params":null}'


def test_a_job_that_is_postponed_again_and_again_outlives_the_retention(bench: Bench) -> None:
    """It is hidden while there is time, and sent anew when half of what is left would be over."""
    rig, server, clock = bench.virtual()
    put(rig, "a", body=TICKET)  # type: ignore[arg-type]
    hand = rig.hand()
    ids = set()
    for attempt in range(1, 25):
        claim = hand.one()
        assert claim.attempt == attempt
        (message,) = server.queues["q"].messages
        ids.add(message.id)
        hand.settle(postponed(claim, 8 * HOUR))
        due = clock.now() + 8 * HOUR
        while clock.now() < due:
            clock.advance(min(900.0, due - clock.now() + 1))
            if clock.now() < due:
                assert hand.claim() == []
    assert 2 <= len(ids) <= 8
    assert hand.settle(done(hand.one())) == []


def test_a_job_that_sqs_would_soon_move_is_sent_anew(bench: Bench) -> None:
    rig, server, clock = bench.virtual()
    server.create_queues("few", max_receives=5)
    put(rig, "a", queue="few")  # type: ignore[arg-type]
    hand = rig.hand()
    for attempt in range(1, 15):
        claim = hand.one(queue="few")
        assert claim.attempt == attempt
        hand.settle(postponed(claim, 10.0), queue="few")
        clock.advance(11)
    assert server.counts("few-deadletter") == (0, 0, 0)


@pytest.mark.parametrize("verdict", ["retry", "postpone"])
def test_a_keyed_call_is_buried_before_sqs_forgets_it(
    bench: Bench, caplog: pytest.LogCaptureFixture, verdict: str
) -> None:
    """It cannot be sent anew, because it would lose its place; what stands behind it goes on."""
    rig, server, clock = bench.virtual()
    calls(rig, "k", "1", "2")  # type: ignore[arg-type]
    hand = rig.hand()

    def again(days: float) -> None:
        claim = hand.one()
        settlement = (
            failed(claim, "ValueError: no", 25, days * DAY) if verdict == "retry" else postponed(claim, days * DAY)
        )
        assert hand.settle(settlement) == []

    hand.settle(failed(hand.one(), "KeyError: before", 25, 0.0))
    again(0.4)
    clock.advance(0.4 * DAY + 1)
    again(3.5)
    (note,) = notes(server.receive_all("q-deadletter.fifo"))
    assert (note["id"], note["key"]) == ("1", "k")
    assert "4 days" in note["error"]
    assert "14 days" in note["error"]
    assert ("ValueError: no" if verdict == "retry" else "KeyError: before") in note["error"]
    assert any("4 days" in text for text in sentences(caplog))
    assert bodies(hand.one()) == ["2"]


def test_a_keyed_call_that_sqs_would_soon_move_is_buried_with_its_error(bench: Bench) -> None:
    rig, server, clock = bench.virtual()
    server.create_queues("few", max_receives=6)
    calls(rig, "k", "1", queue="few")  # type: ignore[arg-type]
    hand = rig.hand()
    runs = 0
    while claims := hand.claim(queue="few"):
        runs += 1
        hand.settle(failed(claims[0], "ValueError: no", 25, 10.0), queue="few")
        clock.advance(11)
    (note,) = notes(server.receive_all("few-deadletter.fifo"))
    assert runs == 4
    assert "ValueError: no" in note["error"]
    assert "maxReceiveCount" in note["error"]


def test_a_message_without_room_is_buried_before_sqs_forgets_it(bench: Bench) -> None:
    """It can neither be sent anew nor wait longer."""
    rig, server, clock = bench.virtual()
    rig.clients.sqs("send_message", QueueUrl=server.queue_url("q"), MessageBody="x" * 262_144)
    hand = rig.hand()
    for _ in range(9):
        claims = hand.claim()
        if claims:
            hand.settle(failed(claims[0], "no", 25, 11 * HOUR))
        clock.advance(11 * HOUR + 1)
    assert server.counts("q") == (0, 0, 0)
    assert len(server.receive_all("q-deadletter")) == 1


def test_what_may_not_be_read_is_taken_to_be_four_days(bench: Bench) -> None:
    rig, server, _ = bench.virtual()
    sqs_queue = rig.account.queues.of("q", True)
    server.sqs_client.set_queue_attributes(QueueUrl=sqs_queue.url, Attributes={"MessageRetentionPeriod": "1209600"})

    def forbids(operation: str, params: object, answer: object) -> None:
        if operation == "get_queue_attributes":
            raise DeniedError("You may not look at it.", code="AccessDenied")

    with rig.watched(forbids):
        limits = rig.account.queues.limits(sqs_queue)
    assert (limits.retention_s, limits.max_receives) == (4 * DAY, None)


def test_limits_are_read_with_the_redrive_policy_and_kept(bench: Bench) -> None:
    rig, server, clock = bench.virtual()
    sqs_queue = rig.account.queues.of("q", False)
    rig.account.queues.dead_letter_queue(sqs_queue)
    before = server.requests["sqs.GetQueueAttributes"]
    limits = rig.account.queues.limits(sqs_queue)
    assert (limits.retention_s, limits.max_receives) == (4 * DAY, 1_000)
    server.sqs_client.set_queue_attributes(QueueUrl=sqs_queue.url, Attributes={"MessageRetentionPeriod": "1209600"})
    assert rig.account.queues.limits(sqs_queue) == limits
    assert server.requests["sqs.GetQueueAttributes"] == before
    clock.advance(601)
    assert rig.account.queues.limits(sqs_queue).retention_s == 14 * DAY


def test_a_queue_that_cannot_be_asked_is_away(bench: Bench) -> None:
    rig, _, _ = bench.virtual()
    sqs_queue = rig.account.queues.of("q", False)

    def away(operation: str, params: object, answer: object) -> None:
        raise BrokerRefusedError("not now")

    with rig.watched(away), pytest.raises(BrokerError, match="not now"):
        rig.account.queues.limits(sqs_queue)
