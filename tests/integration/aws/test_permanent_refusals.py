"""Tests of messages that SQS rejects for good: each blocks only its own job, and an error reports it."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from laneway.brokers.aws.errors import DeniedError
from laneway.brokers.aws.sqs.message import ATTRIBUTE
from laneway.errors import BrokerAwayError, EnqueueError
from laneway.jobs.settlement import buried, done, failed
from laneway.testing.conformance.fixtures import bodies, calls, job, keys, put
from tests.support.aws.servers import FakeServer
from tests.support.aws.turn_bench import Bench, Lost, Rig, Watch, bench, sentences, virtual_server

__all__ = ["bench", "virtual_server"]

LIMIT = 262_144
TICKET = '{"_job_class":"T","_job_params":null}'


def theirs(count: int, size: int = 1) -> dict[str, Any]:
    """Message attributes of somebody else, the last of them of bytes."""
    made: dict[str, Any] = {f"a{n}": {"DataType": "String", "StringValue": str(n) * size} for n in range(count - 1)}
    return {**made, "z": {"DataType": "Binary", "BinaryValue": b"\x00\xff"}}


def stranger(rig: Rig, server: FakeServer, body: str, attributes: dict[str, Any], name: str = "q") -> None:
    fifo = {"MessageGroupId": "k", "MessageDeduplicationId": "d"} if name.endswith(".fifo") else {}
    url = server.queue_url(name)
    rig.clients.sqs("send_message", QueueUrl=url, MessageBody=body, MessageAttributes=attributes, **fifo)


def denied(server: FakeServer, name: str) -> Watch:
    """Sending to a queue is forbidden."""
    url = server.queue_url(name)

    def watch(operation: str, params: dict[str, Any], answer: dict[str, Any] | None) -> None:
        if operation == "send_message_batch" and params["QueueUrl"] == url and answer is None:
            raise DeniedError("These credentials may not sqs:SendMessage; see `laneway aws iam`.", code="AccessDenied")

    return watch


# -- attributes ----------------------------------------------------------------------------------------


def test_ten_foreign_attributes_travel_with_a_job_that_is_sent_on(bench: Bench) -> None:
    """SQS takes ten in all: what is too much goes along in our own, and all are there again each time."""
    rig, server, _ = bench.virtual()
    given = theirs(10)
    stranger(rig, server, TICKET, given)
    hand = rig.hand()
    for attempt in (1, 2):
        claim = hand.one()
        assert claim.attempt == attempt
        (held,) = next(iter(rig.inflight.claims.values())).held
        assert held.message.attributes == given
        assert hand.settle(failed(claim, "no", 25, 0.0)) == []
    assert hand.settle(buried(hand.one(), "never")) == []
    (letter,) = server.receive_all("q-deadletter")
    assert len(letter["MessageAttributes"]) == 10
    assert letter["Body"] == TICKET


def test_foreign_attributes_are_cut_only_if_they_do_not_fit(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    rig, server, _ = bench.virtual()
    attributes = dict(reversed(theirs(10, 20_000).items()))
    size = sum(len(name) + len(each["DataType"]) for name, each in attributes.items()) + 9 * 20_000 + 2
    stranger(rig, server, "x" * (LIMIT - size - 100), attributes)
    hand = rig.hand()
    assert hand.settle(failed(hand.one(), "no " * 500, 25, 0.0)) == []
    (claim,) = hand.claim()
    assert (claim.attempt, claim.error is not None) == (2, True)
    (text,) = [text for text in sentences(caplog, logging.WARNING) if "1 message attribute of others" in text]
    assert "(a0)" in text


# -- messages without room -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["q", "q.fifo"])
def test_a_message_without_room_for_anything_is_retried_and_buried(
    bench: Bench, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """What is known of it stays beside it; it is buried as it came, and the log has its error."""
    rig, server, clock = bench.virtual()
    stranger(rig, server, "x" * LIMIT, {}, name)
    put(rig, "other")  # type: ignore[arg-type]
    hand = rig.hand()
    claims = {claim.key: claim for claim in hand.claim()}
    other = claims.pop("other")
    (claim,) = claims.values()
    assert hand.settle(done(other), failed(claim, "no", 25, 5.0)) == []
    assert server.counts(name) == (0, 1, 0)
    clock.advance(6)
    again = hand.one()
    assert (again.attempt, again.error) == (2, "no")
    put(rig, "third")  # type: ignore[arg-type]
    (third,) = hand.claim()
    assert hand.settle(buried(again, "never"), buried(third, "no")) == []
    dead = name.replace("q", "q-deadletter")
    assert server.counts(name) == (0, 0, 0)
    assert [each for each in server.receive_all(dead) if each["Body"] == "x" * LIMIT]
    assert any("never" in text and "room" in text for text in sentences(caplog))


def test_a_ticket_of_hops_without_room_waits_where_it_is(bench: Bench) -> None:
    """Those that came with it are sent on once, and not each time anew."""
    rig, server, clock = bench.virtual()
    at = int(clock.now()) + 2_000
    tail = f',"_execute_after":{at}}}'
    start = '{"_job_class":"T","_job_params":"'
    stranger(rig, server, start + "x" * (LIMIT - len(start) - len(tail) - 1) + '"' + tail, {})
    stranger(rig, server, TICKET[:-1] + tail, {})
    hand = rig.hand()
    for _ in range(3):
        assert hand.claim() == []
        assert sum(server.counts("q")) == 2
        clock.advance(600)
    clock.advance(201)
    assert len(hand.claim()) == 2


# -- what SQS refuses or forbids -----------------------------------------------------------------------


def test_a_copy_that_is_denied_leaves_its_job_where_it_is(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """All else of the turn is settled, the error is told once, and when it is allowed again all goes on."""
    rig, server, clock = bench.virtual()
    put(rig, "bad", "worse", "good", "dead")  # type: ignore[arg-type]
    calls(rig, "k", "1", "2")  # type: ignore[arg-type]
    hand = rig.hand()
    claims = {claim.key: claim for claim in hand.claim()}
    retries = [failed(claims[key], f"no {key}", 25, 0.0) for key in ("bad", "worse")]
    with rig.watched(denied(server, "q")):
        settled = [*retries, done(claims["good"]), buried(claims["dead"], "no"), done(claims["k"])]
        assert hand.turn(0, *settled).refused == []
        assert (server.counts("q"), server.counts("q-deadletter")) == ((0, 2, 0), (1, 0, 0))
        assert server.counts("q.fifo") == (0, 0, 0)
        assert hand.claim() == []
        clock.advance(901)
        claims = {claim.key: claim for claim in hand.claim()}
        again = claims["bad"]
        assert (again.attempt, again.retry_count, again.error) == (2, 0, "no bad")
        hand.settle(*(failed(claim, "no", 25, 0.0) for claim in claims.values()))
    (text,) = [text for text in sentences(caplog) if "laneway aws iam" in text]
    assert "stay" in text
    clock.advance(901)
    assert hand.settle(*(failed(claim, "no", 25, 0.0) for claim in hand.claim())) == []
    claims = {claim.key: claim for claim in hand.claim()}
    assert {claim.attempt for claim in claims.values()} == {4}
    assert hand.settle(*(done(claim) for claim in claims.values())) == []
    assert server.counts("q") == (0, 0, 0)


def test_one_refused_entry_of_a_request_is_no_other_jobs_fault(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    rig, _, clock = bench.virtual()
    put(rig, *(f"job{n}" for n in range(12)))  # type: ignore[arg-type]
    hand = rig.hand()
    claims = hand.claim()

    def refuses(operation: str, params: dict[str, Any], answer: dict[str, Any] | None) -> None:
        for entry in params["Entries"] if operation == "send_message_batch" and answer is None else ():
            if '"job5"' in entry["MessageAttributes"][ATTRIBUTE]["StringValue"]:
                entry["MessageAttributes"] = theirs(11)

    with rig.watched(refuses):
        assert hand.settle(*(failed(claim, "no", 25, 0.0) for claim in claims)) == []
    (text,) = sentences(caplog)
    assert "job5" in text
    assert sorted(keys(hand.claim())) == sorted(f"job{n}" for n in range(12) if n != 5)
    clock.advance(901)
    assert "job5" in keys(hand.claim())


@pytest.mark.parametrize("how", ["denied", "gone"])
def test_a_dead_letter_that_cannot_be_sent_leaves_its_job_where_it_is(
    bench: Bench, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """A keyed one at the head of its group, with all that stands behind it."""
    rig, server, clock = bench.virtual()
    put(rig, "a", "b")  # type: ignore[arg-type]
    calls(rig, "k", "1", "2", "3")  # type: ignore[arg-type]
    hand = rig.hand()
    claims = {claim.key: claim for claim in hand.claim()}
    settled = [buried(claims["a"], "no"), done(claims["b"]), buried(claims["k"], "no", done=1)]
    names = ("q-deadletter", "q-deadletter.fifo")
    watches = [denied(server, name) for name in names]

    def watch(operation: str, params: dict[str, Any], answer: dict[str, Any] | None) -> None:
        for each in watches:
            each(operation, params, answer)

    if how == "gone":
        for fifo in (False, True):
            rig.account.queues.dead_letter_queue(rig.account.queues.of("q", fifo))
        for name in names:
            server.sqs_client.delete_queue(QueueUrl=server.queue_url(name))
        watches.clear()
    with rig.watched(watch):
        answer = hand.turn(0, *settled)
    assert (answer.refused, sorted(answer.stayed)) == ([], ["a", "k"])
    assert rig.counts == [("q", 2, 2)]
    assert (server.counts("q"), sum(server.counts("q.fifo"))) == ((0, 1, 0), 2)
    assert hand.claim() == []
    assert len(sentences(caplog)) == 2
    clock.advance(901)
    claims = {claim.key: claim for claim in hand.claim()}
    assert (claims["a"].attempt, claims["a"].error) == (2, "no")
    assert (bodies(claims["k"]), claims["k"].error) == (["2", "3"], "no")


# -- what runs enqueue ---------------------------------------------------------------------------------


def test_a_run_that_may_not_enqueue_fails_alone(bench: Bench) -> None:
    rig, server, _ = bench.virtual()
    server.create_queues("new")
    server.create_queues("theirs")
    put(rig, "good", "bad")  # type: ignore[arg-type]
    hand = rig.hand()
    claims = {claim.key: claim for claim in hand.claim()}
    good = done(claims["good"], [job("child", queue="new")])
    bad = done(claims["bad"], [job("mine", queue="new"), job("lost", queue="theirs")])
    with rig.watched(denied(server, "theirs")):
        with pytest.raises(EnqueueError, match="laneway aws iam") as caught:
            hand.turn(0, bad, good)
        assert caught.value.place == ("theirs", "lost")
        assert server.counts("q") == (0, 2, 0)
        assert hand.settle(good, buried(claims["bad"], "What the run enqueued was refused.")) == []
    assert sorted(keys(hand.claim(queue="new"))) == ["child", "mine"]
    assert (server.counts("q"), server.counts("q-deadletter")) == ((0, 0, 0), (1, 0, 0))


def test_credentials_that_have_expired_are_nobodys_fault(bench: Bench) -> None:
    """Nothing works then: it is told as the broker's, and tried again."""
    rig, _, _ = bench.virtual()
    put(rig, "a", "b")  # type: ignore[arg-type]
    hand = rig.hand()
    first, second = hand.claim()

    def expired(operation: str, params: dict[str, Any], answer: dict[str, Any] | None) -> None:
        raise DeniedError("The AWS credentials have expired.", code="ExpiredToken")

    with rig.watched(expired), pytest.raises(DeniedError, match="expired"):
        hand.turn(0, failed(first, "no", 25, 0.0), done(second, [job("child")]))
    assert hand.again().refused == []
    assert sorted(keys(hand.claim())) == sorted([first.key, "child"])


@pytest.mark.parametrize("after", [False, True])
def test_what_stays_is_neither_lost_nor_doubled_whichever_call_is_lost(bench: Bench, after: bool) -> None:
    """Sending copies and dead letters is forbidden, and each call of the turn is lost once."""
    number, finished = 0, False
    while not finished:
        number += 1
        rig, server, clock = bench.virtual(table="t")
        server.create_table("t")
        put(rig, "retry", "bury", "done")  # type: ignore[arg-type]
        calls(rig, "k", "1", "2", "3")  # type: ignore[arg-type]
        hand = rig.hand()
        claims = {claim.key: claim for claim in hand.claim()}
        settled = [failed(claims["retry"], "no", 25, 0.0), buried(claims["bury"], "no"), done(claims["done"])]
        lost = Lost(number, after=after)
        forbidden = [denied(server, name) for name in ("q", "q-deadletter", "q-deadletter.fifo")]

        def watch(
            operation: str,
            params: dict[str, Any],
            answer: dict[str, Any] | None,
            watches: list[Watch] = [lost, *forbidden],  # noqa: B006 - those of this round
        ) -> None:
            for each in watches:
                each(operation, params, answer)

        with rig.watched(watch):
            try:
                answer = hand.turn(0, *settled, buried(claims["k"], "never", done=1))
                finished = not lost.lost
            except BrokerAwayError:
                answer = hand.again()
        assert (answer.refused, sorted(answer.stayed)) == ([], ["bury", "k"]), lost.lost
        assert rig.counts == [("q", 2, 3)]
        assert sum(server.counts("q")) + sum(server.counts("q.fifo")) == 4
        clock.advance(901)
        other = bench.rig(server, clock, table="t").hand("worker-2")
        got = {claim.key: (bodies(claim), claim.attempt, claim.error) for claim in other.claim()}
        assert got == {"retry": (["{}"], 2, "no"), "bury": (["{}"], 2, "no"), "k": (["2", "3"], 2, "never")}, lost.lost
        rig.close()
    assert number > 4
