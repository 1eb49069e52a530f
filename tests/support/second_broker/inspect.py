"""Status, find, listing and stats of one queue. Changes nothing. The caller holds the broker's lock."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable

from laneway.broker import Listing, Order, Page
from laneway.brokers.page_cursor import Position, check_order, check_start, read_position, write_position
from laneway.jobs.data import JobView, QueueStats, Status

from .job import MemoryJob
from .queue import MemoryQueue


def status(queue: MemoryQueue, key: str, identity: str | None, now: float) -> Status:
    """Where a job is, or one payload of it."""
    for place in (queue.by_key, queue.morgue):
        job = place.get(key)
        found = job and (job.status(now) if identity is None else job.status_of(identity, now))
        if found:
            return found
    cancelled = (key, identity) in queue.cancelled or (key, None) in queue.cancelled
    return "cancelled" if cancelled else "gone"


def find(queue: MemoryQueue, key: str, now: float) -> list[JobView]:
    """A key's job wherever there is one."""
    return [view for place in (queue.by_key, queue.morgue) if key in place for view in place[key].views(now)]


def listing(
    queue: MemoryQueue,
    which: Listing,
    *,
    order: Order | None,
    reverse: bool,
    start: float | str | None,
    after: str | None,
    limit: int,
    now: float,
) -> Page:
    """A page of jobs."""
    order = check_order(which, order)
    check_start(order, start)
    position = _position_of(order)
    begin = None if after is None else read_position(order, after)

    def is_wanted(job: MemoryJob) -> bool:
        if not _SHOWN[which](job, now):
            return False
        here = position(job)
        if begin is not None and not (here < begin if reverse else here > begin):
            return False
        return start is None or (here[0] <= start if reverse else here[0] >= start)

    jobs = (queue.morgue if which == "dead" else queue.by_key).values()
    best = heapq.nlargest if reverse else heapq.nsmallest
    page = best(max(limit, 0), filter(is_wanted, jobs), key=position)
    last = write_position(order, position(page[-1])) if page and len(page) == limit else None
    return Page([job.view(now) for job in page], last)


_SHOWN: dict[Listing, Callable[[MemoryJob, float], bool]] = {
    "queued": lambda job, _: job.worker is None,
    "delayed": lambda job, now: job.worker is None and job.perform_at > now,
    "retries": lambda job, _: job.worker is None and job.retry_count >= 0,
    "running": lambda job, _: job.worker is not None,
    "dead": lambda job, _: True,
}


def _position_of(order: Order) -> Callable[[MemoryJob], Position]:
    def position(job: MemoryJob) -> Position:
        at = job.perform_at if job.updated_at is None else job.updated_at
        value = job.key if order == "key" else job.retry_count if order == "retry_count" else at
        return value, at, job.ref, job.key

    return position


def stats(queue: MemoryQueue, now: float) -> QueueStats:
    """The queue in numbers."""
    queued = [job for job in queue.by_key.values() if job.worker is None]
    aside = [job.next_at for job in queue.by_key.values() if job.next_at is not None]
    retries = sum(job.retry_count >= 0 for job in queued)
    length = len(queued) + len(aside)
    return QueueStats(
        queue=queue.name,
        shards=queue.shards,
        length=length,
        delayed=sum(job.perform_at > now for job in queued) + sum(at > now for at in aside),
        fresh=length - retries,
        retries=retries,
        dead=len(queue.morgue),
        busy=len(queue.by_key) - len(queued),
        processed=queue.processed,
        failed=queue.failed,
        lag=max(0.0, now - min((job.perform_at for job in queued), default=math.inf)),
        paused=queue.paused,
    )
