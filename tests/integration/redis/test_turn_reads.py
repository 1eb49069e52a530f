"""Tests of the data that a turn reads: the heads of all shards, but the large job records only of possible claims."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from laneway.broker import Broker
from laneway.brokers.redis import RedisBroker
from laneway.brokers.redis.client.server import Server
from laneway.clock import ManualClock
from laneway.jobs.settlement import done
from laneway.testing.conformance.fixtures import ScriptedWorker, job, keys, put
from tests.support.second_broker import SecondBroker
from tests.support.servers import RedisServer

pytestmark = pytest.mark.integration


@pytest.fixture
def broker(redis_server: RedisServer, clock: ManualClock) -> Iterator[RedisBroker]:
    client = redis.Redis(port=redis_server.port, socket_timeout=60)  # a busy machine takes its time with 100 MB
    broker = RedisBroker(Server.of(client), clock=clock)
    yield broker
    broker.close()


def records_read(server: RedisServer, hand: ScriptedWorker, limit: int) -> tuple[int, int]:
    """How many jobs a turn claims, and of how many it reads the record."""
    with server.client() as client, client.monitor() as monitor:
        claimed = len(hand.claim(limit=limit))
        client.echo("that was all")
        count = 0
        for seen in monitor.listen():
            assert seen is not None
            words = seen["command"].split(" ")
            if words[0] == "HMGET" and words[1].endswith(":jobs"):
                count += len(words) - 2
            elif "that was all" in seen["command"]:
                return claimed, count
    raise AssertionError


def test_of_many_shards_only_those_are_read_that_come_first(redis_server: RedisServer, broker: RedisBroker) -> None:
    broker.declare("q", 50)
    put(broker, *(f"k{n}" for n in range(1_000)))
    claimed, read = records_read(redis_server, ScriptedWorker(broker), 3)
    assert claimed == 3
    assert read <= 3 * 4


def test_large_records_are_read_a_few_at_a_time(redis_server: RedisServer, broker: RedisBroker) -> None:
    """A turn brings no more than 16 MB, whatever is asked for, and reads little more than that."""
    broker.declare("q", 5)
    for n in range(10):
        put(broker, *(f"k{n}-{m}" for m in range(10)), body="x" * 1_000_000)
    hand = ScriptedWorker(broker)
    assert records_read(redis_server, hand, 1)[1] <= 4
    claimed, read = records_read(redis_server, hand, 1_000)
    assert claimed == 16
    assert read <= 16 + 5 * 4


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("shards", [1, 7, 40])
def test_the_most_overdue_come_first_also_behind_what_is_gone(
    broker: RedisBroker, clock: ManualClock, shards: int, batch: int, in_order: bool
) -> None:
    """Entries of the list that lead nowhere any more, at the head of some shards and amid others."""
    both: list[ScriptedWorker] = []
    other = ManualClock()
    brokers: list[tuple[Broker, ManualClock]] = [(broker, clock), (SecondBroker(other), other)]
    for each, time in brokers:
        each.declare("q", shards)
        for n in range(0, 300, 3):
            each.enqueue([job(f"k{n + m}") for m in range(3)])
            time.advance(0.01)
        each.enqueue([job(f"t{n}", delay_s=-float(n * 37 % 11), priority=n % 5 // 4) for n in range(60)])
        for n in [*range(80), *range(100, 300, 4)]:
            assert each.cancel("q", f"k{n}") if n % 3 else each.reschedule("q", f"k{n}", delay_s=-1.0)
        put(each, *(f"k{n}" for n in range(1, 80, 6)))
        time.advance(2)
        both.append(ScriptedWorker(each))
    for limit in (1, 5, 2, 60, 1_000):
        claims = [hand.claim(limit=limit, batch=batch, in_order=in_order) for hand in both]
        assert keys(claims[0]) == keys(claims[1])
        for hand, some in zip(both, claims, strict=True):
            assert hand.settle(*map(done, some)) == []
    assert [hand.claim() for hand in both] == [[], []]
