"""Stores plain jobs; merges keyed and collecting jobs with the stored job of their key.

A merge reads the stored keys and payloads in two statements, decides here, one job after the other, and writes the
changes in a few more. The caller holds the transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ...errors import EnqueueError
from ...failpoints import armed, reach
from ...jobs.data import Kind, NewJob
from ...jobs.merge import due_on_arrival, due_when_queued, next_score, quiet_until
from ..shared import CHUNK, CHUNK_CHARS, another_kind, due_at
from .database import Transaction
from .queues import QueueRow, to_json
from .store import Store


class _KeyRow(msgspec.Struct, array_like=True):
    """A row of key_states. Times come quoted."""

    queue: int
    key: str
    id: int
    kind: Kind
    running: int
    perform_at: str
    not_before: str
    retry_count: int
    next_at: str
    since: str
    latest: str
    largest_queued: str
    largest_running: str
    size: int


_read_states = msgspec.json.Decoder(list[_KeyRow]).decode
_read_known = msgspec.json.Decoder(list[tuple[int, str, int, str]]).decode


class _KeyMerge:
    """The stored job of one key, and what this enqueue adds to it."""

    def __init__(self, stored: _KeyRow | None, kind: Kind) -> None:
        self.kind = stored.kind if stored else kind
        self.id = stored.id if stored else None
        self.running = bool(stored and stored.running)
        self.not_before = _time(stored.not_before) if stored else None
        self.retry_count = stored.retry_count if stored else -1
        self.perform_at = _time(stored.perform_at) if stored else None
        self.next_at = _time(stored.next_at) if stored else None
        self.since = _time(stored.since) if stored else None
        self.latest = _time(stored.latest) if stored else None
        largest = [_time(stored.largest_queued), _time(stored.largest_running)] if stored else []
        self.largest = max((score for score in largest if score is not None), default=None)
        self.size = stored.size if stored else 0
        #: The scores of those that are queued, as far as they matter here, and the identities of those that run.
        self.queued: dict[str, float] = {}
        self.ran: set[str] = set()
        #: A score was lowered, so the largest must be read again.
        self.unsure = False
        self.moved = False

    def add(self, job: NewJob, at: float, now: float) -> float | None:
        """Merge one more payload; returns the score to store it with, None if it is there already."""
        known = self.queued.get(job.identity)
        if self.kind is Kind.KEYED:
            if known is not None or job.identity in self.ran:
                return None  # a repeat
            if not job.timed:
                at = self.latest = due_on_arrival(at, self.latest)
            score = at
        elif job.score is not None:
            score = job.score
        else:
            score = next_score(now, self.largest) if known is None else known
        if known is None:
            self.size += 1
            self.largest = score if self.largest is None else max(self.largest, score)
        self._move(job, at, now)
        if known is not None and score >= known:
            return None
        self.unsure = self.unsure or known is not None
        self.queued[job.identity] = score
        return score

    def _move(self, job: NewJob, at: float, now: float) -> None:
        """When the queued part, or what waits beside the running one, is due."""
        before = (self.perform_at, self.next_at, self.since)
        waits_since = self.next_at if self.running else self.perform_at
        if waits_since is None:
            due = at
            if job.quiet is not None:
                self.since, due = now, quiet_until(now, now, 1, job.quiet)
        else:
            # What is set aside does not rest: the head that it would rest for is being run.
            due = due_when_queued(self.kind, waits_since, at, not_before=None if self.running else self.not_before)
            fresh = self.running or self.retry_count == -1
            if job.quiet is not None and self.since is not None and fresh:
                due = quiet_until(now, self.since, self.size, job.quiet, waits_since)
        if self.running:
            self.next_at = due
        else:
            self.perform_at = due
        arrived = self.kind is Kind.KEYED and not job.timed  # `latest` has moved
        self.moved = self.moved or arrived or before != (self.perform_at, self.next_at, self.since)


def add(tx: Transaction, jobs: Sequence[NewJob], known: Mapping[str, QueueRow], now: float) -> None:
    """Store keyed and collecting jobs, in order."""
    while jobs:
        keys = _read(tx, jobs, known)
        taken = _add(tx, jobs, keys, known, now)
        jobs = jobs[taken:]


def _add(
    tx: Transaction,
    jobs: Sequence[NewJob],
    keys: dict[tuple[str, str], _KeyMerge],
    known: Mapping[str, QueueRow],
    now: float,
) -> int:
    """Merge and write jobs, as many as can be decided on what was read; returns how many."""
    payloads: list[tuple[Any, ...]] = []
    priorities: dict[tuple[str, str], int] = {}
    taken = 0
    for job in jobs:
        key = keys[job.queue, job.key]
        if key.kind is not job.kind:
            raise another_kind(job, key.kind)
        if "\0" in job.key:
            raise EnqueueError(
                f"The key {job.key!r} has a NUL in it, which a text cannot be looked up by; leave it out."
            )
        if key.unsure and job.score is None and job.kind is Kind.COLLECTING:
            break
        at = due_at(now, job.delay_s, job.perform_at)
        priorities.setdefault((job.queue, job.key), job.priority)
        score = key.add(job, at, now)
        if score is not None:
            headers = to_json(job.headers) if job.headers and job.kind is Kind.KEYED else None
            due = score if job.kind is Kind.KEYED else at
            payloads.append((known[job.queue].id, job.key, score, job.identity, job.body, due, headers))
        taken += 1
    new = [
        (
            known[queue].id,
            known[queue].shard_of(key),
            key,
            state.kind,
            state.perform_at,
            state.since,
            priority,
            state.latest,
        )
        for (queue, key), priority in priorities.items()
        if (state := keys[queue, key]).id is None
    ]
    moved = [
        (key.id, key.perform_at, key.next_at, key.since, key.latest) for key in keys.values() if key.moved and key.id
    ]
    if new:
        tx.run("add_jobs", jobs=to_json(new))
    if moved:
        tx.run("move_jobs", jobs=to_json(moved))
    if any("\0" in payload[4] for payload in payloads):  # SQLite's JSON would end the text there
        tx.run_many("add_payload", payloads)
    elif payloads:
        tx.run("add_payloads", payloads=to_json(payloads))
    if payloads and tx.value("any_endings"):
        again = [(queue, key, each) for queue, key, _, identity, *_ in payloads for each in (identity, "")]
        tx.run_many("forget_ending", again)
    return taken


def _read(tx: Transaction, jobs: Sequence[NewJob], known: Mapping[str, QueueRow]) -> dict[tuple[str, str], _KeyMerge]:
    """Read the stored jobs of the jobs' keys."""
    names = {queue.id: name for name, queue in known.items()}
    wanted = dict.fromkeys((known[job.queue].id, job.key) for job in jobs)
    most = max(job.quiet.max_size or 0 if job.quiet else 0 for job in jobs)
    states = tx.value("key_states", keys=to_json(list(wanted)), most=most)
    stored = {(names[row.queue], row.key): row for row in _read_states(states)}
    keys: dict[tuple[str, str], _KeyMerge] = {}
    pairs: list[tuple[int, str]] = []
    for job in jobs:
        place = (job.queue, job.key)
        if place not in keys:
            keys[place] = _KeyMerge(stored.get(place), job.kind)
        if place in stored:
            pairs.append((stored[place].id, job.identity))
    if pairs:
        by_id = {key.id: key for key in keys.values()}
        found = tx.value("known_payloads", payloads=to_json(pairs))
        for id, identity, running, score in _read_known(found):
            if running:
                by_id[id].ran.add(identity)
            else:
                by_id[id].queued[identity] = float(score)
    return keys


def _time(quoted: str) -> float | None:
    return None if quoted == "NULL" else float(quoted)


def plain_row(job: NewJob, queue: QueueRow, now: float) -> tuple[Any, ...]:
    """The row of a plain job."""
    at = due_at(now, job.delay_s, job.perform_at)
    headers = to_json(job.headers) if job.headers else None
    shard = queue.shard_of(job.key)
    return queue.id, shard, job.key, job.body, job.score or 0.0, at, job.priority, job.expires, headers


def insert_alone(store: Store, job: NewJob, now: float) -> bool:
    """Store one plain job in one statement. False if it is not stored: its key exists, or the shards have changed."""
    epoch, known = store.known
    queue = known.get(job.queue)  # another thread may have just closed the broker, which empties the cache
    if queue is None:
        return False
    return store.db.run_alone("enqueue_alone", (*plain_row(job, queue, now), epoch)) == 1


def insert(tx: Transaction, jobs: Sequence[NewJob], known: Mapping[str, QueueRow], now: float) -> None:
    """Store jobs, in as few statements as will do."""
    rows: list[tuple[Any, ...]] = []
    merged: list[NewJob] = []
    chars = 0
    for job in jobs:
        size = len(job.body)
        if job.kind is not Kind.PLAIN:
            merged.append(job)
        else:
            row = plain_row(job, known[job.queue], now)
            if "\0" in job.body or "\0" in job.key:  # SQLite's JSON would end the text there
                _insert_chunk(tx, rows, merged, known, now)
                rows, merged, chars = [], [], 0
                tx.run_many("enqueue_one", [row])
                continue
            rows.append(row)
            size += len(row[-1] or "")
        chars += size
        if len(rows) + len(merged) >= CHUNK or chars >= CHUNK_CHARS:
            _insert_chunk(tx, rows, merged, known, now)
            rows, merged, chars = [], [], 0
    _insert_chunk(tx, rows, merged, known, now)


def _insert_chunk(
    tx: Transaction, rows: list[tuple[Any, ...]], merged: list[NewJob], known: Mapping[str, QueueRow], now: float
) -> None:
    if rows:
        tx.run("enqueue", jobs=to_json(rows))
    if merged:
        add(tx, merged, known, now)
    if armed:
        reach("inside enqueue")
