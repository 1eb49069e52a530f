"""Tests of turns at the end of a resharding: a repeat in the new shards gets the answer of the old shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from laneway.brokers.redis import RedisBroker
from laneway.brokers.redis.client.connections import Command
from laneway.brokers.redis.script import load
from laneway.jobs.shards import shard_of
from laneway.testing.conformance.fixtures import ScriptedWorker, keys, put
from tests.integration.redis.test_cluster_lost_replies import Cut
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisCluster, RedisServer

#: What whoever reshards calls last but one: the new shards have been told what was remembered in the old ones.
SETTLE = load("reshard_settle")

Open = Callable[[], RedisBroker]


class Watched(Cut):
    """A server, or a Cluster, on which something happens after a certain script was called."""

    then: Callable[[], object] | None = None

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.is_cluster = inner.is_cluster

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        answers = super().exchange(commands)
        # A script that Redis does not know yet is sent as its text.
        if self.then is not None and any(command[1] in (SETTLE.sha, SETTLE.text) for command in commands):
            self.then, then = None, self.then
            then()
        return answers


def end_with(mover: RedisBroker, shards: int, then: Callable[[], object]) -> None:
    """Reshard, and have something happen just before the old shards are closed."""
    watched = mover._server
    assert isinstance(watched, Watched)
    watched.then = then
    while not mover.shards.reshard("q", shards).done:
        pass
    assert watched.then is None


class Ends:
    """What holds on one server and on a Cluster."""

    @pytest.fixture
    def place(self) -> RedisServer | RedisCluster:
        raise NotImplementedError

    @pytest.fixture
    def open_broker(self, place: RedisServer | RedisCluster, open_url: Opener) -> Open:
        """Brokers as several processes have them."""
        return lambda: RedisBroker(Watched(open_url(place.url)))

    @pytest.mark.parametrize("knows", [True, False], ids=["knows", "knows-not"])
    @pytest.mark.parametrize(("shards", "wanted"), [(5, None), (2, None), (2, [2, 1])])
    def test_a_turn_as_the_old_shards_are_closed(
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
