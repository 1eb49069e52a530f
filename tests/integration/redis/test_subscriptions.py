"""Tests of subscriptions on Redis: the stored data, the one command that publishing needs, and cleanup."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from laneway.brokers.redis import RedisBroker
from laneway.errors import BrokerError
from laneway.events.event import Subscription
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisCluster, RedisServer

pytestmark = pytest.mark.integration

ALL = Subscription("shop-sold", "mail-shop-sold")
SOME = Subscription(
    "shop-sold", "tax-shop-sold", {"country": ["DE", {"prefix": "A"}], "cents": [{"numeric": [">", 5]}]}
)
OTHER = Subscription("shop-lost", "mail-shop-lost")


@pytest.fixture
def broker(redis_server: RedisServer, client: Any) -> Iterator[RedisBroker]:
    broker = RedisBroker.of(client)
    yield broker
    broker.close()


def test_what_is_stored_is_what_was_said(broker: RedisBroker, client: Any) -> None:
    before = set(client.keys())
    assert [broker.events.subscribe(each) for each in (SOME, ALL, OTHER, ALL)] == [True, True, True, False]
    assert broker.events.subscriptions() == [OTHER, ALL, SOME]
    assert broker.events.subscriptions("shop-sold") == [ALL, SOME]
    assert broker.events.subscriptions("shop") == []
    for each in (ALL, SOME, OTHER):
        assert broker.events.unsubscribe(each.topic, each.queue)
        assert not broker.events.unsubscribe(each.topic, each.queue)
    assert broker.events.subscriptions() == []
    assert set(client.keys()) == before, "nothing is left behind"


def test_publishing_asks_with_one_command(broker: RedisBroker, client: Any) -> None:
    broker.events.subscribe(ALL)
    client.config_resetstat()
    broker.events.subscriptions("shop-sold")
    asked = {name: of["calls"] for name, of in client.info("commandstats").items()}
    assert asked.pop("cmdstat_hgetall") == 1
    assert set(asked) <= {"cmdstat_config|resetstat", "cmdstat_info"}


def test_a_filter_that_is_none_is_named(broker: RedisBroker, client: Any) -> None:
    broker.events.subscribe(ALL)
    client.hset("{laneway}:topic:shop-sold", "mail-shop-sold", "nonsense")
    with pytest.raises(BrokerError, match=r"filter of the queue mail-shop-sold.*subscribe again"):
        broker.events.subscriptions("shop-sold")
    assert broker.events.subscribe(ALL)
    assert broker.events.subscriptions("shop-sold") == [ALL]


def test_on_a_cluster(redis_cluster: RedisCluster, open_url: Opener) -> None:
    broker = RedisBroker(open_url(redis_cluster.url))
    for each in (ALL, SOME, OTHER):
        assert broker.events.subscribe(each)
    assert broker.events.subscriptions() == [OTHER, ALL, SOME]
    assert broker.events.unsubscribe(ALL.topic, ALL.queue)
    assert broker.events.subscriptions("shop-sold") == [SOME]
