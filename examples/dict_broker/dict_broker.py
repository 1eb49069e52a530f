"""A broker for plain jobs in one file: dicts and a lock.

It has the core verbs of `laneway.broker` and no tier. All jobs live in this process and end with it.
docs/writing-a-broker.md explains each step. For real work, use `memory:`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from threading import Condition

from laneway.broker import Answer, Capabilities, Turn
from laneway.brokers.shared import (
    REMEMBER_DEAD_S,
    REMEMBER_ENDED_S,
    again_at,
    check_jobs,
    check_shards,
    due_at,
    storable,
    unknown_queue,
)
from laneway.clock import Clock, SystemClock
from laneway.errors import ConfigError, LeaseLost
from laneway.jobs.data import Claim, Headers, NewJob, Payload, StartedRun, Status, WorkerView
from laneway.jobs.settlement import Settlement
from laneway.jobs.shards import DEFAULT_SHARDS, shard_of
from laneway.urls import Url

CAPABILITIES = Capabilities(
    shared=False,
    lacks={
        "keyed": "The dict broker is an example without keyed tasks; use memory: for them.",
        "collecting": "The dict broker is an example without collecting tasks; use memory: for them.",
        "priorities": "The dict broker is an example without priorities; leave them out, or use memory:.",
        "inspect": "The dict broker is an example that lists no jobs; use memory: to look at them.",
        "operate": "The dict broker is an example without verbs for operators; use memory: to revive, delete or pause.",
        "events": "The dict broker is an example without events; use memory: for listeners.",
        "shards": "The dict broker is an example that changes no shards; use memory: for that.",
        "health": "The dict broker is an example that does not check itself; all it has is gone when its program ends.",
    },
)
#: Nothing is resharded here, so every queue stays in its first epoch.
EPOCH = 1


@dataclass(slots=True)
class _Job:
    #: Grows with every job, so it also says who came first.
    ref: int
    queue: str
    key: str
    shard: int
    body: str
    headers: Headers | None
    due: float
    retry_count: int = -1
    attempt: int = 0
    deaths: int = 0
    error: str | None = None
    buried_at: float | None = None
    #: Who holds the claim, and under which token. None: it waits.
    worker: str | None = None
    token: int = 0

    @property
    def place(self) -> tuple[float, int]:
        return self.due, self.ref

    def claim(self) -> Claim:
        return Claim(
            queue=self.queue,
            ref=self.ref,
            key=self.key,
            token=self.token,
            perform_at=self.due,
            retry_count=self.retry_count,
            attempt=self.attempt,
            deaths=self.deaths,
            payloads=[Payload(self.body)],
            error=self.error,
            headers=_copy(self.headers),
            shard=self.shard,
        )


@dataclass(slots=True)
class _Queue:
    name: str
    shards: int
    #: What waits and what runs, by key.
    jobs: dict[str, _Job] = field(default_factory=dict)
    morgue: dict[str, _Job] = field(default_factory=dict)
    #: When each key was cancelled.
    cancelled: dict[str, float] = field(default_factory=dict)

    def waiting(self, key: str) -> _Job | None:
        job = self.jobs.get(key)
        return job if job is not None and job.worker is None else None


@dataclass(slots=True)
class _LastTurn:
    seq: int
    token: int
    taken: list[_Job]
    refused: list[str]


@dataclass(slots=True)
class _Worker:
    lease_s: float
    counter: int = 0
    died_at: float | None = None
    #: By queue.
    last_turns: dict[str, _LastTurn] = field(default_factory=dict)


class DictBroker:
    """Keeps plain jobs in dicts. Every verb holds the one lock from its first look to its last change."""

    capabilities = CAPABILITIES

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        #: The lock, and the bell for those who wait.
        self._lock = Condition()
        self._nudges = 0
        self._queues: dict[str, _Queue] = {}
        self._workers: dict[str, _Worker] = {}
        self._last_ref = 0
        self._last_token = 0

    @classmethod
    def from_url(cls, url: Url) -> DictBroker:
        url.take(())
        if url.rest:
            raise ConfigError(f"A {url.scheme} URL has nothing behind its colon; write {url.scheme}: alone.")
        return cls()

    # -- jobs in ---------------------------------------------------------------------------------------

    def declare(self, queue: str, shards: int) -> int:
        check_shards(queue, shards)
        with self._lock:
            return self._queues.setdefault(queue, _Queue(queue, shards)).shards

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        check_jobs(jobs, self.capabilities)
        with self._lock:
            self._store(jobs)

    def _store(self, jobs: Sequence[NewJob]) -> None:
        now = self._clock.now()
        for new in jobs:
            queue = self._queues.setdefault(new.queue, _Queue(new.queue, DEFAULT_SHARDS))
            if new.key not in queue.jobs:
                self._last_ref += 1
                queue.cancelled.pop(new.key, None)
                queue.jobs[new.key] = _Job(
                    ref=self._last_ref,
                    queue=new.queue,
                    key=new.key,
                    shard=shard_of(new.key, queue.shards),
                    body=new.body,
                    headers=_copy(new.headers),
                    due=due_at(now, new.delay_s, new.perform_at),
                )
        self._lock.notify_all()

    # -- turns -----------------------------------------------------------------------------------------

    def join(self, worker: WorkerView) -> None:
        with self._lock:
            self._workers.setdefault(worker.id, _Worker(worker.lease_s))

    def turn(self, turn: Turn) -> Answer:
        with self._lock:
            queue = self._queue(turn.queue)
            worker = self._living(turn.worker)
            last = worker.last_turns.get(queue.name)
            if last is None or last.seq != turn.seq:
                last = self._settle_and_claim(queue, turn)
                worker.last_turns[queue.name] = last
            held = [job for job in last.taken if (job.worker, job.token) == (turn.worker, last.token)]
            return Answer([job.claim() for job in held], last.token, list(last.refused), EPOCH, queue.shards)

    def _settle_and_claim(self, queue: _Queue, turn: Turn) -> _LastTurn:
        refused = self._settle(queue, turn)
        token = self._last_token = max(self._last_token + 1, int(self._clock.now() * 1_000_000))
        taken = list(self._next_jobs(queue, turn)) if turn.epoch in (0, EPOCH) else []
        for job in taken:
            job.worker, job.token = turn.worker, token
            job.attempt += 1
        return _LastTurn(turn.seq, token, taken, refused)

    def _settle(self, queue: _Queue, turn: Turn) -> list[str]:
        """Apply the settlements of claims that the worker holds. Returns the keys of the others."""
        accepted: dict[str, Settlement] = {}
        refused: list[str] = []
        for settlement in turn.settlements:
            claim = settlement.claim
            job = queue.jobs.get(claim.key)
            holds = job is not None and (job.worker, job.ref, job.token) == (turn.worker, claim.ref, claim.token)
            if holds and claim.key not in accepted:
                accepted[claim.key] = settlement
            else:
                refused.append(claim.key)
        outbox = [new for settlement in accepted.values() for new in settlement.outbox or ()]
        check_jobs(outbox, self.capabilities)
        for key, settlement in accepted.items():
            self._end_run(queue, queue.jobs[key], settlement)
        self._store(outbox)
        return refused

    def _end_run(self, queue: _Queue, job: _Job, settlement: Settlement) -> None:
        verdict = settlement.verdict
        self._give_back(job, started=verdict != "release")
        if verdict == "release":
            return
        now = self._clock.now()
        job.retry_count = settlement.retry_count
        job.deaths += settlement.died
        if verdict in ("retry", "bury"):
            job.error = storable(settlement.error)
        if verdict in ("retry", "postpone"):
            job.due = again_at(now, settlement.delay_s)
            return
        del queue.jobs[job.key]
        if verdict == "bury":
            job.buried_at = now
            queue.morgue[job.key] = job

    def _next_jobs(self, queue: _Queue, turn: Turn) -> Iterator[_Job]:
        """The jobs that a turn claims, `turn.batch` at a time from one shard."""
        now = self._clock.now()
        due: dict[int, deque[_Job]] = {
            shard: deque() for shard in (range(queue.shards) if turn.shards is None else turn.shards)
        }
        for job in sorted(queue.jobs.values(), key=lambda job: job.place):
            if job.worker is None and job.due <= now and job.shard in due:
                due[job.shard].append(job)
        left, round_and_round = turn.limit, cycle(due.values())
        while left > 0 and any(due.values()):
            if turn.in_order:
                jobs = next(jobs for jobs in round_and_round if jobs)
            else:
                jobs = min((jobs for jobs in due.values() if jobs), key=lambda jobs: jobs[0].place)
            for _ in range(min(turn.batch, left, len(jobs))):
                left -= 1
                yield jobs.popleft()

    # -- waiting ---------------------------------------------------------------------------------------

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        end = time.monotonic() + timeout_s
        with self._lock:
            nudges = self._nudges
            while True:
                now = self._clock.now()
                first_due = self._first_due(queues)
                ready = {name for name, due in first_due.items() if due <= now}
                left_s = end - time.monotonic()
                if ready or left_s <= 0 or self._nudges != nudges:
                    return ready
                self._lock.wait(min([left_s, *(due - now for due in first_due.values())]))

    def _first_due(self, queues: Collection[str]) -> dict[str, float]:
        """When the first job that waits is due, for those of the queues that have one."""
        first: dict[str, float] = {}
        for queue in (self._queues[name] for name in queues if name in self._queues):
            if times := [job.due for job in queue.jobs.values() if job.worker is None]:
                first[queue.name] = min(times)
        return first

    def nudge(self) -> None:
        with self._lock:
            self._nudges += 1
            self._lock.notify_all()

    # -- leases ----------------------------------------------------------------------------------------

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        with self._lock:
            self._living(worker).counter += 1
            for job in self._claims_of(worker):
                if job.token < before and job.token not in held:
                    self._give_back(job, started=False)

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        with self._lock:
            if worker not in self._living_workers():
                return 0
            del self._workers[worker]
            to_blame = {(run.queue, run.key, run.token) for run in died}
            claims = self._claims_of(worker)
            for job in claims:
                job.deaths += (job.queue, job.key, job.token) in to_blame
                self._give_back(job, started=True)
            return len(claims)

    def leases(self) -> dict[str, tuple[int, float]]:
        with self._lock:
            return {name: (worker.counter, worker.lease_s) for name, worker in self._living_workers().items()}

    def declare_dead(self, worker: str, counter: int) -> bool:
        with self._lock:
            suspect = self._living_workers().get(worker)
            if suspect is None or suspect.counter != counter:
                return False
            suspect.died_at = self._clock.now()
            return True

    def reclaim(self) -> int:
        with self._lock:
            died_at = {name: worker.died_at for name, worker in self._workers.items() if worker.died_at is not None}
            claims = [job for name in died_at for job in self._claims_of(name)]
            for job in claims:
                self._give_back(job, started=True)
            for name, at in died_at.items():
                if at < self._clock.now() - REMEMBER_DEAD_S:
                    del self._workers[name]
            return len(claims)

    def _living_workers(self) -> dict[str, _Worker]:
        return {name: worker for name, worker in self._workers.items() if worker.died_at is None}

    def _living(self, name: str) -> _Worker:
        worker = self._workers.get(name)
        if worker is None or worker.died_at is not None:
            raise LeaseLost(f"The worker {name} was declared dead or has not joined; join under a new id.")
        return worker

    def _claims_of(self, worker: str) -> list[_Job]:
        return [job for queue in self._queues.values() for job in queue.jobs.values() if job.worker == worker]

    def _give_back(self, job: _Job, *, started: bool) -> None:
        job.worker, job.token = None, 0
        if not started:
            job.attempt -= 1
        self._lock.notify_all()

    # -- handles ---------------------------------------------------------------------------------------

    def status(self, queue: str, key: str, identity: str | None = None) -> Status:
        with self._lock:
            found, now = self._queue(queue), self._clock.now()
            job = found.jobs.get(key)
            if job is not None and job.worker is not None:
                return "running"
            if job is not None:
                return "queued" if job.due <= now else "delayed"
            if found.cancelled.get(key, 0.0) > now - REMEMBER_ENDED_S:
                return "cancelled"
            return "dead" if key in found.morgue else "gone"

    def cancel(self, queue: str, key: str, identity: str | None = None) -> bool:
        with self._lock:
            found, now = self._queue(queue), self._clock.now()
            if found.waiting(key) is None:
                return False
            del found.jobs[key]
            found.cancelled = {old: at for old, at in found.cancelled.items() if at > now - REMEMBER_ENDED_S}
            found.cancelled[key] = now
            return True

    def reschedule(
        self,
        queue: str,
        key: str,
        identity: str | None = None,
        *,
        delay_s: float = 0.0,
        perform_at: float | None = None,
    ) -> bool:
        with self._lock:
            job = self._queue(queue).waiting(key)
            if job is None:
                return False
            job.due = due_at(self._clock.now(), delay_s, perform_at)
            self._lock.notify_all()
            return True

    def close(self) -> None:
        """There is nothing to let go of."""

    def _queue(self, name: str) -> _Queue:
        if name not in self._queues:
            raise unknown_queue(name)
        return self._queues[name]


def _copy(headers: Headers | None) -> Headers | None:
    return None if headers is None else dict(headers)
