"""Claims that only their holder renews: renewed more often, and no run begins that may be another worker's."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

import pytest

from laneway import Laneway
from laneway.broker import Answer, Capabilities, SettleBatch, Turn
from laneway.brokers.sqlite import MemoryBroker
from laneway.clock import ManualClock
from laneway.errors import BrokerAwayError
from laneway.worker.outage import Outage
from laneway.worker.supervisor.leases import ChildLeases
from tests.support.worker_fixtures import PATIENCE_S, Running, drain, stats
from tests.unit.worker.lease.test_lease import FakeFetcher, RenewalsOnly, keeper_of

LEASE_S = 30.0


@pytest.mark.unit
@pytest.mark.parametrize(("keeps", "part"), [(True, 6), (False, 3)])
def test_how_often_it_renews(keeps: bool, part: int):
    broker, clock = RenewalsOnly(), ManualClock()
    keeper = keeper_of(broker, [FakeFetcher(set(), False, 0)], clock, sweeps=False, keeps=keeps)
    clock.advance(LEASE_S / part - 0.1)
    keeper.beat()
    assert broker.renewals == []
    clock.advance(0.2)
    keeper.beat()
    assert len(broker.renewals) == 1


@pytest.mark.unit
def test_nothing_is_begun_after_two_thirds_of_the_lease():
    told: list[float] = []
    clock = ManualClock()
    keeper = keeper_of(
        RenewalsOnly(),
        [FakeFetcher(set(), False, 0)],
        clock,
        keeps=True,
        renewed=lambda: told.append(keeper.renewed_at),
    )
    clock.advance(10)
    keeper.renew("me")
    assert keeper.valid_until == clock.monotonic() + LEASE_S * 2 / 3
    assert told == [clock.monotonic()]


class Kept(MemoryBroker):
    """Knows of no leases, as SQS does not; whoever holds something renews it, if that is possible."""

    capabilities = Capabilities(shared=False, holders_keep=True)

    def __init__(self) -> None:
        super().__init__()
        self.away = threading.Event()
        self.refused = threading.Event()
        self.renewals = 0
        self.claimed = 0

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        if self.away.is_set():
            self.refused.set()
            raise BrokerAwayError("nothing can be kept")
        self.renewals += 1

    def is_asked_again(self) -> None:
        self.refused.clear()
        assert self.refused.wait(PATIENCE_S)

    def turn(self, turn: Turn) -> Answer:
        answer = super().turn(turn)
        self.claimed += len(answer.claims)
        return answer

    def leases(self) -> dict[str, tuple[int, float]]:
        return {}

    def declare_dead(self, worker: str, counter: int) -> bool:
        raise AssertionError("there is nobody to be declared dead")

    def reclaim(self) -> int:
        return 0


class AChild:
    """A child that a supervisor would renew for."""

    id = "w"
    ids = ("w",)

    def renewable(self, now: float) -> bool:
        return True


@pytest.mark.unit
@pytest.mark.parametrize(("broker", "renewed"), [(Kept, 0), (RenewalsOnly, 1)])
def test_a_supervisor_renews_only_what_others_cannot_keep(broker: type, renewed: int):
    clock = ManualClock()
    app = Laneway(broker=(store := broker()))
    child = AChild()
    ChildLeases(app, clock, LEASE_S, Outage(app.telemetry), lambda: (child,)).round()
    made = store.renewals if isinstance(store.renewals, int) else len(store.renewals)
    assert made == renewed


def test_what_cannot_be_kept_is_not_claimed():
    broker = Kept()
    app = Laneway(broker=broker)
    ran = threading.Event()

    @app.task
    def note() -> None:
        ran.set()

    with Running(app, lease_s=0.6) as worker:
        broker.away.set()
        assert broker.refused.wait(PATIENCE_S)
        while time.monotonic() < worker._parts.keeper.valid_until:
            broker.is_asked_again()
        note.enqueue()
        broker.is_asked_again()
        assert broker.claimed == 0, "it would have to be given back, again and again"
        assert not ran.is_set()
        broker.away.clear()
        assert ran.wait(PATIENCE_S)
    assert stats(app).processed == 1


class LikeSQS(Kept):
    capabilities = Capabilities(
        shared=False, holders_keep=True, remote=True, settle_batch=SettleBatch(10, 0.05), ahead_s=0.2
    )


def test_a_worker_needs_no_leases():
    """Not to run, to sweep, to end when all is done, and to leave."""
    app = Laneway(broker=LikeSQS())

    @app.task
    def nothing() -> None: ...

    nothing.enqueue_many([()] * 25)
    assert drain(app) == 0
    assert stats(app).processed == 25
    assert app.broker.inspect.workers() == []
