"""What is large is stored and handed out in portions, and what is too large is refused in a sentence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from laneway.brokers.redis import RedisBroker, storing, turning
from laneway.brokers.redis.scripts import load
from laneway.errors import BrokerError, EnqueueError, LeaseLost
from laneway.outcome import done
from laneway.testing.conformance.kit import Hand, bodies, call, job, keys, put, value
from laneway.urls import Url
from tests.servers import RedisServer

MEGABYTE = 1_000_000


@pytest.fixture
def broker(redis_server: RedisServer) -> Iterator[RedisBroker]:
    broker = RedisBroker.from_url(Url.parse(redis_server.url))
    broker.declare("q", 2)
    yield broker
    broker.close()


def test_large_bodies_are_stored_in_portions_and_in_order(broker: RedisBroker) -> None:
    jobs = [call("k", f"{n:03}", body=f"{n:03}" + "x" * MEGABYTE) for n in range(40)]
    assert len(storing.chunks_of(jobs)) > 2
    broker.enqueue(jobs)
    hand, found = Hand(broker), []
    while claims := hand.claim():
        (claim,) = claims
        assert sum(map(len, bodies(claim))) < 40 * MEGABYTE, "a claim holds no more than both sides can bear"
        found += [body[:3] for body in bodies(claim)]
        hand.settle(done(claim))
    assert found == [f"{n:03}" for n in range(40)]


def test_portions_have_a_thousand_jobs_at_most() -> None:
    sizes = [len(chunk) for chunk in storing.chunks_of([job(str(n)) for n in range(2_500)])]
    assert sizes == [1_000, 1_000, 500]
    assert storing.chunks_of([]) == []
    assert [len(chunk) for chunk in storing.chunks_of([job("a", "x" * 20 * MEGABYTE)] * 2)] == [1, 1]


def test_a_key_with_many_large_values_is_handed_out_in_portions(broker: RedisBroker) -> None:
    broker.enqueue([value("k", f"{n:03}" + "x" * MEGABYTE, score=n) for n in range(40)])
    hand = Hand(broker)
    first = hand.one()
    assert 1 <= len(first.payloads) < 40
    hand.settle(done(first))
    assert bodies(hand.one())[0].startswith(f"{len(first.payloads):03}")


def test_a_run_that_sends_too_much_is_refused_and_nothing_is_stored(
    broker: RedisBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turning, "OUTBOX_CHARS", 1_000)
    put(broker, "small", "large")
    hand = Hand(broker)
    small, large = hand.claim()
    with pytest.raises(EnqueueError, match="store what is large elsewhere") as error:
        hand.turn(0, done(small, [job("a", "x" * 400)]), done(large, [job("b", "x" * 900)]))
    assert error.value.place == ("q", "b")
    assert [broker.status("q", key) for key in ("a", "b")] == ["gone", "gone"]
    assert hand.settle(done(small, [job("a", "x" * 400)]), done(large)) == []


def test_a_copy_of_an_older_turn_that_comes_late_does_nothing(broker: RedisBroker) -> None:
    """A server that was silent for a while may carry out a call after its repeat, and after the turn behind it."""
    hand = Hand(broker)
    hand.claim()
    late = hand.last
    hand.claim()
    put(broker, "a")
    assert late is not None
    with pytest.raises(BrokerError, match="another turn since"):
        broker.turn(late)
    assert keys(hand.claim()) == ["a"]


def test_a_worker_let_in_while_it_left_holds_nothing_for_ever(broker: RedisBroker) -> None:
    put(broker, "a")
    hand, other = Hand(broker), Hand(broker, "worker-2")
    broker.leave(hand.name)
    with pytest.raises(LeaseLost):
        hand.claim()
    # As on a Cluster, where the lease and the shard are not looked at in one step.
    layouts = broker._layouts
    layouts.server.run(load("admit"), [layouts.get("q").tags[0]], [layouts.args(worker=hand.name)])
    assert keys(hand.claim()) == ["a"]
    assert (broker.reclaim(), broker.reclaim()) == (1, 0)
    assert keys(other.claim()) == ["a"]
    with pytest.raises(LeaseLost):
        hand.claim()


def test_hundreds_of_priorities_are_served_in_their_order(broker: RedisBroker) -> None:
    broker.enqueue([job(str(n), priority=n) for n in range(-300, 300)])
    hand = Hand(broker)
    assert keys(hand.claim(limit=1_000)) == [str(n) for n in range(299, -301, -1)]
    assert broker.check() == []
