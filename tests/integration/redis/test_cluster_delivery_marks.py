"""Tests that jobs which a run sends on a Cluster are stored once, even if their outbox is unreachable for days.

Shards remember a delivered job for days, but only for ten minutes once they know that the outbox has dropped it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from laneway.brokers.redis import RedisBroker, cluster_enqueue
from laneway.brokers.redis.client.connections import Command
from laneway.clock import ManualClock
from laneway.errors import BrokerAwayError
from laneway.jobs.settlement import done
from laneway.testing.conformance.fixtures import ScriptedWorker, job, numbers, put
from tests.integration.redis.test_cluster_enqueue_during_reshard import leave_behind, stored
from tests.integration.redis.test_cluster_lost_replies import Cut
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisCluster

pytestmark = pytest.mark.integration

MINUTES, DAYS = 60.0, 86_400.0


@pytest.fixture
def cut(redis_cluster: RedisCluster, open_url: Opener) -> Cut:
    return Cut(open_url(redis_cluster.url))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(cut: Cut, clock: ManualClock) -> Iterator[RedisBroker]:
    broker = RedisBroker(cut, clock=clock)
    broker.declare("q", 1)
    broker.declare("far", 2)
    yield broker
    broker.close()


def marks(broker: RedisBroker) -> list[tuple[bytes, float]]:
    """What shards of `far` remember, and in how many seconds they may forget it."""
    tags = broker._layouts.get("far").tags
    found = broker._server.do_all([("ZRANGE", f"{tag}:delivered", 0, -1, "WITHSCORES") for tag in tags])
    now = time.time()
    return [(row[n], float(row[n + 1]) / 1e6 - now) for row in found for n in range(0, len(row), 2)]


def pass_time(broker: RedisBroker, seconds: float) -> None:
    """Have what shards remember become older, as the servers' clocks cannot be told to."""
    server = broker._server
    for tag in broker._layouts.get("far").tags:
        name = f"{tag}:delivered"
        row = server.do("ZRANGE", name, 0, -1, "WITHSCORES")
        for n in range(0, len(row), 2):
            server.do("ZADD", name, float(row[n + 1]) - seconds * 1e6, row[n])
        if row:
            server.do("EXPIRE", name, int(server.do("TTL", name) - seconds))


def send(broker: RedisBroker, cut: Cut, clock: ManualClock, count: int = 6) -> None:
    """Deliver what a run has sent, and be cut off before it is removed from the outbox."""
    leave_behind(broker, [job(f"child-{n}", queue="far") for n in range(count)])
    clock.advance(10)

    def refuse(commands: list[Command]) -> list[object]:
        if commands and commands[0][0] == "HDEL":
            raise BrokerAwayError("The shard is away.")
        return Cut.do_all(cut, commands)

    with pytest.MonkeyPatch.context() as away:
        away.setattr(cut, "do_all", refuse)
        broker.reclaim()
    assert numbers(broker, "far").length == count
    assert stored(broker)


def run_all(broker: RedisBroker, worker: str) -> int:
    hand = ScriptedWorker(broker, worker)
    claims = hand.claim(queue="far")
    hand.settle(*map(done, claims), queue="far")
    return len(claims)


@pytest.mark.parametrize("away_s", [9 * MINUTES, 11 * MINUTES, 6 * DAYS])
def test_an_outbox_that_is_away_for_long(broker: RedisBroker, cut: Cut, clock: ManualClock, away_s: float) -> None:
    send(broker, cut, clock)
    assert run_all(broker, "worker-2") == 6
    pass_time(broker, away_s)
    clock.advance(away_s)
    put(broker, "other", queue="far")  # whatever is stored may have shards forget
    broker.reclaim()
    assert run_all(broker, "worker-3") == 1
    assert stored(broker) == []


@pytest.mark.parametrize("how", ["renewing", "sweeping", "closing"])
def test_what_is_gone_from_the_outbox_is_soon_forgotten(
    broker: RedisBroker, cut: Cut, clock: ManualClock, how: str
) -> None:
    send(broker, cut, clock)
    assert len(marks(broker)) == 6
    assert min(left for _, left in marks(broker)) > 6 * DAYS
    broker.reclaim()
    put(broker, "run")
    hand = ScriptedWorker(broker, "worker-2")
    hand.settle(done(hand.one(), [job("child", queue="far")]))
    if how == "renewing":
        broker.renew(hand.name, (), 1)
    elif how == "sweeping":
        broker.reclaim()
    else:
        broker.close()
    assert len(marks(broker)) == 7
    assert max(left for _, left in marks(broker)) <= 10 * MINUTES
    pass_time(broker, 11 * MINUTES)
    put(broker, "run again")
    hand = ScriptedWorker(broker, "worker-3")
    hand.settle(done(hand.one(), [job(f"child-{n}", queue="far") for n in range(20, 40)]))
    assert len(marks(broker)) == 20


def test_many_are_told_at_once(broker: RedisBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_enqueue, "MANY", 10)
    put(broker, "a", "b")
    hand = ScriptedWorker(broker)
    one, other = hand.claim()
    hand.settle(done(one, [job(f"one-{n}", queue="far") for n in range(9)]))
    assert min(left for _, left in marks(broker)) > 6 * DAYS
    hand.settle(done(other, [job("other", queue="far")]))
    assert max(left for _, left in marks(broker)) <= 10 * MINUTES
