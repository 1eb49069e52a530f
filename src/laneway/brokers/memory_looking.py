"""How the in-memory broker looks at a queue: one key, a page of a listing, numbers. Changes nothing."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import Any

import msgspec

from ..broker import Listing, Order, Page
from ..errors import BrokerError
from ..job import JobView, QueueStats, Status
from .memory_job import Job
from .memory_queue import Queue

#: What each listing can be sorted by; the first is what it is sorted by unless told otherwise.
ORDERS: dict[Listing, tuple[Order, ...]] = {
    "queued": ("perform_at", "key", "retry_count"),
    "delayed": ("perform_at", "key", "retry_count"),
    "retries": ("perform_at", "key", "retry_count"),
    "running": ("perform_at", "key"),
    "dead": ("updated_at", "key"),
}

#: A value of the order, then what decides between equals: due time or burial, and arrival.
_Position = tuple[Any, float, int]

_read_position = msgspec.json.Decoder(tuple[Order, float | str, float, int]).decode


def status(queue: Queue, key: str, identity: str | None, now: float) -> Status:
    """Where a job is, or one payload of it."""
    for place in (queue.by_key, queue.morgue):
        job = place.get(key)
        found = job and (job.status(now) if identity is None else job.status_of(identity, now))
        if found:
            return found
    cancelled = (key, identity) in queue.cancelled or (key, None) in queue.cancelled
    return "cancelled" if cancelled else "gone"


def find(queue: Queue, key: str, now: float) -> list[JobView]:
    """A key's job wherever there is one."""
    return [view for place in (queue.by_key, queue.morgue) if key in place for view in place[key].views(now)]


def listing(
    queue: Queue,
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
    order = order or ORDERS[which][0]
    if order not in ORDERS[which]:
        raise BrokerError(f"Jobs that are {which} cannot be sorted by {order}; use {' or '.join(ORDERS[which])}.")
    _check_start(order, start)
    position = _position_of(order)
    begin = None if after is None else _read(order, after)

    def is_wanted(job: Job) -> bool:
        if not _SHOWN[which](job, now):
            return False
        here = position(job)
        if begin is not None and not (here < begin if reverse else here > begin):
            return False
        return start is None or (here[0] <= start if reverse else here[0] >= start)

    jobs = (queue.morgue if which == "dead" else queue.by_key).values()
    best = heapq.nlargest if reverse else heapq.nsmallest
    page = best(max(limit, 0), filter(is_wanted, jobs), key=position)
    last = _write(order, position(page[-1])) if page and len(page) == limit else None
    return Page([job.view(now) for job in page], last)


_SHOWN: dict[Listing, Callable[[Job, float], bool]] = {
    "queued": lambda job, _: job.worker is None,
    "delayed": lambda job, now: job.worker is None and job.perform_at > now,
    "retries": lambda job, _: job.worker is None and job.retry_count >= 0,
    "running": lambda job, _: job.worker is not None,
    "dead": lambda job, _: True,
}


def _position_of(order: Order) -> Callable[[Job], _Position]:
    def position(job: Job) -> _Position:
        at = job.perform_at if job.updated_at is None else job.updated_at
        value = job.key if order == "key" else job.retry_count if order == "retry_count" else at
        return value, at, job.ref

    return position


def _check_start(order: Order, start: float | str | None) -> None:
    if start is None:
        return
    fits = order == "key" if isinstance(start, str) else order != "key" and not math.isnan(start)
    if not fits:
        raise BrokerError(f"A listing by {order} cannot begin with {start!r}.")


def _write(order: Order, position: _Position) -> str:
    return msgspec.json.encode((order, *position)).decode()


def _read(order: Order, after: str) -> _Position:
    try:
        sorted_by, value, at, ref = _read_position(after)
        if sorted_by == order and isinstance(value, str) == (order == "key"):
            return value, at, ref
    except (msgspec.DecodeError, ValueError):
        pass
    raise BrokerError(f"{after!r} is not a position of a listing; take it from the page before.")


def stats(queue: Queue, now: float) -> QueueStats:
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
