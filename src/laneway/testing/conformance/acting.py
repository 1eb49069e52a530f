"""Acting on jobs by hand: cancel, reschedule, revive, delete."""

from __future__ import annotations

from ...broker import Broker
from ...clock import ManualClock
from ...jobs.settlement import buried, done, failed
from .fixtures import Hand, Kit, keys, numbers, only, put


def bury(broker: Broker, hand: Hand, *dying: str) -> None:
    """Have jobs run and end in the morgue."""
    put(broker, *dying)
    hand.settle(*(buried(claim, f"error of {claim.key}") for claim in hand.claim()))


class Acting(Kit):
    def test_a_queued_job_can_be_cancelled(self, broker: Broker) -> None:
        """Due, delayed or waiting for its retry: it never runs, and that it was cancelled is remembered."""
        put(broker, "retry")
        hand = Hand(broker)
        hand.settle(failed(hand.one(), "no", 25, 60.0))
        put(broker, "due")
        put(broker, "later", delay_s=60)
        for key in ("retry", "due", "later"):
            assert broker.cancel("q", key)
            assert broker.status("q", key) == "cancelled"
        assert numbers(broker).length == 0
        assert hand.claim() == []

    def test_what_runs_or_is_gone_or_dead_cannot_be_cancelled(self, broker: Broker) -> None:
        """False, and nothing changes."""
        hand = Hand(broker)
        bury(broker, hand, "dead")
        put(broker, "running")
        claim = hand.one()
        for key in ("running", "dead", "never"):
            assert not broker.cancel("q", key)
        assert [broker.status("q", key) for key in ("running", "dead", "never")] == ["running", "dead", "gone"]
        assert hand.settle(done(claim)) == []
        assert not broker.cancel("q", "running")

    def test_a_cancelled_key_may_be_enqueued_again(self, broker: Broker) -> None:
        """It is a job like any other then."""
        put(broker, "a")
        broker.cancel("q", "a")
        put(broker, "a")
        assert broker.status("q", "a") == "queued"
        assert keys(Hand(broker).claim()) == ["a"]

    def test_that_a_job_was_cancelled_is_forgotten_in_the_end(self, broker: Broker, clock: ManualClock) -> None:
        """Not within an hour, but some day."""
        put(broker, "a")
        broker.cancel("q", "a")
        clock.advance(3_600)
        broker.reclaim()
        assert broker.status("q", "a") == "cancelled"
        clock.advance(30 * 86_400)
        broker.reclaim()
        assert broker.status("q", "a") == "gone"

    def test_a_queued_job_can_be_moved_to_another_time(self, broker: Broker, clock: ManualClock) -> None:
        """By a delay from the broker's now, or to a time, earlier or later; nothing else of it changes."""
        put(broker, "a", body="kept", delay_s=60)
        before = only(broker, "a")
        assert broker.reschedule("q", "a", delay_s=10)
        assert only(broker, "a").perform_at == clock.now() + 10
        hand = Hand(broker)
        assert hand.claim() == []
        assert broker.reschedule("q", "a", perform_at=-5.0)
        assert broker.reschedule("q", "a", perform_at=before.perform_at)
        assert only(broker, "a") == before
        assert broker.reschedule("q", "a")
        claim = hand.one()
        assert (claim.perform_at, claim.payloads[0].body, claim.retry_count) == (clock.now(), "kept", -1)

    def test_a_moved_job_is_not_due_at_its_old_time(self, broker: Broker, clock: ManualClock) -> None:
        """It runs once, at its new time."""
        put(broker, "a")
        broker.reschedule("q", "a", delay_s=30)
        hand = Hand(broker)
        assert hand.claim() == []
        clock.advance(30)
        assert keys(hand.claim()) == ["a"]
        assert hand.claim() == []

    def test_what_runs_or_is_gone_or_dead_cannot_be_moved(self, broker: Broker) -> None:
        """False, and nothing changes."""
        hand = Hand(broker)
        bury(broker, hand, "dead")
        put(broker, "running")
        before = hand.one().perform_at
        for key in ("running", "dead", "never"):
            assert not broker.reschedule("q", key, delay_s=60)
        assert only(broker, "running").perform_at == before
        assert only(broker, "dead").status == "dead"

    def test_a_revived_job_is_due_now_with_all_its_retries(self, broker: Broker, clock: ManualClock) -> None:
        """Back in the queue with `retry_count` -1; its error is kept until it succeeds."""
        put(broker, "a", body="kept", headers={"h": "1"}, priority=4)
        hand = Hand(broker)
        hand.settle(failed(hand.one(), "no", 0, 0.0))
        clock.advance(100)
        assert broker.revive("q", ["a"]) == 1
        view = only(broker, "a")
        assert (view.status, view.perform_at, view.retry_count, view.error) == ("queued", clock.now(), -1, "no")
        assert (view.updated_at, view.priority, numbers(broker).dead) == (None, 4, 0)
        claim = hand.one()
        assert (claim.payloads[0].body, claim.headers, claim.attempt) == ("kept", {"h": "1"}, 2)

    def test_reviving_twice_revives_once(self, broker: Broker) -> None:
        """Never in both places, never in neither; keys that are not in the morgue are passed over."""
        hand = Hand(broker)
        bury(broker, hand, "a", "b")
        assert broker.revive("q", ["a", "never", "a"]) == 1
        assert broker.revive("q", ["a"]) == 0
        assert (numbers(broker).length, numbers(broker).dead) == (1, 1)
        assert broker.revive("q", []) == 0

    def test_reviving_onto_a_queued_job_merges(self, broker: Broker, clock: ManualClock) -> None:
        """One job, due now, with all its retries."""
        hand = Hand(broker)
        bury(broker, hand, "a")
        put(broker, "a")
        hand.settle(failed(hand.one(), "again", 25, 60.0))
        assert broker.revive("q", ["a"]) == 1
        view = only(broker, "a")
        assert (view.status, view.retry_count, view.perform_at) == ("queued", -1, clock.now())
        assert len(view.payloads) == 1

    def test_a_job_whose_key_is_running_stays_in_the_morgue(self, broker: Broker) -> None:
        """It would have no place in the queue: it can be revived when the run has ended."""
        hand = Hand(broker)
        bury(broker, hand, "a")
        put(broker, "a")
        claim = hand.one()
        assert broker.revive("q", ["a"]) == 0
        assert [view.status for view in broker.find("q", "a")] == ["running", "dead"]
        assert hand.settle(done(claim)) == []
        assert broker.revive("q", ["a"]) == 1

    def test_dead_jobs_can_be_deleted(self, broker: Broker) -> None:
        """For good; only what is in the morgue, and the answer says how many that were."""
        hand = Hand(broker)
        bury(broker, hand, "a", "b", "nul\0key")
        put(broker, "a")
        assert broker.delete_dead("q", ["a", "never", "nul\0key"]) == 2
        assert broker.delete_dead("q", ["a"]) == 0
        assert [broker.status("q", key) for key in ("a", "b", "nul\0key")] == ["queued", "dead", "gone"]
