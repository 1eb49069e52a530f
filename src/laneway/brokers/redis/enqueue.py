"""JobWriter: stores new jobs on one server: in order, in atomic chunks, once however often a call is repeated.

Each call carries the name of a sender and a number (SenderNumbers), by which Redis recognises a repeat. A forked
process drops its parent's names: otherwise the parent's next calls would look like repeats of the child's. The
copies of one event are never divided between chunks (`split_keeping_events`). An event with more copies than a chunk
holds is a chunk of its own. The server does nothing else while it stores a chunk, so an event's copies are limited.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from ...errors import BrokerAwayError, BrokerError, EnqueueError
from ...ids import new_id
from ...jobs.data import Kind, NewJob
from ...jobs.shards import DEFAULT_SHARDS, shard_of
from ..shared import CHUNK, CHUNK_CHARS, another_kind
from .client.server import Call
from .codec import new_job, simple_record
from .layout import TRIES, Layout, Layouts, outdated
from .script import load

#: The most copies that one event may have, and the most characters in all of them together.
MOST_COPIES = 10_000
MOST_CHARS = 100_000_000


def split_keeping_events(jobs: Sequence[NewJob], most: int, chars: int) -> list[Sequence[NewJob]]:
    """Jobs in portions of at most `most` jobs; a portion with more than `chars` characters is full.

    The copies of one event are never divided between portions.
    """
    portions: list[Sequence[NewJob]] = []
    portion: list[NewJob] = []
    size = 0
    for unit in _units(jobs):
        if portion and (len(portion) + len(unit) > most or size > chars):
            portions.append(portion)
            portion, size = [], 0
        portion += unit
        size += sum(len(job.body) for job in unit)
    return [*portions, portion] if portion else portions


def _units(jobs: Sequence[NewJob]) -> list[list[NewJob]]:
    """Groups of jobs that must be stored together, each at the position of its first job."""
    units: dict[str | int, list[NewJob]] = {}
    for number, job in enumerate(jobs):
        units.setdefault(job.event_id or number, []).append(job)
    for unit in units.values():
        _check(unit)
    return list(units.values())


def _check(copies: Sequence[NewJob]) -> None:
    chars = sum(len(job.body) for job in copies) if len(copies) > 1 else 0
    if len(copies) > MOST_COPIES or chars > MOST_CHARS:
        raise EnqueueError(
            f"The event {copies[0].event_id} has {len(copies):,} copies of {chars:,} characters together. Those of one "
            f"event are stored in one step, so that it may have {MOST_COPIES:,} of {MOST_CHARS:,}: publish less of it, "
            "such as where the rest is found, or have fewer queues subscribe."
        )


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


class TagList:
    """The tags of one call, each once, in the order in which they were first used."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self._places = {name: n for n, name in enumerate(names, 1)}

    def place(self, name: str) -> int:
        """The number of a tag in the script's KEYS, from 1. Adds the tag if it is new."""
        place = self._places.get(name)
        if place is None:
            self.names.append(name)
            place = self._places[name] = len(self.names)
        return place


class JobColumns:
    """Simple jobs of one tag; see scripts/parts/simple.lua."""

    __slots__ = ("keys", "numbers", "records")

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.records: list[bytes] = []
        #: The numbers of these jobs among the jobs of the call.
        self.numbers: list[int] = []

    def add(self, job: NewJob, number: int, kind: Kind) -> bool:
        """Add a job; False if it is not simple, or of another kind."""
        record = simple_record(job)
        if record is None or job.kind is not kind:
            return False
        self.keys.append(job.key)
        self.records.append(record)
        self.numbers.append(number)
        return True

    def differ(self) -> bool:
        """Whether no key occurs twice."""
        return len(set(self.keys)) == len(self.keys)

    def encode(self) -> tuple[list[str], list[int], list[int]]:
        return self.keys, list(map(len, self.records)), self.numbers

    @property
    def text(self) -> bytes:
        return b"".join(self.records)


def column_args(columns: Sequence[JobColumns], kind: Kind) -> dict[str, object]:
    """Simple jobs as arguments of the script."""
    return {"simple": [each.encode() for each in columns], "kind": +kind}


class JobWriter:
    """Stores the jobs of the verb `enqueue`, and encodes the jobs that a run has sent."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self._senders = SenderNumbers()
        #: The wakeup list of each tag that a job was put into.
        self._bells: dict[str, str] = {}

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        if len(jobs) == 1:
            self._store(jobs)
            return
        chunks = chunks_of(jobs)
        if len(chunks) == 1:
            self._store(chunks[0])
            return
        stored = 0
        # One sender for each call: of several calls under way, a later one may succeed and an earlier one fail.
        senders = deque[tuple[str, int]]()
        try:
            for chunk, answer in zip(chunks, self._layouts.server.run_each(self._calls(chunks, senders)), strict=True):
                self._senders.give(*senders.popleft())
                if answer[0] == b"kind":
                    raise another_kind(chunk[answer[1] - 1], Kind(answer[2]))
                if answer[0] == b"stale":
                    self._store(chunk)
                stored += len(chunk)
        except (EnqueueError, BrokerError) as error:
            raise partly_stored(error, stored, [*chain(*chunks)]) from error

    def _calls(self, chunks: Sequence[Sequence[NewJob]], senders: deque[tuple[str, int]]) -> Iterator[Call]:
        after = None
        for chunk in chunks:
            name, seq = self._senders.take()
            senders.append((name, seq))
            call = self._call(chunk, {}, name, seq, after)
            after = str(call[1][0]), name, seq
            yield call

    def _store(self, jobs: Sequence[NewJob]) -> None:
        name, seq = self._senders.take()
        for _ in range(TRIES):
            used = dict[str, Layout]()
            answer: list[Any] = self._layouts.server.run(*self._call(jobs, used, name, seq))
            if answer[0] == b"stale":
                for layout in used.values():
                    self._layouts.refresh(layout)
                continue
            self._senders.give(name, seq)
            if answer[0] == b"kind":
                raise another_kind(jobs[answer[1] - 1], Kind(answer[2]))
            return
        raise outdated(jobs[0].queue)

    def _call(
        self,
        jobs: Sequence[NewJob],
        used: dict[str, Layout],
        name: str,
        seq: int,
        after: tuple[str, str, int] | None = None,
    ) -> Call:
        tags = TagList()
        columns = self._columns(jobs, tags, used)
        if columns is None:
            told: dict[str, object] = {"jobs": self.encode(jobs, tags, used)}
        else:
            told = column_args(columns, jobs[0].kind)
        if after is not None:
            told["after"] = after
        args = self._layouts.args(**told, sender=name, seq=seq, bells=self.wakeup_keys(tags))
        return load("enqueue"), tags.names, [args, *(each.text for each in columns or ())]

    def _columns(self, jobs: Sequence[NewJob], tags: TagList, used: dict[str, Layout]) -> list[JobColumns] | None:
        """Jobs as columns by tag; None unless all are simple. This is the fast path of enqueue_many."""
        columns: dict[str, JobColumns] = {}
        kind, queue, layout = jobs[0].kind, None, None
        for number, job in enumerate(jobs):
            if job.queue != queue or layout is None:
                queue = job.queue
                layout = used[queue] = used.get(queue) or self._layouts.declare(queue, DEFAULT_SHARDS)
                if layout.record.resharding:
                    return None
            tag = layout.tags[shard_of(job.key, layout.shards)]
            there = columns.get(tag)
            if there is None:
                there = columns[tag] = JobColumns()
            if not there.add(job, number, kind):
                return None
        if not all(each.differ() for each in columns.values()):
            return None
        for tag in columns:
            tags.place(tag)
        return list(columns.values())

    def wakeup_keys(self, tags: TagList) -> list[str]:
        """The wakeup list of each tag."""
        for tag in tags.names:
            if tag not in self._bells:
                self._bells[tag] = self._layouts.keys.wakeup_list(tag.split(":")[1])
        return [self._bells[tag] for tag in tags.names]

    def encode(self, jobs: Sequence[NewJob], tags: TagList, used: dict[str, Layout]) -> list[Sequence[object]]:
        """New jobs as arguments of a script. Creates queues that were never declared."""
        news = []
        for job in jobs:
            layout = used.get(job.queue)
            if layout is None:
                layout = used[job.queue] = self._layouts.declare(job.queue, DEFAULT_SHARDS)
            if layout.record.resharding:
                old, tag = layout.tags_of_key(job.key)
                news.append(new_job(job, tags.place(tag), tags.place(old)))
            else:
                news.append(new_job(job, tags.place(layout.tags[shard_of(job.key, layout.shards)]), None))
        return news


def chunks_of(jobs: Sequence[NewJob]) -> list[Sequence[NewJob]]:
    """Jobs in chunks. Each chunk is stored in one step."""
    if any(job.event_id for job in jobs):
        return split_keeping_events(jobs, CHUNK, CHUNK_CHARS)
    chunks, first, chars = [], 0, 0
    for n, job in enumerate(jobs):
        if n - first == CHUNK or (chars > CHUNK_CHARS and n > first):
            chunks.append(jobs[first:n])
            first, chars = n, 0
        chars += len(job.body)
    return [*chunks, jobs[first:]] if len(jobs) > first else chunks


def partly_stored(error: EnqueueError | BrokerError, stored: int, jobs: Sequence[NewJob]) -> EnqueueError | BrokerError:
    """The error for a list of jobs that needed several steps, of which only some were taken."""
    unsure = "the next ones may or may not have been" if isinstance(error, BrokerAwayError) else "the others were not"
    upto = f", those up to the key {jobs[stored - 1].key!r}" if stored else ""
    text = f"{stored:,} of the {len(jobs):,} jobs were stored{upto}; {unsure}: {error}"
    told = EnqueueError(text, place=error.place) if isinstance(error, EnqueueError) else type(error)(text)
    told.unstored = list(range(stored, len(jobs)))
    return told
