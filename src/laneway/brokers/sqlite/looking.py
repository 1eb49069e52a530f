"""How the SQLite broker looks at what it holds. Reads only."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ...broker import Listing, Page
from ...clock import Clock
from ...errors import BrokerError
from ...job import JobView, Payload, QueueStats, Status, WorkerView
from .storing import Queue

Sql = Mapping[str, str]


class _Row(msgspec.Struct, array_like=True):
    id: int
    key: str
    shard: int
    payload: str | None
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

    def view(self, queue: str, now: float) -> JobView:
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
            payloads=[] if self.payload is None else [Payload(self.payload, self.score)],
            perform_at=self.perform_at,
            retry_count=self.retry_count,
            attempt=self.attempt,
            deaths=self.deaths,
            priority=self.priority,
            error=self.error,
            updated_at=self.updated_at,
            worker=self.worker,
        )


_read_row = msgspec.json.Decoder(_Row).decode


def stats(db: Any, sql: Sql, clock: Clock) -> list[QueueStats]:
    """Every queue in numbers."""
    db.execute("BEGIN")
    try:
        # The first read fixes what is seen, and only then is it asked what time it is: a job that was stored in
        # between would otherwise count as delayed.
        db.execute(sql["token"]).fetchone()
        now = clock.now()
        rows = db.execute(sql["stats"], {"now": now}).fetchall()
    finally:
        db.execute("ROLLBACK")
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
        )
        for name, shards, processed, failed, length, delayed, retries, busy, earliest, dead in rows
    ]


def workers(db: Any, sql: Sql) -> list[WorkerView]:
    """Every worker that is known."""
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
        )
        for name, host, pid, queues, concurrency, lease_s, started_at, seen_at, dead, busy in db.execute(
            sql["workers"]
        ).fetchall()
    ]


def status(db: Any, sql: Sql, queue: int, key: str, now: float) -> Status:
    """Where a job is."""
    found = find(db, sql, "", queue, key, now)
    if found:
        return found[0].status
    row = db.execute(sql["ending"], {"queue": queue, "key": key}).fetchone()
    return row[0] if row else "gone"


def find(db: Any, sql: Sql, name: str, queue: int, key: str, now: float) -> list[JobView]:
    """A key's job in the queue and in the morgue."""
    rows: list[JobView] = []
    for statement in ("find", "find_dead"):
        row = db.execute(sql[statement], {"queue": queue, "key": key}).fetchone()
        if row:
            rows.append(_read_row(row[0]).view(name, now))
    return rows


def listing(db: Any, sql: Sql, queue: Queue, which: Listing, *, after: str | None, limit: int, now: float) -> Page:
    """A page of jobs."""
    after_at, after_id = _position(after)
    if which == "delayed":
        # Strictly later than now: (now, ∞) is the position after everything that is due.
        after_at, after_id = max((now, float(2**62)), (after_at, after_id))
    values = {"queue": queue.id, "after_at": after_at, "after_id": int(after_id), "limit": limit}
    rows: Iterable[_Row]
    if which in ("queued", "delayed"):
        rows = heapq.merge(
            *(
                _rows(db, sql["list_queued"], {**values, "shard": shard, "priority": priority})
                for shard in range(queue.shards)
                for priority in queue.priorities
            ),
            key=lambda row: (row.perform_at, row.id),
        )
    else:
        rows = _rows(db, sql[f"list_{which}"], values)
    page = [row for row, _ in zip(rows, range(limit), strict=False)]
    last = None
    if page and len(page) == limit:
        at = page[-1].updated_at if which == "dead" else page[-1].perform_at
        last = f"{at!r}:{page[-1].id}"
    return Page([row.view(queue.name, now) for row in page], last)


def _rows(db: Any, statement: str, values: Mapping[str, Any]) -> list[_Row]:
    return [_read_row(text) for (text,) in db.execute(statement, values).fetchall()]


def _position(after: str | None) -> tuple[float, float]:
    if after is None:
        return float("-inf"), 0
    try:
        at, _, id = after.partition(":")
        return float(at), max(-(2**62), min(int(id), 2**62))
    except ValueError:
        raise BrokerError(f"{after!r} is not a position of a listing; take it from the page before.") from None


def check(db: Any, sql: Sql, path: Path) -> list[str]:
    """What is unwell with the file."""
    problems = [
        f"The database {path} is damaged: {line}."
        for (line,) in db.execute("PRAGMA quick_check(5)").fetchall()
        if line != "ok"
    ]
    if db.execute(sql["claims_of_the_dead"]).fetchall():
        problems.append("There are claims of workers that are dead; start a worker, and it takes them over.")
    return problems
