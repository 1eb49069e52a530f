"""How jobs get into the SQLite broker's tables, and what it knows of its queues by heart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...job import NewJob
from ...shards import shard_of
from ..common import due_at

Sql = Mapping[str, str]

#: How many jobs go into one statement, and how many characters of them; SQLite takes a billion bytes at most.
CHUNK = 1_000
CHUNK_CHARS = 16_000_000

_read_priorities = msgspec.json.Decoder(tuple[int, ...]).decode


def to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class Queue(msgspec.Struct, frozen=True):
    """What the broker knows of a queue by heart."""

    name: str
    id: int
    shards: int
    #: Others may have added to them since: whoever claims or lists reads them anew.
    priorities: tuple[int, ...]


def queues(db: Any, sql: Sql) -> dict[str, Queue]:
    """Every queue by its name."""
    return {
        name: Queue(name, id, shards, _read_priorities(priorities))
        for name, id, shards, priorities in db.execute(sql["queues"]).fetchall()
    }


def add_priority(db: Any, sql: Sql, name: str, priority: int) -> None:
    """Have a queue's jobs of a priority looked for."""
    queue = queues(db, sql)[name]  # within the transaction: another process may be adding one of its own
    priorities = sorted({*queue.priorities, priority}, reverse=True)
    db.execute(sql["set_priorities"], {"queue": queue.id, "priorities": to_json(priorities)})


def insert(db: Any, sql: Sql, jobs: Sequence[NewJob], known: Mapping[str, Queue], now: float) -> None:
    """Store jobs, in as few statements as will do."""
    rows: list[tuple[Any, ...]] = []
    chars = 0
    for job in jobs:
        queue = known[job.queue]
        at = due_at(now, job.delay_s, job.perform_at)
        headers = to_json(job.headers) if job.headers else None
        shard = shard_of(job.key, queue.shards)
        row = (queue.id, shard, job.key, job.body, job.score or 0.0, at, job.priority, job.expires, headers)
        if "\0" in job.body or "\0" in job.key:  # SQLite's JSON would end the text there
            _insert_rows(db, sql, rows)
            db.execute(sql["enqueue_one"], row)
            rows, chars = [], 0
            continue
        rows.append(row)
        chars += len(job.body) + len(headers or "")
        if len(rows) >= CHUNK or chars >= CHUNK_CHARS:
            _insert_rows(db, sql, rows)
            rows, chars = [], 0
    _insert_rows(db, sql, rows)


def _insert_rows(db: Any, sql: Sql, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        db.execute(sql["enqueue"], {"jobs": to_json(rows)})
