"""The conformance suite detects brokers that are wrong about keys and payloads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from laneway.broker import Answer, ReshardProgress, Turn
from laneway.clock import Clock
from laneway.jobs.data import NewJob
from laneway.jobs.merge import HEAD
from laneway.jobs.settlement import Settlement
from laneway.jobs.shards import shard_of
from tests.conformance.suite_check import check_seen
from tests.support.second_broker import SecondBroker
from tests.support.second_broker.job import MemoryJob, PayloadList
from tests.support.second_broker.queue import MemoryQueue

pytestmark = pytest.mark.conformance


class TheLargerScoreStays(SecondBroker):
    """Merges the wrong way round."""

    def _store(self, jobs: Iterable[NewJob], now: float) -> None:
        for new in jobs:
            super()._store([new], now)
            pile = self._queues[new.queue].by_key[new.key].payloads
            entry = pile.get(new.identity)
            if entry is not None and new.score is not None and new.score > entry.score:
                pile.move(entry, new.score)


class EnqueueingMovesTheTime(SecondBroker):
    """Has a collecting job run as soon as any of its payloads would."""

    def _store(self, jobs: Iterable[NewJob], now: float) -> None:
        for new in jobs:
            super()._store([new], now)
            queue = self._queues[new.queue]
            at = now + new.delay_s if new.perform_at is None else new.perform_at
            queue.set_due(queue.by_key[new.key], min(at, queue.by_key[new.key].perform_at))


class RunsBeside(SecondBroker):
    """Hands out what came while its key was being run."""

    def _store(self, jobs: Iterable[NewJob], now: float) -> None:
        jobs = list(jobs)
        super()._store(jobs, now)
        for new in jobs:
            queue = self._queues[new.queue]
            queue.lanes.put(queue.by_key[new.key])


class EqualCallsAreOne(SecondBroker):
    """Tells calls apart by what is in them."""

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        super().enqueue([msgspec.structs.replace(job, identity=job.body) for job in jobs])


class TheTimeIsTheScore(SecondBroker):
    """Takes the time for an order of arrival."""

    def _store(self, jobs: Iterable[NewJob], now: float) -> None:
        super()._store(
            (msgspec.structs.replace(job, score=now if job.score is None else job.score) for job in jobs), now
        )


class QuietForEver(SecondBroker):
    """Lets every payload put its job off."""

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        for job in jobs:
            quiet = job.quiet and msgspec.structs.replace(job.quiet, max_wait_s=None)
            super().enqueue([msgspec.structs.replace(job, quiet=quiet)])


class HeadsAreOvertaken(SecondBroker):
    """Puts a call that failed back where its due time says."""

    def _settle(self, counted: MemoryQueue, worker: Any, job: MemoryJob, settlement: Settlement, now: float) -> None:
        super()._settle(counted, worker, job, settlement, now)
        for entry in job.payloads.first(1):
            if entry.score == HEAD:
                job.payloads.move(entry, entry.perform_at)


class EnqueueingWakesTheResting(SecondBroker):
    """Forgets that a key rests after a failure."""

    def _settle(self, counted: MemoryQueue, worker: Any, job: MemoryJob, settlement: Settlement, now: float) -> None:
        super()._settle(counted, worker, job, settlement, now)
        job.not_before = None


class AllOrNothing(SecondBroker):
    """Runs the calls again that were done before the one that failed."""

    def _settle(self, counted: MemoryQueue, worker: Any, job: MemoryJob, settlement: Settlement, now: float) -> None:
        super()._settle(counted, worker, job, msgspec.structs.replace(settlement, done=0), now)


class FailureIsForEver(SecondBroker):
    """Does not let a success reset the count."""

    def _settle(self, counted: MemoryQueue, worker: Any, job: MemoryJob, settlement: Settlement, now: float) -> None:
        count = job.retry_count
        super()._settle(counted, worker, job, settlement, now)
        if settlement.verdict == "done":
            job.retry_count = count


class DoneWithWhatItNeverSaw(SecondBroker):
    """Removes the key, and with it what came meanwhile."""

    def _settle(self, counted: MemoryQueue, worker: Any, job: MemoryJob, settlement: Settlement, now: float) -> None:
        if settlement.verdict == "done":
            job.payloads, job.next_at = PayloadList(job.kind), None
        super()._settle(counted, worker, job, settlement, now)


class BuryingOverwrites(SecondBroker):
    """Keeps of a dead key what was buried last."""

    def _settle(self, counted: MemoryQueue, worker: Any, job: MemoryJob, settlement: Settlement, now: float) -> None:
        self._queues[job.queue].morgue.pop(job.key, None)
        super()._settle(counted, worker, job, settlement, now)


class BuriesAll(SecondBroker):
    """Buries everything when one payload's retries are used up."""

    def _settle(self, counted: MemoryQueue, worker: Any, job: MemoryJob, settlement: Settlement, now: float) -> None:
        buried = len(job.running) if settlement.verdict == "bury" else 0
        super()._settle(counted, worker, job, msgspec.structs.replace(settlement, buried=buried), now)


class RevivingOverwrites(SecondBroker):
    """Puts the dead in the place of the queued."""

    def revive(self, queue: str, keys: Sequence[str]) -> int:
        known = self._queues[queue]
        for job in [known.by_key[key] for key in keys if key in known.by_key and key in known.morgue]:
            known.remove(job)
        return super().revive(queue, keys)


class TakenBackWithoutTheRest(SecondBroker):
    """Restores a dead worker's claim over what came meanwhile."""

    def _give_back(self, worker: Any, jobs: Sequence[MemoryJob], *, started: bool = True) -> int:
        for job in jobs:
            job.payloads = PayloadList(job.kind)
        return super()._give_back(worker, jobs, started=started)


class RepeatsWithMore(SecondBroker):
    """Answers a repeat with what is there by now."""

    def turn(self, turn: Turn) -> Answer:
        worker = self._living(turn.worker)
        if worker.turns.get(turn.queue, (0,))[0] == turn.seq:
            for job in worker.claims.values():
                job.running += job.payloads.take(1)
        return super().turn(turn)


class AnybodySettles(SecondBroker):
    """Looks at the token, and not at who holds it."""

    def _still_held(self, worker: Any, settlements: Iterable[Settlement]) -> Any:
        for claim in (settlement.claim for settlement in settlements):
            job = self._queues[claim.queue].by_ref.get(claim.ref)
            if job is not None and job.worker is not None and job.token == claim.token:
                worker.claims[claim.ref] = job
        return super()._still_held(worker, settlements)


class CancelsTheKey(SecondBroker):
    """Cancels all of a key for one payload of it."""

    def cancel(self, queue: str, key: str, identity: str | None = None) -> bool:
        if identity is not None and self.status(queue, key, identity) not in ("queued", "delayed"):
            return False
        return super().cancel(queue, key)


class MixesKinds(SecondBroker):
    """Takes any payload for any key."""

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        known = [self._queues[job.queue].by_key.get(job.key) for job in jobs]
        super().enqueue(
            [
                msgspec.structs.replace(new, kind=job.kind if job else new.kind)
                for new, job in zip(jobs, known, strict=True)
            ]
        )


class StartsBehind(SecondBroker):
    """Leaves out the value that a listing is to begin with."""

    def listing(self, *args: Any, **how: Any) -> Any:
        page = super().listing(*args, **how)
        start, order = how.get("start"), how.get("order")
        if start is not None and order is not None:
            page.jobs = [view for view in page.jobs if getattr(view, order) != start]
        return page


class EpochsAreForOthers(SecondBroker):
    """Claims whatever the shards have become."""

    def turn(self, turn: Turn) -> Answer:
        return super().turn(msgspec.structs.replace(turn, epoch=0))


class BatchesOfOne(SecondBroker):
    """Takes every job from whichever shard has the most overdue."""

    def turn(self, turn: Turn) -> Answer:
        return super().turn(msgspec.structs.replace(turn, batch=1))


class ClaimsOnTheMove(SecondBroker):
    """Hands out jobs while they are being moved."""

    def _claim(self, queue: MemoryQueue, worker: Any, token: int, turn: Turn, now: float) -> None:
        target, queue.resharding = queue.resharding, 0
        super()._claim(queue, worker, token, turn, now)
        queue.resharding = target


class ReshardStrands(SecondBroker):
    """Changes the count and leaves the jobs where they are."""

    def reshard(self, queue: str, shards: int, *, limit: int = 1_000) -> ReshardProgress:
        known = self._queues[queue]
        before = known.shards
        step = super().reshard(queue, shards, limit=limit)
        for job in known.by_key.values():
            if step.done:
                job.shard = shard_of(job.key, before)
                known.lanes.put(job)
        return step


class ReshardForgetsTheMorgue(SecondBroker):
    """Moves what is queued alone."""

    def reshard(self, queue: str, shards: int, *, limit: int = 1_000) -> ReshardProgress:
        before = {job.key: job.shard for job in self._queues[queue].morgue.values()}
        step = super().reshard(queue, shards, limit=limit)
        for job in self._queues[queue].morgue.values():
            job.shard = before[job.key]
        return step


class ReshardDoesNotWait(SecondBroker):
    """Is done while jobs of the old shards still run."""

    def reshard(self, queue: str, shards: int, *, limit: int = 1_000) -> ReshardProgress:
        running = [job for job in self._queues[queue].by_key.values() if job.worker is not None]
        workers = [job.worker for job in running]
        for job in running:
            job.worker = None
        step = super().reshard(queue, shards, limit=limit)
        for job, worker in zip(running, workers, strict=True):
            job.worker = worker
        return step


SEEN = {
    TheLargerScoreStays: "test_onto_a_queued_job_the_smaller_score_stays",
    EnqueueingMovesTheTime: "test_onto_a_queued_job_the_time_stays",
    RunsBeside: "test_a_key_that_runs_is_handed_to_nobody_else",
    EqualCallsAreOne: "test_two_equal_calls_are_two_payloads",
    TheTimeIsTheScore: "test_values_without_a_score_keep_the_order_of_arrival",
    QuietForEver: "test_it_does_not_wait_for_ever",
    HeadsAreOvertaken: "test_nothing_overtakes_a_failed_call",
    EnqueueingWakesTheResting: "test_nothing_overtakes_a_failed_call",
    AllOrNothing: "test_those_before_the_failed_call_are_done",
    FailureIsForEver: "test_while_the_key_runs_the_new_time_is_that_of_the_next_run",
    DoneWithWhatItNeverSaw: "test_values_that_come_while_their_key_runs_are_set_aside",
    BuryingOverwrites: "test_burying_a_key_again_unites_its_payloads",
    BuriesAll: "test_when_retries_are_used_up_the_smallest_score_is_buried",
    RevivingOverwrites: "test_reviving_takes_in_what_is_queued",
    TakenBackWithoutTheRest: "test_what_a_dead_worker_held_takes_in_what_was_set_aside",
    RepeatsWithMore: "test_a_repeated_turn_gets_the_same_payloads",
    AnybodySettles: "test_nobody_settles_what_another_worker_holds",
    CancelsTheKey: "test_one_payload_can_be_cancelled",
    MixesKinds: "test_the_kinds_of_a_key_are_not_mixed",
    StartsBehind: "test_a_listing_begins_with_a_value",
    EpochsAreForOthers: "test_a_turn_for_another_epoch_claims_nothing",
    BatchesOfOne: "test_a_batch_is_taken_from_the_shard_with_the_most_overdue_job",
    ClaimsOnTheMove: "test_enqueueing_goes_on_and_is_held_back",
    ReshardStrands: "test_nothing_is_stranded",
    ReshardForgetsTheMorgue: "test_nothing_is_stranded",
    ReshardDoesNotWait: "test_what_runs_must_settle_first",
}

#: These lose or double payloads, which the books see whatever else is looked at.
LOSING = (AllOrNothing, DoneWithWhatItNeverSaw, BuryingOverwrites, RevivingOverwrites, TakenBackWithoutTheRest)


@pytest.mark.parametrize(("broken", "test"), SEEN.items(), ids=[broken.__name__ for broken in SEEN])
def test_a_broken_broker_is_seen(broken: Callable[[Clock], Any], test: str) -> None:
    check_seen(broken, test)


@pytest.mark.parametrize("broken", LOSING)
def test_the_books_see_what_is_lost_or_doubled(broken: Callable[[Clock], Any]) -> None:
    check_seen(broken, "test_nothing_is_lost_and_nothing_doubled")
