"""Leases: who lives, who is declared dead, and where the claims of the dead go."""

from __future__ import annotations

import msgspec
import pytest

from ...broker import Broker
from ...clock import ManualClock
from ...errors import LeaseLost
from ...jobs.data import WorkerView
from ...jobs.settlement import done, failed
from .fixtures import Hand, Kit, declare_dead, job, keys, only, put


class Leases(Kit):
    def test_a_worker_that_joined_is_known(self, broker: Broker, clock: ManualClock) -> None:
        """With its lease, which counts from the first renewal on."""
        Hand(broker, lease_s=12.5)
        ((counter, lease_s),) = broker.leases().values()
        assert lease_s == 12.5
        (view,) = broker.workers()
        assert isinstance(view, WorkerView)
        assert (view.id, view.host, view.pid, view.queues) == ("worker-1", "localhost", 1, ["q"])
        assert (view.concurrency, view.lease_s, view.dead, view.busy) == (5, 12.5, False, 0)
        assert (view.started_at, view.seen_at) == (clock.now(), clock.now())
        broker.renew("worker-1", [], 0)
        assert broker.leases()["worker-1"][0] > counter

    def test_joining_again_is_harmless(self, broker: Broker) -> None:
        """The answer may have been lost: the repeat neither fails nor loses what the worker holds."""
        put(broker, "a")
        hand = Hand(broker)
        claim = hand.one()
        Hand(broker)
        assert len(broker.workers()) == 1
        assert hand.settle(done(claim)) == []

    def test_joining_again_tells_which_shards_a_worker_serves(self, broker: Broker, clock: ManualClock) -> None:
        """Nothing else of it changes."""
        hand = Hand(broker)
        broker.renew(hand.name, [], 0)
        (before,) = broker.workers()
        assert before.shards == {}
        clock.advance(5)
        counter = broker.leases()[hand.name]
        broker.join(msgspec.structs.replace(before, host="elsewhere", lease_s=1.0, shards={"q": [0, 2], "other": []}))
        (after,) = broker.workers()
        assert after == msgspec.structs.replace(before, shards={"q": [0, 2], "other": []})
        assert broker.leases()[hand.name] == counter

    def test_an_unknown_worker_has_no_lease_to_work_under(self, broker: Broker) -> None:
        """Neither turn nor renewal: LeaseLost."""
        put(broker, "a")
        hand = Hand(broker)
        hand.name = "nobody"
        with pytest.raises(LeaseLost):
            hand.claim()
        with pytest.raises(LeaseLost):
            broker.renew("nobody", [], 0)
        assert broker.status("q", "a") == "queued"

    def test_a_lease_that_was_renewed_cannot_be_ended(self, broker: Broker) -> None:
        """An observer must have seen the counter unchanged; one that is behind does no harm."""
        hand = Hand(broker)
        counter, _ = broker.leases()[hand.name]
        broker.renew(hand.name, [], 0)
        assert not broker.declare_dead(hand.name, counter)
        assert not broker.declare_dead("nobody", 0)
        assert hand.claim() == []
        assert declare_dead(broker, hand)

    def test_death_is_final(self, broker: Broker) -> None:
        """Neither a turn, nor a renewal, nor joining again under the same id brings a worker back."""
        put(broker, "a", "b")
        hand = Hand(broker)
        (claim,) = hand.claim(limit=1)
        assert declare_dead(broker, hand)
        with pytest.raises(LeaseLost):
            hand.turn(1, done(claim, [job("child")]))
        with pytest.raises(LeaseLost):
            hand.again()
        with pytest.raises(LeaseLost):
            broker.renew(hand.name, [claim.token], 0)
        Hand(broker)
        with pytest.raises(LeaseLost):
            hand.claim()
        assert (broker.status("q", "b"), broker.status("q", "child")) == ("queued", "gone")
        assert hand.name not in broker.leases()

    def test_the_dead_are_shown_for_an_hour(self, broker: Broker, clock: ManualClock) -> None:
        """Then `reclaim` forgets them."""
        hand = Hand(broker)
        declare_dead(broker, hand)
        broker.reclaim()
        assert [(view.id, view.dead) for view in broker.workers()] == [(hand.name, True)]
        clock.advance(3_601)
        broker.reclaim()
        assert broker.workers() == []
        with pytest.raises(LeaseLost):
            hand.claim()

    def test_declaring_dead_gives_nothing_back_by_itself(self, broker: Broker) -> None:
        """Death comes first, giving back after it; every sweep repeats that for all who are dead."""
        put(broker, "a")
        hand, other = Hand(broker), Hand(broker, "worker-2")
        hand.one()
        declare_dead(broker, hand)
        assert other.claim() == []
        assert broker.reclaim() == 1
        assert keys(other.claim()) == ["a"]

    def test_a_job_taken_back_is_as_it_was_before(self, broker: Broker, clock: ManualClock) -> None:
        """No failure is counted; but that it was handed out is, since it may have been started."""
        put(broker, "a")
        hand, other = Hand(broker), Hand(broker, "worker-2")
        hand.settle(failed(hand.one(), "earlier", 25, 5.0))
        clock.advance(5)
        perform_at = hand.one().perform_at
        declare_dead(broker, hand)
        clock.advance(60)
        assert broker.reclaim() == 1
        view = only(broker, "a")
        assert (view.retry_count, view.error, view.perform_at) == (0, "earlier", perform_at)
        assert (view.attempt, view.worker) == (2, None)
        assert other.one().attempt == 3

    def test_the_dead_cannot_settle_what_was_taken_over(self, broker: Broker) -> None:
        """Its settlement is not even looked at; the new holder's is taken."""
        put(broker, "a")
        hand, other = Hand(broker), Hand(broker, "worker-2")
        stale = hand.one()
        declare_dead(broker, hand)
        broker.reclaim()
        held = other.one()
        assert held.token > stale.token
        with pytest.raises(LeaseLost):
            hand.settle(done(stale))
        assert other.settle(done(stale)) == ["a"]
        assert other.settle(done(held)) == []

    def test_reclaim_leaves_the_living_alone(self, broker: Broker) -> None:
        """And is harmless when repeated."""
        put(broker, "a", "b")
        hand, other = Hand(broker), Hand(broker, "worker-2")
        hand.claim(limit=1)
        (held,) = other.claim()
        declare_dead(broker, hand)
        assert [broker.reclaim(), broker.reclaim()] == [1, 0]
        assert other.settle(done(held)) == []

    def test_renewing_gives_back_what_the_worker_does_not_know_of(self, broker: Broker) -> None:
        """Claims older than `before` whose answer was lost: never started, so the attempt is not counted."""
        put(broker, "lost", "held", "young")
        hand, other = Hand(broker), Hand(broker, "worker-2")
        (lost,), (held,), (young,) = (hand.claim(limit=1) for _ in range(3))
        broker.renew(hand.name, held=[held.token], before=young.token)
        assert [broker.status("q", claim.key) for claim in (lost, held, young)] == ["queued", "running", "running"]
        again = other.one()
        assert (again.key, again.attempt) == ("lost", 1)
        assert hand.settle(done(lost), done(held), done(young)) == ["lost"]

    def test_the_token_of_a_claim_that_was_given_back_keeps_no_later_one(self, broker: Broker) -> None:
        """Of the same worker and the same key: what counts is the token of the claim that it holds now."""
        put(broker, "a")
        hand = Hand(broker)
        first = hand.one()
        broker.renew(hand.name, held=[], before=first.token + 1)
        second = hand.one()
        broker.renew(hand.name, held=[second.token], before=second.token + 1)
        broker.renew(hand.name, held=[], before=first.token + 1)
        assert broker.status("q", "a") == "running"
        broker.renew(hand.name, held=[first.token], before=second.token + 1)
        assert broker.status("q", "a") == "queued"
        assert hand.settle(done(second)) == ["a"]

    def test_renewing_gives_back_nothing_of_others(self, broker: Broker) -> None:
        """A worker speaks for itself."""
        put(broker, "a")
        hand, other = Hand(broker), Hand(broker, "worker-2")
        claim = other.one()
        broker.renew(hand.name, held=[], before=claim.token + 1)
        assert other.settle(done(claim)) == []

    def test_a_worker_that_leaves_gives_back_all_it_holds(self, broker: Broker) -> None:
        """In every queue, and says how many; what it may have started stays counted."""
        broker.enqueue([job("a"), job("b", queue="other")])
        hand, other = Hand(broker), Hand(broker, "worker-2")
        hand.one()
        hand.one(queue="other")
        assert broker.leave(hand.name) == 2
        assert [view.id for view in broker.workers()] == ["worker-2"]
        assert other.one().attempt == 2
        assert keys(other.claim(queue="other")) == ["b"]

    def test_leaving_again_is_harmless(self, broker: Broker) -> None:
        """So is leaving without having joined. Whoever has left has no lease any more."""
        hand = Hand(broker)
        assert [broker.leave(hand.name), broker.leave(hand.name), broker.leave("nobody")] == [0, 0, 0]
        with pytest.raises(LeaseLost):
            hand.claim()
