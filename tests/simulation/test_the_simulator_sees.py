"""The simulator detects mistakes: each of these brokers and workers has one, and a checker reports it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import pytest

from laneway.broker import Answer, Broker, ReshardProgress, Turn
from laneway.clock import Clock
from laneway.jobs.data import Kind, NewJob, StartedRun
from laneway.jobs.settlement import Settlement, done
from laneway.worker.lease.holdings import Holdings
from laneway.worker.lease.lease import LeaseObserver
from tests.support.second_broker import SecondBroker
from tests.support.simulated_workers import SimulatedLane, SimulatedWorker
from tests.support.simulator import SimulationReport, on_second_broker, simulate

pytestmark = pytest.mark.simulation


def first_finding(phrase: str, run: Callable[[int], SimulationReport]) -> str | None:
    """The first finding of this sort in the first seeds that have one."""
    for seed in range(100):
        for finding in run(seed).findings:
            if phrase in finding:
                return finding
    return None


# -- brokers -------------------------------------------------------------------------------------------


class TokenUnchecked(SecondBroker):
    """Completes by id alone."""

    def _still_held(self, worker: Any, settlements: Iterable[Settlement]) -> Any:
        for settlement in settlements:
            claim = settlement.claim
            job = self._queues[claim.queue].by_ref.get(claim.ref)
            if job is not None and job.worker is not None:
                self._workers[job.worker].claims.pop(claim.ref, None)
                worker.claims[claim.ref] = job
                job.token = claim.token
        return super()._still_held(worker, settlements)


class SetAsideIsForgotten(SecondBroker):
    """Drops what comes while the key is being run."""

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        super().enqueue([job for job in jobs if self._idle(job)])

    def _idle(self, job: NewJob) -> bool:
        return job.queue not in self.queues() or self.status(job.queue, job.key) != "running"


class MergeDropsThePayload(SecondBroker):
    """Keeps one payload of a key: the first."""

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        super().enqueue([job for job in jobs if self.status(job.queue, job.key) in ("gone", "cancelled", "dead")])


class HeadIsNotKept(SecondBroker):
    """Puts a failed call behind those that have not failed."""

    def turn(self, turn: Turn) -> Answer:
        answer = super().turn(turn)
        for settlement in turn.settlements:
            claim = settlement.claim
            if settlement.verdict == "retry" and claim.kind is Kind.KEYED:
                failed = claim.payloads[settlement.done]
                if self.cancel(claim.queue, claim.key, failed.identity):
                    again = NewJob(
                        queue=claim.queue,
                        key=claim.key,
                        kind=claim.kind,
                        body=failed.body,
                        identity=failed.identity,
                        delay_s=settlement.delay_s,
                    )
                    self.enqueue([again])
        return answer


class ReshardingStrands(SecondBroker):
    """Takes the first step for the last."""

    def reshard(self, queue: str, shards: int, *, limit: int = 1_000) -> ReshardProgress:
        step = super().reshard(queue, shards, limit=limit)
        known = self._queues[queue]
        if not step.done and known.unmoved:
            known.unmoved = deque()
        return step


class ReclaimingForgets(SecondBroker):
    """Drops what a dead worker was running."""

    def reclaim(self) -> int:
        running = [(queue, view.key) for queue in self.queues() for view in self.listing(queue, "running").jobs]
        count = super().reclaim()
        for queue, key in running:
            if self.status(queue, key) != "running":
                self.cancel(queue, key)
        return count


class RenewingGivesBackAll(SecondBroker):
    """Takes back claims that their worker knows of."""

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        super().renew(worker, (), before + 1)


class BuryingLoses(SecondBroker):
    """Takes what is to be buried for done."""

    def turn(self, turn: Turn) -> Answer:
        answer = super().turn(turn)
        for settlement in turn.settlements:
            if settlement.verdict == "bury":
                self.delete_dead(settlement.claim.queue, [settlement.claim.key])
        return answer


class NeighboursAreBlamed(SecondBroker):
    """Counts a death for all that a process held."""

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        known = self._workers.get(worker)
        held = known.claims.values() if known is not None and died else ()
        blamed = [StartedRun(job.queue, job.key, job.token, entry.identity) for job in held for entry in job.running]
        return super().leave(worker, blamed)


class PauseIsForShow(SecondBroker):
    """Hands out what is due all the same."""

    def turn(self, turn: Turn) -> Answer:
        paused, self._queues[turn.queue].paused = self._queues[turn.queue].paused, False
        try:
            return super().turn(turn)
        finally:
            self._queues[turn.queue].paused = paused


class PausedForEver(SecondBroker):
    """Does not resume."""

    def resume(self, queue: str) -> bool:
        return True


BROKERS = {
    NeighboursAreBlamed: "and was being run at",
    PauseIsForShow: "was handed out while",
    PausedForEver: "no end",
    TokenUnchecked: "was taken, though",
    SetAsideIsForgotten: "is neither waiting",
    MergeDropsThePayload: "has not ended and is not in the morgue",
    HeadIsNotKept: "began before call",
    ReshardingStrands: "no end",
    ReclaimingForgets: "is neither waiting",
    RenewingGivesBackAll: "while call",
    BuryingLoses: "is neither waiting",
}


@pytest.mark.parametrize(("broken", "phrase"), BROKERS.items(), ids=[broken.__name__ for broken in BROKERS])
def test_a_broken_broker_is_seen(broken: Callable[[Clock], Broker], phrase: str) -> None:
    def run(seed: int) -> SimulationReport:
        brokers: list[Broker] = []

        def connect(clock: Clock) -> Broker:
            brokers.append(brokers[0] if brokers else broken(clock))
            return brokers[0]

        return simulate(seed, connect, steps=200)

    assert first_finding(phrase, run) is not None


# -- workers -------------------------------------------------------------------------------------------


class AcknowledgesBeforeRunning(SimulatedWorker):
    """Settles what it has not run yet."""

    def turn(self, lane: SimulatedLane, limit: int | None = None) -> None:
        before = len(lane.waiting)
        super().turn(lane, limit)
        lane.finished += [done(claim) for claim in lane.waiting[before:]]

    def _end(self, settlement: Settlement) -> None:
        self.run = None


class TakesOverAtOnce(SimulatedWorker):
    """Has no patience with leases."""

    def _make_keeper(self) -> Any:
        keeper = super()._make_keeper()
        keeper._observer = Impatient(self._clock)
        return keeper


class Impatient(LeaseObserver):
    def expired(self, leases: dict[str, tuple[int, float]]) -> list[tuple[str, int]]:
        return [(worker, counter) for worker, (counter, _) in leases.items()]


class NeverSweeps(SimulatedWorker):
    """Leaves the claims of the dead where they are."""

    def _make_keeper(self) -> Any:
        keeper = super()._make_keeper()
        keeper.sweep = lambda worker: None  # type: ignore[method-assign]  # the mistake
        return keeper


class ForgetsWhatItHolds(SimulatedWorker):
    """Renews without saying what it holds."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        for lane in self.lanes:
            lane.holdings = Unsaid()


class Unsaid(Holdings):
    def report(self) -> tuple[set[int], int | None]:
        return set(), super().report()[1]


class GoesOnAfterAFailure(SimulatedWorker):
    """Runs the calls behind a failed one."""

    def _end(self, settlement: Settlement) -> None:
        run = self.run
        assert run is not None
        if settlement.verdict == "retry" and run.claim.kind is Kind.KEYED and run.done + 1 < len(run.claim.payloads):
            self._go_on(run)
        else:
            super()._end(settlement)


class ThrowsAwayAnswers(SimulatedWorker):
    """Takes a turn that was not answered for one that was not carried out."""

    def turn(self, lane: SimulatedLane, limit: int | None = None) -> None:
        super().turn(lane, limit)
        if lane.unanswered is not None:
            lane.unanswered = None  # and with it, what was to be settled


class IgnoresItsLease(SimulatedWorker):
    """Goes on with what it was handed under the name that was declared dead."""

    def lost(self) -> None:
        waiting = [list(lane.waiting) for lane in self.lanes]
        super().lost()
        for lane, claims in zip(self.lanes, waiting, strict=True):
            lane.waiting += claims


WORKERS = {
    AcknowledgesBeforeRunning: "has not ended and is not in the morgue",
    TakesOverAtOnce: "while call",
    NeverSweeps: "no end",
    ForgetsWhatItHolds: "while call",
    GoesOnAfterAFailure: "has not ended and is not in the morgue",
    ThrowsAwayAnswers: "no end",
    IgnoresItsLease: "while call",
}


@pytest.mark.parametrize(("broken", "phrase"), WORKERS.items(), ids=[broken.__name__ for broken in WORKERS])
def test_a_broken_worker_is_seen(broken: type[SimulatedWorker], phrase: str) -> None:
    assert first_finding(phrase, lambda seed: simulate(seed, on_second_broker(), steps=200, worker=broken)) is not None
