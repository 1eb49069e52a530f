"""Tests of large data: it is stored and claimed in portions, and rejected with a clear error if it is too large."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from laneway.brokers.redis import RedisBroker, enqueue, turn
from laneway.brokers.redis.script import load
from laneway.errors import BrokerError, EnqueueError, LeaseLost
from laneway.jobs.settlement import done
from laneway.testing.conformance.events import copies
from laneway.testing.conformance.fixtures import ScriptedWorker, bodies, call, job, keys, put, value
from laneway.urls import Url
from tests.support.servers import RedisServer

MEGABYTE = 1_000_000


@pytest.fixture
def broker(redis_server: RedisServer) -> Iterator[RedisBroker]:
    broker = RedisBroker.from_url(Url.parse(redis_server.url))
    broker.declare("q", 2)
    yield broker
    broker.close()


def test_large_bodies_are_stored_in_portions_and_in_order(broker: RedisBroker) -> None:
    jobs = [call("k", f"{n:03}", body=f"{n:03}" + "x" * MEGABYTE) for n in range(40)]
    assert len(enqueue.chunks_of(jobs)) > 2
    broker.enqueue(jobs)
    hand, found = ScriptedWorker(broker), []
    while claims := hand.claim():
        (claim,) = claims
        assert sum(map(len, bodies(claim))) < 40 * MEGABYTE, "a claim holds no more than both sides can bear"
        found += [body[:3] for body in bodies(claim)]
        hand.settle(done(claim))
    assert found == [f"{n:03}" for n in range(40)]


def test_portions_have_a_thousand_jobs_at_most() -> None:
    sizes = [len(chunk) for chunk in enqueue.chunks_of([job(str(n)) for n in range(2_500)])]
    assert sizes == [1_000, 1_000, 500]
    assert enqueue.chunks_of([]) == []
    assert [len(chunk) for chunk in enqueue.chunks_of([job("a", "x" * 20 * MEGABYTE)] * 2)] == [1, 1]


def test_copies_of_one_event_are_in_one_portion() -> None:
    events = [each for n in range(500) for each in copies(f"e{n}")]
    chunks = enqueue.chunks_of([*events, job("a"), *copies("large", [f"q{n}" for n in range(1_200)]), job("b")])
    assert [len(chunk) for chunk in chunks] == [999, 502, 1_200, 1]
    assert [each for chunk in chunks[:2] for each in chunk] == [*events, job("a")]
    # Those that do not stand together are put together, each where its first one stood.
    scattered = [each for pair in zip(copies("e1"), copies("e2"), strict=True) for each in pair]
    assert enqueue.chunks_of(scattered) == [[*copies("e1"), *copies("e2")]]
    heavy = [each for n in range(3) for each in copies(f"e{n}", body="x" * 6 * MEGABYTE)]
    assert [len(chunk) for chunk in enqueue.chunks_of(heavy)] == [3, 3, 3]


def test_an_event_with_more_copies_than_a_portion_has_jobs_is_stored_in_one_step(
    broker: RedisBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enqueue, "CHUNK", 10)
    queues = [f"q{n}" for n in range(30)]
    broker.enqueue([*copies("small", queues[:2]), *copies("large", queues)])
    assert {stats.queue: stats.length for stats in broker.inspect.stats() if stats.length} == {
        queue: 2 if queue in queues[:2] else 1 for queue in queues
    }


def test_an_event_that_is_too_large_for_one_step_is_refused(broker: RedisBroker) -> None:
    before = copies("small")
    for large in (
        copies("large", [f"q{n}" for n in range(10_001)]),
        copies("large", [f"q{n}" for n in range(101)], body="x" * MEGABYTE),
    ):
        with pytest.raises(EnqueueError, match=r"The event large has .* or have fewer queues subscribe\."):
            broker.enqueue([*before, *large])
    assert all(stats.length == 0 for stats in broker.inspect.stats())


def test_a_key_with_many_large_values_is_handed_out_in_portions(broker: RedisBroker) -> None:
    broker.enqueue([value("k", f"{n:03}" + "x" * MEGABYTE, score=n) for n in range(40)])
    hand = ScriptedWorker(broker)
    first = hand.one()
    assert 1 <= len(first.payloads) < 40
    hand.settle(done(first))
    assert bodies(hand.one())[0].startswith(f"{len(first.payloads):03}")


def test_a_run_that_sends_too_much_is_refused_and_nothing_is_stored(
    broker: RedisBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn, "OUTBOX_CHARS", 1_000)
    put(broker, "small", "large")
    hand = ScriptedWorker(broker)
    small, large = hand.claim()
    with pytest.raises(EnqueueError, match="store what is large elsewhere") as error:
        hand.turn(0, done(small, [job("a", "x" * 400)]), done(large, [job("b", "x" * 900)]))
    assert error.value.place == ("q", "b")
    assert [broker.status("q", key) for key in ("a", "b")] == ["gone", "gone"]
    assert hand.settle(done(small, [job("a", "x" * 400)]), done(large)) == []


def test_a_copy_of_an_older_turn_that_comes_late_does_nothing(broker: RedisBroker) -> None:
    """A server that was silent for a while may carry out a call after its repeat, and after the turn behind it."""
    hand = ScriptedWorker(broker)
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
    hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
    broker.leave(hand.name)
    with pytest.raises(LeaseLost):
        hand.claim()
    # As on a Cluster, where the lease and the queue are not looked at in one step.
    layouts = broker._layouts
    layouts.server.run(load("admit"), [layouts.get("q").root], [layouts.args(worker=hand.name)])
    assert keys(hand.claim()) == ["a"]
    assert (broker.reclaim(), broker.reclaim()) == (1, 0)
    assert keys(other.claim()) == ["a"]
    with pytest.raises(LeaseLost):
        hand.claim()


def test_hundreds_of_priorities_are_served_in_their_order(broker: RedisBroker) -> None:
    broker.enqueue([job(str(n), priority=n) for n in range(-300, 300)])
    hand = ScriptedWorker(broker)
    assert keys(hand.claim(limit=1_000)) == [str(n) for n in range(299, -301, -1)]
    assert broker.health.check() == []
