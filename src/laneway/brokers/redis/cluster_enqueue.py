"""ClusterJobWriter: stores jobs on a Cluster: a call per shard, each job once however often a call is repeated.

No step can touch two shards, so all-or-nothing holds per shard only. Jobs are checked before the first of them is
stored. If a shard is away, the error names the jobs that may not have been stored.

An outbox entry is delivered again if it could not be removed, because its shard was away. So the receiving shard
remembers delivered jobs for a week, and for only ten minutes once the entry is known to be removed: from then on
only a process that had read the entry before can deliver it again. DeliveryMarks reports removed entries to shards,
many at once. If this process dies before, the shards remember them for the rest of the week.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import BrokerAwayError, BrokerError, BrokerRefusedError, EnqueueError
from ...jobs.data import Kind, NewJob
from ...jobs.shards import DEFAULT_SHARDS
from ..shared import CHUNK, another_kind
from .client.server import RedisClient
from .codec import new_job
from .enqueue import JobColumns, SenderNumbers, column_args
from .layout import TRIES, Layout, Layouts, outdated
from .script import load
from .wakeup import wake_all

#: When this many marks are pending they are sent at once. A worker sends them at its next renewal at the latest.
MANY = 500


def delivery_mark(parcel: str, number: int, key: str) -> str:
    """The mark of one job of a parcel, or of the copy of an event (-1); see `undelivered` in scripts/enqueue.lua."""
    return f"{parcel}:{number}\0{key}" if number >= 0 else f"\0{key}"


class DeliveryMarks:
    """Marks of jobs that were delivered and removed from their outbox, but not yet reported to the receiving shard."""

    def __init__(self, layouts: Layouts) -> None:
        self._server: RedisClient = layouts.server
        self._lock = threading.Lock()
        #: By tag.
        self._marks: dict[str, list[str]] = {}

    def add(self, marks: Mapping[str, Sequence[str]]) -> None:
        """Note marks that the shards need not remember for long."""
        with self._lock:
            for tag, some in marks.items():
                self._marks.setdefault(tag, []).extend(some)
            is_time = sum(map(len, self._marks.values())) >= MANY
        if is_time:
            self.send_marks()

    def send_marks(self) -> None:
        """Report all marks to their shards now. A shard that cannot be reached remembers its marks for longer."""
        with self._lock:
            marks, self._marks = self._marks, {}
        self._server.try_all([(load("delivered"), [tag], some) for tag, some in marks.items()])


#: How many keys an error names.
_NAMED = 5

#: Keys and tokens of runs that are about to end, by shard; see `check` in scripts/enqueue.lua.
Ending = Mapping[str, Sequence[object]]


class ArrivalNumbers:
    """Arrival numbers: the order of jobs across shards whose servers share no counter. Microseconds that only grow."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> int:
        """The first of `count` numbers."""
        # No lock is needed: two threads that get the same number have sent at the same time.
        first = max(self._next, int(time.time() * 1e6))
        self._next = first + count
        return first


@dataclass(slots=True)
class EnqueueGroup:
    """Jobs that are stored together. The jobs in one shard are stored in one step."""

    jobs: Sequence[NewJob]
    #: The arrival number of the first job.
    first: int
    #: Under this name each job is stored once, by its number, however often and by whichever process it is sent. None:
    #: the group is sent once. A copy of an event is stored once by its key, in whichever group it comes.
    name: str | None = None
    #: The time when the group was sent; None means now.
    now: float | None = None
    #: The numbers of the jobs that are not stored yet.
    left: list[int] = field(default_factory=list)
    #: The number of a job that cannot be stored, and the kind of the job that has its key.
    refused: tuple[int, Kind] | None = None
    trouble: BrokerError | None = None
    #: By tag, the marks of the jobs that were stored under the group's name; see scripts/delivered.lua.
    marks: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.left = list(range(len(self.jobs)))

    def marked_by(self, numbers: Sequence[int]) -> list[int]:
        """The numbers in the marks of jobs; see `delivery_mark`."""
        return [-1 if self.jobs[number].event_id else number for number in numbers]

    def fail(self, numbers: Sequence[int], trouble: BrokerError) -> None:
        self.left += numbers
        self.trouble = self.trouble or trouble

    def refuse(self, numbers: Sequence[int], place: int, kind: int) -> None:
        """Note that nothing of a call was stored because of one job."""
        self.left += numbers
        number = numbers[place - 1]
        if self.refused is None or number < self.refused[0]:
            self.refused = number, Kind(kind)


@dataclass(slots=True)
class _ShardCall:
    """The jobs of one call of the script."""

    parcel: EnqueueGroup
    tag: str
    present: bool
    numbers: list[int]
    sender: tuple[str, int] | None = None


class ClusterJobWriter:
    """Stores the jobs of the verb `enqueue`, and the jobs that runs have sent."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self._senders = SenderNumbers()
        self.arrivals = ArrivalNumbers()

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        chunks = [EnqueueGroup(jobs[n : n + CHUNK], self.arrivals.take(CHUNK)) for n in range(0, len(jobs), CHUNK)]
        several = len({(job.queue, job.key) for job in jobs}) > 1
        for chunk in chunks:
            if several and any(job.kind is not Kind.PLAIN for job in chunk.jobs):
                self._carry_out(chunk, set(), check=True)
        woken: set[str] = set()
        try:
            for chunk in chunks:
                self._carry_out(chunk, woken)
        except (BrokerError, EnqueueError) as error:
            left = [at * CHUNK + n for at, chunk in enumerate(chunks) for n in sorted(chunk.left)]
            if len(left) < len(jobs):
                raise _in_part(error, jobs, left) from error
            raise
        finally:
            wake_all(self._layouts, woken)

    def _carry_out(self, chunk: EnqueueGroup, woken: set[str], *, check: bool = False) -> None:
        """Store a chunk. With `check`, only find out whether it can be stored."""
        for _ in range(TRIES):
            stale = self.round([chunk], woken, check=check)
            if chunk.refused:
                raise another_kind(chunk.jobs[chunk.refused[0]], chunk.refused[1])
            if chunk.trouble:
                raise chunk.trouble
            if not stale:
                return
            for layout in stale:
                self._layouts.refresh(layout)
        raise outdated(chunk.jobs[0].queue)

    def check(self, jobs: Sequence[NewJob], worker: str, ending: Ending) -> tuple[int, Kind] | None:
        """The first job found that cannot be stored once the runs in `ending` of the worker have ended."""
        parcel = EnqueueGroup(jobs, 0)
        for _ in range(TRIES):
            stale = self.round([parcel], set(), check=True, worker=worker, ending=ending)
            if parcel.trouble:
                raise parcel.trouble
            if parcel.refused or not stale:
                return parcel.refused
            for layout in stale:
                self._layouts.refresh(layout)
        raise outdated(jobs[0].queue)

    def round(
        self,
        parcels: Sequence[EnqueueGroup],
        woken: set[str],
        *,
        check: bool = False,
        worker: str = "",
        ending: Ending | None = None,
    ) -> list[Layout]:
        """Store what is left of the parcels, in their order, and note the results in them.

        Returns the layouts that proved outdated. With `check`, only finds out whether the jobs could be stored.
        """
        used: dict[str, Layout] = {}
        outdated_queues: set[str] = set()
        before = [list(parcel.left) for parcel in parcels]
        direct, moving = self._spread(parcels, used, check)
        # A key that a resharding has not moved yet stays in its old shard, and additions to that key go there too.
        for some in (moving, direct):
            for part, answer in zip(some, self._call(some, check, worker, ending or {}), strict=True):
                parcel, numbers = part.parcel, part.numbers
                if isinstance(answer, BrokerError):
                    parcel.fail(numbers, answer)
                elif answer[0] == b"stale":
                    parcel.left += numbers
                    outdated_queues.add(parcel.jobs[numbers[0]].queue)
                elif answer[0] == b"kind":
                    parcel.refuse(numbers, answer[1], answer[2])
                else:
                    if answer[1]:
                        woken.add(parcel.jobs[numbers[0]].queue)
                    if parcel.name:
                        marks = parcel.marks.setdefault(part.tag, [])
                        found = zip(parcel.marked_by(numbers), numbers, strict=True)
                        marks += [delivery_mark(parcel.name, by, parcel.jobs[number].key) for by, number in found]
                    if part.present:
                        self._move_on(parcel, [numbers[place - 1] for place in answer[2:]], direct, used)
        if check:
            for parcel, left in zip(parcels, before, strict=True):
                parcel.left = left
        return [used[queue] for queue in outdated_queues]

    def _spread(
        self, parcels: Sequence[EnqueueGroup], used: dict[str, Layout], check: bool
    ) -> tuple[list[_ShardCall], list[_ShardCall]]:
        """The calls that store what is left of the parcels: final calls, and calls to old shards to be made before."""
        direct: list[_ShardCall] = []
        moving: list[_ShardCall] = []
        for parcel in parcels:
            parts: dict[tuple[str, bool], _ShardCall] = {}
            for number in sorted(parcel.left):
                job = parcel.jobs[number]
                layout = used.get(job.queue)
                if layout is None:
                    layout = used[job.queue] = self._layouts.declare(job.queue, DEFAULT_SHARDS)
                home = layout.tags_of_key(job.key)[0], layout.record.resharding > 0
                part = parts.get(home)
                if part is None:
                    part = parts[home] = _ShardCall(parcel, *home, [])
                part.numbers.append(number)
            parcel.left = []
            for part in parts.values():
                if not check or any(parcel.jobs[number].kind is not Kind.PLAIN for number in part.numbers):
                    (moving if part.present else direct).append(part)
        return direct, moving

    @staticmethod
    def _move_on(
        parcel: EnqueueGroup, absent: Sequence[int], direct: list[_ShardCall], used: Mapping[str, Layout]
    ) -> None:
        """Route jobs whose key is not in its old shard to the new shard of the key."""
        parts: dict[str, _ShardCall] = {}
        for number in absent:
            job = parcel.jobs[number]
            tag = used[job.queue].tags_of_key(job.key)[1]
            part = parts.get(tag)
            if part is None:
                part = parts[tag] = _ShardCall(parcel, tag, False, [])
                direct.append(part)
            part.numbers.append(number)

    def _call(self, parts: Sequence[_ShardCall], check: bool, worker: str, ending: Ending) -> list[Any]:
        calls = []
        for part in parts:
            parcel = part.parcel
            columns = self._columns(part, check)
            if columns is None:
                args: dict[str, object] = {
                    "jobs": [new_job(parcel.jobs[n], 1, None, parcel.first + n) for n in part.numbers],
                }
            else:
                args = column_args([columns], parcel.jobs[part.numbers[0]].kind) | {"first": parcel.first}
            if check:
                args |= {"check": True, "worker": worker, "ending": ending.get(part.tag, ())}
            elif parcel.name:
                args |= {"parcel": parcel.name, "numbers": parcel.marked_by(part.numbers)}
            else:
                part.sender = args["sender"], args["seq"] = self._senders.take()
            if part.present:
                args["present"] = True
            if parcel.now is not None:
                args["now"] = parcel.now
            texts = [columns.text] if columns else []
            calls.append((load("enqueue"), [part.tag], [self._layouts.args(**args), *texts]))
        answers = self._layouts.server.try_all(calls)
        for part, answer in zip(parts, answers, strict=True):
            if part.sender and not isinstance(answer, BrokerError):
                self._senders.give(*part.sender)
        return answers

    @staticmethod
    def _columns(part: _ShardCall, check: bool) -> JobColumns | None:
        """The jobs of a call as columns; None unless all of them are simple."""
        parcel, columns = part.parcel, JobColumns()
        if check or parcel.name or part.present:
            return None
        kind = parcel.jobs[part.numbers[0]].kind
        for number in part.numbers:
            if not columns.add(parcel.jobs[number], number, kind):
                return None
        return columns if columns.differ() else None


def _in_part(error: BrokerError | EnqueueError, jobs: Sequence[NewJob], left: list[int]) -> Exception:
    """The same error, for a call whose jobs were stored in part."""
    keys = ", ".join(repr(jobs[number].key) for number in left[:_NAMED]) + (", …" if len(left) > _NAMED else "")
    text = f"{error} The other jobs were stored; these {len(left)} may not have been: {keys}."
    if isinstance(error, EnqueueError):
        partial: EnqueueError | BrokerError = EnqueueError(text, place=error.place)
    else:
        partial = BrokerAwayError(text) if isinstance(error, BrokerAwayError) else BrokerRefusedError(text)
    partial.unstored = left
    return partial


def by_shard(jobs: Iterable[NewJob], layouts: Layouts) -> list[list[NewJob]]:
    """Groups of jobs that can each be stored in one call, by the layouts known now. Keeps the order within a key."""
    groups: dict[str, list[NewJob]] = {}
    for job in jobs:
        groups.setdefault(layouts.declare(job.queue, DEFAULT_SHARDS).tags_of_key(job.key)[-1], []).append(job)
    return [group[first : first + CHUNK] for group in groups.values() for first in range(0, len(group), CHUNK)]
