"""When a lease ends, and what a renewal says about the claims of a worker."""

from __future__ import annotations

import pytest

from laneway import Laneway
from laneway.broker import Answer
from laneway.brokers.sqlite import MemoryBroker
from laneway.clock import ManualClock
from laneway.jobs.data import Claim, Payload
from laneway.worker.lease.holdings import Holdings
from laneway.worker.lease.lease import LeaseKeeper, LeaseObserver
from laneway.worker.outage import Outage

pytestmark = pytest.mark.unit


def test_a_lease_ends_when_it_was_seen_unchanged_for_its_length():
    clock = ManualClock()
    observer = LeaseObserver(clock)
    assert observer.expired({"w": (1, 30.0)}) == []
    clock.advance(29.9)
    assert observer.expired({"w": (1, 30.0)}) == []
    clock.advance(0.1)
    assert observer.expired({"w": (1, 30.0)}) == [("w", 1)]


def test_a_renewal_begins_it_anew():
    clock = ManualClock()
    observer = LeaseObserver(clock)
    observer.expired({"w": (1, 30.0)})
    clock.advance(29)
    assert observer.expired({"w": (2, 30.0)}) == []
    clock.advance(29)
    assert observer.expired({"w": (2, 30.0)}) == []


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_step_of_the_wall_clock_neither_ends_nor_prolongs_it(hours):
    clock = ManualClock()
    observer = LeaseObserver(clock)
    observer.expired({"w": (1, 30.0)})
    clock.step(hours * 3600)
    assert observer.expired({"w": (1, 30.0)}) == []
    clock.advance(30)
    assert observer.expired({"w": (1, 30.0)}) == [("w", 1)]


class FakeFetcher:
    """A fetcher that holds tokens, and may have a turn under way since its last answer."""

    def __init__(self, held, under_way, answered) -> None:
        self.holdings = Holdings()
        for token in held:
            self.holdings.take_in([], Answer([claim(token)], token), keep=True)
        self.holdings.take_in([], Answer([], answered), keep=True)
        if under_way:
            self.holdings.ask()


def claim(token: int) -> Claim:
    return Claim("q", 1, "k", token, 0.0, -1, 1, 0, [Payload("x")])


class RenewalsOnly(MemoryBroker):
    """Notes the renewals, whoever the worker is."""

    def __init__(self) -> None:
        super().__init__()
        self.renewals = []

    def renew(self, worker, held, before) -> None:
        self.renewals.append((worker, held, before))


@pytest.mark.parametrize(
    ("holdings", "held", "before"),
    [
        ([({3, 5}, False, 5)], {3, 5}, 5),
        # A turn is under way: only what is older than the last answer before it may be judged.
        ([({3}, True, 3), ({9}, False, 9)], {3, 9}, 3),
        ([(set(), True, 0), ({9}, False, 9)], {9}, 0),
        # An idle queue does not keep the others' claims from being judged.
        ([(set(), False, 0), ({9}, False, 9)], {9}, 9),
    ],
)
def test_a_renewal_judges_only_what_was_answered(holdings, held, before):
    broker = RenewalsOnly()
    keeper_of(broker, [FakeFetcher(*each) for each in holdings], ManualClock()).renew("me")
    assert broker.renewals == [("me", held, before)]


def keeper_of(broker, fetchers, clock, **options) -> LeaseKeeper:
    app = Laneway(broker=broker)
    return LeaseKeeper(
        app,
        clock,
        fetchers,
        Outage(app.telemetry),
        lease_s=30,
        worker_id=lambda: "me",
        lost=lambda worker: None,
        **options,
    )


def test_a_turn_answered_while_a_renewal_is_put_together_is_not_judged():
    """The first queue is asked, then takes a turn, then the second is asked: it must not look older than it is."""
    broker = RenewalsOnly()
    first, second = FakeFetcher(set(), False, 3), FakeFetcher(set(), False, 4)
    report = first.holdings.report

    def report_and_then_take_turns():
        answer = report()
        first.holdings.take_in([], Answer([claim(10)], 10), keep=True)
        second.holdings.take_in([], Answer([], 11), keep=True)
        return answer

    first.holdings.report = report_and_then_take_turns
    keeper_of(broker, [first, second], ManualClock()).renew("me")
    [(_, _, before)] = broker.renewals
    assert before <= 4


class Others(RenewalsOnly):
    """A broker with one other worker, whose counter stands still."""

    def __init__(self) -> None:
        super().__init__()
        self.dead = []
        self.stall = lambda: None

    def leases(self):
        return {"me": (1, 30.0), "other": (1, 30.0)}

    def declare_dead(self, worker, counter) -> bool:
        self.dead.append(worker)
        return True

    def leave(self, worker, died=()) -> int:
        self.stall()
        return 0

    def reclaim(self) -> int:
        return 0


def test_a_worker_that_does_not_renew_is_declared_dead():
    broker, clock = Others(), ManualClock()
    keeper = keeper_of(broker, [FakeFetcher(set(), False, 0)], clock)
    for _ in range(4):
        keeper.sweep("me")
        clock.advance(10)
        keeper.renew("me")
    assert broker.dead == ["other"]


def test_after_an_outage_nobody_is_blamed_for_not_having_renewed():
    """The observer itself could not renew: the others may have been waiting for the same broker."""
    broker, clock = Others(), ManualClock()
    keeper = keeper_of(broker, [FakeFetcher(set(), False, 0)], clock)
    keeper.sweep("me")
    clock.advance(300)
    keeper.renew("me")
    keeper.sweep("me")
    assert broker.dead == []


def test_who_could_not_write_because_nobody_could_is_not_blamed():
    """Leases can be read while one process keeps the lock that writing needs."""
    broker, clock = Others(), ManualClock()
    keeper = keeper_of(broker, [FakeFetcher(set(), False, 0)], clock)
    broker.stall = lambda: clock.advance(20)
    for _ in range(3):
        keeper.sweep("me")
        clock.advance(20)
        keeper.sweep("me")
        clock.advance(20)
    assert broker.dead == []
    broker.stall = lambda: None
    for _ in range(4):
        keeper.sweep("me")
        clock.advance(10)
    assert broker.dead[:1] == ["other"]


def test_a_claim_is_valid_for_a_lease_from_the_beginning_of_the_renewal():
    clock = ManualClock()
    keeper = keeper_of(Others(), [FakeFetcher(set(), False, 0)], clock)
    clock.advance(12)
    keeper.renew("me")
    assert keeper.valid_until == clock.monotonic() + 30


def test_nothing_is_begun_when_a_supervisor_would_end_it():
    clock = ManualClock()
    keeper = keeper_of(Others(), [FakeFetcher(set(), False, 0)], clock, ended_in_time=True)
    keeper.renew("me")
    assert keeper.valid_until == clock.monotonic() + 20
