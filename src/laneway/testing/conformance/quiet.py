"""Waiting for quiet: a collecting job that is due when no more payloads have come for a while."""

from __future__ import annotations

from ...broker import Broker
from ...clock import ManualClock
from ...jobs.data import Quiet
from ...jobs.merge import identity_of
from ...jobs.settlement import done, failed
from .fixtures import Hand, Kit, bodies, only, value

QUIET = Quiet(10.0)


def add(broker: Broker, body: str, quiet: Quiet = QUIET) -> float:
    """Enqueue a payload that waits for quiet; returns when its job is due."""
    broker.enqueue([value("k", body, quiet=quiet)])
    return broker.find("q", "k")[-1].perform_at


class WaitsForQuiet(Kit):
    def test_every_payload_starts_the_quiet_anew(self, broker: Broker, clock: ManualClock) -> None:
        """Also one that was there already; the job is due when nothing has come for so long."""
        hand = Hand(broker)
        for body in ("a", "b", "a", "c"):
            assert add(broker, body) == clock.now() + 10
            clock.advance(9)
            assert hand.claim() == []
        clock.advance(1)
        assert sorted(bodies(hand.one())) == ["a", "b", "c"]

    def test_it_does_not_wait_for_ever(self, broker: Broker, clock: ManualClock) -> None:
        """No longer than `max_wait_s` after the first payload."""
        quiet = Quiet(10.0, max_wait_s=25.0)
        first = clock.now()
        for n, due in enumerate((10.0, 18.0, 25.0, 25.0)):
            assert add(broker, f"v{n}", quiet) == first + due
            clock.advance(8)
        assert clock.now() == first + 32

    def test_enough_payloads_end_the_wait(self, broker: Broker, clock: ManualClock) -> None:
        """Payloads count, not how often one was enqueued."""
        quiet = Quiet(10.0, max_size=3)
        for body in ("a", "b", "a", "b"):
            assert add(broker, body, quiet) == clock.now() + 10
        clock.advance(1)
        assert add(broker, "c", quiet) == clock.now()
        assert len(bodies(Hand(broker).one())) == 3

    def test_a_job_that_is_due_keeps_its_place(self, broker: Broker, clock: ManualClock) -> None:
        """However much comes while no worker is free: it has waited long enough, by size or by time."""
        large = Quiet(10.0, max_size=2)
        add(broker, "a", large)
        due = add(broker, "b", large)
        assert due == clock.now()
        clock.advance(3)
        assert add(broker, "c", large) == due
        broker.enqueue([value("other", "a", quiet=QUIET)])
        due = only(broker, "other").perform_at
        clock.advance(11)
        broker.enqueue([value("other", "b", quiet=QUIET)])
        assert only(broker, "other").perform_at == due

    def test_a_wait_ends_with_the_payload_that_began_it(self, broker: Broker, clock: ManualClock) -> None:
        """What is set aside after it was cancelled has a time of its own, and does not wait."""
        broker.enqueue([value("k", "running")])
        Hand(broker).one()
        add(broker, "a")
        assert broker.cancel("q", "k", identity_of("a"))
        broker.enqueue([value("k", "b", delay_s=1_000.0)])
        assert add(broker, "c") == clock.now() + 1_000

    def test_one_may_be_enough(self, broker: Broker, clock: ManualClock) -> None:
        assert add(broker, "a", Quiet(10.0, max_size=1)) == clock.now()

    def test_a_job_with_a_time_of_its_own_does_not_wait(self, broker: Broker, clock: ManualClock) -> None:
        """What decided about its time was no quiet, so quiet does not move it."""
        due = clock.now() + 3
        broker.enqueue([value("k", "a", perform_at=due)])
        assert add(broker, "b") == due

    def test_a_payload_with_a_time_of_its_own_does_not_end_the_wait(self, broker: Broker, clock: ManualClock) -> None:
        """The job is queued, and enqueueing onto it does not move it."""
        due = add(broker, "a")
        clock.advance(5)
        broker.enqueue([value("k", "b", perform_at=-5.0)])
        assert only(broker, "k").perform_at == due
        clock.advance(1)
        assert add(broker, "c") == clock.now() + 10

    def test_a_job_that_failed_does_not_wait_for_quiet(self, broker: Broker, clock: ManualClock) -> None:
        """Its retry time stands, and after its success quiet begins anew."""
        add(broker, "a")
        clock.advance(10)
        hand = Hand(broker)
        hand.settle(failed(hand.one(), "no", 25, 3.0))
        due = clock.now() + 3
        clock.advance(1)
        assert add(broker, "b") == due
        clock.advance(2)
        hand.settle(done(hand.one()))
        assert add(broker, "c") == clock.now() + 10

    def test_what_is_set_aside_waits_for_quiet_by_itself(self, broker: Broker, clock: ManualClock) -> None:
        """From its own first payload on, and on after the run has ended."""
        quiet = Quiet(10.0, max_wait_s=15.0)
        add(broker, "a", quiet)
        clock.advance(10)
        hand = Hand(broker)
        claim = hand.one()
        first = clock.now()
        assert add(broker, "b", quiet) == first + 10
        clock.advance(4)
        assert add(broker, "c", quiet) == first + 14
        hand.settle(done(claim))
        assert only(broker, "k").perform_at == first + 14
        clock.advance(4)
        assert add(broker, "d", quiet) == first + 15
        clock.advance(7)
        assert sorted(bodies(hand.one())) == ["b", "c", "d"]

    def test_what_one_claim_has_left_does_not_wait(self, broker: Broker, clock: ManualClock) -> None:
        """It is due already: more payloads do not put it off."""
        due = add(broker, "a")
        add(broker, "b")
        clock.advance(10)
        hand = Hand(broker)
        claim = hand.one(max_payloads=1)
        assert add(broker, "c") == due
        hand.settle(done(claim))
        assert add(broker, "d") == due

    def test_moving_a_job_ends_its_wait(self, broker: Broker, clock: ManualClock) -> None:
        """Whoever said when it is to run is not overruled by a payload."""
        add(broker, "a")
        broker.reschedule("q", "k", delay_s=60)
        due = clock.now() + 60
        assert add(broker, "b") == due
        assert broker.run_now("q", ["k"]) == 1
        assert add(broker, "c") == clock.now()

    def test_the_quiet_wakes_a_waiter(self, broker: Broker, clock: ManualClock) -> None:
        """It is a due time like any other."""
        add(broker, "a")
        assert broker.wait(["q"], 0.0) == set()
        clock.advance(10)
        assert broker.wait(["q"], 0.0) == {"q"}
