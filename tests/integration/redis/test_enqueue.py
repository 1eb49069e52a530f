"""Tests that long lists of jobs are stored completely and in order, though commands are sent ahead of the replies."""

from __future__ import annotations

import pytest

from laneway.brokers.redis import RedisBroker
from laneway.testing.conformance.fixtures import job, keys
from tests.support.servers import RedisServer

pytestmark = pytest.mark.conformance


NAMES = [f"k{n}" for n in range(9_500)]


@pytest.mark.parametrize("shards", [1, 5])
def test_a_server_that_has_forgotten_the_script_is_told_in_order(redis_server: RedisServer, shards: int) -> None:
    """What was sent ahead is refused too, and must neither be overtaken by what follows nor be taken for stored."""
    with redis_server.client() as client:
        broker = RedisBroker.of(client)
        broker.declare("q", shards)
        client.script_flush()
        broker.enqueue([job(name) for name in NAMES])
        assert keys(broker.inspect.listing("q", "queued", limit=20_000).jobs) == NAMES
        broker.close()


def test_a_queue_that_nobody_has_declared_is_filled_in_order(redis_server: RedisServer) -> None:
    """The first call makes it."""
    with redis_server.client() as client:
        broker = RedisBroker.of(client)
        broker.enqueue([job("first", queue="another")])  # the script is known
        broker.enqueue([job(name) for name in NAMES])
        assert keys(broker.inspect.listing("q", "queued", limit=20_000).jobs) == NAMES
        broker.close()


def test_senders_that_are_silent_are_forgotten(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        broker = RedisBroker.of(client)
        broker.declare("q", 1)
        broker.enqueue([job("a")])
        meta = "{laneway:q:0}:meta"
        (sender,) = [name for name in client.hkeys(meta) if name.startswith(b"s:")]
        client.hset(meta, "s:old", "7 1000000000")
        broker.reclaim()
        left = [name for name in client.hkeys(meta) if name.startswith(b"s:")]
        assert left == [sender], "whoever has sent a moment ago may send that again"
        broker.close()
