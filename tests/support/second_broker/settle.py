"""Applies a settlement to one key. The caller holds the broker's lock."""

from __future__ import annotations

from collections.abc import Iterable

from laneway.brokers.shared import again_at, storable
from laneway.jobs.data import Kind
from laneway.jobs.merge import HEAD
from laneway.jobs.settlement import Settlement

from .job import MemoryJob, PayloadEntry
from .queue import MemoryQueue


def settle(queue: MemoryQueue, job: MemoryJob, settlement: Settlement, now: float) -> None:
    """Running → whatever the settlement says. The first payloads are finished; it is told what becomes of the rest."""
    verdict = settlement.verdict
    done = min(max(settlement.done, 0), len(job.running))
    rest = [] if verdict == "done" else job.running[done:]
    if verdict == "done" or (not rest and verdict in ("retry", "postpone")):
        finish(queue, job)
    elif verdict == "release" and not done:
        give_back(queue, job, started=False)
    else:
        if settlement.died and rest and verdict != "release":
            job.count_death(rest[0].identity)
        if verdict == "bury":
            # A plain job is one payload, whatever is said of it.
            count = 1 if job.kind is Kind.PLAIN else max(settlement.buried, 0)
            queue.bury(job, rest[:count], settlement.retry_count, storable(settlement.error), now)
            requeue_rest(job, rest[count:], now)
        elif verdict == "release":
            _release_the_rest(job, rest)
        else:
            _run_again(job, rest, settlement, now)
        job.since = None
        queue.put_back(job)


def finish(queue: MemoryQueue, job: MemoryJob) -> None:
    """All of it succeeded: what was set aside meanwhile is next, as if it had just come."""
    if job.next_at is not None:
        job.become_fresh()
        job.perform_at = job.next_at
    queue.put_back(job)


def give_back(queue: MemoryQueue, job: MemoryJob, *, started: bool) -> None:
    """Running → queued, as it was before; with what has come meanwhile."""
    if not started:
        job.attempt -= 1
        _not_started(job, job.running)
    job.payloads.unite(job.running)
    if job.kind is Kind.KEYED and job.not_before is None and job.next_at is not None:
        job.perform_at = min(job.perform_at, job.next_at)
    job.since = None
    queue.put_back(job)


def requeue_rest(job: MemoryJob, left: list[PayloadEntry], now: float) -> None:
    """The first payloads were buried or deleted: what is left starts anew, and has not failed."""
    _not_started(job, left)
    job.payloads.unite(left)
    job.become_fresh()
    job.since = None
    if job.kind is Kind.COLLECTING:
        job.perform_at = now
    elif job.payloads:
        job.perform_at = job.payloads.smallest


def _run_again(job: MemoryJob, rest: list[PayloadEntry], settlement: Settlement, now: float) -> None:
    """The first of the rest failed, or asked for more time."""
    job.perform_at = again_at(now, settlement.delay_s)
    job.retry_count = settlement.retry_count
    if settlement.verdict == "retry":
        job.error = storable(settlement.error)
    elif settlement.done:
        job.error = None
    if job.kind is Kind.KEYED:
        job.not_before, job.attempt = job.perform_at, rest[0].attempt
        rest[0].score = HEAD
        _not_started(job, rest[1:])
    job.payloads.unite(rest)


def _release_the_rest(job: MemoryJob, rest: list[PayloadEntry]) -> None:
    """Some are finished, and the rest was never started."""
    _not_started(job, rest)
    job.payloads.unite(rest)
    job.become_fresh()
    if job.kind is Kind.KEYED and job.payloads:
        job.perform_at = job.payloads.smallest


def _not_started(job: MemoryJob, entries: Iterable[PayloadEntry]) -> None:
    if job.kind is Kind.KEYED:  # others are not counted one by one
        for entry in entries:
            entry.attempt -= 1
