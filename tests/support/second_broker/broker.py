"""SecondBroker: jobs, subscriptions and workers in the memory of one process.

Nothing outlives the process, and no other process sees it. One lock guards everything, so that each verb is one
step. Its answers are those of the SQLite broker.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Self

import msgspec

from laneway.broker import (
    Answer,
    AutoCreateNote,
    Capabilities,
    Duty,
    EmptyMorgueResult,
    Finding,
    Listing,
    Order,
    Page,
    ReshardProgress,
    Turn,
)
from laneway.brokers.shared import (
    CLAIMS_OF_THE_DEAD,
    REMEMBER_DEAD_S,
    REMEMBER_ENDED_S,
    check_jobs,
    check_shards,
    check_subscription,
    due_at,
    empty_by_pages,
    mendable,
    read_filter,
    unknown_queue,
    write_filter,
)
from laneway.clock import Clock, SystemClock
from laneway.errors import LeaseLost
from laneway.events.event import Subscription
from laneway.jobs.data import Claim, JobView, Kind, NewJob, QueueStats, StartedRun, Status, WorkerView
from laneway.jobs.settlement import Settlement
from laneway.jobs.shards import DEFAULT_SHARDS

from . import inspect as looking
from . import operate as acting
from . import reshard as sharding
from . import settle as settling
from .job import MemoryJob
from .queue import MemoryQueue, check_kinds

if TYPE_CHECKING:
    from laneway import Laneway


class WorkerEntry(msgspec.Struct, eq=False):
    """A worker. It is known as long as its lease, and for an hour after its death."""

    view: WorkerView
    #: The lease: it lives while this grows.
    counter: int = 0
    #: What it holds, by the job's ref, in the order in which it was handed out.
    claims: dict[int, MemoryJob] = msgspec.field(default_factory=dict)
    #: Its last turn on each queue: seq, token and refused keys.
    turns: dict[str, tuple[int, int, list[str]]] = msgspec.field(default_factory=dict)

    def claimed(self, token: int) -> list[Claim]:
        """What it still holds under a token."""
        return [job.claim() for job in self.claims.values() if job.token == token]

    def current_view(self) -> WorkerView:
        return msgspec.structs.replace(copy_of(self.view), busy=len(self.claims))


def copy_of(view: WorkerView) -> WorkerView:
    """A worker's view whose lists are its own."""
    shards = {queue: list(shards) for queue, shards in view.shards.items()}
    return msgspec.structs.replace(view, queues=list(view.queues), shards=shards)


class MemorySubscriptions:
    """The verbs of subscriptions."""

    _changed: threading.Condition

    def __init__(self) -> None:
        #: Filters by topic and queue. As texts, so that no caller holds a part of one.
        self._subscriptions: dict[tuple[str, str], str | None] = {}

    def subscribe(self, subscription: Subscription) -> bool:
        check_subscription(subscription)
        name, text = (subscription.topic, subscription.queue), write_filter(subscription)
        with self._changed:
            if name in self._subscriptions and self._subscriptions[name] == text:
                return False
            self._subscriptions[name] = text
            return True

    def unsubscribe(self, topic: str, queue: str) -> bool:
        with self._changed:
            if (topic, queue) not in self._subscriptions:
                return False
            del self._subscriptions[topic, queue]
            return True

    def subscriptions(self, topic: str | None = None) -> list[Subscription]:
        with self._changed:
            wanted = sorted(name for name in self._subscriptions if topic is None or name[0] == topic)
            return [Subscription(*name, read_filter(*name, self._subscriptions[name])) for name in wanted]


class SecondBroker(MemorySubscriptions):
    """Jobs in the memory of one process; any number of its threads may use it. It is each of its tiers itself."""

    capabilities = Capabilities(shared=False)
    auto_create = False

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        super().__init__()
        self._changed = threading.Condition(threading.RLock())
        self._queues: dict[str, MemoryQueue] = {}
        self._workers: dict[str, WorkerEntry] = {}
        self._last_token = 0
        self._nudges = 0

    @property
    def inspect(self) -> Self:
        return self

    operate = events = shards = health = inspect

    # -- jobs in ---------------------------------------------------------------------------------------

    def declare(self, queue: str, shards: int) -> int:
        check_shards(queue, shards)
        with self._changed:
            if queue not in self._queues:
                self._queues[queue] = MemoryQueue(queue, shards)
            return self._queues[queue].shards

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        with self._changed:
            check_jobs(jobs, self.capabilities)
            check_kinds(jobs, self._queues)
            self._store(jobs, self._clock.now())
            self._changed.notify_all()

    def _store(self, jobs: Iterable[NewJob], now: float) -> None:
        for job in jobs:
            if job.queue not in self._queues:
                self.declare(job.queue, DEFAULT_SHARDS)
            self._queues[job.queue].add(job, due_at(now, job.delay_s, job.perform_at), now)

    # -- a worker's verbs ------------------------------------------------------------------------------

    def join(self, worker: WorkerView) -> None:
        now = self._clock.now()
        view = msgspec.structs.replace(copy_of(worker), started_at=now, seen_at=now, dead=False)
        with self._changed:
            self._workers.setdefault(worker.id, WorkerEntry(view)).view.shards = view.shards

    def turn(self, turn: Turn) -> Answer:
        with self._changed:
            queue = self._queue(turn.queue)
            worker = self._living(turn.worker)
            last_seq, token, refused = worker.turns.get(turn.queue, (None, 0, []))
            if last_seq != turn.seq:  # else its answer was lost
                for settlement in turn.settlements:
                    check_jobs(settlement.outbox or (), self.capabilities)
                held, refused = self._still_held(worker, turn.settlements)
                outbox = [job for settlement, _ in held for job in settlement.outbox or ()]
                ending = {(job.queue, job.key) for settlement, job in held if _ends_whole(settlement)}
                check_kinds(outbox, self._queues, ending)
                now = self._clock.now()
                token = self._last_token = max(self._last_token + 1, int(now * 1e6))
                for settlement, job in held:
                    self._settle(queue, worker, job, settlement, now)
                self._store(outbox, now)
                self._claim(queue, worker, token, turn, now)
                worker.turns[turn.queue] = (turn.seq, token, refused)
                self._changed.notify_all()
            return Answer(worker.claimed(token), token, list(refused), queue.epoch, queue.shards, queue.resharding)

    def _still_held(
        self, worker: WorkerEntry, settlements: Iterable[Settlement]
    ) -> tuple[list[tuple[Settlement, MemoryJob]], list[str]]:
        """The settlements whose claim is still the worker's, once each, and the keys of all others."""
        held: dict[int, tuple[Settlement, MemoryJob]] = {}
        refused: list[str] = []
        for settlement in settlements:
            claim = settlement.claim
            job = worker.claims.get(claim.ref)
            if job is None or job.token != claim.token or claim.ref in held:
                refused.append(claim.key)
            else:
                held[claim.ref] = (settlement, job)
        return list(held.values()), refused

    def _settle(
        self, counted: MemoryQueue, worker: WorkerEntry, job: MemoryJob, settlement: Settlement, now: float
    ) -> None:
        """Record the end of a run."""
        del worker.claims[job.ref]
        settling.settle(self._queues[job.queue], job, settlement, now)
        counted.processed += settlement.verdict == "done" or settlement.done > 0
        counted.failed += settlement.verdict in ("retry", "bury")

    def _claim(self, queue: MemoryQueue, worker: WorkerEntry, token: int, turn: Turn, now: float) -> None:
        """Hand out what is due, unless the queue is paused or its shards are not what the worker takes them for."""
        if queue.paused or queue.resharding or turn.epoch not in (0, queue.epoch):
            return
        shards = range(queue.shards) if turn.shards is None else turn.shards
        for job in queue.lanes.take(shards, turn.limit, turn.batch, now, in_order=turn.in_order):
            job.start(worker.view.id, token, turn.max_payloads, now)
            worker.claims[job.ref] = job

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            nudges = self._nudges
            while True:
                now = self._clock.now()
                known = [queue for name in queues if (queue := self._queues.get(name))]
                dues = {queue.name: due for queue in known if (due := _wanted_at(queue)) is not None}
                ready = {name for name, due in dues.items() if due <= now}
                left = deadline - time.monotonic()
                if ready or nudges != self._nudges or left <= 0:
                    return ready
                soonest = min((due - now for due in dues.values()), default=left)
                self._changed.wait(min(left, soonest, threading.TIMEOUT_MAX))

    def nudge(self) -> None:
        with self._changed:
            self._nudges += 1
            self._changed.notify_all()

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        with self._changed:
            known = self._living(worker)
            known.counter += 1
            known.view.seen_at = self._clock.now()
            # Their answer never reached the worker, so they were never started.
            lost = [job for job in known.claims.values() if job.token < before and job.token not in held]
            self._give_back(known, lost, started=False)

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        with self._changed:
            known = self._workers.get(worker)
            if known is None or known.view.dead:
                return 0
            del self._workers[worker]
            for started in dict.fromkeys(died):
                for job in known.claims.values():
                    if (job.queue, job.key, job.token) == (started.queue, started.key, started.token):
                        job.count_death(started.identity)
            return self._give_back(known, list(known.claims.values()))

    def leases(self) -> dict[str, tuple[int, float]]:
        with self._changed:
            alive = [worker for worker in self._workers.values() if not worker.view.dead]
            return {worker.view.id: (worker.counter, worker.view.lease_s) for worker in alive}

    def declare_dead(self, worker: str, counter: int) -> bool:
        with self._changed:
            known = self._workers.get(worker)
            if known is None or known.view.dead or known.counter != counter:
                return False
            known.view.dead, known.view.seen_at = True, self._clock.now()
            return True

    def reclaim(self) -> int:
        with self._changed:
            now = self._clock.now()
            dead = [worker for worker in self._workers.values() if worker.view.dead]
            count = sum(self._give_back(worker, list(worker.claims.values())) for worker in dead)
            for worker in dead:
                if worker.view.seen_at < now - REMEMBER_DEAD_S:
                    del self._workers[worker.view.id]
            for queue in self._queues.values():
                acting.forget_cancelled(queue, now - REMEMBER_ENDED_S)
            return count

    def _give_back(self, worker: WorkerEntry, jobs: Sequence[MemoryJob], *, started: bool = True) -> int:
        for job in jobs:
            del worker.claims[job.ref]
            settling.give_back(self._queues[job.queue], job, started=started)
        self._changed.notify_all()
        return len(jobs)

    def _living(self, worker: str) -> WorkerEntry:
        known = self._workers.get(worker)
        if known is None or known.view.dead:
            raise LeaseLost(f"The worker {worker} has been declared dead.")
        return known

    def _queue(self, name: str) -> MemoryQueue:
        if name not in self._queues:
            raise unknown_queue(name)
        return self._queues[name]

    # -- looking ---------------------------------------------------------------------------------------

    def queues(self) -> dict[str, int]:
        with self._changed:
            return {name: self._queues[name].shards for name in sorted(self._queues)}

    def exists(self, queue: str) -> bool:
        with self._changed:
            return queue in self._queues

    def stats(self) -> list[QueueStats]:
        with self._changed:
            return [looking.stats(self._queues[name], self._clock.now()) for name in sorted(self._queues)]

    def lags(self, queue: str) -> dict[int, float]:
        with self._changed:
            known, now = self._queue(queue), self._clock.now()
            dues = known.lanes.dues()
            return {shard: now - dues[shard] for shard in sorted(dues) if dues[shard] <= now and shard < known.shards}

    def workers(self) -> list[WorkerView]:
        with self._changed:
            return [worker.current_view() for worker in self._workers.values()]

    def status(self, queue: str, key: str, identity: str | None = None) -> Status:
        with self._changed:
            return looking.status(self._queue(queue), key, identity, self._clock.now())

    def find(self, queue: str, key: str) -> list[JobView]:
        with self._changed:
            return looking.find(self._queue(queue), key, self._clock.now())

    def listing(
        self,
        queue: str,
        which: Listing,
        *,
        order: Order | None = None,
        reverse: bool = False,
        start: float | str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        with self._changed:
            known, now = self._queue(queue), self._clock.now()
            return looking.listing(
                known, which, order=order, reverse=reverse, start=start, after=after, limit=limit, now=now
            )

    # -- acting ----------------------------------------------------------------------------------------

    def cancel(self, queue: str, key: str, identity: str | None = None) -> bool:
        with self._changed:
            return acting.cancel(self._queue(queue), key, identity, self._clock.now())

    def reschedule(
        self,
        queue: str,
        key: str,
        identity: str | None = None,
        *,
        delay_s: float = 0.0,
        perform_at: float | None = None,
    ) -> bool:
        with self._changed:
            at = due_at(self._clock.now(), delay_s, perform_at)
            self._changed.notify_all()
            return acting.reschedule(self._queue(queue), key, identity, at)

    def run_now(self, queue: str, keys: Sequence[str]) -> int:
        with self._changed:
            self._changed.notify_all()
            return sum(acting.run_now(self._queue(queue), key, self._clock.now()) for key in dict.fromkeys(keys))

    def bury_failed(self, queue: str, keys: Sequence[str]) -> int:
        return self._end_failed(queue, keys, bury=True)

    def delete_failed(self, queue: str, keys: Sequence[str]) -> int:
        return self._end_failed(queue, keys, bury=False)

    def _end_failed(self, queue: str, keys: Sequence[str], *, bury: bool) -> int:
        with self._changed:
            self._changed.notify_all()
            return sum(acting.end_failed(self._queue(queue), key, self._clock.now(), bury=bury) for key in keys)

    def revive(self, queue: str, keys: Sequence[str]) -> int:
        with self._changed:
            self._changed.notify_all()
            return sum(self._queue(queue).revive(key, self._clock.now()) for key in keys)

    def delete_dead(self, queue: str, keys: Sequence[str]) -> int:
        with self._changed:
            return sum(self._queue(queue).morgue.pop(key, None) is not None for key in keys)

    def empty_morgue(self, queue: str, *, revive: bool, most: int) -> Generator[int, None, EmptyMorgueResult]:
        return empty_by_pages(self, self, queue, revive=revive, most=most)

    def pause(self, queue: str) -> bool:
        return self._set_paused(queue, paused=True)

    def resume(self, queue: str) -> bool:
        return self._set_paused(queue, paused=False)

    def _set_paused(self, queue: str, *, paused: bool) -> bool:
        with self._changed:
            known = self._queues.get(queue)
            if known is None or known.paused is paused:
                return False
            known.paused = paused
            self._changed.notify_all()
            return True

    # -- shards ----------------------------------------------------------------------------------------

    def reshard(self, queue: str, shards: int, *, limit: int = 1_000) -> ReshardProgress:
        with self._changed:
            self._changed.notify_all()
            return sharding.reshard(self._queue(queue), shards, limit)

    # -- itself ----------------------------------------------------------------------------------------

    def unmade(self) -> Finding | None:
        return None

    def duties(self, queues: Collection[str]) -> Sequence[Duty]:
        return ()

    def provide(self, app: Laneway, queues: Collection[str]) -> Sequence[AutoCreateNote]:
        return ()

    def check(self, app: Laneway | None = None) -> list[Finding]:
        with self._changed:
            found = [problem for queue in self._queues.values() for problem in sharding.problems(queue)]
            if any(worker.view.dead and worker.claims for worker in self._workers.values()):
                found.append(CLAIMS_OF_THE_DEAD)
            unknown = len(self._ownerless_claims())
            return [*found, mendable("unknown-worker", unknown, "Claims of no worker")] if unknown else found

    def repair(self) -> list[str]:
        with self._changed:
            mended = [line for queue in self._queues.values() for line in sharding.repair(queue)]
            for job in (unknown := self._ownerless_claims()):
                settling.give_back(self._queues[job.queue], job, started=True)
            given_back = self.reclaim() + len(unknown)
            self._changed.notify_all()
            return [*mended, f"Claims given back: {given_back}."] if given_back else mended

    def _ownerless_claims(self) -> list[MemoryJob]:
        """Jobs that are said to run, though no worker holds them."""
        held = {job.ref for worker in self._workers.values() for job in worker.claims.values()}
        jobs = (job for queue in self._queues.values() for job in queue.by_key.values())
        return [job for job in jobs if job.worker is not None and job.ref not in held]

    def close(self) -> None:
        """End every wait. The jobs stay for as long as the broker itself."""
        self.nudge()


def _ends_whole(settlement: Settlement) -> bool:
    """Whether nothing of its job is left in the queue: a plain job that is done or buried."""
    return settlement.claim.kind is Kind.PLAIN and settlement.verdict in ("done", "bury")


def _wanted_at(queue: MemoryQueue) -> float | None:
    """When a worker is to look at a queue: at its next due job, or now if it is being resharded; None: not at all."""
    if queue.resharding:
        return -math.inf
    return None if queue.paused else queue.lanes.next_due()
