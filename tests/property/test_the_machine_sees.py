"""The state machine detects broken brokers: each breaks one rule, and some sequence tells it from the model."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from msgspec.structs import replace

from laneway.broker import Answer, ReshardProgress, Turn
from laneway.clock import Clock
from laneway.events.event import Subscription
from laneway.jobs.data import Kind, NewJob, StartedRun
from laneway.jobs.settlement import Settlement
from tests.support.machine import broker_machine
from tests.support.reference import Difference
from tests.support.second_broker import SecondBroker

pytestmark = pytest.mark.property


class RepeatIsNew(SecondBroker):
    """Takes the repeat of a turn for a new one."""

    count = 0

    def turn(self, turn: Turn) -> Answer:
        self.count += 1
        return super().turn(replace(turn, seq=self.count))


class OutboxOfTheRefused(SecondBroker):
    """Sends what a run enqueued before it looks whether the run still counts."""

    def turn(self, turn: Turn) -> Answer:
        for settlement in turn.settlements:
            self.enqueue(settlement.outbox or [])
        return super().turn(replace(turn, settlements=[replace(each, outbox=None) for each in turn.settlements]))


class SetAsideIsForgotten(SecondBroker):
    """Removes the key when its run is done, and with it whatever came meanwhile."""

    def turn(self, turn: Turn) -> Answer:
        for settlement in turn.settlements:
            self._drop(settlement)
        return super().turn(turn)

    def _drop(self, settlement: Settlement) -> None:
        queue, key = settlement.claim.queue, settlement.claim.key
        running = [view for view in self.find(queue, key) if view.status == "running"]
        if settlement.verdict == "done" and running:
            for view in self.find(queue, key):
                for payload in view.payloads if view.status in ("queued", "delayed") else ():
                    self.cancel(queue, key, payload.identity)


class BehindTheFailedIsForgotten(SecondBroker):
    """Settles a part of a key's calls as if there were no more."""

    def turn(self, turn: Turn) -> Answer:
        ends = [replace(each, verdict="done") if each.done else each for each in turn.settlements]
        return super().turn(replace(turn, settlements=ends))


class DeathIsAFailure(SecondBroker):
    """Drops what a dead worker was running."""

    def reclaim(self) -> int:
        before = {
            (queue, view.key): view.worker for queue in self.queues() for view in self.listing(queue, "running").jobs
        }
        count = super().reclaim()
        for queue, key in before:
            if self.status(queue, key) != "running":
                self.cancel(queue, key)
        return count


class EnqueueingMakesDue(SecondBroker):
    """Moves a queued job when a payload is added to it."""

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        super().enqueue(jobs)
        for job in jobs:
            if job.kind is Kind.COLLECTING and not job.delay_s and job.perform_at is None and not job.quiet:
                self.run_now(job.queue, [job.key])


class TheFirstScoreStays(SecondBroker):
    """Keeps the older of two scores instead of the smaller."""

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        for job in jobs:
            known = {payload.identity for view in self.find(job.queue, job.key) for payload in view.payloads}
            super().enqueue([replace(job, score=None) if job.identity in known else job])


class AnsweredAsTaken(SecondBroker):
    """Says of every settlement that it was taken."""

    def turn(self, turn: Turn) -> Answer:
        return replace(super().turn(turn), refused=[])


class DoneTooEarly(SecondBroker):
    """Says that a queue is resharded while it is not."""

    def reshard(self, queue: str, shards: int, *, limit: int = 1_000) -> ReshardProgress:
        return replace(super().reshard(queue, shards, limit=limit), done=True)


class ReviveIsLater(SecondBroker):
    """Revives with the time that the job had."""

    def revive(self, queue: str, keys: Sequence[str]) -> int:
        times = {view.key: view.perform_at for view in self.listing(queue, "dead").jobs}
        count = super().revive(queue, keys)
        for key in keys:
            if key in times:
                self.reschedule(queue, key, perform_at=times[key])
        return count


class DeadByHearsay(SecondBroker):
    """Ends a lease that was renewed meanwhile."""

    def declare_dead(self, worker: str, counter: int) -> bool:
        return super().declare_dead(worker, self.leases().get(worker, (0, 0.0))[0])


class DeathsAreForgotten(SecondBroker):
    """Gives back, and counts nothing."""

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        return super().leave(worker)


class HearsayIsBelieved(SecondBroker):
    """Counts a death under any token."""

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        held = {job.key: job.token for job in self._workers[worker].claims.values()} if worker in self._workers else {}
        return super().leave(worker, [replace(each, token=held.get(each.key, each.token)) for each in died])


class RevivedWithDeaths(SecondBroker):
    """Keeps the deaths of what comes back from the morgue."""

    def revive(self, queue: str, keys: Sequence[str]) -> int:
        before = {view.key: view for view in self.listing(queue, "dead").jobs if view.key in keys}
        count = super().revive(queue, keys)
        for key, view in before.items():
            job = self._queues[queue].by_key.get(key)
            if job is not None and job.kind is not Kind.KEYED:
                job.deaths = view.deaths
            for payload in view.payloads:
                entry = job.payloads.get(payload.identity) if job is not None else None
                if entry is not None:
                    entry.deaths = payload.deaths
        return count


class PauseIsForShow(SecondBroker):
    """Hands out what is due all the same."""

    def turn(self, turn: Turn) -> Answer:
        paused = self._queues[turn.queue].paused
        self._queues[turn.queue].paused = False
        try:
            return super().turn(turn)
        finally:
            self._queues[turn.queue].paused = paused


class RestlessPause(SecondBroker):
    """Tells those who wait of a paused queue."""

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        paused = {name for name in queues if self._queues[name].paused and self.lags(name)}
        return super().wait(queues, timeout_s) | paused


class UnsubscribingIsForgotten(SecondBroker):
    """Says that it was done."""

    def unsubscribe(self, topic: str, queue: str) -> bool:
        return (topic, queue) in self._subscriptions


class TheFirstFilterStays(SecondBroker):
    """Takes a subscription with another filter for the one that it has."""

    def subscribe(self, subscription: Subscription) -> bool:
        there = (subscription.topic, subscription.queue) in self._subscriptions
        return there or super().subscribe(subscription)


class SomeCopiesOnly(SecondBroker):
    """Stores of an event the copy for the first queue."""

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        first = {job.event: job.queue for job in reversed(jobs)}
        super().enqueue([job for job in jobs if not job.event or first[job.event] == job.queue])


class RunsPublishToOne(SecondBroker):
    """Stores of what a run has published one copy."""

    def turn(self, turn: Turn) -> Answer:
        ends = [replace(each, outbox=self._first_copies(each.outbox or [])) for each in turn.settlements]
        return super().turn(replace(turn, settlements=ends))

    def _first_copies(self, jobs: Sequence[NewJob]) -> list[NewJob]:
        first = {job.event: job.queue for job in reversed(jobs)}
        return [job for job in jobs if not job.event or first[job.event] == job.queue]


class Early(SecondBroker):
    """Hands out what is almost due."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._true, self._ahead = clock, 0.0
        self._clock = self

    def now(self) -> float:
        return self._true.now() + self._ahead

    def monotonic(self) -> float:
        return self._true.monotonic()

    def turn(self, turn: Turn) -> Answer:
        self._ahead = 0.0 if turn.settlements else 1.0
        try:
            return super().turn(turn)
        finally:
            self._ahead = 0.0


BROKEN = (
    RepeatIsNew,
    OutboxOfTheRefused,
    SetAsideIsForgotten,
    BehindTheFailedIsForgotten,
    DeathIsAFailure,
    EnqueueingMakesDue,
    TheFirstScoreStays,
    AnsweredAsTaken,
    DoneTooEarly,
    ReviveIsLater,
    DeadByHearsay,
    DeathsAreForgotten,
    HearsayIsBelieved,
    RevivedWithDeaths,
    PauseIsForShow,
    RestlessPause,
    Early,
    UnsubscribingIsForgotten,
    TheFirstFilterStays,
    SomeCopiesOnly,
    RunsPublishToOne,
)


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_broker_is_told_from_the_model(broken: type[SecondBroker]) -> None:
    with pytest.raises(Difference):
        run_state_machine_as_test(
            broker_machine(broken),
            settings=settings(
                max_examples=1_000,
                stateful_step_count=30,
                derandomize=True,
                database=None,
                deadline=None,
                phases=[Phase.generate],
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
