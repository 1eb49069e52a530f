"""The conformance suite detects broken brokers: each breaks one rule, and the test of that rule fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from laneway.broker import Answer, Capabilities, Listing, Page, Turn
from laneway.clock import Clock
from laneway.jobs.data import NewJob, WorkerView
from laneway.jobs.settlement import Settlement
from laneway.testing.conformance import wait
from tests.conformance.suite_check import check_seen, run
from tests.support.second_broker import SecondBroker
from tests.support.second_broker.job import MemoryJob
from tests.support.second_broker.queue import MemoryQueue

pytestmark = pytest.mark.conformance


class TokenUnchecked(SecondBroker):
    """Completes by id alone."""

    def _still_held(self, worker: Any, settlements: Iterable[Settlement]) -> Any:
        for claim in (settlement.claim for settlement in settlements):
            job = self._queues[claim.queue].by_ref.get(claim.ref)
            if job is not None and job.worker is not None:
                claim.token = job.token
                worker.claims[claim.ref] = job
        return super()._still_held(worker, settlements)


class OutboxOfTheRefused(SecondBroker):
    """Sends what a run enqueued before it looks whether the run still counts."""

    def turn(self, turn: Turn) -> Answer:
        for settlement in turn.settlements:
            self.enqueue(settlement.outbox or [])
        return super().turn(turn)


class OutboxOfTheDoneAlone(SecondBroker):
    """Throws away what the calls before a failure have enqueued."""

    def _still_held(self, worker: Any, settlements: Iterable[Settlement]) -> Any:
        for settlement in settlements:
            settlement.outbox = settlement.outbox if settlement.verdict == "done" else None
        return super()._still_held(worker, settlements)


class ReleaseCounts(SecondBroker):
    """Counts an attempt that was never made."""

    def _settle(self, counted: MemoryQueue, worker: Any, job: MemoryJob, settlement: Settlement, now: float) -> None:
        super()._settle(counted, worker, job, settlement, now)
        job.attempt += settlement.verdict == "release"


class RepeatIsNew(SecondBroker):
    """Takes the repeat of a turn for a new one."""

    def turn(self, turn: Turn) -> Answer:
        self._living(turn.worker).turns.clear()
        return super().turn(turn)


class TokenIsTheTime(SecondBroker):
    """Trusts the clock to grow."""

    def turn(self, turn: Turn) -> Answer:
        self._last_token = 0
        return super().turn(turn)


class HalfAnEnqueue(SecondBroker):
    """Stores jobs one by one."""

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        for job in jobs:
            super().enqueue([job])


class Early(SecondBroker):
    """Hands out what is almost due."""

    def _claim(self, queue: MemoryQueue, worker: Any, token: int, turn: Turn, now: float) -> None:
        super()._claim(queue, worker, token, turn, now + 0.5)


class ReclaimCountsAFailure(SecondBroker):
    """Blames the job for its worker's death."""

    def _give_back(self, worker: Any, jobs: Sequence[MemoryJob], *, started: bool = True) -> int:
        for job in jobs:
            job.retry_count += 1
        return super()._give_back(worker, jobs, started=started)


class DeadByHearsay(SecondBroker):
    """Ends a lease that was renewed meanwhile."""

    def declare_dead(self, worker: str, counter: int) -> bool:
        return super().declare_dead(worker, self.leases().get(worker, (0, 0.0))[0])


class Resurrection(SecondBroker):
    """Lets a worker that was declared dead join again."""

    def join(self, worker: WorkerView) -> None:
        self._workers.pop(worker.id, None)
        super().join(worker)


class RenewGivesBackAll(SecondBroker):
    """Gives back what the worker holds as well."""

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        super().renew(worker, (), before)


class RenewGivesBackTheYoung(SecondBroker):
    """Gives back claims whose answer is still on its way."""

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        super().renew(worker, held, 2**63)


class ReviveLeavesACopy(SecondBroker):
    """Writes the new place and forgets to clear the old one."""

    def revive(self, queue: str, keys: Sequence[str]) -> int:
        dead = {key: msgspec.structs.replace(job) for key, job in self._queues[queue].morgue.items()}
        revived = super().revive(queue, keys)
        self._queues[queue].morgue.update(dead)
        return revived


class Deaf(SecondBroker):
    """Waits without being told of anything."""

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        return super().wait(["nowhere"], min(timeout_s, 0.05))


class NudgesAreRemembered(SecondBroker):
    """Ends the next wait for a nudge that came before it."""

    _nudged = False

    def nudge(self) -> None:
        self._nudged = True
        super().nudge()

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        nudged, self._nudged = self._nudged, False
        return set() if nudged else super().wait(queues, timeout_s)


class Oversleeps(SecondBroker):
    """Looks at the queues before a wait and after it: a job that becomes due meanwhile wakes no worker."""

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        if not (ready := super().wait(queues, 0.0)):
            time.sleep(timeout_s)
        return ready or super().wait(queues, 0.0)


class ReleasedAnew(SecondBroker):
    """Puts what was never started behind all that is due."""

    def _settle(self, counted: MemoryQueue, worker: Any, job: MemoryJob, settlement: Settlement, now: float) -> None:
        super()._settle(counted, worker, job, settlement, now)
        if settlement.verdict == "release":
            counted.set_due(job, now)


class CancelledForGood(SecondBroker):
    """Goes on to remember that a key was cancelled which has been enqueued again."""

    def _store(self, jobs: Iterable[NewJob], now: float) -> None:
        jobs = list(jobs)
        cancelled = {name: dict(queue.cancelled) for name, queue in self._queues.items()}
        super()._store(jobs, now)
        for name, marks in cancelled.items():
            self._queues[name].cancelled = marks


class FailureAfterSuccess(SecondBroker):
    """Keeps the error of a call that has succeeded since."""

    def _settle(self, counted: MemoryQueue, worker: Any, job: MemoryJob, settlement: Settlement, now: float) -> None:
        error = job.error
        super()._settle(counted, worker, job, settlement, now)
        if settlement.verdict in ("postpone", "release"):
            job.error = error


class ClaimsAreStarts(SecondBroker):
    """Counts every call of a claim as started, whichever of them was."""

    def _settle(self, counted: MemoryQueue, worker: Any, job: MemoryJob, settlement: Settlement, now: float) -> None:
        counts = {entry.identity: entry.attempt for entry in job.running}
        super()._settle(counted, worker, job, settlement, now)
        for entry in job.payloads:
            entry.attempt = counts.get(entry.identity, entry.attempt)


class RepeatsWhatRuns(SecondBroker):
    """Sets a call aside that is being run."""

    def _store(self, jobs: Iterable[NewJob], now: float) -> None:
        for new in jobs:
            queue = self._queues.get(new.queue)
            job = queue and queue.by_key.get(new.key)
            running, job_running = (job.running, job) if job else ([], None)
            if job_running is not None:
                job_running.running = []
            super()._store([new], now)
            if job_running is not None:
                job_running.running = running


class PlainBroker(SecondBroker):
    """A broker that lacks two kinds of jobs. Nothing of it is broken."""

    capabilities = Capabilities(shared=False, lacks={"keyed": "No.", "collecting": "No."})


class AnyKindInAnOutbox(PlainBroker):
    """Checks what is enqueued against the capabilities, and not what a run has enqueued."""

    def turn(self, turn: Turn) -> Answer:
        self.capabilities = SecondBroker.capabilities
        try:
            return super().turn(turn)
        finally:
            del self.capabilities


class LateBeforeItsTime(SecondBroker):
    """Takes what is delayed for late."""

    def lags(self, queue: str) -> dict[int, float]:
        return {shard: max(0.0, self._clock.now() - due) for shard, due in self._queues[queue].lanes.dues().items()}


class PagesByNumber(SecondBroker):
    """Counts jobs to find the next page."""

    def listing(self, queue: str, which: Listing, *, after: str | None = None, limit: int = 100, **how: Any) -> Page:
        begin = int(after or 0)
        jobs = super().listing(queue, which, limit=10_000, **how).jobs[begin : begin + limit]
        return Page(jobs, str(begin + limit) if len(jobs) == limit else None)


SEEN = {
    TokenUnchecked: "test_a_stale_settlement_is_refused_and_sends_nothing",
    OutboxOfTheRefused: "test_the_outbox_of_the_refused_is_not_stored",
    OutboxOfTheDoneAlone: "test_the_outbox_is_stored_with_any_verdict",
    ReleaseCounts: "test_a_released_job_is_as_if_it_had_not_been_claimed",
    RepeatIsNew: "test_a_repeated_turn_settles_nothing_twice",
    TokenIsTheTime: "test_tokens_only_grow",
    HalfAnEnqueue: "test_enqueueing_is_all_or_nothing",
    Early: "test_a_job_is_not_due_before_its_time",
    ReclaimCountsAFailure: "test_a_job_taken_back_is_as_it_was_before",
    DeadByHearsay: "test_a_lease_that_was_renewed_cannot_be_ended",
    Resurrection: "test_death_is_final",
    RenewGivesBackAll: "test_renewing_gives_back_what_the_worker_does_not_know_of",
    RenewGivesBackTheYoung: "test_renewing_gives_back_what_the_worker_does_not_know_of",
    ReviveLeavesACopy: "test_reviving_twice_revives_once",
    Deaf: "test_a_job_that_is_enqueued_ends_a_wait",
    NudgesAreRemembered: "test_a_nudge_does_not_end_the_waits_after_it",
    ReleasedAnew: "test_a_released_job_keeps_its_place",
    CancelledForGood: "test_a_call_that_was_cancelled_may_be_enqueued_again",
    FailureAfterSuccess: "test_what_is_postponed_behind_a_success_has_not_failed",
    ClaimsAreStarts: "test_those_behind_a_buried_call_were_not_started",
    RepeatsWhatRuns: "test_the_same_call_again_changes_nothing",
    LateBeforeItsTime: "test_every_shard_has_a_lag_of_its_own",
    PagesByNumber: "test_jobs_that_go_between_two_pages_disturb_nothing",
}


@pytest.mark.parametrize(("broken", "test"), SEEN.items(), ids=[broken.__name__ for broken in SEEN])
def test_a_broken_broker_is_seen(broken: Callable[[Clock], Any], test: str) -> None:
    check_seen(broken, test)


def test_a_wait_that_oversleeps_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has the right answer at its timeout, and must fail all the same."""
    monkeypatch.setattr(wait, "LONG_S", 2.0)
    check_seen(Oversleeps, "test_a_delayed_job_ends_a_wait_when_it_becomes_due")


def test_an_unchecked_outbox_is_seen() -> None:
    check_seen(AnyKindInAnOutbox, "test_a_kind_that_the_broker_lacks_is_refused_in_an_outbox", whole=PlainBroker)


class WaitFails(SecondBroker):
    """Raises instead of waiting."""

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        raise RuntimeError("no wait")


def test_the_error_of_a_wait_reaches_the_test() -> None:
    with pytest.raises(RuntimeError, match="no wait"):
        run("test_a_job_that_is_enqueued_ends_a_wait", WaitFails)
