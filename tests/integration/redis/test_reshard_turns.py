"""Tests of turns at the end of a resharding: a repeat in the new layout gets the answer of the old one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from laneway.brokers.redis import RedisBroker
from laneway.jobs.shards import shard_of
from laneway.testing.conformance.fixtures import ScriptedWorker, keys, put
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisCluster, RedisServer

Open = Callable[[], RedisBroker]


def end_with(mover: RedisBroker, shards: int, then: Callable[[], object]) -> None:
    """Reshard, and have something happen just before the step that ends it."""
    step = mover.shards.reshard("q", shards, limit=1)
    while step.moved < step.total - 1:
        step = mover.shards.reshard("q", shards, limit=1)
    assert not step.done
    then()
    while not mover.shards.reshard("q", shards).done:
        pass


class Ends:
    """What holds on one server and on a Cluster."""

    @pytest.fixture
    def place(self) -> RedisServer | RedisCluster:
        raise NotImplementedError

    @pytest.fixture
    def open_broker(self, place: RedisServer | RedisCluster, open_url: Opener) -> Open:
        """Brokers as several processes have them."""
        return lambda: RedisBroker(open_url(place.url))

    @pytest.mark.parametrize("knows", [True, False], ids=["knows", "knows-not"])
    @pytest.mark.parametrize(("shards", "wanted"), [(5, None), (2, None), (2, [2, 1])])
    def test_a_turn_just_before_the_end(
        self, open_broker: Open, shards: int, wanted: list[int] | None, knows: bool
    ) -> None:
        mover, broker = open_broker(), open_broker()
        mover.declare("q", 3)
        names = [f"k{n}" for n in range(12)]
        put(mover, *names)
        hand = ScriptedWorker(broker)
        hand.turn(0)
        if knows:
            mover.shards.reshard("q", shards, limit=1)
            assert hand.turn(0).resharding == shards
        end_with(mover, shards, lambda: hand.turn(1_000, shards=wanted))
        assert hand.again().claims == []
        assert sorted(keys(hand.claim())) == sorted(names)

    def test_a_turn_that_claimed_before(self, open_broker: Open) -> None:
        """From a shard that there is no more: what it was given has been given back since, and nothing else comes."""
        mover, broker = open_broker(), open_broker()
        mover.declare("q", 3)
        names = [name for name in (f"k{n}" for n in range(30)) if shard_of(name, 3) == 2]
        put(mover, *names)
        hand = ScriptedWorker(broker)
        assert len(hand.claim(shards=[2, 1])) == len(names)
        mover.renew(hand.name, [], 2**53)
        end_with(mover, 2, lambda: None)
        assert hand.again().claims == []
        assert sorted(keys(hand.claim())) == sorted(names)


class TestOnAServer(Ends):
    @pytest.fixture
    def place(self, redis_server: RedisServer) -> RedisServer:
        return redis_server


@pytest.mark.integration
class TestOnACluster(Ends):
    @pytest.fixture
    def place(self, redis_cluster: RedisCluster) -> RedisCluster:
        return redis_cluster
