"""MemoryQueue: one queue, its morgue, and a heap of due jobs per priority and shard.

It stores new payloads, buries and revives. DueHeaps finds the job that is due next. The caller holds the broker's
lock.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence

from laneway.brokers.shared import another_kind
from laneway.jobs.data import Kind, NewJob
from laneway.jobs.merge import due_on_arrival, due_when_queued, next_score, quiet_until
from laneway.jobs.shards import shard_of

from .job import MemoryJob, PayloadEntry, PayloadList

_slots = itertools.count(1)


class _DueHeap(list[tuple[float, int, int, MemoryJob]]):
    """A heap of perform_at, arrival, the number of the entry, and the job."""

    #: With more entries it is looked through for those that were left behind.
    most = 64


class DueHeaps:
    """The queued jobs of a queue by priority, highest first, and shard.

    A job that was moved or removed leaves its entry behind; it is dropped when it comes to the top, or when the lane
    has doubled.
    """

    def __init__(self) -> None:
        self._by_priority: dict[int, dict[int, _DueHeap]] = {}

    def put(self, job: MemoryJob) -> None:
        """Put a job where it belongs by its priority, shard and due time, and nowhere else."""
        if job.priority not in self._by_priority:
            self._by_priority[job.priority] = {}
            self._by_priority = dict(sorted(self._by_priority.items(), reverse=True))
        job.slot = next(_slots)
        lane = self._by_priority[job.priority].setdefault(job.shard, _DueHeap())
        heapq.heappush(lane, (job.perform_at, job.ref, job.slot, job))
        if len(lane) > lane.most:
            lane[:] = [entry for entry in lane if entry[3].slot == entry[2]]
            heapq.heapify(lane)
            lane.most = max(_DueHeap.most, 2 * len(lane))

    def keep_shards(self, count: int) -> None:
        """Forget the shards from `count` on: all that was in them has moved."""
        for lanes in self._by_priority.values():
            for shard in [shard for shard in lanes if shard >= count]:
                del lanes[shard]

    def take(self, shards: Sequence[int], limit: int, batch: int, now: float, *, in_order: bool) -> Iterator[MemoryJob]:
        """Take out the jobs that are due, `batch` at a time from one shard, highest priority first."""
        for lanes in self._by_priority.values():
            wanted = [lanes[shard] for shard in dict.fromkeys(shards) if shard in lanes]
            for lane in self._round(wanted, now) if in_order else self._most_overdue(wanted, now):
                for _ in range(max(batch, 1)):
                    if limit <= 0:
                        return
                    if not self._is_due(lane, now):
                        break
                    limit -= 1
                    job = heapq.heappop(lane)[3]
                    job.slot = None
                    yield job

    def _most_overdue(self, lanes: Sequence[_DueHeap], now: float) -> Iterator[_DueHeap]:
        while due := [lane for lane in lanes if self._is_due(lane, now)]:
            yield min(due, key=lambda lane: lane[0][:2])

    def _round(self, lanes: Sequence[_DueHeap], now: float) -> Iterator[_DueHeap]:
        while due := [lane for lane in lanes if self._is_due(lane, now)]:
            yield from due

    def _is_due(self, lane: _DueHeap, now: float) -> bool:
        at = self._earliest(lane)
        return at is not None and at <= now

    def next_due(self) -> float | None:
        """When the earliest job is due."""
        return min(self.dues().values(), default=None)

    def dues(self) -> dict[int, float]:
        """When the earliest job of each shard that has one is due."""
        dues: dict[int, float] = {}
        for lanes in self._by_priority.values():
            for shard, lane in lanes.items():
                at = self._earliest(lane)
                if at is not None:
                    dues[shard] = min(at, dues.get(shard, at))
        return dues

    def _earliest(self, lane: _DueHeap) -> float | None:
        while lane:
            at, _, slot, job = lane[0]
            if job.slot == slot:
                return at
            heapq.heappop(lane)
        return None


#: Arrival: grows with every job and payload, so that it also decides between those that are due at the same time.
_arrivals = itertools.count(1)


class MemoryQueue:
    """One queue."""

    def __init__(self, name: str, shards: int) -> None:
        self.name = name
        self.shards = shards
        self.epoch = 1
        #: The shard count that it is being changed to; 0 when it is not.
        self.resharding = 0
        #: Those that have still to be moved then, and how many they were at first.
        self.unmoved: deque[MemoryJob] = deque()
        self.to_move = 0
        self.by_key: dict[str, MemoryJob] = {}
        self.by_ref: dict[int, MemoryJob] = {}
        self.morgue: dict[str, MemoryJob] = {}
        self.lanes = DueHeaps()
        self.paused = False
        self.processed = 0
        self.failed = 0
        #: When a key, or a payload of it, was cancelled.
        self.cancelled: dict[tuple[str, str | None], float] = {}

    def shard_of(self, key: str) -> int:
        """Where a key belongs from now on."""
        return shard_of(key, self.resharding or self.shards)

    # -- jobs in ---------------------------------------------------------------------------------------

    def add(self, new: NewJob, at: float, now: float) -> None:
        """Nothing → queued, or one more payload for the job that is there."""
        job = self.by_key.get(new.key)
        if self.cancelled and new.kind is not Kind.PLAIN:
            self.cancelled.pop((new.key, None), None)
            self.cancelled.pop((new.key, new.identity), None)
        if job is None:
            self._begin(new, at, now)
        elif new.kind is Kind.KEYED:
            self._add_call(job, new, at)
        elif new.kind is Kind.COLLECTING:
            self._add_value(job, new, at, now)
        # A plain job that is there already stays as it is: a repeat is harmless.

    def _begin(self, new: NewJob, at: float, now: float) -> None:
        plain = new.kind is Kind.PLAIN
        job = MemoryJob(
            queue=self.name,
            ref=next(_arrivals),
            key=new.key,
            kind=new.kind,
            shard=self.shard_of(new.key),
            perform_at=at,
            payloads=PayloadList(new.kind, [_entry(new, at, _first_score(new, at, now))]),
            priority=new.priority,
            expires=new.expires if plain else None,
            headers=dict(new.headers) if plain and new.headers else None,
        )
        if new.quiet is not None:
            job.since, job.perform_at = now, quiet_until(now, now, 1, new.quiet)
        if not new.timed:
            job.latest = at
        self.insert(job)

    def _add_call(self, job: MemoryJob, new: NewJob, at: float) -> None:
        if new.identity in job.payloads or any(entry.identity == new.identity for entry in job.running):
            return  # a repeat is harmless
        if not new.timed:
            at = job.latest = due_on_arrival(at, job.latest)
        job.payloads.unite([_entry(new, at, at)])
        if job.worker is not None:
            job.next_at = at if job.next_at is None else min(job.next_at, at)
        else:
            self.set_due(job, due_when_queued(job.kind, job.perform_at, at, not_before=job.not_before))

    def _add_value(self, job: MemoryJob, new: NewJob, at: float, now: float) -> None:
        there = job.payloads.get(new.identity)
        if new.score is not None:
            job.payloads.unite([_entry(new, at, new.score)])
        elif there is None:
            scores = [score for score in (job.payloads.largest, *_last_score(job)) if score is not None]
            job.payloads.unite([_entry(new, at, next_score(now, max(scores, default=None)))])
        size = len(job.payloads)
        if job.worker is None:
            if new.quiet is not None and job.since is not None and job.retry_count == -1:
                self.set_due(job, quiet_until(now, job.since, size, new.quiet, job.perform_at))
        elif job.next_at is None:
            job.next_at = at
            if new.quiet is not None:
                job.since, job.next_at = now, quiet_until(now, now, 1, new.quiet)
        elif new.quiet is not None and job.since is not None:
            job.next_at = quiet_until(now, job.since, size, new.quiet, job.next_at)

    # -- from place to place -----------------------------------------------------------------------------

    def insert(self, job: MemoryJob) -> None:
        """Nothing → queued."""
        self.by_key[job.key] = self.by_ref[job.ref] = job
        self.put_back(job)

    def put_back(self, job: MemoryJob) -> None:
        """Running → queued; or gone, if nothing is left of it."""
        job.worker, job.running, job.next_at = None, [], None
        if job.payloads:
            self.lanes.put(job)
        else:
            self.remove(job)

    def set_due(self, job: MemoryJob, at: float) -> None:
        """Have a queued job be due at another time."""
        if at != job.perform_at:
            job.perform_at = at
            self.lanes.put(job)

    def remove(self, job: MemoryJob) -> None:
        """Queued or running → gone."""
        job.slot = None
        del self.by_key[job.key], self.by_ref[job.ref]

    def bury(
        self, job: MemoryJob, dead: Iterable[PayloadEntry], retry_count: int, error: str | None, now: float
    ) -> None:
        """Put payloads of a job into the morgue, to those of its key that are there; a plain job replaces itself."""
        there, attempt = self.morgue.get(job.key), job.attempt
        pile = PayloadList(job.kind, () if there is None or job.kind is Kind.PLAIN else there.payloads)
        for entry in dead:
            if job.kind is Kind.KEYED:
                entry.score, attempt = entry.perform_at, entry.attempt
            pile.unite([entry])
        if not pile:
            return
        self.morgue[job.key] = MemoryJob(
            queue=self.name,
            ref=next(_arrivals),
            key=job.key,
            kind=job.kind,
            shard=self.shard_of(job.key),
            perform_at=job.perform_at,
            payloads=pile,
            priority=job.priority,
            expires=job.expires,
            headers=job.headers,
            retry_count=retry_count,
            attempt=attempt,
            deaths=max(job.deaths, there.deaths) if there and job.kind is Kind.COLLECTING else job.deaths,
            error=error,
            updated_at=now,
        )

    def revive(self, key: str, now: float) -> bool:
        """Dead → queued, or set aside while the key is being run: for that a plain job has no place."""
        dead, job = self.morgue.get(key), self.by_key.get(key)
        if dead is None or (job is not None and job.kind is not dead.kind):
            return False
        if job is not None and job.kind is Kind.PLAIN and job.worker is not None:
            return False
        del self.morgue[key]
        if dead.kind is Kind.KEYED:
            for entry in dead.payloads.first(len(dead.payloads)):
                entry.deaths = 0
                entry.perform_at = min(entry.perform_at, now)
                dead.payloads.move(entry, entry.perform_at)
        if job is not None and job.worker is not None:
            at = dead.payloads.smallest if job.kind is Kind.KEYED else now
            is_earlier = job.next_at is None or job.kind is Kind.COLLECTING or at < job.next_at
            job.next_at = at if is_earlier else job.next_at
            job.payloads.unite(dead.payloads)
            return True
        if job is None:
            dead.updated_at, dead.ref, dead.shard = None, next(_arrivals), self.shard_of(key)
            dead.attempt = dead.attempt if dead.kind is Kind.PLAIN else 0
        else:
            job.payloads.unite(dead.payloads)
        job = job or dead
        job.perform_at, job.retry_count, job.deaths = now, -1, 0
        job.not_before = job.since = None
        self.insert(job)
        return True


def check_kinds(
    jobs: Iterable[NewJob], queues: dict[str, MemoryQueue], ending: Container[tuple[str, str]] = ()
) -> None:
    """Refuse keyed and collecting jobs whose key belongs to a job of another kind, before any of them is stored.

    `ending` are jobs, by queue and key, that will be gone by then.
    """
    kinds: dict[tuple[str, str], Kind] = {}
    for new in jobs:
        queue = queues.get(new.queue)
        job = queue and queue.by_key.get(new.key) if (new.queue, new.key) not in ending else None
        kind = kinds.setdefault((new.queue, new.key), job.kind if job else new.kind)
        if new.kind is not Kind.PLAIN and kind is not new.kind:
            raise another_kind(new, kind)


def _entry(new: NewJob, at: float, score: float) -> PayloadEntry:
    calls = new.kind is Kind.KEYED
    return PayloadEntry(
        identity="" if new.kind is Kind.PLAIN else new.identity,
        body=new.body,
        score=score,
        seq=next(_arrivals),
        perform_at=at,
        headers=dict(new.headers) if calls and new.headers else None,
        expires=new.expires if calls else None,
    )


def _first_score(new: NewJob, at: float, now: float) -> float:
    if new.kind is Kind.PLAIN:
        return new.score or 0.0
    if new.kind is Kind.KEYED:
        return at
    return next_score(now, None) if new.score is None else new.score


def _last_score(job: MemoryJob) -> list[float]:
    return [job.running[-1].score] if job.running else []
