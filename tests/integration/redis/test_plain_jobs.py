"""Tests of the short path that stores jobs without options: it must store the same data as the general path."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from laneway.brokers.redis import RedisBroker
from laneway.brokers.redis.client.server import Server
from laneway.clock import ManualClock
from laneway.jobs.data import Kind, NewJob
from laneway.jobs.settlement import done
from laneway.testing.conformance.fixtures import ScriptedWorker, keys, numbers
from tests.support.servers import RedisServer

pytestmark = pytest.mark.integration

ROOT = "{laneway:q:0}"
#: Where an arrival stands in a record and in an entry of the list: after the state and the time.
ARRIVAL = 7


@pytest.fixture
def broker(redis_server: RedisServer) -> Iterator[RedisBroker]:
    with redis_server.client() as client:
        broker = RedisBroker(Server.of(client), clock=ManualClock(1_000.0))
        broker.declare("q", 1)
        yield broker
        broker.close()


def new(kind: Kind, key: str, **more: object) -> NewJob:
    identity = "" if kind is Kind.PLAIN else f"id of {key}"
    return NewJob(queue="q", key=key, kind=kind, body='{"n":1}', identity=identity, **more)  # type: ignore[arg-type]


def stored(server: RedisServer, key: str) -> tuple[bytes, bytes, bool]:
    """Its record and its entry in the list without their arrivals, and whether it is in the index of keys."""
    with server.client() as client:
        record = client.hget(f"{ROOT}:jobs", key)
        entry = [each for each in client.lrange(f"{ROOT}:ready:1/1:0", 0, -1) if each.endswith(key.encode())][-1]
        assert record is not None
        return record[:9] + record[9 + ARRIVAL :], entry[:8], client.zscore(f"{ROOT}:keys", key) == 0


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("kind", Kind)
def test_the_same_is_stored_as_with_others(
    broker: RedisBroker, redis_server: RedisServer, kind: Kind, listed: bool
) -> None:
    broker.declare("q", 1)
    if listed:
        broker.inspect.listing("q", "queued", order="key")
    broker.enqueue([new(kind, "same"), new(kind, "other")])
    simple = stored(redis_server, "same")
    assert simple[2] is listed
    broker.cancel("q", "same")
    broker.enqueue([new(kind, "later", delay_s=60.0), new(kind, "same")])
    assert stored(redis_server, "same") == simple


@pytest.mark.parametrize("kind", Kind)
def test_a_job_alone_is_stored_like_one_of_a_list(broker: RedisBroker, redis_server: RedisServer, kind: Kind) -> None:
    broker.enqueue([new(kind, "same"), new(kind, "other")])
    listed = stored(redis_server, "same")
    with redis_server.client() as client:
        client.flushall()
    broker.declare("q", 1)
    broker.enqueue([new(kind, "same")])
    assert stored(redis_server, "same") == listed


def scripts_run(server: RedisServer, broker: RedisBroker, job: NewJob) -> int:
    """How many scripts it takes to store a job."""
    with server.client() as client:
        client.config_resetstat()
        broker.enqueue([job])
        return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])


@pytest.mark.parametrize("kind", Kind)
def test_a_job_alone_takes_one_script_if_nothing_else_must_be_done(
    broker: RedisBroker, redis_server: RedisServer, kind: Kind
) -> None:
    """The script of a job alone does nothing if the job needs more; then the script of lists stores it."""
    broker.enqueue([new(kind, "first"), new(kind, "second")])
    broker.enqueue([new(kind, "third")])  # both scripts are known
    assert scripts_run(redis_server, broker, new(kind, "fourth")) == 1
    assert scripts_run(redis_server, broker, new(kind, "delayed", delay_s=60.0)) == 1
    assert scripts_run(redis_server, broker, new(kind, "first")) == 2, "it is queued"
    hand = ScriptedWorker(broker)
    assert keys(hand.claim(limit=1)) == ["first"]
    assert scripts_run(redis_server, broker, new(kind, "first")) == 2, "it runs"
    broker.shards.reshard("q", 3)
    assert scripts_run(redis_server, broker, new(kind, "fifth")) >= 2, "the queue is being resharded"
    assert numbers(broker).length == (6 if kind is Kind.COLLECTING else 5)


def test_they_keep_their_order_across_shards(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        broker = RedisBroker(Server.of(client))
        broker.declare("q", 5)
        names = [f"k{number}" for number in range(300)]
        broker.enqueue([new(Kind.PLAIN, name) for name in names])
        broker.enqueue([new(Kind.PLAIN, "last", priority=0)])
        hand = ScriptedWorker(broker)
        assert keys(hand.claim(limit=250)) == names[:250]
        assert keys(hand.claim(limit=250)) == [*names[250:], "last"]
        broker.close()


@pytest.mark.parametrize("kind", Kind)
def test_a_key_that_is_not_free_gets_what_it_would_get(broker: RedisBroker, kind: Kind) -> None:
    """Queued, running, cancelled, in the same call: it is as if they had come one by one."""
    hand = ScriptedWorker(broker)
    broker.enqueue([new(kind, "runs")])
    running = hand.claim()
    assert keys(running) == ["runs"]
    broker.enqueue([new(kind, "queued"), new(kind, "cancelled")])
    broker.cancel("q", "cancelled")
    again = [new(kind, key) for key in ("free", "queued", "runs", "cancelled", "free")]
    broker.enqueue(again)
    counts = numbers(broker)
    assert (counts.busy, counts.length) == (1, 3 if kind is not Kind.COLLECTING else 4)
    assert broker.status("q", "cancelled") == "queued"
    hand.settle(*map(done, running))
    wanted = ["free", "queued", "cancelled"]
    if kind is Kind.COLLECTING:
        wanted.append("runs")  # an equal value that runs is set aside anew
    assert sorted(keys(hand.claim())) == sorted(wanted)


@pytest.mark.parametrize(("more", "bell"), [({}, ":due"), ({"delay_s": 60.0}, "")])
@pytest.mark.parametrize("count", [1, 2])
def test_the_bell_says_whether_something_is_due(
    broker: RedisBroker, redis_server: RedisServer, more: dict[str, object], bell: str, count: int
) -> None:
    broker.enqueue([new(Kind.PLAIN, f"{number}", **more) for number in range(count)])
    with redis_server.client() as client:
        assert client.keys("*bell*") == [f"{ROOT}:bell{bell}".encode()]


def test_nobody_is_told_of_what_is_due_in_a_paused_queue(broker: RedisBroker, redis_server: RedisServer) -> None:
    broker.operate.pause("q")
    broker.enqueue([new(Kind.PLAIN, "one")])
    broker.enqueue([new(Kind.PLAIN, "two"), new(Kind.PLAIN, "three")])
    with redis_server.client() as client:
        assert client.keys("*bell*:due") == []
    assert broker.wait(["q"], 0.0) == set()
