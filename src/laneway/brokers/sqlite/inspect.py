"""Status, find, stats, lags, workers, and pages of jobs. Reads only.

Pages are sorted by time, key or retry_count, in either direction. `find`, `listing` and `stats` read one snapshot.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any

import msgspec

from ...broker import Listing, Order, Page
from ...jobs.data import Headers, JobView, Kind, Payload, QueueStats, Status, WorkerView
from ..page_cursor import check_order, check_start, read_position, write_position
from ..shared import SHOWN, SHOWN_IN_LISTING, unknown_queue
from .database import Transaction
from .queues import QueueRow, to_json
from .store import Store


class _ViewRow(msgspec.Struct, array_like=True):
    """A row of job_rows or dead_rows."""

    id: int
    key: str
    shard: int
    kind: Kind
    payload: str
    score: float
    perform_at: float
    retry_count: int
    attempt: int
    deaths: int
    priority: int
    error: str | None
    updated_at: float | None
    running: int
    worker: str | None
    #: As an SQL literal: a number or NULL.
    next_at: str

    def view(self, queue: str, now: float, payloads: list[Payload], size: int) -> JobView:
        if self.updated_at is not None:
            status: Status = "dead"
        elif self.running:
            status = "running"
        else:
            status = "delayed" if self.perform_at > now else "queued"
        return JobView(
            queue=queue,
            key=self.key,
            status=status,
            shard=self.shard,
            payloads=payloads,
            perform_at=self.perform_at,
            retry_count=self.retry_count,
            attempt=self.attempt,
            kind=self.kind,
            size=size,
            deaths=_first_deaths(payloads) if self.kind is Kind.KEYED else self.deaths,
            priority=self.priority,
            error=self.error,
            updated_at=self.updated_at,
            worker=self.worker,
        )

    def set_aside(self, queue: str, now: float, payloads: list[Payload], size: int) -> JobView:
        """The payloads that wait while the key is running, shown as the job that they will be."""
        at = float(self.next_at)
        return JobView(
            queue=queue,
            key=self.key,
            status="delayed" if at > now else "queued",
            shard=self.shard,
            payloads=payloads,
            perform_at=at,
            retry_count=-1,
            attempt=0,
            kind=self.kind,
            size=size,
            deaths=_first_deaths(payloads) if self.kind is Kind.KEYED else 0,
            priority=self.priority,
        )


def _first_deaths(payloads: Sequence[Payload]) -> int:
    """The deaths to show for a keyed job: those of its first call, because each call has its own."""
    return payloads[0].deaths if payloads else 0


_read_row = msgspec.json.Decoder(_ViewRow).decode
_read_payloads = msgspec.json.Decoder(list[tuple[str, float, str, int, Headers | None, int]]).decode

QUEUED, RUNNING, DEAD = 0, 1, 2


def _payloads(tx: Transaction, row: _ViewRow, place: int, limit: int) -> tuple[list[Payload], int]:
    if row.kind is Kind.PLAIN:
        return [Payload(row.payload, row.score)], 1
    found, size = tx.one("payloads_in", job=row.id, place=place, kind=row.kind, limit=limit)
    return [Payload(*each) for each in _read_payloads(found)], size


def views(tx: Transaction, statement: str, queue: str, ids: Sequence[int], now: float, shown: int) -> list[JobView]:
    """The jobs with these ids, in this order. `statement` is job_rows, or dead_rows for dead jobs."""
    rows = [_read_row(text) for (text,) in tx.all(statement, ids=to_json(list(ids)))]
    return [row.view(queue, now, *_payloads(tx, row, _place(row), shown)) for row in rows]


def _place(row: _ViewRow) -> int:
    return DEAD if row.updated_at is not None else RUNNING if row.running else QUEUED


def status(tx: Transaction, queue: int, key: str, identity: str | None, now: float) -> Status:
    """The status of a job, or of one payload of it."""
    values = {"queue": queue, "key": key, "identity": identity or ""}
    found = _payload_status(tx, values, now) if identity else _job_status(tx, values, now)
    if found is not None:
        return found
    row = tx.one("ending", **values)
    return row[0] if row else "gone"


def _job_status(tx: Transaction, values: dict[str, Any], now: float) -> Status | None:
    row = tx.one("job_at", **values)
    if row is not None:
        _, _, running, _, perform_at, _, _ = row
        return "running" if running else "delayed" if perform_at > now else "queued"
    return "dead" if tx.one("dead_at", **values) else None


def _payload_status(tx: Transaction, values: dict[str, Any], now: float) -> Status | None:
    row = tx.one("payload_at", **values)
    if row is None:
        return "dead" if tx.one("payload_dead", **values) else None
    place, score, perform_at, running, next_at, kind = row
    if place == RUNNING:
        return "running"
    due = next_at if running else perform_at
    if kind == Kind.KEYED:
        due = max(due, score)
    return "delayed" if due > now else "queued"


class SQLiteInspect:
    """The inspect tier."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._db, self._clock = store.db, store.clock

    def queues(self) -> dict[str, int]:
        return {name: queue.shards for name, queue in self._store.read_queues().items()}

    def exists(self, queue: str) -> bool:
        return queue in self._store.read_queues()

    def stats(self) -> list[QueueStats]:
        with self._db.read() as tx, _snapshot(tx):
            # The first read fixes the snapshot. The clock is read after it: otherwise a job that was stored in between
            # would count as delayed.
            tx.one("token")
            now = self._clock.now()
            rows = tx.all("stats", now=now)
        return [
            QueueStats(
                queue=name,
                shards=shards,
                length=length,
                delayed=delayed,
                fresh=length - retries,
                retries=retries,
                dead=dead,
                busy=busy,
                processed=processed,
                failed=failed,
                lag=max(0.0, now - earliest),
                paused=bool(paused),
            )
            for name, shards, processed, failed, paused, length, delayed, retries, busy, earliest, dead in rows
        ]

    def lags(self, queue: str) -> dict[int, float]:
        known = self._store.queue(queue)
        with self._db.read() as tx:
            dues = tx.all("dues", queue=known.id)
        now = self._clock.now()  # after the read, so that a job stored just before the read counts as due
        return {shard: now - due for shard, due in dues if due is not None and due <= now}

    def workers(self) -> list[WorkerView]:
        with self._db.read() as tx:
            rows = tx.all("workers")
        return [
            WorkerView(
                id=name,
                host=host,
                pid=pid,
                queues=msgspec.json.decode(queues),
                concurrency=concurrency,
                lease_s=lease_s,
                started_at=started_at,
                seen_at=seen_at,
                dead=bool(dead),
                busy=busy,
                shards=msgspec.json.decode(shards),
            )
            for name, host, pid, queues, concurrency, lease_s, started_at, seen_at, dead, shards, busy in rows
        ]

    def find(self, queue: str, key: str) -> list[JobView]:
        known, found = self._store.queue(queue), []
        values = {"queue": known.id, "key": key}
        with self._db.read() as tx, _snapshot(tx):
            now = self._clock.now()
            for at, rows in (("job_at", "job_rows"), ("dead_at", "dead_rows")):
                if (job := tx.one(at, **values)) is None:
                    continue
                (text,) = tx.one(rows, ids=to_json([job[0]]))
                row = _read_row(text)
                found.append(row.view(queue, now, *_payloads(tx, row, _place(row), SHOWN)))
                if row.running and row.next_at != "NULL":
                    found.append(row.set_aside(queue, now, *_payloads(tx, row, QUEUED, SHOWN)))
        return found

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
        known = self._store.read_queues().get(queue)  # not cached: the listing reads each of its current priorities
        if known is None:
            raise unknown_queue(queue)
        order = check_order(which, order)
        check_start(order, start)
        request = PageRequest(which, order, reverse, start, after, max(limit, 0))
        statement = "dead_rows" if which == "dead" else "job_rows"
        with self._db.read() as tx, _snapshot(tx):
            now = self._clock.now()
            page = list(islice(_positions(tx, known, request, now), request.limit))
            jobs = views(tx, statement, queue, [each[-1] for each in page], now, SHOWN_IN_LISTING)
        more = page and len(page) == limit
        return Page(jobs, request.cursor(page[-1]) if more else None)


@contextmanager
def _snapshot(tx: Transaction) -> Iterator[None]:
    """A transaction in which all statements read the same snapshot."""
    tx.connection.execute("BEGIN")
    try:
        yield
    finally:
        tx.connection.execute("ROLLBACK")


#: A position in a listing: the value it is sorted by, then tie-breakers, then the id.
Position = tuple[Any, ...]

_FIRST, _LAST = -(2**62), 2**62


class PageRequest(msgspec.Struct):
    """The request for a page."""

    which: Listing
    order: Order
    reverse: bool
    start: float | str | None
    after: str | None
    limit: int

    def cursor(self, position: Position) -> str:
        """The cursor from which the next page continues."""
        value, *at, id = position
        return write_position(self.order, (value, at[0] if at else 0.0, id, ""))

    def begin(self) -> Position:
        """The position after which the page begins: the end of the previous page, or just before the value `start`."""
        edge = float("inf") if self.reverse else float("-inf")
        ties: Position = (_LAST if self.reverse else _FIRST,)
        if self.order == "retry_count":
            ties = (edge, *ties)
        if self.after is not None:
            value, at, id, _ = read_position(self.order, self.after)
            id = max(_FIRST, min(id, _LAST))
            return (value, at, id) if self.order == "retry_count" else (value, id)
        if self.start is not None:
            return (self.start, *ties)
        if self.order == "key":
            return (b"" if self.reverse else "", *ties)  # SQLite sorts any text before any bytes
        return (edge, *ties)


def _positions(tx: Transaction, queue: QueueRow, request: PageRequest, now: float) -> Iterator[Position]:
    """The positions of a page, in order."""
    which, order, reverse = request.which, request.order, request.reverse
    position = request.begin()
    values = {
        "queue": queue.id,
        "limit": request.limit,
        "due_after": now if which == "delayed" else _FIRST,
        "least": 0 if which == "retries" else -1,
        "fresh": False,
    }

    def rows(statement: str, position: Position, **more: Any) -> list[Position]:
        count, at, id = position if len(position) == 3 else (None, *position)
        text = tx.statements[statement]
        bound = {**values, "count": count, "at": at, "id": id, **more}
        return tx.connection.execute(turned(text) if reverse else text, bound).fetchall()

    def queued(position: Position, *, fresh: bool) -> Iterable[Position]:
        """The positions of queued jobs of all shards and priorities, merged."""
        parts = [
            rows("list_by_time", position, shard=shard, priority=priority, fresh=fresh)
            for shard in range(max(queue.shards, queue.target))
            for priority in queue.priorities
        ]
        return heapq.merge(*parts, reverse=reverse)

    if order == "key":
        statement = f"list_{which}_by_key" if which in ("running", "dead") else "list_by_key"
        return iter(rows(statement, position))
    if order != "retry_count":
        if which in ("queued", "delayed"):
            return iter(queued(position, fresh=False))
        return iter(rows(f"list_{which}_by_time", position))
    failed = rows("list_by_retry_count", position)
    if which == "retries":
        return iter(failed)
    # Jobs that have not failed are in no index by retry_count. They come before all failed jobs, by due time.
    count, at, id = position
    past = at, id
    if count != -1:
        past = (float("-inf"), _FIRST) if count < -1 else (float("inf"), _LAST)
    fresh = [(-1, *each) for each in queued(past, fresh=True)]
    return chain(failed, fresh) if reverse else chain(fresh, failed)


def turned(statement: str) -> str:
    """The statement of a listing, changed to read in the other direction."""
    return statement.replace(" ASC", " DESC").replace(") > (", ") < (")
