"""When a lease has ended, and what a renewal says of the claims that a worker knows."""

from __future__ import annotations

import pytest

from laneway import Laneway
from laneway.clock import ManualClock
from laneway.worker.lease import Keeper, Observer

pytestmark = pytest.mark.unit


def test_a_lease_ends_when_it_was_seen_unchanged_for_its_length():
    clock = ManualClock()
    observer = Observer(clock)
    assert observer.expired({"w": (1, 30.0)}) == []
    clock.advance(29.9)
    assert observer.expired({"w": (1, 30.0)}) == []
    clock.advance(0.1)
    assert observer.expired({"w": (1, 30.0)}) == [("w", 1)]


def test_a_renewal_begins_it_anew():
    clock = ManualClock()
    observer = Observer(clock)
    observer.expired({"w": (1, 30.0)})
    clock.advance(29)
    assert observer.expired({"w": (2, 30.0)}) == []
    clock.advance(29)
    assert observer.expired({"w": (2, 30.0)}) == []


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_step_of_the_wall_clock_neither_ends_nor_prolongs_it(hours):
    clock = ManualClock()
    observer = Observer(clock)
    observer.expired({"w": (1, 30.0)})
    clock.step(hours * 3600)
    assert observer.expired({"w": (1, 30.0)}) == []
    clock.advance(30)
    assert observer.expired({"w": (1, 30.0)}) == [("w", 1)]


class FakeFetcher:
    def __init__(self, *holdings) -> None:
        self._holdings = holdings

    def holdings(self):
        return self._holdings


class RenewalsOnly:
    max_body = 1

    def __init__(self) -> None:
        self.renewals = []

    def renew(self, worker, held, before) -> None:
        self.renewals.append((worker, held, before))


@pytest.mark.parametrize(
    ("holdings", "held", "before"),
    [
        ([({3, 5}, None, 5)], {3, 5}, 5),
        # A turn is under way: only what is older than the last answer before it may be judged.
        ([({3}, 3, 3), ({9}, None, 9)], {3, 9}, 3),
        ([(set(), 0, 0), ({9}, None, 9)], {9}, 0),
        # An idle queue does not keep the others' claims from being judged.
        ([(set(), None, 0), ({9}, None, 9)], {9}, 9),
    ],
)
def test_a_renewal_judges_only_what_was_answered(holdings, held, before):
    broker = RenewalsOnly()
    keeper = Keeper(
        Laneway(broker=broker),
        ManualClock(),
        [FakeFetcher(*each) for each in holdings],
        lease_s=30,
        worker_id=lambda: "me",
        lost=lambda worker: None,
    )
    keeper.renew()
    assert broker.renewals == [("me", held, before)]
