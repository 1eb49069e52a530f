"""Tests that resharding continues after a crash at any call, in any process, and that no job arrives twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import redis
from msgspec.structs import replace

from laneway.brokers.redis import RedisBroker
from laneway.brokers.redis.client.connections import Command
from laneway.brokers.redis.client.server import Server
from laneway.brokers.redis.script import load
from laneway.clock import ManualClock
from laneway.jobs.data import JobView
from laneway.jobs.settlement import buried, done, failed
from laneway.jobs.shards import shard_of
from laneway.testing.conformance.fixtures import (
    ScriptedWorker,
    bodies,
    call,
    calls,
    job,
    keys,
    numbers,
    only,
    places,
    put,
    values,
)
from laneway.testing.conformance.reshard import KINDS, PLACES, fill, finish
from tests.support.servers import RedisServer

NAMES = [f"{kind}-{place}-{n}" for kind in KINDS for place in PLACES for n in range(4)]
#: The script that takes keys out of their shard.
TAKE = load("reshard_take")


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


def stored(server: RedisServer) -> list[str]:
    """The names of all keys, without what is only remembered for a while."""
    with server.client() as client:
        return sorted(name.decode() for name in client.scan_iter() if client.ttl(name) < 0)


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
            finish(broker, 3, limit=30)
        except Died:
            survived += 1
        else:
            break
        finish(other, 3, limit=30)
        assert found(other) == before
        assert numbers(other) == counts
        assert other.health.check() == []
        assert not [name for name in stored(redis_server) if "{laneway:q:1:" in name]
        for each in (broker, other):
            each.close()
    assert survived > 15


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
    before, names = found(broker), stored(redis_server)
    server.exchange(late)
    assert found(broker) == before
    assert stored(redis_server) == names
    assert hand.settle(*map(done, claims)) == []
    assert (broker.health.check(), broker.inspect.queues()) == ([], {"q": 5})


def test_two_take_steps_in_turn(open_broker: Open) -> None:
    one, other = open_broker(), open_broker()
    one.declare("q", 3)
    fill(one, ScriptedWorker(one))
    before = found(one)
    steps = [broker.shards.reshard("q", 7, limit=5) for _ in range(4) for broker in (one, other)]
    assert not steps[-1].done
    assert sorted(step.moved for step in steps) == [step.moved for step in steps]
    while not one.shards.reshard("q", 7, limit=5).done and not other.shards.reshard("q", 7, limit=5).done:
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


def die_after_taking(broker: RedisBroker, shards: int) -> None:
    """Begin to reshard, and be gone when the first keys are on their way."""
    server = mortal(broker)
    exchange = server.exchange

    def taking(commands: Sequence[Command], **how: Any) -> list[Any]:
        answers = exchange(commands, **how)
        if commands[0][1] in (TAKE.sha, TAKE.text) and not isinstance(answers[0], Exception) and len(answers[0]) > 4:
            raise Died
        return answers

    server.exchange = taking  # type: ignore[method-assign]  # it dies of it
    with pytest.raises(Died):
        broker.shards.reshard("q", shards)


def test_keys_on_their_way_can_be_enqueued_onto_and_acted_upon(open_broker: Open) -> None:
    """Whoever needs one brings it to where it belongs."""
    mover, other = open_broker(), open_broker()
    mover.declare("q", 1)
    for key in "abcdefg":
        calls(other, key, "1", "2")
    hand = ScriptedWorker(other)
    hand.settle(*(buried(claim, "no") for claim in hand.claim(limit=2)))
    die_after_taking(mover, 3)
    assert other._server.do("HLEN", "{laneway:q:1:0}:leaving") == 7
    calls(other, "c", "3")
    assert other._server.do("HLEN", "{laneway:q:1:0}:leaving") == 0
    assert places(other, "c") == {"queued": ["1", "2", "3"]}
    assert finish(other, 3)[-1].total == 9  # seven jobs, and of two of them a call in the morgue
    claimed = {claim.key: bodies(claim) for claim in hand.claim()}
    assert claimed == {**{key: ["1", "2"] for key in "defg"}, "a": ["2"], "b": ["2"], "c": ["1", "2", "3"]}


@pytest.mark.parametrize(
    "act",
    [
        lambda broker: broker.cancel("q", "a", "1"),
        lambda broker: broker.reschedule("q", "a", delay_s=-5),
        lambda broker: broker.operate.run_now("q", ["a"]) == 1,
        lambda broker: broker.operate.revive("q", ["dead"]) == 1,
        lambda broker: broker.operate.delete_dead("q", ["dead"]) == 1,
        lambda broker: broker.operate.bury_failed("q", ["failed"]) == 1,
        lambda broker: broker.status("q", "a") == "queued",
        lambda broker: places(broker, "a") == {"queued": ["1", "2"]},
    ],
)
def test_keys_on_their_way_are_not_missed(open_broker: Open, act: Callable[[RedisBroker], bool]) -> None:
    mover, other = open_broker(), open_broker()
    mover.declare("q", 1)
    hand = ScriptedWorker(other)
    calls(other, "dead", "1")
    hand.settle(buried(hand.one(), "no"))
    calls(other, "failed", "1")
    hand.settle(failed(hand.one(), "no", 5, 60.0))
    calls(other, "a", "1", "2")
    die_after_taking(mover, 3)
    assert act(other)
    finish(other, 3)
    assert other.health.check() == []


def test_the_outbox_of_a_run_finds_keys_on_their_way(open_broker: Open) -> None:
    mover, other = open_broker(), open_broker()
    mover.declare("q", 1)
    hand = ScriptedWorker(other)
    calls(other, "runs", "1")
    claim = hand.one()
    calls(other, "a", "1")
    die_after_taking(mover, 3)
    answer = hand.turn(10, done(claim, [call("a", "2"), job("new")]))
    assert (answer.refused, answer.claims, answer.resharding) == ([], [], 3)
    finish(other, 3)
    assert {claim.key: bodies(claim) for claim in hand.claim()} == {"a": ["1", "2"], "new": ["{}"]}


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


def test_a_job_enqueued_before_a_shard_is_told_is_not_in_two(open_broker: Open) -> None:
    """Somebody died when the record said that the queue is being resharded, and its shards did not know yet."""
    mover, knows, knows_not = open_broker(), open_broker(), open_broker()
    mover.declare("q", 2)
    put(knows_not, "0", delay_s=60)
    mover._server.run(load("reshard_begin"), ["{laneway}:queues"], [mover._layouts.args(queue="q", shards=3)])
    calls(knows, "key", "1", delay_s=60)
    calls(knows_not, "key", "2", delay_s=60)
    calls(knows, "key", "3", delay_s=60)
    assert knows.wait(["q"], 30) == {"q"}
    assert ScriptedWorker(knows).turn(10).resharding == 3
    finish(knows, 3)
    assert bodies(only(knows_not, "key")) == ["1", "2", "3"]
    assert knows.health.check() == []


def test_many_large_payloads_of_a_key_are_moved_in_pieces(open_broker: Open) -> None:
    one, other = open_broker(), open_broker()
    one.declare("q", 2)
    for n in range(3):
        one.enqueue([call(f"keyed-{n}", str(number), body="x" * 1_000) for number in range(450)])
        values(one, f"collecting-{n}", {f"{number:04}" + "x" * 1_000: None for number in range(450)})
    hand = ScriptedWorker(one)
    before = {key: one.inspect.find("q", key) for n in range(3) for key in (f"keyed-{n}", f"collecting-{n}")}
    die_after_taking(one, 5)
    steps = finish(other, 5)
    assert (steps[-1].total, steps[-1].moved) == (6, 6)
    for key, views in before.items():
        views[0].shard = shard_of(key, 5)
        assert other.inspect.find("q", key) == views
    assert {len(claim.payloads) for claim in hand.claim(max_payloads=1_000)} == {450}
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
