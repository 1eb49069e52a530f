"""Tests of sending to a queue on a Cluster while it is resharded: stored once, despite cuts and repeats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from laneway.broker import Turn
from laneway.brokers.redis import RedisBroker, transfer
from laneway.brokers.redis.client.connections import Command
from laneway.brokers.redis.outbox import ClusterOutbox
from laneway.clock import ManualClock
from laneway.errors import BrokerAwayError
from laneway.jobs.data import NewJob
from laneway.jobs.settlement import done
from laneway.jobs.shards import shard_of
from laneway.testing.conformance.fixtures import ScriptedWorker, call, job, numbers, put
from tests.integration.redis.test_cluster_lost_replies import Cut
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisCluster

pytestmark = pytest.mark.integration


class Echo(Cut):
    """A Cluster whose answer to a script is lost, so that it is called again, after something else has happened."""

    #: What, and after how many scripts.
    then: Any = None
    after = 0

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        answers = self.inner.exchange(commands)
        self.after -= any(command[0] == "EVALSHA" for command in commands)
        if self.then is not None and self.after < 0:
            then, self.then = self.then, None
            then()
            return self.inner.exchange(commands)
        return answers


@pytest.fixture
def echo(redis_cluster: RedisCluster, open_url: Opener) -> Echo:
    return Echo(open_url(redis_cluster.url))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(echo: Echo, clock: ManualClock) -> RedisBroker:
    broker = RedisBroker(echo, clock=clock)
    broker.declare("q", 1)
    return broker


@pytest.fixture
def other(redis_cluster: RedisCluster, open_url: Opener, clock: ManualClock) -> RedisBroker:
    """Another process, which reshards."""
    return RedisBroker(open_url(redis_cluster.url), clock=clock)


def names(shards: int) -> Iterator[str]:
    """A key for each shard."""
    return (next(name for n in range(99) if shard_of(name := f"k{n}", shards) == shard) for shard in range(shards))


def finish(broker: RedisBroker, queue: str, shards: int) -> None:
    while not broker.shards.reshard(queue, shards).done:
        pass


def leave_behind(broker: RedisBroker, sent: list[NewJob]) -> tuple[ScriptedWorker, Turn]:
    """A run is settled, and what it has sent is not delivered before the worker is cut off."""
    put(broker, "run")
    hand = ScriptedWorker(broker)
    turn = Turn(hand.name, "q", 2, [done(hand.one(), sent)])
    with pytest.MonkeyPatch.context() as cut:
        cut.setattr(ClusterOutbox, "deliver", lambda *_: None)
        broker.turn(turn)
    return hand, turn


def test_a_parcel_of_which_a_part_is_on_its_way(
    broker: RedisBroker, other: RedisBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is delivered in a second round is not taken for a repeat of the first."""
    first, second = names(2)
    other.declare("far", 2)
    other.enqueue([call(second, "before", queue="far")])

    def die(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as mover:
        mover.setattr(transfer, "_run_all", die)
        with pytest.raises(SystemExit):
            other.shards.reshard("far", 1)
    put(broker, "run")
    hand = ScriptedWorker(broker)
    hand.settle(done(hand.one(), [call(first, "one", queue="far"), call(second, "two", queue="far")]))
    finish(other, "far", 1)
    found = [[payload.identity for payload in other.inspect.find("far", name)[0].payloads] for name in (first, second)]
    assert found == [["one"], ["before", "two"]]


@pytest.mark.parametrize(("before", "after"), [(1, 5), (5, 1), (2, 5)])
def test_a_turn_is_repeated_when_the_queue_it_sends_to_has_other_shards(
    broker: RedisBroker, other: RedisBroker, before: int, after: int
) -> None:
    other.declare("far", before)
    sent = [job(f"child-{n}", queue="far") for n in range(20)]
    _, turn = leave_behind(broker, sent)
    finish(other, "far", after)
    assert broker.inspect.queues()["far"] == after  # it knows
    assert broker.turn(turn).refused == []
    assert numbers(other, "far").length == 20
    assert {other.status("far", each.key) for each in sent} == {"queued"}
    assert numbers(other, "q").busy == 0


def test_what_was_delivered_is_known_where_its_queue_has_moved_to(
    broker: RedisBroker, other: RedisBroker, echo: Echo, clock: ManualClock
) -> None:
    """It is delivered, and before it is removed from the outbox the queue is resharded, and the job is run."""
    other.declare("far", 2)
    sent = [job(f"child-{n}", queue="far") for n in range(6)]
    leave_behind(broker, sent)
    clock.advance(10)
    with pytest.MonkeyPatch.context() as cut:
        cut.setattr(echo, "do_all", lambda commands: _cut() if commands[0][0] == "HDEL" else Cut.do_all(echo, commands))
        with pytest.raises(BrokerAwayError):
            broker._outbox.deliver(stored(broker))  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]  # a Cluster has one
    hand = ScriptedWorker(other, "worker-2")
    for shards in (3, 1):
        finish(other, "far", shards)
    claims = hand.claim(queue="far")
    assert len(claims) == 6
    hand.settle(*map(done, claims), queue="far")
    other.reclaim()
    assert numbers(other, "far").length == 0
    assert stored(broker) == []


def stored(broker: RedisBroker) -> list[Any]:
    outbox = broker._outbox
    assert outbox is not None
    tags = [tag for layout in broker._layouts.read_all() for tag in layout.tags]
    return outbox.still_there([(tag, id) for tag in tags for id in outbox.ids(tag, "")])


def _cut() -> list[Any]:
    raise BrokerAwayError("The connection was cut, as it was told to be.")


def test_enqueueing_into_a_queue_that_is_moved_is_repeated_after_it_has_moved(
    broker: RedisBroker, other: RedisBroker, echo: Echo
) -> None:
    broker.enqueue([*(job(f"plain-{n}") for n in range(3)), call("z", "one")])
    other.shards.reshard("q", 2, limit=1)  # the last to come is not the first to be moved
    hand = ScriptedWorker(other)
    ran: list[str] = []

    def run_all() -> None:
        finish(other, "q", 2)
        claims = hand.claim()
        ran.extend(payload.identity or "" for claim in claims for payload in claim.payloads)
        hand.settle(*map(done, claims))

    broker._layouts.forget("q")
    broker._layouts.get("q")
    echo.then, echo.after = run_all, 2  # the first two only look whether they can be stored
    broker.enqueue([job("new"), call("z", "two")])  # one is not there, and goes where the queue is moved to
    assert [each for each in ran if each in ("one", "two")] == ["one", "two"]
    assert broker.status("q", "z") == "gone"
    assert broker.status("q", "new") == "queued"
