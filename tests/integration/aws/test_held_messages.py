"""Tests of held messages: hidden as long as they are renewed, up to 12 hours; a duplicate does not run twice."""

from __future__ import annotations

from typing import Any

import pytest

from laneway.brokers.aws.sqs import inflight
from laneway.brokers.aws.sqs.inflight import HeldMessage
from laneway.brokers.aws.sqs.message import Message, MessageNote, SQSQueue, resend_of
from laneway.clock import ManualClock
from laneway.errors import BrokerAwayError
from laneway.jobs.data import Kind
from laneway.jobs.settlement import buried, done, failed, postponed, released
from laneway.testing.conformance.fixtures import bodies, call, calls, job, keys, put
from tests.support.aws.brokers import make_broker
from tests.support.aws.endpoints import Place
from tests.support.aws.turn_bench import Bench, Lost, Rig, bench, sentences, virtual_server

__all__ = ["bench", "virtual_server"]


def send_twice(rig: Rig, key: str) -> None:
    """As a sender does whose answer was lost: two messages, one job."""
    for _ in range(2):
        put(rig, key)  # type: ignore[arg-type]


# -- keeping hidden ------------------------------------------------------------------------------------


def test_what_is_held_stays_hidden_for_as_long_as_it_is_renewed(bench: Bench) -> None:
    """Claims, what waits behind them, and what has only been received: for hours, and nobody else gets it."""
    rig, server, clock = bench.virtual()
    put(rig, *(f"p{n}" for n in range(25)))  # type: ignore[arg-type]
    calls(rig, "k", "1", "2", "3")  # type: ignore[arg-type]
    hand, other = rig.hand(), bench.rig(server, clock).hand("worker-2")
    claims = hand.claim(limit=12, max_payloads=2)
    for _ in range(50):
        clock.advance(29)
        rig.renew()
    assert sum(len(claim.payloads) for claim in other.claim()) == 5  # of which this process knows nothing
    claims += hand.turn(50, *(done(claim) for claim in claims)).claims
    assert hand.settle(*(done(claim) for claim in claims[12:])) == []
    assert server.counts("q.fifo") == (0, 0, 0)


def test_a_renewal_asks_in_tens_and_only_for_what_needs_it(bench: Bench) -> None:
    rig, server, clock = bench.virtual()
    put(rig, *(f"p{n}" for n in range(25)))  # type: ignore[arg-type]
    hand = rig.hand()
    claims = hand.claim()
    assert len(claims) == 25
    for pause_s, requests in ((4.0, 0), (2.0, 3), (4.0, 0), (2.0, 3)):
        server.requests.clear()
        clock.advance(pause_s)
        rig.renew()
        assert server.requests["sqs.ChangeMessageVisibilityBatch"] == requests
    clock.advance(25)  # two thirds of the lease and more have been granted
    assert bench.rig(server, clock).hand("worker-2").claim() == []
    assert hand.settle(*(done(claim) for claim in claims)) == []


def test_a_renewal_that_fails_says_so_and_goes_on_with_the_rest(bench: Bench) -> None:
    rig, _, clock = bench.virtual()
    put(rig, *(f"p{n}" for n in range(25)))  # type: ignore[arg-type]
    hand = rig.hand()
    claims = hand.claim()
    clock.advance(20)
    with rig.watched(Lost(2, after=False)), pytest.raises(BrokerAwayError):
        rig.renew()
    clock.advance(11)
    assert len(hand.settle(*(done(claim) for claim in claims))) in (5, 10)  # those of one batch


def test_what_is_being_deleted_stays_hidden_while_that_takes_long(bench: Bench) -> None:
    """Else a job that is done would run once more because SQS was away."""
    rig, server, clock = bench.virtual()
    put(rig, "a")  # type: ignore[arg-type]
    calls(rig, "k", "1")  # type: ignore[arg-type]
    hand = rig.hand()
    claims = hand.claim()

    def lost(operation: str, params: dict[str, Any], answer: dict[str, Any] | None) -> None:
        if operation == "delete_message_batch":
            raise BrokerAwayError("It was lost.")

    with rig.watched(lost), pytest.raises(BrokerAwayError):
        hand.turn(0, *(done(claim) for claim in claims))
    for _ in range(5):
        clock.advance(20)
        rig.renew()
    assert bench.rig(server, clock).hand("worker-2").claim() == []
    assert hand.again().refused == []
    assert (server.counts("q"), server.counts("q.fifo")) == ((0, 0, 0), (0, 0, 0))


def test_a_renewal_that_is_answered_too_late_does_not_count(bench: Bench) -> None:
    """A standard queue says yes to it, and does nothing; somebody else may have the message by then."""
    rig, server, clock = bench.virtual()
    put(rig, "a")  # type: ignore[arg-type]
    hand = rig.hand()
    claim = hand.one()
    clock.advance(25)

    def slow(operation: str, params: dict[str, Any], answer: dict[str, Any] | None) -> None:
        if operation == "change_message_visibility_batch" and answer is None:
            clock.advance(6)

    with rig.watched(slow):
        rig.renew()
    assert keys(bench.rig(server, clock).hand("worker-2").claim()) == ["a"]
    assert hand.settle(done(claim)) == ["a"]


def test_a_worker_with_nothing_in_hand_renews_without_a_request(bench: Bench) -> None:
    rig, server, _ = bench.virtual()
    rig.hand()
    server.requests.clear()
    rig.renew()
    assert not server.requests


def test_a_job_is_given_up_after_twelve_hours(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """In a sentence, once; what it does after that is not recorded, and somebody else runs it."""
    rig, server, clock = bench.virtual()
    put(rig, "a")  # type: ignore[arg-type]
    hand = rig.hand(lease_s=600.0)
    claim = hand.one()
    other = bench.rig(server, clock).hand("worker-2")
    for _ in range(215):
        clock.advance(200)
        rig.renew()
    assert (other.claim(), sentences(caplog)) == ([], [])
    for _ in range(3):
        clock.advance(100)
        rig.renew()
    (sentence,) = sentences(caplog)
    assert "the job a of the queue q" in sentence
    assert "12 hours" in sentence
    assert keys(other.claim()) == ["a"]
    assert hand.settle(done(claim, [job("child")])) == ["a"]
    assert server.counts("q") == (0, 1, 0)


def test_whoever_comes_too_late_is_refused(bench: Bench) -> None:
    """Nothing is sent, deleted or hidden for it; what it enqueued neither."""
    rig, server, clock = bench.virtual()
    put(rig, *"abcd")  # type: ignore[arg-type]
    hand = rig.hand()
    claims = hand.claim()
    clock.advance(30.5)
    other = bench.rig(server, clock).hand("worker-2")
    theirs = other.claim()
    child = [job("child")]
    first, second, third, fourth = claims
    late = [
        done(first, child),
        failed(second, "no", 25, 0.0, outbox=child),
        postponed(third, 60.0, outbox=child),
        released(fourth, outbox=child),
    ]
    assert hand.settle(*late) == keys(claims)
    assert server.counts("q") == (0, 4, 0)
    assert other.settle(*(done(claim) for claim in theirs)) == []
    assert rig.counts == []


def test_what_was_received_and_has_waited_too_long_is_not_handed_out(bench: Bench) -> None:
    rig, server, clock = bench.virtual()
    put(rig, "a", "b")  # type: ignore[arg-type]
    calls(rig, "k", "1")  # type: ignore[arg-type]
    calls(rig, "l", "2")  # type: ignore[arg-type]
    hand = rig.hand()
    assert len(hand.claim(limit=1)) == 1
    clock.advance(31)
    other = bench.rig(server, clock).hand("worker-2")
    assert len(other.claim()) == 4
    assert hand.claim() == []


def test_the_lease_of_the_worker_is_what_messages_are_hidden_for(bench: Bench) -> None:
    rig, server, clock = bench.virtual()
    put(rig, "a")  # type: ignore[arg-type]
    rig.hand(lease_s=4.5).one()
    other = bench.rig(server, clock).hand("worker-2")
    clock.advance(4.9)
    assert other.claim() == []
    clock.advance(0.2)
    assert keys(other.claim()) == ["a"]


# -- the same job twice --------------------------------------------------------------------------------


def test_a_job_that_was_sent_twice_runs_once(aws: Place, bench: Bench) -> None:
    """The second is held with the first, and deleted with it."""
    aws.create_queues("q")
    rig = bench.rig(aws)
    send_twice(rig, "a")
    hand = rig.hand()
    claim = hand.one()
    assert aws.counts("q") == (0, 2, 0)
    assert hand.settle(done(claim)) == []
    assert aws.counts("q") == (0, 0, 0)


def test_a_job_that_comes_once_more_after_its_end_is_deleted(aws: Place, bench: Bench) -> None:
    aws.create_queues("q")
    rig = bench.rig(aws)
    put(rig, "a")  # type: ignore[arg-type]
    rig.enqueue([call("k", "1")])
    hand = rig.hand()
    hand.settle(*(done(claim) for claim in hand.claim()))
    put(rig, "a")  # type: ignore[arg-type]
    assert hand.claim() == []
    assert aws.counts("q") == (0, 0, 0)


def test_what_says_the_same_stays_hidden_together_and_one_of_it_goes_on(bench: Bench) -> None:
    """Given back, postponed or failed: one message is enough."""
    rig, server, clock = bench.virtual()
    for key in "abc":
        send_twice(rig, key)
    hand = rig.hand()
    claims = {claim.key: claim for claim in hand.claim()}
    for _ in range(4):
        clock.advance(15)
        rig.renew()
    assert server.counts("q") == (0, 6, 0)
    hand.settle(released(claims["a"]), postponed(claims["b"], 5.0), failed(claims["c"], "no", 25, 5.0))
    assert server.counts("q") == (1, 1, 1)
    clock.advance(6)
    claims = {claim.key: claim for claim in hand.claim()}
    assert {key: claim.attempt for key, claim in claims.items()} == {"a": 1, "b": 2, "c": 2}
    hand.settle(*(done(claim) for claim in claims.values()))
    assert server.counts("q") == (0, 0, 0)


def test_a_later_version_of_a_job_is_not_taken_for_a_repeat_of_it(bench: Bench) -> None:
    """Somebody has retried it and could not delete what he had. It waits while the other runs, and is not deleted."""
    rig, server, _ = bench.virtual()
    put(rig, "a")  # type: ignore[arg-type]
    hand = rig.hand()
    claim = hand.one()
    message = rig.inflight.claims[claim.ref].held[0].message
    rig.sender.send(message.sqs_queue, [(resend_of(message, attempt=1, retry_count=0), 0)])
    assert hand.claim() == []
    assert server.counts("q") == (0, 2, 0)
    hand.settle(released(claim))
    assert server.counts("q") == (2, 0, 0)
    claim = hand.one()
    hand.settle(done(claim))
    assert server.counts("q") == (0, 0, 0)


def test_a_retry_that_comes_while_its_old_message_is_being_deleted_is_not_lost(bench: Bench) -> None:
    """The delete is lost again and again, and the copy arrives meanwhile: it is another version, and lives on."""
    rig, server, clock = bench.virtual()
    put(rig, "a", "b")  # type: ignore[arg-type]
    hand = rig.hand()
    claims = {claim.key: claim for claim in hand.claim()}

    def lost(operation: str, params: dict[str, Any], answer: dict[str, Any] | None) -> None:
        if operation == "delete_message_batch":
            raise BrokerAwayError("It was lost.")

    with rig.watched(lost), pytest.raises(BrokerAwayError):
        hand.turn(0, failed(claims["a"], "no", 25, 0.0))
    mine, hand.last = hand.last, None
    other = rig.hand("worker-2")
    assert other.claim() == []  # the copy has come, and waits with the old one
    assert mine is not None
    assert rig.turn(mine).refused == []
    hand.settle(released(claims["b"]))
    clock.advance(31)
    again = {claim.key: claim for claim in other.claim()}
    assert (again["a"].attempt, again["a"].retry_count) == (2, 0)
    other.settle(done(again["a"]), done(again["b"]))
    assert server.counts("q") == (0, 0, 0)


def test_a_job_whose_time_was_up_and_that_comes_back_to_us_is_ours_again(bench: Bench) -> None:
    """With its newest receipt; it does not run beside itself."""
    rig, server, clock = bench.virtual()
    put(rig, "a")  # type: ignore[arg-type]
    hand = rig.hand()
    claim = hand.one()
    clock.advance(31)
    assert hand.claim() == []
    clock.advance(20)
    rig.renew()
    clock.advance(20)
    assert hand.settle(done(claim)) == []
    assert server.counts("q") == (0, 0, 0)


def test_a_job_that_was_buried_and_revived_runs(bench: Bench) -> None:
    """It is the same job, and another version of it."""
    rig, _, _ = bench.virtual()
    put(rig, "a")  # type: ignore[arg-type]
    hand = rig.hand()
    claim = hand.one()
    message = rig.inflight.claims[claim.ref].held[0].message
    hand.settle(buried(claim, "no"))
    rig.sender.send(message.sqs_queue, [(resend_of(message, retry_count=-1), 0)])
    assert keys(hand.claim()) == ["a"]


def _message(id: str, message_id: str = "m", receipt: str = "r", hop: int = 0) -> Message:
    sqs_queue = SQSQueue("q", "q", "url")
    return Message(
        sqs_queue, receipt, message_id, "", MessageNote(id, hop=hop), {}, Kind.PLAIN, 1, 0.0, hidden_until=30.0
    )


def test_ended_jobs_are_remembered_for_ten_minutes(fake: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so many at most: the oldest go first."""
    clock = ManualClock()
    held = make_broker(fake, clock=clock).inflight.holding
    held.end(_message("a"))
    clock.advance(599)
    held.end(_message("b"))
    assert [held.is_ended(_message(id)) for id in "abc"] == [True, True, False]
    assert not held.is_ended(_message("a", hop=1))
    clock.advance(2)
    assert [held.is_ended(_message(id)) for id in "ab"] == [False, True]
    monkeypatch.setattr(inflight, "REMEMBER", 3)
    for id in "cdef":
        held.end(_message(id))
    assert [held.is_ended(_message(id)) for id in "abcdef"] == [False] * 3 + [True] * 3


def test_the_newest_receipt_is_the_one_that_counts() -> None:
    held = HeldMessage(_message("a", receipt="old"))
    newer = _message("a", receipt="new")
    newer.hidden_until = 60.0
    held.merge_redelivery(newer)
    assert (held.message.receipt, held.message.hidden_until, held.duplicates) == ("new", 60.0, [])
    for receipt in ("1", "2"):
        held.merge_redelivery(_message("a", "other", receipt))
    assert [(each.message_id, each.receipt) for each in held.duplicates] == [("other", "2")]


def test_two_of_one_job_in_one_answer_are_one(bench: Bench) -> None:
    rig, _, _ = bench.virtual()
    send_twice(rig, "a")
    send_twice(rig, "b")
    assert [bodies(claim) for claim in rig.hand().claim()] == [["{}"], ["{}"]]
