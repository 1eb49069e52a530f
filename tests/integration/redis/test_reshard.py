"""Tests that resharding continues after a crash at any call, in any process, and that no job is in two shards."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
import redis
from msgspec.structs import replace

from laneway.brokers.redis import RedisBroker
from laneway.brokers.redis.client.connections import Command
from laneway.brokers.redis.client.server import Server
from laneway.brokers.redis.reshard import BYTES
from laneway.clock import ManualClock
from laneway.jobs.data import JobView
from laneway.jobs.settlement import done, failed
from laneway.jobs.shards import shard_of
from laneway.testing.conformance.fixtures import (
    ScriptedWorker,
    calls,
    keys,
    numbers,
    put,
)
from laneway.testing.conformance.reshard import KINDS, PLACES, fill, finish
from tests.support.servers import RedisServer

NAMES = [f"{kind}-{place}-{n}" for kind in KINDS for place in PLACES for n in range(4)]


class Died(Exception):
    """The process is gone, as far as the test is concerned."""


class Mortal(Server):
    """A server to whoever dies of one of its calls: before it is sent, or before the answer comes."""

    #: How many calls it still survives, and whether the last one is carried out.
    lives: int | None = None
    carried_out = True
    #: Where everything that is sent is written down.
    sent: list[Command] | None = None

    def exchange(self, commands: Sequence[Command], **how: Any) -> list[Any]:
        if self.sent is not None:
            self.sent += commands
        if self.lives is not None:
            self.lives -= 1
            if self.lives == 0:
                if self.carried_out:
                    super().exchange(commands, **how)
                raise Died
        return super().exchange(commands, **how)


Open = Callable[[], RedisBroker]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_broker(redis_server: RedisServer, clock: ManualClock) -> Iterator[Open]:
    """Brokers as several processes have them."""
    opened: list[RedisBroker] = []

    def open_one() -> RedisBroker:
        opened.append(RedisBroker(Mortal.of(redis.Redis(port=redis_server.port)), clock=clock))
        return opened[-1]

    yield open_one
    for broker in opened:
        broker.close()


def mortal(broker: RedisBroker) -> Mortal:
    server = broker._server
    assert isinstance(server, Mortal)
    return server


def found(broker: RedisBroker) -> dict[str, list[JobView]]:
    """All jobs of `fill`, without their shards, which must be right."""
    shards = broker.inspect.queues()["q"]
    views = {name: broker.inspect.find("q", name) for name in NAMES}
    for name in NAMES:
        for view in views[name]:
            assert view.shard == shard_of(name, shards)
            view.shard = 0
    return views


def indices(server: RedisServer) -> set[str]:
    """The layouts, such as 1/2, of the lists and indices that there are."""
    with server.client() as client:
        names = [re.search(r":(?:ready|due):(\d+/\d+):", name.decode()) for name in client.scan_iter()]
    return {found[1] for found in names if found}


@pytest.mark.parametrize("carried_out", [True, False])
def test_whoever_comes_next_goes_on_after_a_crash_anywhere(
    open_broker: Open, redis_server: RedisServer, carried_out: bool
) -> None:
    """After each call of each step, be it carried out or not."""
    survived, before, counts = 0, {}, None
    while True:
        redis_server.flush()
        broker, other = open_broker(), open_broker()
        broker.declare("q", 2)
        fill(broker, ScriptedWorker(broker))
        before, counts = before or found(broker), counts or replace(numbers(broker), shards=3)
        server = mortal(broker)
        server.lives, server.carried_out = survived + 1, carried_out
        try:
            finish(broker, 3, limit=5)
        except Died:
            survived += 1
        else:
            break
        finish(other, 3, limit=5)
        assert found(other) == before
        assert numbers(other) == counts
        assert other.health.check() == []
        assert indices(redis_server) == {"2/3"}
        for each in (broker, other):
            each.close()
    assert survived > 8


def test_what_is_brought_late_is_brought_by_nobody(open_broker: Open, redis_server: RedisServer) -> None:
    """Somebody stood still while others finished, and then does all that it was about to do."""
    broker = open_broker()
    broker.declare("q", 3)
    hand = ScriptedWorker(broker)
    fill(broker, hand)
    server = mortal(broker)
    server.sent = []
    finish(broker, 5, limit=20)
    late = [command for command in server.sent if command[0] == "EVALSHA"]
    for name in NAMES:
        broker.operate.delete_dead("q", [name])
    claims = hand.claim(epoch=2)
    before = found(broker)
    server.exchange(late)
    assert found(broker) == before
    assert indices(redis_server) == {"2/5"}
    assert hand.settle(*map(done, claims)) == []
    assert (broker.health.check(), broker.inspect.queues()) == ([], {"q": 5})


def test_two_take_steps_in_turn(open_broker: Open) -> None:
    one, other = open_broker(), open_broker()
    one.declare("q", 3)
    fill(one, ScriptedWorker(one))
    before = found(one)
    steps = [broker.shards.reshard("q", 7, limit=4) for _ in range(4) for broker in (one, other)]
    assert not steps[-1].done
    assert sorted(step.moved for step in steps) == [step.moved for step in steps]
    while not one.shards.reshard("q", 7, limit=4).done and not other.shards.reshard("q", 7, limit=4).done:
        pass
    assert (found(one), found(other)) == (before, before)


def test_many_take_steps_at_the_same_time(open_broker: Open) -> None:
    brokers = [open_broker() for _ in range(3)]
    brokers[0].declare("q", 3)
    fill(brokers[0], ScriptedWorker(brokers[0]))
    before, troubles = found(brokers[0]), list[BaseException]()

    def go_on(broker: RedisBroker) -> None:
        try:
            finish(broker, 7, limit=3)
        except BaseException as trouble:
            troubles.append(trouble)

    threads = [threading.Thread(target=go_on, args=[broker]) for broker in brokers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert troubles == []
    assert found(brokers[0]) == before
    assert brokers[0].health.check() == []


def test_a_client_that_knows_of_nothing_is_told(open_broker: Open) -> None:
    """One that has used the queue before it was resharded, once and again."""
    one, other = open_broker(), open_broker()
    one.declare("q", 2)
    put(other, "0")
    hand = ScriptedWorker(other)
    for shards in (3, 5, 1):
        one.shards.reshard("q", shards, limit=1)
        put(other, f"during-{shards}")
        calls(other, "key", f"during-{shards}")
        finish(one, shards)
        put(other, f"after-{shards}")
    assert (other.declare("q", 9), numbers(other).length) == (1, 8)
    assert sorted(keys(hand.claim())) == sorted(
        ["0", "key", *(f"{when}-{shards}" for shards in (3, 5, 1) for when in ("during", "after"))]
    )


def test_a_step_is_bounded_by_bytes(open_broker: Open) -> None:
    """The server does nothing else while it reads them; payloads, which are not moved, count for nothing."""
    one, other = open_broker(), open_broker()
    one.declare("q", 2)
    size = 1_000
    names = [f"{n:04}" + "x" * size for n in range(450)]
    put(one, *names[:150], body="y" * 10_000)
    put(one, *names[150:], delay_s=-1.0)
    steps = [one.shards.reshard("q", 5)]
    while not steps[-1].done:
        steps += [other.shards.reshard("q", 5), one.shards.reshard("q", 5)]
    moved = [0, *(step.moved for step in steps if not step.done)]
    assert len(moved) > 2
    assert all(0 < after - before <= BYTES // size for before, after in pairwise(moved))
    assert steps[-1].total == 450
    assert keys(ScriptedWorker(one).claim(limit=1_000)) == [*names[150:], *names[:150]]
    assert other.health.check() == []


def test_a_repeated_turn_gets_its_answer_in_the_next_epoch_too(open_broker: Open) -> None:
    """What it settled is settled, and what was refused is refused: no more and no less."""
    broker, other = open_broker(), open_broker()
    broker.declare("q", 3)
    put(broker, "a", "b")
    hand, thief = ScriptedWorker(broker), ScriptedWorker(broker, "thief")
    first, second = hand.claim()
    lost = hand.turn(0, done(first), done(second), done(first))
    assert lost.refused == [first.key]
    finish(other, 4)
    again = hand.again()
    assert (again.refused, again.token, again.claims, again.epoch) == (lost.refused, lost.token, [], 2)
    put(broker, "c")
    held = hand.one()
    late = hand.turn(0, done(second), done(held))
    assert (late.refused, hand.again().refused) == ([second.key], [second.key])
    assert thief.claim() == []


def test_counts_and_what_was_cancelled_go_along(open_broker: Open) -> None:
    broker = open_broker()
    broker.declare("q", 3)
    hand = ScriptedWorker(broker)
    put(broker, "done", "failed")
    claims = {claim.key: claim for claim in hand.claim()}
    hand.settle(done(claims["done"]), failed(claims["failed"], "no", 5, 60.0))
    calls(broker, "k", "1", "2")
    put(broker, "plain\0odd")
    assert [broker.cancel("q", "k", "1"), broker.cancel("q", "plain\0odd")] == [True, True]
    for shards in (5, 2):
        broker.shards.reshard("q", shards, limit=1)
        assert (numbers(broker).processed, numbers(broker).failed) == (1, 1)
        finish(broker, shards)
        assert (numbers(broker).processed, numbers(broker).failed) == (1, 1)
        assert [broker.status("q", "k", "1"), broker.status("q", "plain\0odd")] == ["cancelled", "cancelled"]
    broker.shards.reshard("q", 4, limit=1)
    calls(broker, "k", "1")
    finish(broker, 4)
    assert broker.status("q", "k", "1") == "queued"
    assert (broker.cancel("q", "k"), broker.status("q", "k", "1")) == (True, "cancelled")


def test_a_full_server_can_be_resharded(redis_server: RedisServer, open_broker: Open) -> None:
    """Or nothing would be claimed from it any more, and it would stay full."""
    broker = open_broker()
    broker.declare("q", 2)
    for first in range(0, 400, 100):
        put(broker, *(str(n) for n in range(first, first + 100)), body="x" * 1_000)
    calls(broker, "several", *"abc")
    broker.cancel("q", "0")
    hand = ScriptedWorker(broker)
    assert not broker.shards.reshard("q", 3, limit=10).done
    with redis_server.client() as client:
        client.config_set("maxmemory", 1)
        try:
            finish(broker, 3, limit=100)
            assert len(hand.claim()) == 400
        finally:
            client.config_set("maxmemory", 0)
