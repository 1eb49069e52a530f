"""JobWriter: stores new jobs: in order, in atomic chunks, once however often a call is repeated.

One script stores the jobs of any queues of a server, and on a Cluster those of one queue. There the copies of an event
for several queues go through an outbox (`outbox`). Each call carries the name of
a sender and a number (SenderNumbers), by which Redis recognises a repeat. A forked process drops its parent's names:
otherwise the parent's next calls would look like repeats of the child's. The copies of one event are never divided
between chunks (`chunks_of`). An event with more copies than a chunk holds is a chunk of its own. The server does
nothing else while it stores a chunk, so an event's copies are limited.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import BrokerAwayError, BrokerError, EnqueueError
from ...ids import new_id
from ...jobs.data import Kind, NewJob
from ...jobs.shards import DEFAULT_SHARDS, shard_of
from ..shared import CHUNK, CHUNK_CHARS, another_kind
from .client.server import Call
from .codec import new_job, simple_record
from .layout import TRIES, Layout, Layouts, outdated
from .script import load

if TYPE_CHECKING:
    from .outbox import ClusterOutbox

#: The most copies that one event may have, and the most characters in all of them together.
MOST_COPIES = 10_000
MOST_CHARS = 100_000_000


# -- chunks --------------------------------------------------------------------------------------------


def chunks_of(jobs: Sequence[NewJob]) -> list[Sequence[NewJob]]:
    """Jobs in chunks. Each chunk is stored in one step."""
    if any(job.event_id for job in jobs):
        return _chunks_of_events(jobs)
    chunks, first, chars = [], 0, 0
    for n, job in enumerate(jobs):
        if n - first == CHUNK or (chars > CHUNK_CHARS and n > first):
            chunks.append(jobs[first:n])
            first, chars = n, 0
        chars += len(job.body)
    return [*chunks, jobs[first:]] if len(jobs) > first else chunks


def _chunks_of_events(jobs: Sequence[NewJob]) -> list[Sequence[NewJob]]:
    """The copies of one event are never divided between chunks; they come where the first of them is."""
    units: dict[str | int, list[NewJob]] = {}
    for number, job in enumerate(jobs):
        units.setdefault(job.event_id or number, []).append(job)
    for unit in units.values():
        _check_event(unit)
    chunks: list[Sequence[NewJob]] = []
    chunk: list[NewJob] = []
    size = 0
    for unit in units.values():
        if chunk and (len(chunk) + len(unit) > CHUNK or size > CHUNK_CHARS):
            chunks.append(chunk)
            chunk, size = [], 0
        chunk += unit
        size += sum(len(job.body) for job in unit)
    return [*chunks, chunk] if chunk else chunks


def _check_event(copies: Sequence[NewJob]) -> None:
    chars = sum(len(job.body) for job in copies) if len(copies) > 1 else 0
    if len(copies) > MOST_COPIES or chars > MOST_CHARS:
        raise EnqueueError(
            f"The event {copies[0].event_id} has {len(copies):,} copies of {chars:,} characters together. Those of one "
            f"event are stored in one step, so that it may have {MOST_COPIES:,} of {MOST_CHARS:,}: publish less of it, "
            "such as where the rest is found, or have fewer queues subscribe."
        )


def partly_stored(
    error: EnqueueError | BrokerError, stored: Sequence[NewJob], jobs: Sequence[NewJob]
) -> EnqueueError | BrokerError:
    """The error for a list of jobs that needed several steps, of which only some were taken."""
    numbers = {id(job) for job in stored}
    left = [n for n, job in enumerate(jobs) if id(job) not in numbers]
    unsure = "the next ones may or may not have been" if isinstance(error, BrokerAwayError) else "the others were not"
    upto = f", those up to the key {stored[-1].key!r} of the queue {stored[-1].queue}" if stored else ""
    text = f"{len(stored):,} of the {len(jobs):,} jobs were stored{upto}; {unsure}: {error}"
    partial = EnqueueError(text, place=error.place) if isinstance(error, EnqueueError) else type(error)(text)
    partial.unstored = left
    return partial


# -- senders -------------------------------------------------------------------------------------------


class SenderNumbers:
    """Names of senders, and the number of calls that each has made, by which Redis recognises a repeated call.

    A sender makes one call after the other. There are as many senders as there are concurrent calls.
    """

    def __init__(self) -> None:
        self.forget()
        _all_senders.add(self)

    def forget(self) -> None:
        """Drop the names in a forked process: they are the parent's, and its next calls would look like our repeats."""
        self._lock = threading.Lock()
        self._idle: list[tuple[str, int]] = []

    def take(self) -> tuple[str, int]:
        """A sender, and the number of its next call."""
        with self._lock:
            name, last = self._idle.pop() if self._idle else (new_id(), 0)
        return name, last + 1

    def give(self, name: str, last: int) -> None:
        """Return a sender whose call was answered.

        A sender whose call was not answered is never used again: the answer may still arrive.
        """
        with self._lock:
            self._idle.append((name, last))


_all_senders: weakref.WeakSet[SenderNumbers] = weakref.WeakSet()


def _forget_all() -> None:
    for senders in tuple(_all_senders):
        senders.forget()


os.register_at_fork(after_in_child=_forget_all)


# -- arguments -----------------------------------------------------------------------------------------


class TargetQueues:
    """The queues of one call, each once, in the order in which they were first used."""

    def __init__(self, layouts: Layouts, used: dict[str, Layout]) -> None:
        self._known = layouts
        #: The layouts by which the call is made. They are read again if the call proves stale.
        self._used = used
        self._places: dict[str, int] = {}
        self.roots: list[str] = []
        #: The names of the layouts by which shards of new jobs were chosen; empty for a queue that gets no jobs.
        self.layouts: list[str] = []

    def layout(self, queue: str) -> Layout:
        """The layout of a queue. Creates a queue that was never declared."""
        layout = self._used.get(queue)
        if layout is None:
            layout = self._used[queue] = self._known.declare(queue, DEFAULT_SHARDS)
        return layout

    def place(self, layout: Layout, *, gets_jobs: bool = True) -> int:
        """The number of a queue in the script's KEYS, from 1."""
        place = self._places.get(layout.queue)
        if place is None:
            self.roots.append(layout.root)
            self.layouts.append("")
            place = self._places[layout.queue] = len(self.roots)
        if gets_jobs:
            self.layouts[place - 1] = layout.newest
        return place

    def encode(self, jobs: Sequence[NewJob]) -> list[Sequence[object]]:
        """New jobs as arguments of a script."""
        news = []
        for job in jobs:
            layout = self.layout(job.queue)
            news.append(new_job(job, self.place(layout), shard_of(job.key, layout.newest_shards)))
        return news


class JobColumns:
    """Simple jobs of one queue; see scripts/parts/simple.lua."""

    __slots__ = ("keys", "numbers", "records", "shards")

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.records: list[bytes] = []
        self.shards: list[int] = []
        #: The numbers of these jobs among the jobs of the call.
        self.numbers: list[int] = []

    def encode(self) -> tuple[list[str], list[int], list[int], list[int]]:
        return self.keys, list(map(len, self.records)), self.shards, self.numbers

    @property
    def text(self) -> bytes:
        return b"".join(self.records)


def _columns_of(jobs: Sequence[NewJob], queues: TargetQueues) -> list[JobColumns] | None:
    """Jobs as columns by queue; None unless all are simple. This is the fast path of enqueue_many."""
    columns: dict[str, JobColumns] = {}
    kind, queue, shards, column = jobs[0].kind, None, 0, JobColumns()
    for number, job in enumerate(jobs):
        record = simple_record(job)
        if record is None or job.kind is not kind:
            return None
        if job.queue != queue:
            queue = job.queue
            layout = queues.layout(queue)
            if layout.resharding:
                return None
            shards = layout.shards
            queues.place(layout)
            column = columns.setdefault(queue, JobColumns())
        column.keys.append(job.key)
        column.records.append(record)
        column.shards.append(shard_of(job.key, shards))
        column.numbers.append(number)
    found = list(columns.values())
    return found if all(len(set(each.keys)) == len(each.keys) for each in found) else None


def enqueue_call(layouts: Layouts, jobs: Sequence[NewJob], used: dict[str, Layout], **how: object) -> Call:
    """The call that stores jobs; `how`: see scripts/enqueue.lua. Notes in `used` the layouts that it relies on."""
    queues = TargetQueues(layouts, used)
    columns = None if "sender" not in how else _columns_of(jobs, queues)
    if columns is None:
        how["jobs"] = queues.encode(jobs)
    else:
        how |= {"simple": [each.encode() for each in columns], "kind": +jobs[0].kind}
    args = layouts.args(**how, layouts=queues.layouts)
    return load("enqueue"), queues.roots, [args, *(each.text for each in columns or ())]


# -- the verb ------------------------------------------------------------------------------------------


def _spread_events(jobs: Sequence[NewJob]) -> set[str]:
    """The events that have copies for several queues."""
    queues: dict[str, set[str]] = {}
    for job in jobs:
        if job.event_id:
            queues.setdefault(job.event_id, set()).add(job.queue)
    return {event for event, some in queues.items() if len(some) > 1}


class JobWriter:
    """Stores the jobs of the verb `enqueue`."""

    def __init__(self, layouts: Layouts, outbox: ClusterOutbox | None) -> None:
        self._layouts = layouts
        #: For events with copies for several queues; None on one server, where a script may touch them all.
        self._outbox = outbox
        self._senders = SenderNumbers()

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        if self._outbox is not None and (events := _spread_events(jobs)):
            self._publish(jobs, events, self._outbox)
        elif len(jobs) == 1:
            self._store(jobs)
        else:
            self._store_list(jobs)

    def _publish(self, jobs: Sequence[NewJob], events: Collection[str], outbox: ClusterOutbox) -> None:
        """Store jobs of which some are copies of these events: all copies of an event, or none."""
        chunks = chunks_of([job for job in jobs if job.event_id in events])  # refuses an event with too many copies
        stored = [job for job in jobs if job.event_id not in events]
        self._store_list(stored)
        for chunk in chunks:
            try:
                entries = outbox.put(chunk)
            except (BrokerError, EnqueueError) as error:
                if len(jobs) == len(chunk):
                    raise
                raise partly_stored(error, stored, jobs) from error
            stored += chunk
            outbox.deliver(entries)

    def _store_list(self, jobs: Sequence[NewJob]) -> None:
        parts = self._parts(jobs)
        if len(parts) > 1:
            for part in parts:
                self.check(part)
        chunks = [chunks_of(part) for part in parts]
        if len(chunks) == 1 and len(chunks[0]) == 1:
            self._store(chunks[0][0])
            return
        stored: list[NewJob] = []
        try:
            for some in chunks:
                for chunk in self._store_all(some):
                    stored += chunk
        except (EnqueueError, BrokerError) as error:
            raise partly_stored(error, stored, jobs) from error

    def _parts(self, jobs: Sequence[NewJob]) -> list[Sequence[NewJob]]:
        """Jobs as one script may store them: all of them, or on a Cluster those of one queue."""
        if not self._layouts.server.is_cluster:
            return [jobs] if jobs else []
        parts: dict[str, list[NewJob]] = {}
        for job in jobs:
            parts.setdefault(job.queue, []).append(job)
        return list(parts.values())

    def load_scripts(self, layout: Layout) -> None:
        """Run the scripts of `enqueue` so that they store nothing. Afterwards the server of the queue knows them."""
        args = self._layouts.args(jobs=[], layouts=[""], check=True)
        simple = ("", 0, 0, "", "", "", 0, "")  # of no layout
        calls: list[Call] = [(load("enqueue"), [layout.root], [args]), (load("enqueue_one"), [layout.root], simple)]
        self._layouts.server.run_all(calls)

    def check(self, jobs: Sequence[NewJob]) -> None:
        """Raise EnqueueError if a key of these jobs of one queue belongs to a job of another kind."""
        unsure = [job for job in jobs if job.kind is not Kind.PLAIN]
        for first in range(0, len(unsure), CHUNK):
            self._run(unsure[first : first + CHUNK], check=True)

    def _store(self, jobs: Sequence[NewJob]) -> None:
        name, seq = self._senders.take()
        if len(jobs) > 1 or not self._store_simple(jobs[0], name, seq):
            self._run(jobs, sender=name, seq=seq)
        self._senders.give(name, seq)

    def _store_simple(self, job: NewJob, sender: str, seq: int) -> bool:
        """Store a job of which nothing is said but what every job has. False: it must be stored with `_run`."""
        record = simple_record(job)
        if record is None:
            return False
        layouts = self._layouts
        layout = layouts.declare(job.queue, DEFAULT_SHARDS)
        now = "" if layouts.clock is None else repr(layouts.clock.now())
        shard = shard_of(job.key, layout.shards)
        args = (layout.name, shard, +job.kind, job.key, record, sender, seq, now)
        return bool(layouts.server.run(load("enqueue_one"), (layout.root,), args))

    def _run(self, jobs: Sequence[NewJob], **how: object) -> None:
        for _ in range(TRIES):
            used = dict[str, Layout]()
            answer: list[Any] = self._layouts.server.run(*enqueue_call(self._layouts, jobs, used, **how))
            if answer[0] == b"kind":
                raise another_kind(jobs[answer[1] - 1], Kind(answer[2]))
            if answer[0] != b"stale":
                return
            for layout in used.values():
                self._layouts.refresh(layout)
        raise outdated(jobs[0].queue)

    def _store_all(self, chunks: Sequence[Sequence[NewJob]]) -> Iterator[Sequence[NewJob]]:
        """Store chunks, one after the other, and yield each that is stored."""
        # One sender for each call: of several calls under way, a later one may succeed and an earlier one fail.
        senders = deque[tuple[str, int]]()
        for chunk, answer in zip(chunks, self._layouts.server.run_each(self._calls(chunks, senders)), strict=True):
            name, seq = senders.popleft()
            if answer[0] == b"kind":
                raise another_kind(chunk[answer[1] - 1], Kind(answer[2]))
            if answer[0] == b"stale":
                self._run(chunk, sender=name, seq=seq)
            self._senders.give(name, seq)
            yield chunk

    def _calls(self, chunks: Sequence[Sequence[NewJob]], senders: deque[tuple[str, int]]) -> Iterator[Call]:
        after = None
        for chunk in chunks:
            name, seq = self._senders.take()
            senders.append((name, seq))
            call = enqueue_call(self._layouts, chunk, {}, sender=name, seq=seq, after=after)
            after = str(call[1][0]), name, seq
            yield call
