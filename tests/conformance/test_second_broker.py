"""The second broker of the tests passes the conformance suite."""

from __future__ import annotations

import pytest

from laneway.testing.conformance import BrokerConformance
from laneway.testing.conformance.fixtures import MakeBroker, ScriptedWorker, bodies, call, calls, keys, put
from tests.support.second_broker import SecondBroker

pytestmark = pytest.mark.conformance


class TestSecondBroker(BrokerConformance):
    capabilities = SecondBroker.capabilities

    @pytest.fixture
    def make_broker(self) -> MakeBroker:
        return SecondBroker


def test_keys_in_a_shard_that_is_not_theirs_are_put_right() -> None:
    broker = SecondBroker()
    broker.enqueue([call("0", "a"), call("1", "b")])
    queue = broker._queues["q"]
    queue.by_key["0"].shard = 2
    queue.lanes.put(queue.by_key["0"])
    (finding,) = broker.health.check()
    assert (finding.level, finding.code) == ("problem", "wrong-shard")
    assert finding.text == "Jobs in the wrong shard: 1; mend it with laneway check --repair."
    assert broker.health.repair() == ["Keys of the queue q put into their own shard: 1."]
    assert (broker.health.check(), broker.health.repair()) == ([], [])
    assert keys(ScriptedWorker(broker).claim(shards=[4])) == ["0"]


def test_claims_that_no_worker_holds_are_given_back() -> None:
    broker = SecondBroker()
    calls(broker, "k", "a")
    hand = ScriptedWorker(broker)
    hand.one()
    calls(broker, "k", "b")
    broker._workers[hand.name].claims.clear()
    (finding,) = broker.health.check()
    assert (finding.level, finding.code) == ("problem", "unknown-worker")
    assert finding.text == "Claims of no worker: 1; mend it with laneway check --repair."
    assert broker.health.repair() == ["Claims given back: 1."]
    assert (broker.health.check(), broker.health.repair()) == ([], [])
    assert bodies(hand.one()) == ["a", "b"]


def test_a_change_of_shards_that_is_not_finished_is_named() -> None:
    broker = SecondBroker()
    put(broker, "a", "b")
    broker.shards.reshard("q", 7, limit=1)
    (finding,) = broker.health.check()
    assert (finding.level, finding.code, finding.subject) == ("note", "resharding", "q")
    assert "laneway reshard q 7" in finding.text
    assert broker.health.repair() == []
