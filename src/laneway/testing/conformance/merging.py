"""Merging: what becomes of payloads, times and counts when two jobs of one key meet."""

from __future__ import annotations

from ...broker import Broker
from ...clock import ManualClock
from ...jobs.settlement import buried, done, failed
from .fixtures import Hand, Kit, bodies, declare_dead, only, places, scores, value, values


class Merging(Kit):
    def test_the_worked_example(self, broker: Broker, clock: ManualClock) -> None:
        """{v1: 1, v2: 2} and {v2: 3, v3: 4} make {v1: 1, v2: 2, v3: 4}, with the time and count of the queued job."""
        values(broker, "k", {"v1": 1, "v2": 2})
        hand = Hand(broker)
        hand.settle(failed(hand.one(), "no", 25, 60.0))
        due = clock.now() + 60
        clock.advance(5)
        values(broker, "k", {"v2": 3, "v3": 4}, perform_at=clock.now() - 100)
        view = only(broker, "k")
        assert scores(view) == {"v1": 1, "v2": 2, "v3": 4}
        assert (view.retry_count, view.perform_at, view.error) == (0, due, "no")

    def test_onto_a_queued_job_the_smaller_score_stays(self, broker: Broker) -> None:
        """Whichever came first."""
        values(broker, "k", {"a": 5.0, "b": 5.0, "c": 5.0})
        values(broker, "k", {"a": 4.0, "b": 6.0, "c": 5.0})
        assert scores(only(broker, "k")) == {"a": 4.0, "b": 5.0, "c": 5.0}
        values(broker, "k", {"a": -4.0, "b": -6.0})
        assert scores(only(broker, "k")) == {"b": -6.0, "a": -4.0, "c": 5.0}

    def test_a_score_that_was_not_given_changes_none_that_was(self, broker: Broker) -> None:
        """In either direction: the payload is there already, and stays where it is."""
        values(broker, "k", {"small": 1.0, "huge": 1e30})
        values(broker, "k", {"small": None, "huge": None})
        assert scores(only(broker, "k")) == {"small": 1.0, "huge": 1e30}

    def test_onto_a_queued_job_the_time_stays(self, broker: Broker, clock: ManualClock) -> None:
        """Enqueueing moves it neither earlier nor later."""
        due = clock.now() + 60
        values(broker, "k", {"a": 1.0}, perform_at=due)
        values(broker, "k", {"b": 1.0}, perform_at=due - 30)
        values(broker, "k", {"c": 1.0}, perform_at=due + 30)
        values(broker, "k", {"d": 1.0})
        view = only(broker, "k")
        assert (view.perform_at, view.retry_count, view.size) == (due, -1, 4)
        assert Hand(broker).claim() == []

    def test_within_one_call_of_enqueue_too(self, broker: Broker, clock: ManualClock) -> None:
        """The first decides about the time, the smaller score wins."""
        broker.enqueue([value("k", "a", score=2.0, delay_s=10), value("k", "a", score=1.0), value("k", "b", score=0.0)])
        view = only(broker, "k")
        assert (scores(view), view.perform_at) == ({"b": 0.0, "a": 1.0}, clock.now() + 10)

    def test_while_the_key_runs_the_new_time_is_that_of_the_next_run(self, broker: Broker, clock: ManualClock) -> None:
        """Set aside with a count of its own; the first one set aside decides about the time."""
        values(broker, "k", {"a": 1.0}, perform_at=clock.now() - 5)
        hand = Hand(broker)
        hand.settle(failed(hand.one(), "no", 25, 0.0))
        claim = hand.one()
        values(broker, "k", {"b": 2.0}, delay_s=30)
        values(broker, "k", {"c": 3.0, "b": 1.0})
        running, aside = broker.find("q", "k")
        assert (scores(running), running.retry_count) == ({"a": 1.0}, 0)
        assert (scores(aside), aside.retry_count, aside.error) == ({"b": 1.0, "c": 3.0}, -1, None)
        assert (aside.perform_at, aside.status, aside.attempt) == (clock.now() + 30, "delayed", 0)
        hand.settle(done(claim))
        after = only(broker, "k")
        assert (scores(after), after.retry_count, after.error) == ({"b": 1.0, "c": 3.0}, -1, None)
        assert (after.perform_at, after.attempt) == (clock.now() + 30, 0)

    def test_a_failure_takes_in_what_was_set_aside(self, broker: Broker, clock: ManualClock) -> None:
        """Union, smaller score; time and count are those of the failure."""
        values(broker, "k", {"a": 1.0, "b": 2.0, "c": 3.0})
        hand = Hand(broker)
        claim = hand.one()
        values(broker, "k", {"b": 1.5, "c": 9.0, "d": 4.0}, perform_at=-5.0)
        hand.settle(failed(claim, "no", 25, 60.0))
        view = only(broker, "k")
        assert scores(view) == {"a": 1.0, "b": 1.5, "c": 3.0, "d": 4.0}
        assert (view.perform_at, view.retry_count, view.error) == (clock.now() + 60, 0, "no")

    def test_reviving_takes_in_what_is_queued(self, broker: Broker, clock: ManualClock) -> None:
        """Union, smaller score, due now, with all retries; the error of the queued job stays."""
        values(broker, "k", {"a": 1.0, "b": 2.0, "c": 3.0})
        hand = Hand(broker)
        hand.settle(buried(hand.one(), "dead"))
        values(broker, "k", {"b": 1.0, "c": 4.0, "d": 5.0})
        hand.settle(failed(hand.one(), "failed", 25, 60.0))
        clock.advance(5)
        assert broker.revive("q", ["k"]) == 1
        view = only(broker, "k")
        assert scores(view) == {"a": 1.0, "b": 1.0, "c": 3.0, "d": 5.0}
        assert (view.perform_at, view.retry_count, view.error) == (clock.now(), -1, "failed")

    def test_reviving_while_the_key_runs_sets_aside(self, broker: Broker, clock: ManualClock) -> None:
        """Never beside the run; due now, with whatever else was set aside."""
        values(broker, "k", {"a": 1.0})
        hand = Hand(broker)
        hand.settle(buried(hand.one(), "dead"))
        values(broker, "k", {"b": 2.0})
        claim = hand.one()
        values(broker, "k", {"a": 0.5, "c": 3.0}, delay_s=600)
        assert broker.revive("q", ["k"]) == 1
        assert hand.claim() == []
        assert places(broker, "k") == {"running": ["b"], "queued": ["a", "c"]}
        hand.settle(done(claim))
        view = only(broker, "k")
        assert (scores(view), view.perform_at, view.retry_count) == ({"a": 0.5, "c": 3.0}, clock.now(), -1)

    def test_what_a_dead_worker_held_takes_in_what_was_set_aside(self, broker: Broker, clock: ManualClock) -> None:
        """Union, smaller score; time and count are its own from before."""
        due = clock.now() - 7
        values(broker, "k", {"a": 1.0, "b": 2.0}, perform_at=due)
        hand = Hand(broker)
        hand.settle(failed(hand.one(), "no", 25, 3.0))
        clock.advance(3)
        due = hand.one().perform_at
        values(broker, "k", {"a": 3.0, "b": 0.5, "c": 4.0}, delay_s=600)
        declare_dead(broker, hand)
        assert broker.reclaim() == 1
        view = only(broker, "k")
        assert scores(view) == {"b": 0.5, "a": 1.0, "c": 4.0}
        assert (view.perform_at, view.retry_count, view.error, view.attempt) == (due, 0, "no", 2)
        assert bodies(Hand(broker, "worker-2").one()) == ["b", "a", "c"]
