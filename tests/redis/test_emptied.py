"""A server that somebody has emptied (FLUSHALL), or that came back without its data, is used on as a new one."""

from __future__ import annotations

import pytest

from laneway.brokers.redis import RedisBroker
from laneway.config import Url
from laneway.errors import LeaseLost
from laneway.testing.conformance.kit import Hand, keys, put
from tests.servers import RedisServer


def test_a_queue_is_made_again_by_the_next_job(redis_server: RedisServer) -> None:
    broker = RedisBroker.from_url(Url.parse(redis_server.url))
    broker.declare("q", 3)
    put(broker, "lost")
    redis_server.flush()
    put(broker, "a")
    assert broker.queues() == {"q": 3}
    assert keys(Hand(broker, "new").claim()) == ["a"]
    broker.close()


def test_a_worker_learns_that_it_is_not_known_any_more(redis_server: RedisServer) -> None:
    broker = RedisBroker.from_url(Url.parse(redis_server.url))
    broker.declare("q", 3)
    hand = Hand(broker)
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
    hand = Hand(shop)
    assert keys(hand.claim()) == ["a"]
    assert (mail.leases(), mail.workers()) == ({}, [])
    assert keys(Hand(mail).claim()) == ["b"]
    for broker in (shop, mail):
        broker.close()
