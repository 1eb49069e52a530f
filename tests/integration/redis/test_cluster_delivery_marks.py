"""Tests that jobs which a run sends on a Cluster are stored once, even if their outbox is unreachable for days.

Queues remember a delivered outbox entry for days, but only for ten minutes once they know that it is removed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from laneway.brokers.redis import RedisBroker, outbox
from laneway.brokers.redis.client.connections import Command
from laneway.brokers.redis.outbox import ClusterOutbox
from laneway.clock import ManualClock
from laneway.errors import BrokerAwayError
from laneway.jobs.settlement import done
from laneway.testing.conformance.fixtures import ScriptedWorker, job, numbers, put
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
    """The entries that `far` remembers, and in how many seconds it may forget each."""
    row = broker._server.do("ZRANGE", "{laneway:far:0}:delivered", 0, -1, "WITHSCORES")
    return [(row[n], float(row[n + 1]) / 1e6 - time.time()) for n in range(0, len(row), 2)]


def pass_time(broker: RedisBroker, seconds: float) -> None:
    """Make what `far` remembers older, because the clocks of the servers cannot be set."""
    server, name = broker._server, "{laneway:far:0}:delivered"
    row = server.do("ZRANGE", name, 0, -1, "WITHSCORES")
    for n in range(0, len(row), 2):
        server.do("ZADD", name, float(row[n + 1]) - seconds * 1e6, row[n])
    if row:
        server.do("EXPIRE", name, int(server.do("TTL", name) - seconds))


def left_in_outbox(broker: RedisBroker) -> int:
    count: int = broker._server.do("HLEN", "{laneway:q:0}:outbox")
    return count


def send(broker: RedisBroker, cut: Cut, clock: ManualClock, count: int = 6) -> None:
    """Deliver what a run has sent. The connection is cut before it is removed from the outbox."""
    put(broker, "run before")
    hand = ScriptedWorker(broker)
    with pytest.MonkeyPatch.context() as dying:
        dying.setattr(ClusterOutbox, "deliver", lambda *_: None)
        hand.settle(done(hand.one(), [job(f"child-{n}", queue="far") for n in range(count)]))
    clock.advance(10)

    def refuse(commands: list[Command]) -> list[object]:
        if commands and commands[0][0] == "HDEL":
            raise BrokerAwayError("The server is away.")
        return Cut.do_all(cut, commands)

    with pytest.MonkeyPatch.context() as away:
        away.setattr(cut, "do_all", refuse)
        broker.reclaim()
    assert numbers(broker, "far").length == count
    assert left_in_outbox(broker) == 1


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
    put(broker, "other", queue="far")
    broker.reclaim()
    assert run_all(broker, "worker-3") == 1
    assert left_in_outbox(broker) == 0


@pytest.mark.parametrize("how", ["renewing", "sweeping", "closing"])
def test_what_is_gone_from_the_outbox_is_soon_forgotten(
    broker: RedisBroker, cut: Cut, clock: ManualClock, how: str
) -> None:
    send(broker, cut, clock)
    assert len(marks(broker)) == 1
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
    assert len(marks(broker)) == 2
    assert max(left for _, left in marks(broker)) <= 10 * MINUTES
    pass_time(broker, 11 * MINUTES)
    put(broker, "run again")
    hand = ScriptedWorker(broker, "worker-3")
    hand.settle(done(hand.one(), [job(f"child-{n}", queue="far") for n in range(20, 40)]))
    assert len(marks(broker)) == 1


def test_many_removals_are_reported_at_once(broker: RedisBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_MANY", 2)
    put(broker, "a", "b")
    hand = ScriptedWorker(broker)
    one, other = hand.claim()
    hand.settle(done(one, [job(f"one-{n}", queue="far") for n in range(9)]))
    assert min(left for _, left in marks(broker)) > 6 * DAYS
    hand.settle(done(other, [job("other", queue="far")]))
    assert max(left for _, left in marks(broker)) <= 10 * MINUTES
