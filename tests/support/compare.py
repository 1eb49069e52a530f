"""Compares a broker's views of a key, its listings and its stats with the reference."""

from __future__ import annotations

from typing import Any

from laneway.broker import Broker, Listing, Order
from laneway.jobs.data import JobView, Kind, QueueStats, Status
from laneway.jobs.shards import shard_of
from tests.support import model_operate
from tests.support.model import Entries, KeyState, ModelJob, replace
from tests.support.reference import QueueState, ReferenceBroker, same

#: Payloads of one job in a listing.
LISTED_PAYLOADS = 10


def views(queue: str, key: str, state: KeyState, known: QueueState, now: float) -> list[JobView]:
    """A key as `find` should show it."""
    shard = shard_of(key, known.shards)
    shown: list[JobView] = []
    row = state.row
    if row is not None and row.worker is not None:
        shown.append(_view(queue, key, shard, row, state.running, "running", row.perform_at))
        # What is set aside is a job that nothing has happened to yet.
        row = replace(row, retry_count=-1, attempt=0, deaths=0, error=None, worker=None)
    if row is not None and state.queued:
        at = row.perform_at if not state.running else row.next_at or 0.0
        shown.append(_view(queue, key, shard, row, state.queued, "delayed" if at > now else "queued", at))
    dead = state.dead
    if dead is not None:
        shown.append(
            JobView(
                queue=queue,
                key=key,
                status="dead",
                shard=shard,
                payloads=[entry.payload(dead.kind) for entry in dead.entries],
                perform_at=0.0,
                retry_count=dead.retry_count,
                attempt=dead.attempt,
                kind=dead.kind,
                size=len(dead.entries),
                deaths=shown_deaths(dead.kind, dead.deaths, dead.entries),
                priority=dead.priority,
                error=dead.error,
                updated_at=dead.updated_at,
            )
        )
    return shown


def shown_deaths(kind: Kind, deaths: int, entries: Entries) -> int:
    """Of a keyed job those of its first call are shown."""
    return entries[0].deaths if kind is Kind.KEYED else deaths


def _view(queue: str, key: str, shard: int, row: ModelJob, entries: Entries, status: Status, at: float) -> JobView:
    return JobView(
        queue=queue,
        key=key,
        status=status,
        shard=shard,
        payloads=[entry.payload(row.kind) for entry in entries],
        perform_at=at,
        retry_count=row.retry_count,
        attempt=row.attempt,
        kind=row.kind,
        size=len(entries),
        deaths=shown_deaths(row.kind, row.deaths, entries),
        priority=row.priority,
        error=row.error,
        worker=row.worker,
    )


def compare_key(broker: Broker, reference: ReferenceBroker, queue: str, key: str, now: float) -> None:
    """`find` of a key."""
    state, known = reference.state(queue, key), reference.queues[queue]
    expected = views(queue, key, state, known, now)
    found = [_comparable(view, known) for view in broker.inspect.find(queue, key)]
    same(f"find({queue!r}, {key!r})", found, expected)


def compare_status(broker: Broker, reference: ReferenceBroker, queue: str, key: str, now: float) -> None:
    """`status` of a key."""
    expected = model_operate.status(reference.state(queue, key), None, now)
    same(f"status({queue!r}, {key!r})", broker.status(queue, key), expected)


def compare_payload(
    broker: Broker, reference: ReferenceBroker, queue: str, key: str, identity: str, now: float
) -> None:
    """`status` of one payload."""
    state = reference.state(queue, key)
    expected = model_operate.status(state, identity, now)
    same(f"status({queue!r}, {key!r}, {identity!r})", broker.status(queue, key, identity), expected)


def _comparable(view: JobView, known: QueueState) -> JobView:
    """Without what the contract leaves open: when a dead job was due, and which shard a job is in while it may move."""
    perform_at = 0.0 if view.status == "dead" else view.perform_at
    shard = view.shard
    if known.resharding and shard == shard_of(view.key, known.resharding):
        shard = shard_of(view.key, known.shards)
    return replace(view, perform_at=perform_at, shard=shard)


def compare_stats(broker: Broker, reference: ReferenceBroker, now: float) -> None:
    """The numbers of every queue, the queues themselves, and the leases."""
    expected = [stats(reference, queue, now) for queue in sorted(reference.queues)]
    same("stats", broker.inspect.stats(), expected)
    same("queues", broker.inspect.queues(), {name: queue.shards for name, queue in sorted(reference.queues.items())})
    living = {name: worker for name, worker in reference.workers.items() if worker.lives}
    same("leases", broker.leases(), {name: (worker.counter, worker.lease_s) for name, worker in living.items()})


def stats(reference: ReferenceBroker, queue: str, now: float) -> QueueStats:
    """A queue in numbers."""
    known = reference.queues[queue]
    states = [state for (name, _), state in reference.keys.items() if name == queue]
    rows = [state.row for state in states if state.row]
    queued = [row for row in rows if row.worker is None]
    aside = [row.next_at for row in rows if row.worker is not None and row.next_at is not None]
    retries = sum(row.retry_count >= 0 for row in queued)
    length = len(queued) + len(aside)
    return QueueStats(
        queue=queue,
        shards=known.shards,
        length=length,
        delayed=sum(row.perform_at > now for row in queued) + sum(at > now for at in aside),
        fresh=length - retries,
        retries=retries,
        dead=sum(state.dead is not None for state in states),
        busy=len(rows) - len(queued),
        processed=known.processed,
        failed=known.failed,
        lag=max(0.0, now - min((row.perform_at for row in queued), default=now)),
        paused=known.paused,
    )


def compare_listing(
    broker: Broker,
    reference: ReferenceBroker,
    queue: str,
    which: Listing,
    now: float,
    *,
    order: Order | None = None,
    reverse: bool = False,
    start: float | str | None = None,
    limit: int = 100,
) -> None:
    """A listing, page by page. Between jobs that are alike in its order and due time, any order is right."""
    known = reference.queues[queue]
    by: Order = order or ("updated_at" if which == "dead" else "perform_at")
    expected: dict[str, JobView] = {}
    for (name, key), state in reference.keys.items():
        for view in views(queue, key, state, known, now) if name == queue else ():
            if _listed(which, view, state) and (start is None or _begins(getattr(view, by), start, reverse=reverse)):
                view.payloads = view.payloads[:LISTED_PAYLOADS]
                expected[key] = view
    shown: list[JobView] = []
    after: str | None = None
    while True:
        page = broker.inspect.listing(queue, which, order=order, reverse=reverse, start=start, after=after, limit=limit)
        shown += [_comparable(view, known) for view in page.jobs]
        after = page.after
        if after is None or len(shown) > len(expected) + limit:
            break
    what = f"listing({queue!r}, {which!r}, order={order!r}, reverse={reverse}, start={start!r}, limit={limit})"
    same(f"the keys of {what}", sorted(view.key for view in shown), sorted(expected))
    for view in shown:
        same(f"{view.key!r} in {what}", view, expected[view.key])
    ranks = [(getattr(view, by), view.updated_at if which == "dead" else view.perform_at) for view in shown]
    same(f"the order of {what}", ranks, sorted(ranks, reverse=reverse))


def _listed(which: Listing, view: JobView, state: KeyState) -> bool:
    if which in ("running", "dead"):
        return view.status == which
    if view.status not in ("queued", "delayed") or state.running:
        return False
    return which == "queued" or (view.status == "delayed" if which == "delayed" else view.retry_count >= 0)


def _begins(value: Any, start: Any, *, reverse: bool) -> bool:
    within: bool = value <= start if reverse else value >= start
    return within
