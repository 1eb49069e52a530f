"""Tests of the broker while slots of a Cluster move to another node, key by key.

A verb that needs such a slot fails as a whole until the move ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

from laneway.broker import Turn
from laneway.brokers.redis import RedisBroker
from laneway.brokers.redis.client import server
from laneway.errors import BrokerAwayError
from laneway.jobs.settlement import done
from laneway.testing.conformance.fixtures import ScriptedWorker, call, job, keys, numbers, put
from tests.support.findings import check_texts
from tests.support.redis_fixtures import Opener
from tests.support.servers import SLOTS, RedisCluster, servers

pytestmark = pytest.mark.integration

RESTS = "is moving a slot to another node, and work on what lies in it waits"


@pytest.fixture(params=list(servers()), scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """One of its own: its slots are moved, each once."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    cluster = RedisCluster.start(servers()[request.param], folder)
    yield cluster
    cluster.end()


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is over in a moment."""
    monkeypatch.setattr(server, "PAUSES_S", ())


class Move:
    """A slot on its way to the next node."""

    def __init__(self, cluster: RedisCluster, tag: str) -> None:
        self.slot = key_slot(tag.encode())
        number = self.slot * 3 // SLOTS
        self.nodes = [cluster.nodes[(number + n) % 3] for n in range(3)]
        self.ids = [self.on(n, "MYID").decode() for n in range(3)]

    def on(self, node: int, *command: Any) -> Any:
        with self.nodes[node].client() as client:
            return client.execute_command("CLUSTER", *command)

    def begin(self) -> None:
        self.on(1, "SETSLOT", self.slot, "IMPORTING", self.ids[0])
        self.on(0, "SETSLOT", self.slot, "MIGRATING", self.ids[1])

    def keys(self, node: int) -> list[bytes]:
        found: list[bytes] = self.on(node, "GETKEYSINSLOT", self.slot, 10_000)
        return found

    def carry(self, *names: bytes) -> None:
        with self.nodes[0].client() as client:
            client.execute_command("MIGRATE", "127.0.0.1", self.nodes[1].port, "", 0, 5000, "KEYS", *names)

    def end(self) -> None:
        for node in (1, 0, 2):
            self.on(node, "SETSLOT", self.slot, "NODE", self.ids[1])


def test_a_queue_rests_while_its_slot_is_moved(cluster: RedisCluster, open_url: Opener) -> None:
    broker = RedisBroker(open_url(cluster.url), prefix="shard")
    broker.declare("q", 1)
    broker.enqueue([call("k", "one"), *(job(f"plain-{n}") for n in range(20))])
    hand = ScriptedWorker(broker)
    (held,) = hand.claim(limit=1)
    move = Move(cluster, "{shard:q:0}")
    before = move.keys(0)
    assert len(before) > 3
    turn = Turn("worker-1", "q", 2, [done(held, [job("child")])], 5)
    steps: list[Callable[[], object]] = [
        lambda: broker.enqueue([call("k", "two")]),
        lambda: broker.turn(turn),
        lambda: broker.reclaim(),
        lambda: broker.inspect.stats(),
        lambda: broker.status("q", "k"),
        lambda: broker.inspect.listing("q", "queued"),
        lambda: broker.shards.reshard("q", 2),
        lambda: broker.operate.pause("q"),
        lambda: broker.cancel("q", "k"),
    ]
    move.begin()
    for carried in (0, len(before) // 2):
        if carried:
            move.carry(*before[:carried])
        for step in steps:
            with pytest.raises(BrokerAwayError, match=RESTS):
                step()
    assert sorted(move.keys(1)) == sorted(before[: len(before) // 2])
    move.carry(*move.keys(0))
    with pytest.raises(BrokerAwayError, match=RESTS):
        broker.enqueue([call("k", "two")])
    assert sorted(move.keys(1)) == sorted(before)
    move.end()
    answer = broker.turn(turn)
    assert (answer.refused, len(answer.claims)) == ([], 5)
    assert (numbers(broker).length, numbers(broker).busy, numbers(broker).processed) == (16, 5, 1)
    assert not [each for each in check_texts(broker) if "mend it" in each]


def test_what_is_about_all_queues_is_never_half_done(cluster: RedisCluster, open_url: Opener) -> None:
    broker = RedisBroker(open_url(cluster.url), prefix="all")
    broker.declare("q", 1)
    put(broker, "a")
    hand = ScriptedWorker(broker)
    broker.leave("worker-0")
    move = Move(cluster, "{all}")
    steps: list[Callable[[], object]] = [
        lambda: broker.declare("new", 1),
        lambda: ScriptedWorker(broker, "worker-2"),
        lambda: broker.renew(hand.name, [], 0),
        lambda: broker.leave(hand.name),
    ]
    before = sorted(move.keys(0))
    move.begin()
    while True:
        for step in steps:
            with pytest.raises(BrokerAwayError, match=RESTS):
                step()
        if not (left := move.keys(0)):
            break
        move.carry(left[0])
    assert sorted(move.keys(1)) == before
    move.end()
    assert broker.inspect.queues() == {"q": 1}
    assert [view.id for view in broker.inspect.workers()] == [hand.name]
    assert keys(hand.claim()) == ["a"]
