"""Cancels and reschedules queued jobs, makes them due now; buries, deletes and revives.

The functions act on one key; their caller holds the transaction. `SQLiteOperate` has the verbs of operators.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial

import msgspec

from ...broker import EmptyMorgueResult
from ...jobs.data import Kind
from ...jobs.merge import HEAD, LARGEST_SCORE
from ..shared import empty_by_pages
from .database import Transaction
from .inspect import SQLiteInspect
from .queues import QueueRow, to_json
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


def _job(tx: Transaction, queue: int, key: str) -> _JobRow | None:
    row = tx.one("job_at", queue=queue, key=key)
    return None if row is None else _JobRow(row[0], Kind(row[1]), bool(row[2]), *row[3:])


def cancel(tx: Transaction, queue: int, key: str, identity: str | None, now: float) -> bool:
    """Queued → gone, and remembered: a job, or one payload of it."""
    job = _job(tx, queue, key)
    if job is None or (job.running and (identity is None or job.kind is Kind.PLAIN)):
        return False
    if identity is None or job.kind is Kind.PLAIN:
        tx.run("remove_payloads", id=job.id, place=0)
        tx.run("remove_job", id=job.id)
    else:
        row = tx.one("remove_payload", id=job.id, identity=identity)
        if row is None:
            return False
        if job.running or not tx.run("without_payloads", id=job.id).rowcount:
            if row[0] == HEAD:
                tx.run("forget_head", id=job.id)
            tx.run("due_again", id=job.id)
    tx.run("remember", queue=queue, key=key, identity=identity or "", status="cancelled", now=now)
    return True


def reschedule(tx: Transaction, queue: int, key: str, identity: str | None, at: float) -> bool:
    """Queued → queued, at another time."""
    job = _job(tx, queue, key)
    if job is None or (job.running and (identity is None or job.kind is Kind.PLAIN)):
        return False
    values = {"id": job.id, "perform_at": at, "not_before": None, "identity": identity, "latest": LARGEST_SCORE}
    if job.kind is Kind.KEYED and identity is not None:
        row = tx.one("reschedule_payload", **values)
        if row is None:
            return False
        if row[0] != HEAD:
            tx.run("due_again", **values)
            return True
        values["not_before"] = at
    elif job.kind is Kind.KEYED:
        tx.run("hasten_payloads", **values)
        first, _ = tx.one("first_score", **values)
        values |= {"not_before": at if first < at else None, "latest": at}
    elif job.kind is Kind.COLLECTING and identity and not tx.one("has_payload", **values):
        return False
    tx.run("reschedule_aside" if job.running else "reschedule", **values)
    return True


def run_now(tx: Transaction, queue: QueueRow, key: str, now: float) -> bool:
    """Queued → queued, due now with all its calls; what is due already keeps its place."""
    job = _job(tx, queue.id, key)
    if job is None or job.running:
        return False
    if job.perform_at > now:
        return reschedule(tx, queue.id, key, None, now)
    if job.kind is Kind.KEYED:
        tx.run("hasten_payloads", id=job.id, perform_at=now)
        tx.run("reschedule", id=job.id, perform_at=job.perform_at, not_before=job.not_before, latest=now)
    return True


def take_failed(tx: Transaction, queue: QueueRow, key: str, now: float, *, keep: bool) -> bool:
    """Queued → dead or, without `keep`, gone: what has failed of a job that waits for a retry."""
    job = _job(tx, queue.id, key)
    if job is None or job.running or job.retry_count < 0:
        return False
    values = {"id": job.id, "retry_count": job.retry_count, "error": job.error, "died": False, "now": now}
    if job.kind is Kind.PLAIN:
        if keep:
            tx.run("settle_bury", **values)
        tx.run("remove_job", **values)
        return True
    if job.kind is Kind.KEYED:
        failed = [tx.one("first_score", **values)[1]]
    else:
        failed = _read_identities(tx.value("identities", **values))
    if keep:
        bury(tx, values, job.kind, failed, place=0)
    else:
        tx.run("lift", id=job.id, kind=job.kind, place=0, identities=to_json(failed))
        tx.run("remove_payloads", id=job.id, place=3)
    what_is_left(tx, values)
    return True


def revive(tx: Transaction, queue: QueueRow, key: str, now: float) -> bool:
    """Dead → queued, or set aside while its key is being run."""
    dead = tx.one("dead_at", queue=queue.id, key=key)
    if dead is None:
        return False
    id, kind = dead
    if kind == Kind.PLAIN:
        if not tx.run("revive", id=id, now=now, shard=queue.shard_of(key)).rowcount:
            return False
    else:
        tx.run("revive_row", id=id, now=now, shard=queue.shard_of(key))
        job = _job(tx, queue.id, key)
        if job is None or job.kind is not Kind(kind):
            return False
        tx.run("lift_all", id=id, kind=kind, place=2, latest=now)
        lower(tx, id, to=job.id, place=0)
        tx.run("revived", id=job.id, now=now)
    tx.run("delete_dead", id=id)
    return True


def delete_dead(tx: Transaction, queue: QueueRow, key: str, now: float) -> bool:
    """Dead → gone."""
    dead = tx.one("dead_at", queue=queue.id, key=key)
    if dead is None:
        return False
    tx.run("remove_payloads", id=dead[0], place=2)
    tx.run("delete_dead", id=dead[0])
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

    def _each(self, queue: str, keys: Iterable[str], act: Callable[[Transaction, QueueRow, str, float], bool]) -> int:
        """Act on each key in one transaction. Returns for how many it did something."""
        store = self._store
        store.queue(queue)
        with store.db.write() as tx:
            known, now = store.current_queues(tx, [queue])[queue], store.clock.now()
            acted = sum(act(tx, known, key, now) for key in keys)
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
        with self._store.db.write() as tx:
            return bool(tx.run("set_paused", name=queue, paused=paused).rowcount)
