"""Tests of the index of keys: created by a listing by key, dropped an hour after the last, and always correct."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from laneway.brokers.redis import RedisBroker
from laneway.brokers.redis.script import load
from laneway.clock import ManualClock
from laneway.jobs.settlement import done, failed
from laneway.testing.conformance.fixtures import ScriptedWorker, call, job, keys, value
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisServer

pytestmark = pytest.mark.integration

ROOT = "{laneway:q:0}"
MANY = 2_000


@pytest.fixture
def broker(redis_server: RedisServer, open_url: Opener, clock: ManualClock) -> Iterator[RedisBroker]:
    broker = RedisBroker(open_url(redis_server.url), clock=clock)
    broker.declare("q", 1)
    yield broker
    broker.close()


def listed(broker: RedisBroker) -> list[str]:
    found, after = [], None
    while True:
        page = broker.inspect.listing("q", "queued", order="key", after=after, limit=700)
        found += [view.key for view in page.jobs]
        if (after := page.after) is None:
            return found


def test_it_is_made_when_it_is_asked_for(broker: RedisBroker, client: Any) -> None:
    names = sorted(f"k{number}" for number in range(MANY))
    broker.enqueue([job(name, delay_s=float(number % 2)) for number, name in enumerate(names)])
    broker.inspect.listing("q", "queued")
    assert not client.exists(f"{ROOT}:keys")
    assert listed(broker) == names
    assert client.zcard(f"{ROOT}:keys") == MANY
    assert broker.health.check() == []


def test_what_comes_and_goes_while_it_is_made_is_in_it_or_not(
    broker: RedisBroker, redis_server: RedisServer, open_url: Opener, clock: ManualClock, client: Any
) -> None:
    broker.enqueue([job(f"k{number}") for number in range(MANY)])
    server, hand = open_url(redis_server.url), ScriptedWorker(broker)
    steps = 0
    while b"keys_from" in client.hkeys(f"{ROOT}:meta") or not steps:
        args = {"which": "queued", "order": "key", "count": 1, "payloads": 1, "bytes": 1, "candidates": 1}
        server.run(load("listing"), [ROOT], [broker._layouts.args(**args)])
        assert broker.health.check() == []
        steps += 1
        claims = hand.claim(limit=40)
        hand.settle(*map(done, claims[::2]), *(failed(claim, "no", 1, 0.0) for claim in claims[1::2]))
        broker.enqueue([job(f"new-{steps}-{number}") for number in range(30)])
        broker.enqueue([call(f"call-{steps}", "1"), value(f"value-{steps}", "v"), call(f"call-{steps}", "2")])
        broker.cancel("q", f"k{MANY - steps}")
    assert steps > 4
    assert client.zrange(f"{ROOT}:keys", 0, -1) == sorted(client.hkeys(f"{ROOT}:jobs"))
    assert broker.health.check() == []
    assert listed(broker) == [key.decode() for key in sorted(client.hkeys(f"{ROOT}:jobs"))]


def test_it_is_given_up_when_nobody_has_asked_for_an_hour(broker: RedisBroker, clock: ManualClock, client: Any) -> None:
    hand = ScriptedWorker(broker)
    broker.enqueue([job("a"), job("b"), job("c")])
    assert listed(broker) == ["a", "b", "c"]
    clock.advance(3_000)
    assert listed(broker) == ["a", "b", "c"]
    clock.advance(3_000)
    assert keys(hand.claim(limit=1)) == ["a"]
    assert client.zrange(f"{ROOT}:keys", 0, -1) == [b"b", b"c"]
    clock.advance(1_000)
    assert keys(hand.claim(limit=1)) == ["b"]
    assert not client.exists(f"{ROOT}:keys")
    broker.enqueue([job("d"), job("e", delay_s=5.0)])
    assert not client.exists(f"{ROOT}:keys")
    assert broker.health.check() == []
    assert listed(broker) == ["c", "d", "e"]
