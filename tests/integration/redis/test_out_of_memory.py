"""Tests of a server with full memory (maxmemory, noeviction): it takes no new jobs, and its jobs can still run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from laneway import Laneway
from laneway.brokers.redis import RedisBroker
from laneway.errors import BrokerAwayError, BrokerError
from laneway.events.event import Subscription
from laneway.jobs.data import StartedRun
from laneway.jobs.settlement import buried, done, failed, postponed, released
from laneway.testing.conformance.fixtures import (
    ScriptedWorker,
    call,
    calls,
    declare_dead,
    job,
    numbers,
    put,
    value,
    values,
)
from laneway.urls import Url
from tests.support.findings import check_texts
from tests.support.servers import LOGGED, RedisServer, servers
from tests.support.worker_fixtures import drain

pytestmark = pytest.mark.integration


@pytest.fixture(params=servers())
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer.start(servers()[request.param], tmp_path, *LOGGED)
    yield server
    server.end()


@pytest.fixture
def broker(server: RedisServer) -> Iterator[RedisBroker]:
    broker = RedisBroker.from_url(Url.parse(server.url))
    broker.declare("q", 3)
    yield broker
    broker.close()


def fill(server: RedisServer) -> None:
    with server.client() as client:
        client.config_set("maxmemory", 1)


def make_room(server: RedisServer) -> None:
    with server.client() as client:
        client.config_set("maxmemory", 0)


def keys_of(server: RedisServer) -> dict[Any, Any]:
    with server.client() as client:
        return {key: client.dump(key) for key in sorted(client.keys())}


def test_enqueueing_says_so_and_stores_nothing(server: RedisServer, broker: RedisBroker) -> None:
    calls(broker, "k", "a")
    fill(server)
    before = keys_of(server)
    for news in (
        [job("p")],
        [call("k", "b")],
        [value("c", "v"), job("p", priority=3)],
        [job(f"p{n}") for n in range(2_500)],
    ):
        with pytest.raises(BrokerError, match="is out of memory and takes no more; let workers drain it") as caught:
            broker.enqueue(news)
        assert not isinstance(caught.value, BrokerAwayError), "a repeat does not help"
    assert keys_of(server) == before
    make_room(server)
    put(broker, "p")
    assert numbers(broker).length == 2


def test_what_is_queued_can_be_drained(server: RedisServer, broker: RedisBroker) -> None:
    names = [f"p{n}" for n in range(30)]
    put(broker, *names)
    calls(broker, "k", *"abcdef")
    values(broker, "values", dict.fromkeys("uvw"))
    fill(server)
    hand = ScriptedWorker(broker)  # a worker that has just been started
    ran: list[str] = []
    failures = 0
    for _ in range(100):
        claims = hand.claim(4, max_payloads=2)
        if not claims:
            break
        broker.renew(hand.name, [claims[0].token], 0)
        settlements = list(map(done, claims))
        if failures < 6:
            failures += 1
            first = claims.pop(0)
            settlements[0] = (failed(first, "no", 3, 0.0), postponed(first, 0.0), released(first))[failures % 3]
        assert hand.settle(*settlements) == []
        ran += [each.identity if claim.key == "k" else claim.key for claim in claims for each in claim.payloads]
    assert failures == 6
    assert sorted(set(ran)) == sorted([*names, *"abcdef", "values"])
    assert len(ran) == len(names) + 6 + 3, "each once"
    counts = numbers(broker)
    assert (counts.length, counts.busy, counts.dead) == (0, 0, 0)
    with pytest.raises(BrokerError, match="out of memory"):
        put(broker, "more")
    make_room(server)
    put(broker, "more")
    assert [claim.key for claim in hand.claim()] == ["more"]


def test_what_is_buried_and_what_the_dead_held_is_kept(server: RedisServer, broker: RedisBroker) -> None:
    put(broker, "p", "bad")
    calls(broker, "k", "a", "b")
    first, second = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
    claims = {claim.key: claim for claim in first.claim()}
    fill(server)
    assert first.settle(buried(claims["bad"], "no"), failed(claims["k"], "no", 3, 60.0)) == []
    assert declare_dead(broker, first)
    assert broker.reclaim() == 1
    claim = second.one()
    assert broker.leave(second.name, [StartedRun("q", "p", claim.token)]) == 1
    assert [view.key for view in broker.inspect.listing("q", "dead").jobs] == ["bad"]
    assert [(view.key, view.deaths) for view in broker.inspect.listing("q", "queued").jobs] == [("p", 1), ("k", 0)]
    assert [finding for finding in check_texts(broker) if "memory" not in finding] == []


def test_people_can_pause_a_full_server(server: RedisServer, broker: RedisBroker) -> None:
    put(broker, "p")
    hand = ScriptedWorker(broker)
    fill(server)
    assert broker.operate.pause("q")
    assert hand.claim() == []
    assert broker.operate.resume("q")
    assert [claim.key for claim in hand.claim()] == ["p"]


def test_a_worker_can_subscribe_on_a_full_server(server: RedisServer, broker: RedisBroker) -> None:
    fill(server)
    listener = Subscription("shop-sold", "mail-shop-sold")
    assert [broker.events.subscribe(listener), broker.events.subscribe(listener)] == [True, False]
    assert broker.events.subscriptions("shop-sold") == [listener]
    assert broker.events.unsubscribe(listener.topic, listener.queue)


def test_what_a_run_sends_when_there_is_no_room_does_not_get_lost(server: RedisServer, broker: RedisBroker) -> None:
    """Either it is stored with the end of its run, or neither is done."""
    put(broker, "parent")
    hand = ScriptedWorker(broker)
    settlement = done(hand.one())
    settlement.outbox = [job("child"), call("k", "a")]
    fill(server)
    try:
        hand.turn(0, settlement)
    except BrokerError:
        assert [broker.status("q", key) for key in ("parent", "child", "k")] == ["running", "gone", "gone"]
    else:
        assert [broker.status("q", key) for key in ("parent", "child", "k")] == ["gone", "queued", "queued"]


def test_a_worker_empties_a_full_server(server: RedisServer) -> None:
    app = Laneway(server.url)
    ran: set[int] = set()

    @app.task(retry_in=lambda n: 0)
    def work(number: int) -> None:
        if number % 10 == 0 and number not in ran:
            ran.add(number)
            raise ValueError("once more")
        ran.add(number)

    work.enqueue_many([(number,) for number in range(50)])
    fill(server)
    assert drain(app) == 0
    assert ran == set(range(50))
    (stats,) = app.broker.inspect.stats()
    assert (stats.length, stats.busy, stats.dead) == (0, 0, 0)
    app.close()
