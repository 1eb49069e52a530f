"""One queue of the in-memory broker: its jobs, its morgue, and which job is due next. Its caller holds the lock."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable

import msgspec

from ..broker import Listing, Page
from ..errors import BrokerError
from ..job import Claim, Headers, JobView, NewJob, Payload, QueueStats, Status
from ..shards import shard_of

#: Arrival: grows with every job, so that it also decides between jobs that are due at the same time.
_refs = itertools.count(1)


class Job(msgspec.Struct):
    """A job in the queue or, with `updated_at`, in the morgue."""

    queue: str
    ref: int
    key: str
    shard: int
    payload: Payload
    perform_at: float
    priority: int
    expires: float | None
    headers: Headers | None
    retry_count: int = -1
    attempt: int = 0
    deaths: int = 0
    error: str | None = None
    #: Who runs it; None while it is queued.
    worker: str | None = None
    token: int = 0
    updated_at: float | None = None

    def claim(self) -> Claim:
        """The job as a worker gets it; what the worker does to it changes nothing here."""
        return Claim(
            queue=self.queue,
            ref=self.ref,
            key=self.key,
            token=self.token,
            perform_at=self.perform_at,
            retry_count=self.retry_count,
            attempt=self.attempt,
            deaths=self.deaths,
            payloads=[self.payload],
            error=self.error,
            headers=dict(self.headers) if self.headers else None,
        )

    def status(self, now: float) -> Status:
        if self.updated_at is not None:
            return "dead"
        if self.worker is not None:
            return "running"
        return "delayed" if self.perform_at > now else "queued"

    def view(self, now: float) -> JobView:
        return JobView(
            queue=self.queue,
            key=self.key,
            status=self.status(now),
            shard=self.shard,
            payloads=[self.payload],
            perform_at=self.perform_at,
            retry_count=self.retry_count,
            attempt=self.attempt,
            deaths=self.deaths,
            priority=self.priority,
            error=self.error,
            updated_at=self.updated_at,
            worker=self.worker,
        )

    def position(self) -> tuple[float, int]:
        """Where it stands in a listing."""
        return (self.perform_at if self.updated_at is None else self.updated_at), self.ref


class Queue:
    """One queue."""

    def __init__(self, name: str, shards: int) -> None:
        self.name = name
        self.shards = shards
        self.by_key: dict[str, Job] = {}
        self.by_ref: dict[int, Job] = {}
        self.morgue: dict[str, Job] = {}
        self.processed = 0
        self.failed = 0
        self._cancelled: dict[str, float] = {}
        # (perform_at, ref) of queued jobs, a heap for each (priority, shard), highest priority first. Jobs that
        # were moved or removed leave their entry behind; it is dropped when it comes to the top.
        self._lanes: dict[tuple[int, int], list[tuple[float, int]]] = {}

    def add(self, new: NewJob, at: float) -> None:
        """Nothing → queued. A key that is queued or running already stays as it is: a repeat is harmless."""
        if new.key in self.by_key:
            return
        job = Job(
            queue=self.name,
            ref=next(_refs),
            key=new.key,
            shard=shard_of(new.key, self.shards),
            payload=Payload(new.body, new.score or 0.0),
            perform_at=at,
            priority=new.priority,
            expires=new.expires,
            headers=dict(new.headers) if new.headers else None,
        )
        self._insert(job)

    def _insert(self, job: Job) -> None:
        self.by_key[job.key] = self.by_ref[job.ref] = job
        self.put_back(job)

    def put_back(self, job: Job) -> None:
        """Running, or moved → queued."""
        job.worker = None
        lane = (job.priority, job.shard)
        if lane not in self._lanes:
            self._lanes[lane] = []
            self._lanes = dict(sorted(self._lanes.items(), reverse=True))
        heapq.heappush(self._lanes[lane], (job.perform_at, job.ref))

    def remove(self, job: Job) -> None:
        """Queued or running → gone."""
        del self.by_key[job.key], self.by_ref[job.ref]

    def bury(self, job: Job, retry_count: int, error: str | None, now: float) -> None:
        """Running → dead. A key that is dead already is replaced by its younger self."""
        self.remove(job)
        job.retry_count, job.error = retry_count, error
        job.worker, job.updated_at, job.ref = None, now, next(_refs)
        self.morgue[job.key] = job

    def revive(self, key: str, now: float) -> bool:
        """Dead → queued. While its key is being run it stays where it is."""
        dead, queued = self.morgue.get(key), self.by_key.get(key)
        if dead is None or (queued is not None and queued.worker is not None):
            return False
        del self.morgue[key]
        job = queued or dead
        job.perform_at, job.retry_count = now, -1
        if job is dead:
            job.deaths, job.updated_at, job.ref = 0, None, next(_refs)
        self._insert(job)
        return True

    def cancel(self, key: str, now: float) -> bool:
        """Queued → gone, and remembered."""
        job = self.by_key.get(key)
        if job is None or job.worker is not None:
            return False
        self.remove(job)
        self._cancelled[key] = now
        return True

    def forget_cancelled(self, before: float) -> None:
        self._cancelled = {key: at for key, at in self._cancelled.items() if at >= before}

    def reschedule(self, key: str, at: float) -> bool:
        job = self.by_key.get(key)
        if job is None or job.worker is not None:
            return False
        job.perform_at = at
        self.put_back(job)
        return True

    # -- what is due -----------------------------------------------------------------------------------

    def take_due(self, shards: Iterable[int], now: float) -> Job | None:
        """Take the job out of its lane that is due first, of the highest priority that has one."""
        wanted = set(shards)
        best: list[tuple[float, int]] | None = None
        best_priority = 0
        for (priority, shard), lane in self._lanes.items():
            if best and priority != best_priority:
                break
            if shard in wanted and (head := self._head(lane)) and head[0] <= now and (not best or head < best[0]):
                best, best_priority = lane, priority
        return self.by_ref[heapq.heappop(best)[1]] if best else None

    def next_due(self) -> float | None:
        """When the earliest queued job is due."""
        return min((head[0] for lane in self._lanes.values() if (head := self._head(lane))), default=None)

    def _head(self, lane: list[tuple[float, int]]) -> tuple[float, int] | None:
        while lane:
            at, ref = lane[0]
            job = self.by_ref.get(ref)
            if job is not None and job.worker is None and job.perform_at == at:
                return lane[0]
            heapq.heappop(lane)
        return None

    # -- looking ---------------------------------------------------------------------------------------

    def status(self, key: str, now: float) -> Status:
        found = self.by_key.get(key) or self.morgue.get(key)
        if found is not None:
            return found.status(now)
        return "cancelled" if key in self._cancelled else "gone"

    def find(self, key: str, now: float) -> list[JobView]:
        return [place[key].view(now) for place in (self.by_key, self.morgue) if key in place]

    def listing(self, which: Listing, after: str | None, limit: int, now: float) -> Page:
        start = _position(after)
        shown: dict[Listing, Callable[[Job], bool]] = {
            "queued": lambda job: job.worker is None,
            "delayed": lambda job: job.worker is None and job.perform_at > now,
            "retries": lambda job: job.worker is None and job.retry_count >= 0,
            "running": lambda job: job.worker is not None,
            "dead": lambda job: True,
        }
        jobs = (self.morgue if which == "dead" else self.by_key).values()
        matching = (job for job in jobs if shown[which](job) and job.position() > start)
        page = heapq.nsmallest(limit, matching, key=Job.position)
        last = "{!r}:{}".format(*page[-1].position()) if page and len(page) == limit else None
        return Page([job.view(now) for job in page], last)

    def stats(self, now: float) -> QueueStats:
        queued = [job for job in self.by_key.values() if job.worker is None]
        retries = sum(job.retry_count >= 0 for job in queued)
        return QueueStats(
            queue=self.name,
            shards=self.shards,
            length=len(queued),
            delayed=sum(job.perform_at > now for job in queued),
            fresh=len(queued) - retries,
            retries=retries,
            dead=len(self.morgue),
            busy=len(self.by_key) - len(queued),
            processed=self.processed,
            failed=self.failed,
            lag=max(0.0, now - min((job.perform_at for job in queued), default=now)),
        )


def _position(after: str | None) -> tuple[float, int]:
    if after is None:
        return -math.inf, 0
    try:
        at, _, ref = after.partition(":")
        return float(at), int(ref)
    except ValueError:
        raise BrokerError(f"{after!r} is not a position of a listing; take it from the page before.") from None
