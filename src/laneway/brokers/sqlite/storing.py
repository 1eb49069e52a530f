"""How jobs get into the SQLite broker's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...failpoints import armed, reach
from ...jobs.data import Kind, NewJob
from ..shared import due_at
from . import enqueue
from .queues import Queue, Sql, to_json

#: How many jobs go into one statement, and how many characters of them; SQLite takes a billion bytes at most.
CHUNK = 1_000
CHUNK_CHARS = 16_000_000


def insert(db: Any, sql: Sql, jobs: Sequence[NewJob], known: Mapping[str, Queue], now: float) -> None:
    """Store jobs, in as few statements as will do."""
    rows: list[tuple[Any, ...]] = []
    merged: list[NewJob] = []
    chars = 0
    for job in jobs:
        size = len(job.body)
        if job.kind is not Kind.PLAIN:
            merged.append(job)
        else:
            queue = known[job.queue]
            at = due_at(now, job.delay_s, job.perform_at)
            headers = to_json(job.headers) if job.headers else None
            shard = queue.shard_of(job.key)
            row = (queue.id, shard, job.key, job.body, job.score or 0.0, at, job.priority, job.expires, headers)
            if "\0" in job.body or "\0" in job.key:  # SQLite's JSON would end the text there
                _insert_chunk(db, sql, rows, merged, known, now)
                rows, merged, chars = [], [], 0
                db.execute(sql["enqueue_one"], row)
                continue
            rows.append(row)
            size += len(headers or "")
        chars += size
        if len(rows) + len(merged) >= CHUNK or chars >= CHUNK_CHARS:
            _insert_chunk(db, sql, rows, merged, known, now)
            rows, merged, chars = [], [], 0
    _insert_chunk(db, sql, rows, merged, known, now)


def _insert_chunk(
    db: Any, sql: Sql, rows: list[tuple[Any, ...]], merged: list[NewJob], known: Mapping[str, Queue], now: float
) -> None:
    if rows:
        db.execute(sql["enqueue"], {"jobs": to_json(rows)})
    if merged:
        enqueue.add(db, sql, merged, known, now)
    if armed:
        reach("inside enqueue")
