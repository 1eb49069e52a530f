"""Tests of a server that was emptied (FLUSHALL) or restarted without its data: it is used like a new server."""

from __future__ import annotations

import pytest

from laneway import Laneway
from laneway.brokers.redis import RedisBroker
from laneway.errors import LeaseLost
from laneway.logs.sentences import SENTENCES
from laneway.telemetry import LeaseEnded, Reclaimed
from laneway.testing.conformance.fixtures import ScriptedWorker, keys, put
from laneway.urls import Url
from tests.support.servers import RedisServer, wait_until
from tests.support.worker_fixtures import Running


def test_a_queue_is_made_again_by_the_next_job(redis_server: RedisServer) -> None:
    broker = RedisBroker.from_url(Url.parse(redis_server.url))
    broker.declare("q", 3)
    put(broker, "lost")
    redis_server.flush()
    put(broker, "a")
    assert broker.inspect.queues() == {"q": 3}
    assert keys(ScriptedWorker(broker, "new").claim()) == ["a"]
    broker.close()


def test_a_worker_learns_that_it_is_not_known_any_more(redis_server: RedisServer) -> None:
    broker = RedisBroker.from_url(Url.parse(redis_server.url))
    broker.declare("q", 3)
    hand = ScriptedWorker(broker)
    hand.claim()
    redis_server.flush()
    with pytest.raises(LeaseLost):
        hand.claim()
    with pytest.raises(LeaseLost):
        broker.renew(hand.name, (), 0)
    assert broker.wait(["q"], 0.01) == set()
    broker.close()


def test_two_prefixes_share_a_server_and_nothing_else(redis_server: RedisServer) -> None:
    shop = RedisBroker.from_url(Url.parse(f"{redis_server.url}?prefix=shop"))
    mail = RedisBroker.from_url(Url.parse(f"{redis_server.url}?prefix=mail"))
    put(shop, "a")
    put(mail, "b")
    hand = ScriptedWorker(shop)
    assert keys(hand.claim()) == ["a"]
    assert (mail.leases(), mail.inspect.workers()) == ({}, [])
    assert keys(ScriptedWorker(mail).claim()) == ["b"]
    for broker in (shop, mail):
        broker.close()


def test_a_worker_of_an_emptied_server_says_so_and_goes_on(redis_server: RedisServer) -> None:
    app = Laneway(redis_server.url)
    ended: list[LeaseEnded] = []
    ran: list[int] = []
    app.telemetry.subscribe(LeaseEnded, ended.append)

    @app.task
    def ping() -> None:
        ran.append(1)

    with Running(app, lease_s=1.0) as worker:
        first = worker.id
        redis_server.flush()
        wait_until(lambda: ended, str)
        ping.enqueue()
        wait_until(lambda: ran, str)
    assert ended[0] == LeaseEnded(first, forgotten=True)
    app.close()


def test_one_that_was_declared_dead_is_not_told_that_the_server_is_empty(redis_server: RedisServer) -> None:
    app = Laneway(redis_server.url)
    ended: list[LeaseEnded] = []
    app.telemetry.subscribe(LeaseEnded, ended.append)

    @app.task
    def ping() -> None: ...

    with Running(app, lease_s=1.0) as worker:
        first = worker.id
        wait_until(lambda: app.broker.declare_dead(first, app.broker.leases()[first][0]), str)
        wait_until(lambda: ended, str)
    assert ended[0] == LeaseEnded(first, forgotten=False)
    app.close()


def test_what_is_said_of_leases() -> None:
    events: list[object] = [LeaseEnded("w"), LeaseEnded("w", forgotten=True)]
    events += [Reclaimed(0, ["a", "b"]), Reclaimed(3, ["a"]), Reclaimed(2, [])]
    assert [SENTENCES[type(event)](event)[1] for event in events] == [
        "worker w was taken for dead; it goes on under a new id",
        "the broker does not know worker w any more: it was emptied, or has come back without its data; it goes on "
        "under a new id",
        "declared dead, with nothing to take back: a, b",
        "took back 3 jobs of dead workers a",
        "took back 2 jobs of dead workers",
    ]
