"""The in-memory broker passes the conformance suite."""

from __future__ import annotations

import pytest

from laneway.brokers.memory import MemoryBroker
from laneway.errors import ConfigError
from laneway.testing.conformance import BrokerConformance
from laneway.testing.conformance.fixtures import MakeBroker, ScriptedWorker, bodies, call, calls, keys, put
from laneway.urls import Url, open_broker

pytestmark = pytest.mark.conformance


class TestMemoryBroker(BrokerConformance):
    @pytest.fixture
    def make_broker(self) -> MakeBroker:
        return MemoryBroker


def test_keys_in_a_shard_that_is_not_theirs_are_put_right() -> None:
    broker = MemoryBroker()
    broker.enqueue([call("0", "a"), call("1", "b")])
    queue = broker._queues["q"]
    queue.by_key["0"].shard = 2
    queue.lanes.put(queue.by_key["0"])
    assert broker.check() == ["The queue q has keys in a shard that is not theirs: 1."]
    assert broker.repair() == ["Keys of the queue q put into their own shard: 1."]
    assert (broker.check(), broker.repair()) == ([], [])
    assert keys(ScriptedWorker(broker).claim(shards=[4])) == ["0"]


def test_claims_of_nobody_are_given_back() -> None:
    broker = MemoryBroker()
    calls(broker, "k", "a")
    hand = ScriptedWorker(broker)
    hand.one()
    calls(broker, "k", "b")
    broker._workers[hand.name].claims.clear()
    assert broker.check() == ["There are claims of nobody's: 1."]
    assert broker.repair() == ["Claims given back: 1."]
    assert (broker.check(), broker.repair()) == ([], [])
    assert bodies(hand.one()) == ["a", "b"]


def test_a_change_of_shards_that_is_not_finished_is_named() -> None:
    broker = MemoryBroker()
    put(broker, "a", "b")
    broker.reshard("q", 7, limit=1)
    (problem,) = broker.check()
    assert "laneway reshard q 7" in problem
    assert broker.repair() == []


def test_every_memory_url_is_a_broker_of_its_own() -> None:
    first, second = open_broker("memory:"), open_broker("memory:")
    put(first, "a")
    assert second.queues() == {}


@pytest.mark.parametrize("url", ["memory:?size=3", "memory:name", "memory://"])
def test_a_memory_url_is_nothing_but_memory(url: str) -> None:
    with pytest.raises(ConfigError):
        MemoryBroker.from_url(Url.parse(url))
