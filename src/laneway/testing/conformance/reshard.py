"""Tests of changing the shard count of a queue in use: nothing is stranded, and no key runs twice at once."""

from __future__ import annotations

from itertools import pairwise

import pytest

from ...broker import Broker, ReshardProgress
from ...clock import ManualClock
from ...errors import ConfigError
from ...jobs.data import Claim
from ...jobs.settlement import buried, done, failed
from ...jobs.shards import shard_of
from .fixtures import (
    LONG_S,
    BrokerFixtures,
    ScriptedWorker,
    bodies,
    call,
    calls,
    declare_dead,
    job,
    keys,
    needs,
    numbers,
    only,
    places,
    put,
    value,
    values,
)
from .wait import WaitThread


def finish(broker: Broker, shards: int, limit: int = 1_000) -> list[ReshardProgress]:
    """Take steps until it is done."""
    steps = [broker.shards.reshard("q", shards, limit=limit)]
    while not steps[-1].done:
        assert len(steps) < 1_000
        steps.append(broker.shards.reshard("q", shards, limit=limit))
    return steps


@needs("shards")
class ReshardTests(BrokerFixtures):
    @needs("inspect")
    def test_keys_are_in_their_shards(self, broker: Broker) -> None:
        """crc32(key as UTF-8) mod shards, before and after."""
        put(broker, "order-1", *(str(n) for n in range(10)))
        assert [only(broker, str(n)).shard for n in range(10)] == [4, 3, 2, 1, 3, 1, 0, 1, 1, 4]
        assert only(broker, "order-1").shard == 4
        finish(broker, 24)
        assert only(broker, "order-1").shard == 7
        assert [only(broker, str(n)).shard for n in range(10)] == [17, 23, 13, 19, 16, 22, 4, 18, 11, 21]

    def test_the_count_that_it_has_is_nothing_to_do(self, broker: Broker) -> None:
        """Done at once, in the same epoch."""
        put(broker, "a")
        assert broker.shards.reshard("q", 5) == ReshardProgress(total=0, moved=0, running=0, done=True)
        answer = ScriptedWorker(broker).turn(1, epoch=1)
        assert (keys(answer.claims), answer.epoch, answer.shards, answer.resharding) == (["a"], 1, 5, 0)

    @needs("inspect")
    def test_a_new_count_is_a_new_epoch(self, broker: Broker) -> None:
        """Also of an empty queue; a turn for the old one claims nothing then."""
        finish(broker, 3)
        assert (broker.inspect.queues(), numbers(broker).shards, broker.declare("q", 9)) == ({"q": 3}, 3, 3)
        put(broker, "0")
        hand = ScriptedWorker(broker)
        old = hand.turn(1, epoch=1)
        assert (old.claims, old.epoch, old.shards, old.resharding) == ([], 2, 3, 0)
        assert [(claim.key, claim.shard) for claim in hand.claim(epoch=2, shards=[2])] == [("0", 2)]

    @needs("inspect")
    def test_it_goes_step_by_step(self, broker: Broker) -> None:
        """Each moves no more than asked; how far it has come only grows, and the count is the old one until then."""
        put(broker, *(f"k{n}" for n in range(10)))
        hand = ScriptedWorker(broker)
        hand.settle(buried(hand.claim(limit=1)[0], "no"))
        steps = [broker.shards.reshard("q", 7, limit=3)]
        while not steps[-1].done:
            answer = hand.turn(100)
            assert (answer.claims, answer.resharding, answer.shards, answer.epoch) == ([], 7, 5, 1)
            assert broker.inspect.queues() == {"q": 5}
            steps.append(broker.shards.reshard("q", 7, limit=3))
        total = steps[0].total
        assert total in (9, 10)  # without the dead one, on a broker where a dead job has no shard
        assert {step.total for step in steps} == {total}
        assert all(0 <= after.moved - before.moved <= 3 for before, after in pairwise(steps))
        assert (len(steps) >= 3, steps[0].moved <= 3, steps[-1].moved) == (True, True, total)
        answer = hand.turn(100)
        assert (len(answer.claims), answer.resharding, answer.shards, answer.epoch) == (9, 0, 7, 2)

    @needs("inspect")
    def test_the_lag_is_that_of_all_jobs(self, broker: Broker, clock: ManualClock) -> None:
        """Also of those whose new shard the queue does not have yet."""
        broker.declare("one", 1)
        put(broker, "running", queue="one")
        hand = ScriptedWorker(broker)
        assert keys(hand.claim(queue="one")) == ["running"]
        assert not broker.shards.reshard("one", 2).done
        key = next(str(n) for n in range(9) if shard_of(str(n), 2))
        put(broker, key, queue="one", delay_s=-30.0)
        assert numbers(broker, "one").lag == 30.0

    @needs("keyed")
    def test_enqueueing_goes_on_and_is_held_back(self, broker: Broker) -> None:
        """Into the new shards, merging with what is there, moved or not; in order when it is over."""
        for n in range(6):
            calls(broker, f"k{n}", "a")
        hand = ScriptedWorker(broker)
        broker.shards.reshard("q", 8, limit=2)
        for n in range(9):
            calls(broker, f"k{n}", "b")
        put(broker, "plain")
        assert hand.claim() == []
        finish(broker, 8, limit=2)
        found = {claim.key: (bodies(claim), claim.shard) for claim in hand.claim()}
        expected = {f"k{n}": (["a", "b"] if n < 6 else ["b"], shard_of(f"k{n}", 8)) for n in range(9)}
        assert found == {**expected, "plain": (["{}"], shard_of("plain", 8))}

    @needs("inspect", "keyed", "collecting")
    def test_what_runs_must_settle_first(self, broker: Broker, clock: ManualClock) -> None:
        """Whatever becomes of it; what it enqueues is held back too."""
        calls(broker, "done", "a")
        calls(broker, "fails", "a", "b")
        values(broker, "dies", {"v": 1.0, "w": 2.0})
        hand = ScriptedWorker(broker)
        first, second, third = hand.claim()
        calls(broker, "done", "next")
        step = broker.shards.reshard("q", 11)
        assert (step.total, step.moved, step.running, step.done) == (3, 3, 3, False)
        answer = hand.turn(10, done(first, [job("child")]))
        assert (answer.refused, answer.claims, answer.resharding) == ([], [], 11)
        assert broker.shards.reshard("q", 11).running == 2
        hand.settle(failed(second, "no", 5, 0.0, done=1), buried(third, "no"))
        assert broker.shards.reshard("q", 11).done
        found = {claim.key: claim for claim in hand.claim()}
        assert {key: bodies(claim) for key, claim in found.items()} == {
            "done": ["next"],
            "fails": ["b"],
            "child": ["{}"],
        }
        assert [claim.shard for claim in found.values()] == [shard_of(key, 11) for key in found]
        assert only(broker, "dies").shard == shard_of("dies", 11)

    def test_claims_of_the_dead_are_taken_back_first(self, broker: Broker) -> None:
        """They hold it up only until then."""
        put(broker, "a")
        hand, other = ScriptedWorker(broker), ScriptedWorker(broker, "worker-2")
        hand.one()
        assert not broker.shards.reshard("q", 2).done
        declare_dead(broker, hand)
        assert not broker.shards.reshard("q", 2).done
        assert broker.reclaim() == 1
        assert broker.shards.reshard("q", 2).done
        assert keys(other.claim()) == ["a"]

    @needs("inspect", "operate", "keyed", "collecting")
    def test_nothing_is_stranded(self, broker: Broker, clock: ManualClock) -> None:
        """Of any kind, in any place: each is found in its new shard, as it was, and can be claimed from there."""
        hand = ScriptedWorker(broker)
        fill(broker, hand)
        names = [f"{kind}-{place}-{n}" for kind in KINDS for place in PLACES for n in range(4)]
        before = {name: broker.inspect.find("q", name) for name in names}
        for shards in (13, 1, 5, 24):
            finish(broker, shards, limit=7)
            for name in names:
                after = broker.inspect.find("q", name)
                assert [view.shard for view in after] == [shard_of(name, shards)] * len(before[name])
                for view, old in zip(after, before[name], strict=True):
                    view.shard = old.shard
                assert after == before[name]
        for name in names:
            broker.operate.revive("q", [name])
        clock.advance(1_000)
        claimed: list[Claim] = []
        for shard in range(24):
            claimed += hand.claim(shards=[shard], epoch=5)
        assert sorted(keys(claimed)) == sorted(names)
        assert hand.settle(*(done(claim) for claim in claimed)) == []

    @needs("keyed")
    def test_heads_stay_heads(self, broker: Broker, clock: ManualClock) -> None:
        """Order holds across the change, and tokens grow on."""
        calls(broker, "k", "head", "next")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        hand.settle(failed(claim, "no", 5, 60.0))
        broker.shards.reshard("q", 9, limit=1)
        calls(broker, "k", "early", perform_at=-5.0)
        finish(broker, 9)
        assert hand.claim() == []
        clock.advance(60)
        again = hand.one()
        assert (bodies(again), again.retry_count) == (["head", "early", "next"], 0)
        assert again.token > claim.token

    @needs("operate", "keyed")
    def test_reviving_meanwhile_goes_to_the_new_shards(self, broker: Broker) -> None:
        """Before its morgue row has moved, or after."""
        names = [f"k{n}" for n in range(6)]
        for name in names:
            calls(broker, name, "a")
        hand = ScriptedWorker(broker)
        hand.settle(*(buried(claim, "no") for claim in hand.claim()))
        put(broker, "running")
        running = hand.one()  # until it is settled the resharding cannot end
        broker.shards.reshard("q", 17, limit=3)
        assert broker.operate.revive("q", names) == 6
        assert hand.claim() == []
        hand.settle(done(running))
        finish(broker, 17)
        assert {claim.key: claim.shard for claim in hand.claim()} == {name: shard_of(name, 17) for name in names}

    @needs("inspect")
    def test_another_count_is_refused_until_it_is_done(self, broker: Broker) -> None:
        """In a sentence that names both; so is less than one, at any time."""
        for bad in (0, -3):
            with pytest.raises(ConfigError):
                broker.shards.reshard("q", bad)
        put(broker, "a", "b")
        assert not broker.shards.reshard("q", 7, limit=1).done
        for other in (8, 5, 0):
            with pytest.raises(ConfigError):
                broker.shards.reshard("q", other)
        finish(broker, 7)
        hand = ScriptedWorker(broker)
        claims = hand.claim()
        assert keys(claims) == ["a", "b"]
        hand.settle(*map(done, claims))
        finish(broker, 8)
        assert broker.inspect.queues() == {"q": 8}

    def test_resharding_ends_every_wait(self, broker: Broker) -> None:
        """Even with nothing due: if whoever began it is gone, a worker that waits must come and finish it."""
        put(broker, "a", "b", delay_s=60)
        waiter = WaitThread(broker, "q")
        broker.shards.reshard("q", 7, limit=1)
        assert waiter.result() == {"q"}
        assert broker.wait(["q"], LONG_S) == {"q"}
        finish(broker, 7)
        assert broker.wait(["q"], 0.01) == set()

    @needs("inspect", "keyed")
    def test_people_may_act_meanwhile(self, broker: Broker) -> None:
        """Cancel, move, look: on what has moved and on what has not."""
        calls(broker, "a", "1", "2")
        calls(broker, "b", "1", "2")
        broker.shards.reshard("q", 7, limit=1)
        for key in "ab":
            assert broker.cancel("q", key, "1")
            assert broker.reschedule("q", key, delay_s=-5)
            assert places(broker, key) == {"queued": ["2"]}
        assert numbers(broker).length == 2
        assert broker.cancel("q", "b")
        finish(broker, 7)
        assert keys(ScriptedWorker(broker).claim()) == ["a"]

    @needs("inspect")
    def test_a_queue_that_sends_to_it_meanwhile_is_not_held_up(self, broker: Broker) -> None:
        """It is another queue's affair: the answer does not speak of it, and brings what is next."""
        put(broker, "a", "b")
        put(broker, "x", "y", queue="two")
        hand = ScriptedWorker(broker)
        (claim,) = hand.claim(limit=1)
        assert not broker.shards.reshard("two", 7, limit=1).done
        answer = hand.turn(1, done(claim, [job("z", queue="two")]))
        assert (keys(answer.claims), answer.resharding) == (["b"], 0)
        assert numbers(broker, "two").length == 3

    @needs("keyed")
    def test_an_answer_that_was_lost_meanwhile_is_the_same(self, broker: Broker) -> None:
        """The claims of the turn are held until they are settled."""
        calls(broker, "k", "a")
        hand = ScriptedWorker(broker)
        first = hand.turn(1)
        broker.shards.reshard("q", 7)
        again = hand.again()
        assert ([bodies(claim) for claim in again.claims], again.token) == ([["a"]], first.token)
        assert again.resharding == 7
        assert hand.settle(done(again.claims[0])) == []
        assert broker.shards.reshard("q", 7).done


KINDS = ("plain", "keyed", "collecting")
PLACES = ("dead", "retry", "due", "later")


def fill(broker: Broker, hand: ScriptedWorker) -> None:
    """Four jobs of every kind in every place."""
    for place in PLACES:
        delay_s = 100.0 if place == "later" else 0.0
        broker.enqueue([job(f"plain-{place}-{n}", delay_s=delay_s) for n in range(4)])
        for body in "ab":
            broker.enqueue([call(f"keyed-{place}-{n}", body, delay_s=delay_s) for n in range(4)])
            broker.enqueue([value(f"collecting-{place}-{n}", body, delay_s=delay_s) for n in range(4)])
        if place == "dead":
            hand.settle(*(buried(claim, "no") for claim in hand.claim()))
        if place == "retry":
            hand.settle(*(failed(claim, "no", 5, 50.0) for claim in hand.claim()))
