"""The in-memory broker: for tests and trials within one process. Nothing outlives it, and nothing is shared.

One lock guards everything, so that each verb is one step. It says the same as the SQLite broker to whoever asks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Sequence

import msgspec

from ..broker import MAX_BODY, Answer, Listing, Page, Turn
from ..clock import Clock, SystemClock
from ..config import Url
from ..errors import ConfigError, LeaseLost
from ..job import Claim, JobView, NewJob, QueueStats, Status, WorkerView
from ..outcome import Settlement
from ..shards import DEFAULT_SHARDS
from .common import REMEMBER_DEAD_S, REMEMBER_ENDED_S, again_at, check_jobs, due_at, storable, unknown_queue
from .memory_queue import Job, Queue


class _Worker(msgspec.Struct):
    view: WorkerView
    counter: int = 0
    #: What it holds, by the job's ref.
    claims: dict[int, Job] = msgspec.field(default_factory=dict)
    #: Its last turn on each queue: seq, token and refused keys.
    turns: dict[str, tuple[int, int, list[str]]] = msgspec.field(default_factory=dict)


class MemoryBroker:
    """Jobs in the memory of one process; any number of its threads may use it."""

    max_body = MAX_BODY

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._changed = threading.Condition(threading.RLock())
        self._queues: dict[str, Queue] = {}
        self._workers: dict[str, _Worker] = {}
        self._last_token = 0
        self._nudges = 0

    @classmethod
    def from_url(cls, url: Url) -> MemoryBroker:
        """memory: and nothing more. Every app that is given it has a broker of its own."""
        url.take(())
        if url.rest:
            raise ConfigError(f"A memory URL is just memory:, not {url.scheme}:{url.rest}.")
        return cls()

    # -- jobs in ---------------------------------------------------------------------------------------

    def declare(self, queue: str, shards: int) -> int:
        if shards < 1:
            raise ConfigError(f"The queue {queue} needs at least 1 shard, not {shards}.")
        with self._changed:
            return self._queues.setdefault(queue, Queue(queue, shards)).shards

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        with self._changed:
            check_jobs(jobs)
            self._store(jobs, self._clock.now())
            self._changed.notify_all()

    def _store(self, jobs: Iterable[NewJob], now: float) -> None:
        for job in jobs:
            self.declare(job.queue, DEFAULT_SHARDS)
            self._queues[job.queue].add(job, due_at(now, job.delay_s, job.perform_at))

    # -- a worker's verbs ------------------------------------------------------------------------------

    def join(self, worker: WorkerView) -> None:
        now = self._clock.now()
        view = msgspec.structs.replace(worker, started_at=now, seen_at=now, dead=False)
        with self._changed:
            self._workers.setdefault(worker.id, _Worker(view))

    def turn(self, turn: Turn) -> Answer:
        with self._changed:
            queue = self._queue(turn.queue)
            worker = self._living(turn.worker)
            last_seq, last_token, last_refused = worker.turns.get(turn.queue, (None, 0, []))
            if last_seq == turn.seq:  # its answer was lost
                return Answer(_claimed(worker, last_token), last_token, list(last_refused))
            for settlement in turn.settlements:
                check_jobs(settlement.outbox or ())
            now = self._clock.now()
            token = self._last_token = max(self._last_token + 1, int(now * 1e6))
            held = [self._settle(queue, settlement, now) for settlement in turn.settlements]
            refused = [each.claim.key for each, was_held in zip(turn.settlements, held, strict=True) if not was_held]
            for settlement, was_held in zip(turn.settlements, held, strict=True):
                if was_held and settlement.verdict == "done":
                    self._store(settlement.outbox or (), now)
            self._claim(queue, worker, token, turn, now)
            worker.turns[turn.queue] = (turn.seq, token, refused)
            self._changed.notify_all()
            return Answer(_claimed(worker, token), token, list(refused))

    def _settle(self, counted: Queue, settlement: Settlement, now: float) -> bool:
        """Record the end of a run, unless the claim belongs to somebody else by now."""
        claim, verdict = settlement.claim, settlement.verdict
        queue = self._queues.get(claim.queue)
        job = queue and queue.by_ref.get(claim.ref)
        if not queue or not job or job.token != claim.token or job.worker is None:
            return False
        self._workers[job.worker].claims.pop(job.ref, None)
        if verdict == "done":
            queue.remove(job)
            counted.processed += 1
            return True
        if verdict == "retry":
            job.retry_count, job.error = settlement.retry_count, storable(settlement.error)
        if verdict in ("retry", "postpone"):
            job.perform_at = again_at(now, settlement.delay_s)
        if verdict == "release":
            job.attempt -= 1
        if verdict == "bury":
            queue.bury(job, settlement.retry_count, storable(settlement.error), now)
        else:
            queue.put_back(job)
        counted.failed += verdict in ("retry", "bury")
        return True

    def _claim(self, queue: Queue, worker: _Worker, token: int, turn: Turn, now: float) -> None:
        shards = range(queue.shards) if turn.shards is None else turn.shards
        for _ in range(turn.limit):
            job = queue.take_due(shards, now)
            if job is None:
                return
            job.worker, job.token = worker.view.id, token
            job.attempt += 1
            worker.claims[job.ref] = job

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        deadline = time.monotonic() + timeout_s
        with self._changed:
            nudges = self._nudges
            while True:
                now = self._clock.now()
                known = [self._queues[name] for name in queues if name in self._queues]
                dues = {queue.name: due for queue in known if (due := queue.next_due()) is not None}
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
            for job in lost:
                job.attempt -= 1
            self._give_back(known, lost)

    def leave(self, worker: str) -> int:
        with self._changed:
            known = self._workers.get(worker)
            if known is None or known.view.dead:
                return 0
            del self._workers[worker]
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
                queue.forget_cancelled(now - REMEMBER_ENDED_S)
            return count

    def _give_back(self, worker: _Worker, jobs: Sequence[Job]) -> int:
        for job in jobs:
            del worker.claims[job.ref]
            self._queues[job.queue].put_back(job)
        self._changed.notify_all()
        return len(jobs)

    def _living(self, worker: str) -> _Worker:
        known = self._workers.get(worker)
        if known is None or known.view.dead:
            raise LeaseLost(f"The worker {worker} has been declared dead.")
        return known

    def _queue(self, name: str) -> Queue:
        if name not in self._queues:
            raise unknown_queue(name)
        return self._queues[name]

    # -- looking ---------------------------------------------------------------------------------------

    def queues(self) -> dict[str, int]:
        with self._changed:
            return {name: self._queues[name].shards for name in sorted(self._queues)}

    def stats(self) -> list[QueueStats]:
        with self._changed:
            return [self._queues[name].stats(self._clock.now()) for name in sorted(self._queues)]

    def workers(self) -> list[WorkerView]:
        with self._changed:
            return [msgspec.structs.replace(each.view, busy=len(each.claims)) for each in self._workers.values()]

    def status(self, queue: str, key: str) -> Status:
        with self._changed:
            return self._queue(queue).status(key, self._clock.now())

    def find(self, queue: str, key: str) -> list[JobView]:
        with self._changed:
            return self._queue(queue).find(key, self._clock.now())

    def listing(self, queue: str, which: Listing, *, after: str | None = None, limit: int = 100) -> Page:
        with self._changed:
            return self._queue(queue).listing(which, after, limit, self._clock.now())

    # -- acting ----------------------------------------------------------------------------------------

    def cancel(self, queue: str, key: str) -> bool:
        with self._changed:
            return self._queue(queue).cancel(key, self._clock.now())

    def reschedule(self, queue: str, key: str, *, delay_s: float = 0.0, perform_at: float | None = None) -> bool:
        with self._changed:
            moved = self._queue(queue).reschedule(key, due_at(self._clock.now(), delay_s, perform_at))
            self._changed.notify_all()
            return moved

    def revive(self, queue: str, keys: Sequence[str]) -> int:
        with self._changed:
            revived = sum(self._queue(queue).revive(key, self._clock.now()) for key in keys)
            self._changed.notify_all()
            return revived

    def delete_dead(self, queue: str, keys: Sequence[str]) -> int:
        with self._changed:
            return sum(self._queue(queue).morgue.pop(key, None) is not None for key in keys)

    # -- itself ----------------------------------------------------------------------------------------

    def check(self) -> list[str]:
        with self._changed:
            if any(worker.view.dead and worker.claims for worker in self._workers.values()):
                return ["There are claims of workers that are dead; start a worker, and it takes them over."]
            return []

    def close(self) -> None:
        """End every wait. The jobs stay for as long as the broker itself."""
        self.nudge()


def _claimed(worker: _Worker, token: int) -> list[Claim]:
    """What the worker holds under a token, in the order of its claims."""
    jobs = [job for job in worker.claims.values() if job.token == token]
    jobs.sort(key=lambda job: (-job.priority, job.perform_at, job.ref))
    return [job.claim() for job in jobs]
