"""Cancels and reschedules queued jobs, makes them due now, and buries or deletes failed payloads.

The caller holds the broker's lock.
"""

from __future__ import annotations

import math

from laneway.jobs.data import Kind
from laneway.jobs.merge import HEAD

from .job import MemoryJob
from .queue import MemoryQueue
from .settle import requeue_rest


def cancel(queue: MemoryQueue, key: str, identity: str | None, now: float) -> bool:
    """Queued → gone, and remembered."""
    job = queue.by_key.get(key)
    if job is None or (identity is None and job.worker is not None):
        return False
    if identity is None:
        queue.remove(job)
    else:
        entry = job.payloads.remove(identity)
        if entry is None:
            return False
        if entry.score == HEAD:
            job.not_before, job.retry_count, job.error = None, -1, None
        _without_one(queue, job)
    queue.cancelled[key, identity] = now
    return True


def _without_one(queue: MemoryQueue, job: MemoryJob) -> None:
    """A payload was cancelled: another one may be the first now."""
    if job.worker is not None:
        if not job.payloads:
            job.next_at = job.since = None
        elif job.kind is Kind.KEYED:
            job.next_at = job.payloads.smallest
    elif not job.payloads:
        queue.remove(job)
    elif job.kind is Kind.KEYED:
        queue.set_due(job, _due(job))


def forget_cancelled(queue: MemoryQueue, before: float) -> None:
    queue.cancelled = {what: at for what, at in queue.cancelled.items() if at >= before}


def reschedule(queue: MemoryQueue, key: str, identity: str | None, at: float) -> bool:
    """Have a queued job be due at another time."""
    job = queue.by_key.get(key)
    if job is None or (identity is not None and identity not in job.payloads):
        return False
    if job.worker is not None:
        return identity is not None and _reschedule_aside(job, identity, at)
    job.since = None
    if job.kind is not Kind.KEYED:
        job.not_before = None
        queue.set_due(job, at)
    elif identity is None:
        _hasten(job, at)
        job.not_before = at if at > job.payloads.smallest else None
        queue.set_due(job, at)
    else:
        _reschedule_call(queue, job, identity, at)
    return True


def _hasten(job: MemoryJob, at: float) -> None:
    """Have the calls of a key that are due later be due then."""
    for entry in job.payloads.first(len(job.payloads)):
        if entry.score > at:
            entry.perform_at = at
            job.payloads.move(entry, at)
    job.latest = None if job.latest is None else min(job.latest, at)


def _reschedule_aside(job: MemoryJob, identity: str, at: float) -> bool:
    """The same for what waits while its key is being run."""
    if job.kind is Kind.KEYED:
        entry = job.payloads.get(identity)
        assert entry is not None
        entry.perform_at = at
        job.payloads.move(entry, at)
        job.next_at = job.payloads.smallest
    else:
        job.next_at, job.since = at, None
    return True


def _reschedule_call(queue: MemoryQueue, job: MemoryJob, identity: str, at: float) -> None:
    entry = job.payloads.get(identity)
    assert entry is not None
    if entry.score == HEAD:
        job.not_before = at
    else:
        entry.perform_at = at
        job.payloads.move(entry, at)
    queue.set_due(job, _due(job))


def run_now(queue: MemoryQueue, key: str, now: float) -> bool:
    """Have a queued job be due now, with all its calls; one that is due already keeps its place."""
    job = queue.by_key.get(key)
    if job is None or job.worker is not None:
        return False
    if job.perform_at > now:
        return reschedule(queue, key, None, now)
    if job.kind is Kind.KEYED:
        _hasten(job, now)
    return True


def end_failed(queue: MemoryQueue, key: str, now: float, *, bury: bool) -> bool:
    """Take what has failed out of a queued job: into the morgue, or away."""
    job = queue.by_key.get(key)
    if job is None or job.worker is not None or job.retry_count < 0:
        return False
    ended = job.payloads.take(1 if job.kind is Kind.KEYED else len(job.payloads))
    if bury:
        queue.bury(job, ended, job.retry_count, job.error, now)
    requeue_rest(job, [], now)
    queue.put_back(job)
    return True


def _due(job: MemoryJob) -> float:
    """When a keyed job is due: with its earliest call, but not while it rests."""
    return max(job.payloads.smallest, -math.inf if job.not_before is None else job.not_before)
