"""Tests of storing jobs on a Cluster when a shard is unreachable or a key is taken."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from laneway.broker import Turn
from laneway.brokers.redis import RedisBroker
from laneway.brokers.redis.client.connections import Command
from laneway.brokers.redis.outbox import ClusterOutbox
from laneway.clock import ManualClock
from laneway.errors import BrokerAwayError, EnqueueError
from laneway.jobs.data import NewJob
from laneway.jobs.settlement import done
from laneway.jobs.shards import shard_of
from laneway.testing.conformance.fixtures import ScriptedWorker, call, calls, job, numbers, places, put, value
from tests.integration.redis.test_cluster_lost_replies import Cut
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisCluster

pytestmark = pytest.mark.integration


class Deaf(Cut):
    """A Cluster of which one shard is away."""

    tag: str | None = None

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        heard = [command for command in commands if not self._is_deaf_to(command)]
        answers = iter(self.inner.exchange(heard) if heard else ())
        return [RedisConnectionError("away") if self._is_deaf_to(command) else next(answers) for command in commands]

    def _is_deaf_to(self, command: Command) -> bool:
        return self.tag is not None and any(isinstance(part, str) and part.startswith(self.tag) for part in command)


@pytest.fixture
def deaf(redis_cluster: RedisCluster, open_url: Opener) -> Deaf:
    return Deaf(open_url(redis_cluster.url))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(deaf: Deaf, clock: ManualClock) -> RedisBroker:
    broker = RedisBroker(deaf, clock=clock)
    broker.declare("q", 5)
    return broker


def test_what_was_not_stored_is_named(broker: RedisBroker, deaf: Deaf) -> None:
    names = [f"k{n}" for n in range(50)]
    away = [name for name in names if shard_of(name, 5) == 2]
    deaf.tag = "{laneway:q:1:2}"
    with pytest.raises(BrokerAwayError) as caught:
        put(broker, *names)
    assert f"these {len(away)} may not have been: {', '.join(map(repr, away[:5]))}, …" in str(caught.value)
    deaf.tag = None
    assert [name for name in names if broker.status("q", name) == "gone"] == away
    put(broker, *names)
    assert numbers(broker).length == 50


def test_a_long_list_is_refused_before_any_of_it_is_stored(broker: RedisBroker) -> None:
    put(broker, "taken")
    with pytest.raises(EnqueueError, match="'taken'"):
        broker.enqueue([*(job(f"k{n}") for n in range(1_500)), call("taken", "a")])
    assert numbers(broker).length == 1


def send(broker: RedisBroker, deaf: Deaf, sent: list[NewJob]) -> None:
    """A run ends and sends jobs to shards that are away just then."""
    put(broker, next(name for name in ("a", "b", "c", "d", "e", "f") if shard_of(name, 5) != 2))
    hand = ScriptedWorker(broker)
    claim = hand.one(shards=[0, 1, 3, 4])
    deaf.tag = "{laneway:q:1:2}"
    turn = Turn(hand.name, "q", hand.seq + 1, [done(claim, sent)], 0, [0, 1, 3, 4])
    assert broker.turn(turn).refused == []
    deaf.tag = None


def in_shard_2(count: int) -> list[str]:
    return [name for name in (f"child-{n}" for n in range(100)) if shard_of(name, 5) == 2][:count]


def test_what_a_run_sends_waits_for_a_shard_that_is_away(broker: RedisBroker, deaf: Deaf, clock: ManualClock) -> None:
    (name,) = in_shard_2(1)
    send(broker, deaf, [job(name, delay_s=60)])
    at = clock.now() + 60
    assert broker.status("q", name) == "gone"
    broker.reclaim()
    assert broker.status("q", name) == "gone"  # it may be on its way
    clock.advance(10)
    broker.reclaim()
    assert [(view.status, view.perform_at) for view in broker.inspect.find("q", name)] == [("delayed", at)]


def test_what_cannot_be_stored_any_more_holds_nothing_up(
    broker: RedisBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, free, other = in_shard_2(3)
    put(broker, "a")
    hand = ScriptedWorker(broker)
    claim = hand.one()
    with monkeypatch.context() as dying:
        dying.setattr(ClusterOutbox, "deliver", lambda *_: None)  # it dies before that
        hand.settle(done(claim, [job(free), call(taken, "x"), call(other, "y")]))
    put(broker, taken, body="plain")
    clock.advance(10)
    with caplog.at_level(logging.ERROR, "laneway"):
        broker.reclaim()
    assert f"The key '{taken}' of the queue q belongs to a plain job" in caplog.text
    assert places(broker, taken) == {"queued": ["plain"]}
    assert places(broker, other) == {"queued": ["y"]}
    assert broker.status("q", free) == "queued"
    caplog.clear()
    broker.reclaim()
    assert caplog.text == ""


def test_a_conflict_is_found_before_anything_is_settled(broker: RedisBroker) -> None:
    """Unless the run will not be settled anyway: what it has sent is not sent then."""
    put(broker, "a", "b")
    calls(broker, "k", "x")
    hand = ScriptedWorker(broker)
    claims = {claim.key: claim for claim in hand.claim()}
    bad = [call("b", "not a plain one")]
    with pytest.raises(EnqueueError, match="'b'"):
        hand.settle(done(claims["a"], bad), done(claims["k"]))
    assert (numbers(broker).busy, numbers(broker).processed) == (3, 0)
    # When the job that has the key ends in the same turn, the key is free.
    assert hand.settle(done(claims["a"], bad), done(claims["b"])) == []
    assert places(broker, "b") == {"queued": ["not a plain one"]}
    assert hand.settle(done(claims["a"], [job("child"), value("k", "of another kind than what runs")])) == ["a"]
    assert broker.status("q", "child") == "gone"
