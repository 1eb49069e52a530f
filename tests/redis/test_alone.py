"""A job that comes alone is stored by a shorter way; what is stored must be the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from laneway.brokers.redis import RedisBroker
from laneway.brokers.redis.server import Server
from laneway.clock import ManualClock
from laneway.job import Kind, NewJob
from tests.servers import RedisServer

pytestmark = pytest.mark.unit

TAG = "{laneway:q:1:0}"
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
    """Its record and its entry in the list without their arrivals, and whether it is in the index by key."""
    with server.client() as client:
        record = client.hget(f"{TAG}:jobs", key)
        (entry,) = [each for each in client.lrange(f"{TAG}:ready", 0, -1) if each.endswith(key.encode())]
        assert record is not None
        return record[:9] + record[9 + ARRIVAL :], entry[:8], client.zscore(f"{TAG}:keys", key) == 0


@pytest.mark.parametrize("kind", Kind)
def test_the_same_is_stored_as_with_others(broker: RedisBroker, redis_server: RedisServer, kind: Kind) -> None:
    broker.enqueue([new(kind, "same")])
    alone = stored(redis_server, "same")
    redis_server.flush()
    broker.declare("q", 1)
    broker.enqueue([new(kind, "same"), new(kind, "other")])
    assert stored(redis_server, "same") == alone


@pytest.mark.parametrize(("more", "bell"), [({}, ":due"), ({"delay_s": 60.0}, "")])
@pytest.mark.parametrize("count", [1, 2])
def test_the_bell_says_whether_something_is_due(
    broker: RedisBroker, redis_server: RedisServer, more: dict[str, object], bell: str, count: int
) -> None:
    broker.enqueue([new(Kind.PLAIN, f"{number}", **more) for number in range(count)])
    with redis_server.client() as client:
        assert client.keys("*bell*") == [f"{{laneway}}:bell:q{bell}".encode()]


def test_nobody_is_told_of_what_is_due_in_a_paused_queue(broker: RedisBroker, redis_server: RedisServer) -> None:
    broker.pause("q")
    broker.enqueue([new(Kind.PLAIN, "one")])
    broker.enqueue([new(Kind.PLAIN, "two"), new(Kind.PLAIN, "three")])
    with redis_server.client() as client:
        assert client.keys("*bell*:due") == []
    assert broker.wait(["q"], 0.0) == set()
