"""Tests of turns on SQS: settling and claiming in one step, waiting, joining and leaving."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from laneway.brokers.aws.errors import MissingError
from laneway.errors import BrokerAwayError, LeaseLost
from laneway.jobs.data import Kind, Payload
from laneway.jobs.settlement import buried, done, failed, released
from laneway.testing.conformance.fixtures import bodies, call, calls, job, keys, put
from tests.support.aws.endpoints import Place
from tests.support.aws.servers import FakeServer
from tests.support.aws.turn_bench import Bench, bench, virtual_server
from tests.support.servers import wait_until

__all__ = ["bench", "virtual_server"]


def test_a_job_is_claimed_and_is_gone_when_it_is_done(aws: Place, bench: Bench) -> None:
    aws.create_queues("q")
    rig = bench.rig(aws)
    rig.enqueue([job("a", '{"n":1}', headers={"h": "1"})])
    hand = rig.hand()
    claim = hand.one()
    assert (claim.key, claim.kind, claim.attempt, claim.retry_count) == ("a", Kind.PLAIN, 1, -1)
    assert (claim.payloads, claim.headers, claim.error) == ([Payload('{"n":1}')], {"h": "1"}, None)
    assert (rig.inflight.count("q"), rig.inflight.is_claimed("q", "a"), rig.inflight.is_claimed("q", "b")) == (
        1,
        True,
        False,
    )
    assert not rig.inflight.is_claimed("other", "a")
    assert aws.counts("q") == (0, 1, 0)
    assert hand.settle(done(claim)) == []
    assert aws.counts("q") == (0, 0, 0)
    assert (rig.inflight.count("q"), rig.inflight.is_claimed("q", "a")) == (0, False)
    assert rig.counts == [("q", 1, 0)]


def test_plain_and_keyed_jobs_come_from_both_queues(aws: Place, bench: Bench) -> None:
    """A turn takes from the standard and the FIFO queue, up to its limit, which counts claims."""
    aws.create_queues("q")
    rig = bench.rig(aws)
    put(rig, *(f"p{n}" for n in range(12)))  # type: ignore[arg-type]
    rig.enqueue([call(key, f"{key}{n}") for n in range(3) for key in "xy"])
    hand = rig.hand()
    claims = hand.claim(limit=14)
    assert sorted(keys(claims)) == sorted([*(f"p{n}" for n in range(12)), "x", "y"])
    assert [bodies(claim) for claim in claims if claim.kind is Kind.KEYED] == [["x0", "x1", "x2"], ["y0", "y1", "y2"]]
    assert hand.settle(*(done(claim) for claim in claims)) == []
    assert (aws.counts("q"), aws.counts("q.fifo")) == ((0, 0, 0), (0, 0, 0))


def test_a_turn_brings_no_more_than_its_limit(bench: Bench) -> None:
    """What has been received beyond that is handed out by the next; a limit of 0 claims nothing."""
    rig, _, _ = bench.virtual()
    put(rig, *(f"k{n}" for n in range(13)))  # type: ignore[arg-type]
    hand = rig.hand()
    assert [len(hand.claim(limit=limit)) for limit in (0, 4, 7, 7)] == [0, 4, 7, 2]


def test_one_turn_settles_and_claims(bench: Bench) -> None:
    """What it settles is settled before it claims: a released job may come straight back."""
    rig, server, _ = bench.virtual()
    put(rig, "a", "b")  # type: ignore[arg-type]
    hand = rig.hand()
    claims = {claim.key: claim for claim in hand.claim()}
    answer = hand.turn(10, done(claims["a"]), released(claims["b"]))
    assert (answer.refused, keys(answer.claims)) == ([], ["b"])
    assert answer.token > claims["b"].token
    assert answer.claims[0].attempt == 1
    assert server.counts("q") == (0, 1, 0)


def test_a_repeated_turn_gets_the_same_answer(bench: Bench) -> None:
    rig, _, _ = bench.virtual()
    put(rig, "a", "b", "c")  # type: ignore[arg-type]
    hand = rig.hand()
    first = hand.turn(2)
    assert hand.again() == first
    answer = hand.turn(1, done(first.claims[0]), done(first.claims[0]))
    assert (answer.refused, len(answer.claims)) == ([first.claims[0].key], 1)
    assert hand.again() == answer
    assert rig.counts == [("q", 1, 0)]


def test_tokens_only_grow(bench: Bench) -> None:
    """Within one tick of the clock, and when it steps back."""
    rig, _, clock = bench.virtual()
    hand = rig.hand()
    tokens = [hand.turn(1).token, hand.turn(1).token]
    clock.step(-3_600)
    tokens.append(hand.turn(1).token)
    clock.step(7_200)
    tokens.append(hand.turn(1).token)
    assert tokens == sorted(set(tokens))
    assert tokens[-1] >= clock.now() * 1e6 - 1


def test_whoever_has_not_joined_takes_no_turns(bench: Bench) -> None:
    rig, server, _ = bench.virtual()
    put(rig, "a")  # type: ignore[arg-type]
    hand = rig.hand()
    rig.turns.leave(hand.name)
    with pytest.raises(LeaseLost):
        hand.claim()
    assert server.counts("q") == (1, 0, 0)


def test_somebody_elses_claim_is_refused(bench: Bench) -> None:
    """By another worker of the process, with another token, or twice: and what was enqueued is not sent."""
    rig, server, _ = bench.virtual()
    put(rig, "a")  # type: ignore[arg-type]
    hand, other = rig.hand(), rig.hand("worker-2")
    claim = hand.one()
    assert other.settle(done(claim, [job("child")])) == ["a"]
    stale = msgspec.structs.replace(claim, token=claim.token - 1)
    assert hand.settle(done(stale, [job("child")])) == ["a"]
    assert hand.settle(done(claim)) == []
    assert hand.settle(done(claim, [job("child")])) == ["a"]
    assert server.counts("q") == (0, 0, 0)


def test_shards_and_epochs_that_sqs_does_not_have_bring_nothing(bench: Bench) -> None:
    rig, _, _ = bench.virtual()
    put(rig, "a")  # type: ignore[arg-type]
    hand = rig.hand()
    assert hand.claim(shards=[]) == []
    assert hand.claim(shards=[1, 2]) == []
    assert hand.claim(epoch=2) == []
    answer = hand.turn(1, shards=[0], epoch=1)
    assert (keys(answer.claims), answer.epoch, answer.shards) == (["a"], 1, 1)


# -- queues that are missing or paused -----------------------------------------------------------------


def test_a_queue_that_is_missing_is_an_error_that_says_what_to_do(aws: Place, bench: Bench) -> None:
    hand = bench.rig(aws).hand()
    with pytest.raises(MissingError, match="laneway aws create"):
        hand.claim(queue="nowhere")


@pytest.mark.parametrize("name", ["q", "q.fifo"])
def test_one_of_the_two_queues_is_enough(aws: Place, bench: Bench, name: str) -> None:
    aws.create_queue(name)
    rig = bench.rig(aws)
    rig.enqueue([call("k", "1") if name.endswith(".fifo") else job("k")])
    assert keys(rig.hand().claim()) == ["k"]


def test_what_has_run_is_settled_though_its_queue_cannot_be_found_any_more(bench: Bench) -> None:
    """A turn that cannot claim settles all the same."""
    rig, server, _ = bench.virtual()
    put(rig, "a")  # type: ignore[arg-type]
    hand = rig.hand()
    claim = hand.one()

    def denied(queue: str) -> Any:
        raise BrokerAwayError("The queues cannot be looked for.")

    rig.account.queues.existing = denied  # type: ignore[method-assign]
    with pytest.raises(BrokerAwayError, match="looked for"):
        hand.turn(1, done(claim))
    assert server.counts("q") == (0, 0, 0)
    assert rig.counts == [("q", 1, 0)]


def test_a_queue_that_is_made_later_is_found(bench: Bench) -> None:
    """Whoever looks again within a minute is told what was seen before, and AWS is not asked."""
    rig, server, clock = bench.virtual()
    hand = rig.hand()
    for _ in range(2):
        with pytest.raises(MissingError):
            hand.claim(queue="late")
    asked = server.requests["sqs.GetQueueUrl"]
    with pytest.raises(MissingError):
        hand.claim(queue="late")
    assert server.requests["sqs.GetQueueUrl"] == asked
    server.create_queue("late")
    rig.clients.sqs("send_message", QueueUrl=server.queue_url("late"), MessageBody="{}")
    clock.advance(61)
    assert len(hand.claim(queue="late")) == 1


def test_a_paused_queue_is_not_even_asked(bench: Bench) -> None:
    rig, server, _ = bench.virtual()
    put(rig, "a", "b")  # type: ignore[arg-type]
    hand = rig.hand()
    (claim,) = hand.claim(limit=1)
    server.requests.clear()
    rig.pauses("q")
    assert hand.turn(5, done(claim)).claims == []
    assert rig.wait(["q"], 0.0) == set()
    assert server.requests["sqs.ReceiveMessage"] == 0


# -- waiting -------------------------------------------------------------------------------------------


def test_a_wait_ends_when_a_job_arrives(aws: Place, bench: Bench) -> None:
    aws.create_queues("q")
    aws.create_queues("other")
    rig = bench.rig(aws, inline=False)
    hand = rig.hand()
    assert rig.wait(["q", "other"], 0.01) == set()
    threading.Timer(0.05, lambda: put(rig, "a")).start()  # type: ignore[arg-type]
    assert rig.wait(["q", "other"], 30.0) == {"q"}
    assert keys(hand.claim()) == ["a"]


def test_a_wait_ends_when_it_is_nudged(fake: FakeServer, bench: Bench) -> None:
    fake.create_queues("q")
    rig = bench.rig(fake, inline=False)
    rig.hand()
    ended: list[set[str]] = []
    thread = threading.Thread(target=lambda: ended.append(rig.wait(["q"], 30.0)))
    thread.start()
    wait_until(lambda: any(buffer.waits for buffer in rig.inflight.of("q")), lambda: "nobody waits")
    rig.turns.nudge()
    thread.join(10)
    assert ended == [set()]


# -- leaving -------------------------------------------------------------------------------------------


def test_whoever_leaves_gives_back_all_that_it_holds(aws: Place, bench: Bench) -> None:
    """Claims, what waits behind them, and what has only been received."""
    aws.create_queues("q")
    rig = bench.rig(aws)
    put(rig, *(f"p{n}" for n in range(8)))  # type: ignore[arg-type]
    calls(rig, "k", "1", "2", "3")  # type: ignore[arg-type]
    hand = rig.hand()
    claims = hand.claim(limit=3, max_payloads=2)
    assert len(claims) == 3
    assert rig.turns.leave(hand.name) == 3
    assert (aws.counts("q"), aws.counts("q.fifo")) == ((8, 0, 0), (3, 0, 0))
    assert rig.turns.leave(hand.name) == rig.turns.leave("nobody") == 0
    again = rig.hand("worker-2")
    assert sum(len(claim.payloads) for claim in again.claim()) == 11
    assert again.settle(*(done(claim) for claim in claims)) == [claim.key for claim in claims]


def test_another_worker_of_the_process_keeps_what_it_holds(bench: Bench) -> None:
    rig, _, _ = bench.virtual()
    put(rig, "a", "b", "c")  # type: ignore[arg-type]
    hand, other = rig.hand(), rig.hand("worker-2")
    (mine,) = hand.claim(limit=1)
    (theirs,) = other.claim(limit=1)
    assert rig.turns.leave(hand.name) == 1
    assert other.settle(done(theirs)) == []
    assert {mine.key} < {claim.key for claim in other.claim()}


def test_what_is_settled_is_counted_in_keys(bench: Bench) -> None:
    """As on other brokers: a failure that leaves finished calls behind is both."""
    rig, _, _ = bench.virtual()
    put(rig, "a", "b", "c")  # type: ignore[arg-type]
    calls(rig, "k", "1", "2")  # type: ignore[arg-type]
    hand = rig.hand()
    claims = {claim.key: claim for claim in hand.claim()}
    hand.settle(
        done(claims["a"]),
        failed(claims["b"], "no", 25, 60.0),
        buried(claims["c"], "no"),
        failed(claims["k"], "no", 25, 60.0, done=1),
    )
    assert rig.counts == [("q", 2, 3)]
