"""The conformance suite detects broken brokers: each breaks one rule, and the test of that rule fails."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from laneway.broker import Answer, Listing, Page, Turn
from laneway.clock import Clock
from laneway.jobs.data import NewJob, WorkerView
from laneway.jobs.settlement import Settlement
from tests.conformance.suite_check import check_seen
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
    LateBeforeItsTime: "test_every_shard_has_a_lag_of_its_own",
    PagesByNumber: "test_jobs_that_go_between_two_pages_disturb_nothing",
}


@pytest.mark.parametrize(("broken", "test"), SEEN.items(), ids=[broken.__name__ for broken in SEEN])
def test_a_broken_broker_is_seen(broken: Callable[[Clock], Any], test: str) -> None:
    check_seen(broken, test)
