"""Cancels and reschedules queued jobs, makes them due now; buries, deletes and revives.

The functions act on one key; their caller holds the transaction. `SQLiteOperate` has the verbs of operators.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from ...broker import EmptyMorgueResult
from ...jobs.data import Kind
from ...jobs.merge import HEAD, LARGEST_SCORE
from ..shared import empty_by_pages
from .inspect import SQLiteInspect
from .queues import QueueRow, Sql, to_json
from .store import Store
from .turn import bury, lower, what_is_left

_read_identities = msgspec.json.Decoder(list[str]).decode


class _JobRow(msgspec.Struct):
    id: int
    kind: Kind
    running: bool
    retry_count: int
    perform_at: float
    not_before: float | None
    error: str | None


def _job(db: Any, sql: Sql, queue: int, key: str) -> _JobRow | None:
    row = db.execute(sql["job_at"], {"queue": queue, "key": key}).fetchone()
    return None if row is None else _JobRow(row[0], Kind(row[1]), bool(row[2]), *row[3:])


def cancel(db: Any, sql: Sql, queue: int, key: str, identity: str | None, now: float) -> bool:
    """Queued → gone, and remembered: a job, or one payload of it."""
    job = _job(db, sql, queue, key)
    if job is None or (job.running and (identity is None or job.kind is Kind.PLAIN)):
        return False
    if identity is None or job.kind is Kind.PLAIN:
        db.execute(sql["remove_payloads"], {"id": job.id, "place": 0})
        db.execute(sql["remove_job"], {"id": job.id})
    else:
        row = db.execute(sql["remove_payload"], {"id": job.id, "identity": identity}).fetchone()
        if row is None:
            return False
        if job.running or not db.execute(sql["without_payloads"], {"id": job.id}).rowcount:
            if row[0] == HEAD:
                db.execute(sql["forget_head"], {"id": job.id})
            db.execute(sql["due_again"], {"id": job.id})
    values = {"queue": queue, "key": key, "identity": identity or "", "status": "cancelled", "now": now}
    db.execute(sql["remember"], values)
    return True


def reschedule(db: Any, sql: Sql, queue: int, key: str, identity: str | None, at: float) -> bool:
    """Queued → queued, at another time."""
    job = _job(db, sql, queue, key)
    if job is None or (job.running and (identity is None or job.kind is Kind.PLAIN)):
        return False
    values = {"id": job.id, "perform_at": at, "not_before": None, "identity": identity, "latest": LARGEST_SCORE}
    if job.kind is Kind.KEYED and identity is not None:
        row = db.execute(sql["reschedule_payload"], values).fetchone()
        if row is None:
            return False
        if row[0] != HEAD:
            db.execute(sql["due_again"], values)
            return True
        values["not_before"] = at
    elif job.kind is Kind.KEYED:
        db.execute(sql["hasten_payloads"], values)
        first, _ = db.execute(sql["first_score"], values).fetchone()
        values |= {"not_before": at if first < at else None, "latest": at}
    elif job.kind is Kind.COLLECTING and identity and not db.execute(sql["has_payload"], values).fetchone():
        return False
    db.execute(sql["reschedule_aside" if job.running else "reschedule"], values)
    return True


def run_now(db: Any, sql: Sql, queue: QueueRow, key: str, now: float) -> bool:
    """Queued → queued, due now with all its calls; what is due already keeps its place."""
    job = _job(db, sql, queue.id, key)
    if job is None or job.running:
        return False
    if job.perform_at > now:
        return reschedule(db, sql, queue.id, key, None, now)
    if job.kind is Kind.KEYED:
        db.execute(sql["hasten_payloads"], {"id": job.id, "perform_at": now})
        unmoved = {"perform_at": job.perform_at, "not_before": job.not_before}
        db.execute(sql["reschedule"], {"id": job.id, "latest": now, **unmoved})
    return True


def take_failed(db: Any, sql: Sql, queue: QueueRow, key: str, now: float, *, keep: bool) -> bool:
    """Queued → dead or, without `keep`, gone: what has failed of a job that waits for a retry."""
    job = _job(db, sql, queue.id, key)
    if job is None or job.running or job.retry_count < 0:
        return False
    values = {"id": job.id, "retry_count": job.retry_count, "error": job.error, "died": False, "now": now}
    if job.kind is Kind.PLAIN:
        if keep:
            db.execute(sql["settle_bury"], values)
        db.execute(sql["remove_job"], values)
        return True
    if job.kind is Kind.KEYED:
        failed = [db.execute(sql["first_score"], values).fetchone()[1]]
    else:
        failed = _read_identities(db.execute(sql["identities"], values).fetchone()[0])
    if keep:
        bury(db, sql, values, job.kind, failed, place=0)
    else:
        db.execute(sql["lift"], {"id": job.id, "kind": job.kind, "place": 0, "identities": to_json(failed)})
        db.execute(sql["remove_payloads"], {"id": job.id, "place": 3})
    what_is_left(db, sql, values)
    return True


def revive(db: Any, sql: Sql, queue: QueueRow, key: str, now: float) -> bool:
    """Dead → queued, or set aside while its key is being run."""
    where = {"queue": queue.id, "key": key}
    dead = db.execute(sql["dead_at"], where).fetchone()
    if dead is None:
        return False
    id, kind = dead
    if kind == Kind.PLAIN:
        if not db.execute(sql["revive"], {"id": id, "now": now, "shard": queue.shard_of(key)}).rowcount:
            return False
    else:
        db.execute(sql["revive_row"], {"id": id, "now": now, "shard": queue.shard_of(key)})
        job = _job(db, sql, queue.id, key)
        if job is None or job.kind is not Kind(kind):
            return False
        db.execute(sql["lift_all"], {"id": id, "kind": kind, "place": 2, "latest": now})
        lower(db, sql, id, to=job.id, place=0)
        db.execute(sql["revived"], {"id": job.id, "now": now})
    db.execute(sql["delete_dead"], {"id": id})
    return True


def delete_dead(db: Any, sql: Sql, queue: QueueRow, key: str, now: float) -> bool:
    """Dead → gone."""
    dead = db.execute(sql["dead_at"], {"queue": queue.id, "key": key}).fetchone()
    if dead is None:
        return False
    db.execute(sql["remove_payloads"], {"id": dead[0], "place": 2})
    db.execute(sql["delete_dead"], {"id": dead[0]})
    return True


class SQLiteOperate:
    """The operate tier. Each verb is one transaction, and wakes the waiting threads of this process."""

    def __init__(self, store: Store, inspect: SQLiteInspect) -> None:
        self._store = store
        self._inspect = inspect

    def run_now(self, queue: str, keys: Sequence[str]) -> int:
        return self._each(queue, dict.fromkeys(keys), run_now)

    def bury_failed(self, queue: str, keys: Sequence[str]) -> int:
        return self._each(queue, keys, partial(take_failed, keep=True))

    def delete_failed(self, queue: str, keys: Sequence[str]) -> int:
        return self._each(queue, keys, partial(take_failed, keep=False))

    def revive(self, queue: str, keys: Sequence[str]) -> int:
        return self._each(queue, keys, revive)

    def delete_dead(self, queue: str, keys: Sequence[str]) -> int:
        return self._each(queue, keys, delete_dead)

    def _each(self, queue: str, keys: Iterable[str], act: Callable[[Any, Sql, QueueRow, str, float], bool]) -> int:
        """Act on each key in one transaction. Returns for how many it did something."""
        store = self._store
        store.queue(queue)
        with store.db.write() as db:
            known, now = store.current_queues(db, [queue])[queue], store.clock.now()
            acted = sum(act(db, store.sql, known, key, now) for key in keys)
        store.waiting.wake()
        return acted

    def empty_morgue(self, queue: str, *, revive: bool, most: int) -> Generator[int, None, EmptyMorgueResult]:
        return empty_by_pages(self._inspect, self, queue, revive=revive, most=most)

    def pause(self, queue: str) -> bool:
        return self._set_paused(queue, paused=True)

    def resume(self, queue: str) -> bool:
        # This process's waiters are woken; those of other processes see that something was written.
        resumed = self._set_paused(queue, paused=False)
        if resumed:
            self._store.waiting.wake()
        return resumed

    def _set_paused(self, queue: str, *, paused: bool) -> bool:
        self._store.db.check_file()
        with self._store.db.write() as db:
            return bool(db.execute(self._store.sql["set_paused"], {"name": queue, "paused": paused}).rowcount)
