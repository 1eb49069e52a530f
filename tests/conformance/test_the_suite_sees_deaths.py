"""The conformance suite detects brokers that are wrong about deaths and pauses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec
import pytest

from laneway.broker import Answer, Turn
from laneway.clock import Clock
from laneway.jobs.data import Kind, NewJob, StartedRun
from laneway.jobs.settlement import Settlement
from tests.conformance.suite_check import check_seen
from tests.support.second_broker import SecondBroker
from tests.support.second_broker.job import MemoryJob
from tests.support.second_broker.queue import MemoryQueue

pytestmark = pytest.mark.conformance


class DeathsAreForgotten(SecondBroker):
    """Gives back, and counts nothing."""

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        return super().leave(worker)


class NeighboursAreBlamed(SecondBroker):
    """Counts a death for all that the process held."""

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        held = self._workers[worker].claims.values() if died else ()
        everything = [
            StartedRun(job.queue, job.key, job.token, entry.identity) for job in held for entry in job.running
        ]
        return super().leave(worker, everything)


class TheFirstCallIsBlamed(SecondBroker):
    """Counts a death at the first call of a claim."""

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        first = {job.key: job.running[0].identity for job in self._workers[worker].claims.values()}
        died = [msgspec.structs.replace(each, identity=first.get(each.key, "")) for each in died]
        return super().leave(worker, died)


class TheKeyIsBlamed(SecondBroker):
    """Does not look at the token, nor at who holds the claim."""

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        for started in died:
            queue = self._queues.get(started.queue)
            job = queue and queue.by_key.get(started.key)
            if job:
                job.deaths += 1
        return super().leave(worker)


class AnyQueueIsBlamed(SecondBroker):
    """Looks at key and token alone."""

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        queues = {job.key: job.queue for job in self._workers[worker].claims.values()}
        return super().leave(
            worker, [msgspec.structs.replace(each, queue=queues.get(each.key, each.queue)) for each in died]
        )


class ListedTwiceCountsTwice(SecondBroker):
    """Counts a death each time that a run is named."""

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        for job in self._workers[worker].claims.values() if worker in self._workers else ():
            named = [each for each in died if (each.queue, each.key, each.token) == (job.queue, job.key, job.token)]
            job.deaths += max(len(named) - 1, 0)
        return super().leave(worker, died)


class DeathIsAFailure(SecondBroker):
    """Counts a death as if the job had raised."""

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        for started in died:
            for job in self._workers[worker].claims.values():
                job.retry_count += job.token == started.token
        return super().leave(worker, died)


class LeavingTwiceCountsTwice(SecondBroker):
    """Counts each time that it is told."""

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        left = super().leave(worker)
        for started in died:
            self._queues[started.queue].by_key[started.key].deaths += 1
        return left


class TheDeadAreBlamed(SecondBroker):
    """Lets somebody leave who was declared dead, as if its claims were its own."""

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        if worker in self._workers:
            self._workers[worker].view.dead = False
        return super().leave(worker, died)


class FailuresForgive(SecondBroker):
    """Begins anew with each exception."""

    def _settle(self, counted: MemoryQueue, worker: Any, job: MemoryJob, settlement: Settlement, now: float) -> None:
        super()._settle(counted, worker, job, settlement, now)
        job.deaths = 0


class SettledWithoutTheDeath(SecondBroker):
    """Knows of no deaths but those of whole workers."""

    def _settle(self, counted: MemoryQueue, worker: Any, job: MemoryJob, settlement: Settlement, now: float) -> None:
        super()._settle(counted, worker, job, msgspec.structs.replace(settlement, died=False), now)


class BuriedWithoutTheDeath(SecondBroker):
    """Does not count the last one."""

    def _settle(self, counted: MemoryQueue, worker: Any, job: MemoryJob, settlement: Settlement, now: float) -> None:
        settlement = msgspec.structs.replace(settlement, died=settlement.died and settlement.verdict != "bury")
        super()._settle(counted, worker, job, settlement, now)


class RevivedWithDeaths(SecondBroker):
    """Revives a call that will be buried at its next death."""

    def revive(self, queue: str, keys: Sequence[str]) -> int:
        known = self._queues[queue]
        before = {key: known.morgue[key].payloads.first(1)[0].deaths for key in keys if key in known.morgue}
        revived = super().revive(queue, keys)
        for key, deaths in before.items():
            known.by_key[key].payloads.first(1)[0].deaths = deaths
        return revived


class EnqueueingForgives(SecondBroker):
    """Begins anew when a payload is added."""

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        super().enqueue(jobs)
        for new in jobs:
            if new.kind is Kind.COLLECTING:
                self._queues[new.queue].by_key[new.key].deaths = 0


class TheLastCountStays(SecondBroker):
    """Has a burial overwrite the count of the one before."""

    def _settle(self, counted: MemoryQueue, worker: Any, job: MemoryJob, settlement: Settlement, now: float) -> None:
        deaths = job.deaths
        super()._settle(counted, worker, job, settlement, now)
        if settlement.verdict == "bury":
            self._queues[job.queue].morgue[job.key].deaths = deaths


class PauseIsForShow(SecondBroker):
    """Hands out what is due all the same."""

    def _claim(self, queue: MemoryQueue, worker: Any, token: int, turn: Turn, now: float) -> None:
        paused, queue.paused = queue.paused, False
        super()._claim(queue, worker, token, turn, now)
        queue.paused = paused


class PausedAltogether(SecondBroker):
    """Settles nothing either."""

    def turn(self, turn: Turn) -> Answer:
        if self._queues[turn.queue].paused:
            return Answer([])
        return super().turn(turn)


class PausedForProducers(SecondBroker):
    """Drops what is enqueued meanwhile."""

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        super().enqueue([new for new in jobs if new.queue not in self._queues or not self._queues[new.queue].paused])


class RestlessPause(SecondBroker):
    """Tells those who wait that a paused queue has work."""

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        due = {name for name in queues if name in self._queues and self._queues[name].lanes.next_due() is not None}
        return due or super().wait(queues, timeout_s)


class NobodyIsWoken(SecondBroker):
    """Resumes in silence: whoever waits for a queue that was paused waits on. (Not for long, for the test's sake.)"""

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        return super().wait(["nowhere"], min(timeout_s, 0.3)) if self._was_paused else super().wait(queues, timeout_s)

    _was_paused = False

    def pause(self, queue: str) -> bool:
        self._was_paused = True
        return super().pause(queue)


class PausingMakesQueues(SecondBroker):
    """Takes a mistyped name for a new queue."""

    def pause(self, queue: str) -> bool:
        self.declare(queue, 5)
        return super().pause(queue)


class DeclaringResumes(SecondBroker):
    """Forgets a pause when a worker starts."""

    def declare(self, queue: str, shards: int) -> int:
        self.resume(queue)
        return super().declare(queue, shards)


class PausedResharding(SecondBroker):
    """Does not tell those who wait that there is something to be moved."""

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        return {name for name in super().wait(queues, timeout_s) if not self._queues[name].paused}


SEEN = {
    DeathsAreForgotten: "test_a_death_is_counted_for_what_was_being_run",
    NeighboursAreBlamed: "test_a_death_is_counted_for_what_was_being_run",
    TheFirstCallIsBlamed: "test_a_death_is_counted_at_the_call_that_was_being_run",
    TheKeyIsBlamed: "test_what_is_not_held_is_not_blamed",
    AnyQueueIsBlamed: "test_what_is_not_held_is_not_blamed",
    ListedTwiceCountsTwice: "test_a_repeated_leave_counts_once",
    DeathIsAFailure: "test_a_death_is_no_failure",
    LeavingTwiceCountsTwice: "test_a_repeated_leave_counts_once",
    TheDeadAreBlamed: "test_a_worker_that_was_declared_dead_leaves_nothing_behind",
    FailuresForgive: "test_a_failure_keeps_the_deaths",
    SettledWithoutTheDeath: "test_a_run_that_died_in_a_process_of_its_own_is_settled_with_a_death",
    BuriedWithoutTheDeath: "test_a_job_buried_for_its_deaths_is_shown_with_all_of_them",
    RevivedWithDeaths: "test_who_is_revived_begins_without_deaths",
    EnqueueingForgives: "test_a_collecting_job_counts_as_a_whole",
    TheLastCountStays: "test_two_jobs_of_a_key_that_meet_in_the_morgue_have_the_larger_count",
    PauseIsForShow: "test_nothing_of_a_paused_queue_is_claimed",
    PausedAltogether: "test_what_runs_is_settled_and_what_it_sends_is_stored",
    PausedForProducers: "test_enqueueing_goes_on",
    RestlessPause: "test_nobody_is_told_of_a_paused_queue",
    NobodyIsWoken: "test_resuming_ends_a_wait",
    PausingMakesQueues: "test_pausing_and_resuming_say_whether_they_did_anything",
    DeclaringResumes: "test_a_pause_outlives_declaring_the_queue_again",
    PausedResharding: "test_resharding_is_not_held_up",
}


@pytest.mark.parametrize(("broken", "test"), SEEN.items(), ids=[broken.__name__ for broken in SEEN])
def test_a_broken_broker_is_seen(broken: Callable[[Clock], Any], test: str) -> None:
    check_seen(broken, test)
