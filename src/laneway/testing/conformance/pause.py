"""Tests of pausing: no job of a paused queue is claimed until it is resumed; all else goes on."""

from __future__ import annotations

from ...broker import Broker
from ...clock import ManualClock
from ...jobs.data import QueueStats
from ...jobs.settlement import done, failed
from .fixtures import LONG_S, BrokerFixtures, ScriptedWorker, call, job, keys, needs, numbers, put, value
from .wait import WaitThread


@needs("operate")
class PauseTests(BrokerFixtures):
    @needs("keyed", "collecting")
    def test_nothing_of_a_paused_queue_is_claimed(self, broker: Broker) -> None:
        """Of no kind; other queues are not concerned."""
        broker.enqueue([job("plain"), call("keyed", "call"), value("collecting", "v"), job("other", queue="two")])
        hand = ScriptedWorker(broker)
        assert broker.operate.pause("q")
        answer = hand.turn(100)
        assert (answer.claims, answer.refused, answer.resharding) == ([], [], 0)
        assert hand.claim(batch=2, in_order=True, shards=[4, 3, 2, 1, 0]) == []
        assert keys(hand.claim(queue="two")) == ["other"]

    def test_what_runs_is_settled_and_waits_for_the_end_of_the_pause(self, broker: Broker) -> None:
        """What a run sends, and what failed: both are claimed when the queue is resumed."""
        put(broker, "a", "b")
        hand = ScriptedWorker(broker)
        first, second = hand.claim()
        broker.operate.pause("q")
        answer = hand.turn(5, done(first, [job("child")]), failed(second, "no", 25, 0.0))
        assert (answer.claims, answer.refused, hand.claim()) == ([], [], [])
        broker.operate.resume("q")
        assert sorted((claim.key, claim.retry_count) for claim in hand.claim()) == [("b", 0), ("child", -1)]

    @needs("inspect", "exact_counts")
    def test_what_runs_is_settled_and_what_it_sends_is_stored(self, broker: Broker) -> None:
        """And what failed waits with the others."""
        put(broker, "a", "b")
        hand = ScriptedWorker(broker)
        first, second = hand.claim()
        broker.operate.pause("q")
        answer = hand.turn(5, done(first, [job("child")]), failed(second, "no", 25, 0.0))
        assert (answer.claims, answer.refused) == ([], [])
        stats = numbers(broker)
        assert (stats.length, stats.retries, stats.busy, stats.processed, stats.failed) == (2, 1, 0, 1, 1)

    def test_a_turn_from_before_is_answered_as_it_was(self, broker: Broker) -> None:
        """Its answer was lost; what it claimed is its worker's."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        broker.operate.pause("q")
        assert hand.again().claims == [claim]
        assert hand.settle(done(claim)) == []

    def test_enqueueing_goes_on(self, broker: Broker) -> None:
        """Nothing is refused, and all of it runs once the queue is resumed."""
        broker.operate.pause("q")
        put(broker, "a", "b")
        assert broker.status("q", "a") == "queued"
        assert broker.operate.resume("q")
        assert keys(ScriptedWorker(broker).claim()) == ["a", "b"]

    @needs("inspect")
    def test_a_paused_queue_is_told_from_others(self, broker: Broker) -> None:
        """For as long as it is paused."""
        broker.declare("two", 5)
        broker.operate.pause("q")
        assert [(stats.queue, stats.paused) for stats in broker.inspect.stats()] == [("q", True), ("two", False)]
        broker.operate.resume("q")
        assert [stats.paused for stats in broker.inspect.stats()] == [False, False]

    @needs("inspect", "exact_counts")
    def test_a_paused_queue_is_shown_as_one(self, broker: Broker, clock: ManualClock) -> None:
        """Its other numbers are those of any queue: what is late is late."""
        put(broker, "a")
        clock.advance(5)
        broker.operate.pause("q")
        assert numbers(broker) == QueueStats(queue="q", shards=5, length=1, fresh=1, lag=5.0, paused=True)
        broker.operate.resume("q")
        assert not numbers(broker).paused

    @needs("inspect")
    def test_pausing_and_resuming_say_whether_they_did_anything(self, broker: Broker) -> None:
        """A queue that does not exist is not made by it."""
        assert [broker.operate.resume("q"), broker.operate.pause("q"), broker.operate.pause("q")] == [
            False,
            True,
            False,
        ]
        assert [broker.operate.resume("q"), broker.operate.resume("q")] == [True, False]
        assert [broker.operate.pause("nowhere"), broker.operate.resume("nowhere")] == [False, False]
        assert list(broker.inspect.queues()) == ["q"]

    @needs("inspect")
    def test_a_pause_outlives_declaring_the_queue_again(self, broker: Broker) -> None:
        """Which every worker does that is started."""
        put(broker, "a")
        broker.operate.pause("q")
        broker.declare("q", 5)
        assert (numbers(broker).paused, ScriptedWorker(broker).claim()) == (True, [])

    def test_nobody_is_told_of_a_paused_queue(self, broker: Broker) -> None:
        """Or its workers would ask again and again."""
        broker.enqueue([job("a"), job("b", queue="two")])
        broker.operate.pause("q")
        ScriptedWorker(broker)
        assert broker.wait(["q"], 0.01) == set()
        assert broker.wait(["q", "two"], LONG_S) == {"two"}

    def test_resuming_ends_a_wait(self, broker: Broker) -> None:
        """As enqueueing would."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        broker.operate.pause("q")
        waiter = WaitThread(broker, "q")
        waiter.join(0.05)  # so that it has begun to wait, and is not just told what there is
        assert waiter.is_alive()
        broker.operate.resume("q")
        assert waiter.result() == {"q"}
        assert keys(hand.claim()) == ["a"]

    @needs("inspect", "shards")
    def test_resharding_is_not_held_up(self, broker: Broker) -> None:
        """Those who wait are told of it even so: they are to help. The queue stays paused."""
        put(broker, *(f"k{number}" for number in range(10)))
        hand = ScriptedWorker(broker)
        (claim,) = hand.claim(limit=1)
        broker.operate.pause("q")
        assert not broker.shards.reshard("q", 3, limit=1).done
        assert broker.wait(["q"], 0.01) == {"q"}
        assert hand.turn(5, done(claim)).resharding == 3
        while not broker.shards.reshard("q", 3).done:
            pass
        assert (numbers(broker).paused, numbers(broker).shards, hand.claim()) == (True, 3, [])
        assert broker.wait(["q"], 0.01) == set()
        broker.operate.resume("q")
        assert len(hand.claim()) == 9
