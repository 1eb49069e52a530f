"""ClusterOutbox: delivers what runs and publishers send to several queues of a Cluster.

On a Cluster no script can touch two queues. So jobs that a run sends to other queues are put into the outbox of its own
queue, in the step that settles the run, and the copies of an event for several queues into the outbox of one of them.
The sender delivers them at once. If it dies, or a server is away, any worker delivers them in its next sweep. Until
then their status is `queued`, and they count in the numbers of the queue that they are for.

An entry of an outbox has the jobs for one queue. Its id ends with the number of its jobs and that queue. An entry is
delivered again if it could not be removed, because its server was away. So the receiving queue remembers delivered
entries for a week, and for only ten minutes once the entry is known to be removed: from then on only a process that had
read the entry before can deliver it again. If this process dies before it reports a removal, the queue remembers the
entry for the rest of the week.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ...errors import BrokerAwayError, BrokerError, EnqueueError
from ...failpoints import armed, reach
from ...ids import new_id
from ...jobs.data import Kind, NewJob
from ...jobs.shards import DEFAULT_SHARDS
from ..shared import another_kind
from .client.server import Call
from .enqueue import JobWriter, chunks_of, partly_stored
from .layout import TRIES, Layout, Layouts, outdated
from .script import load

#: An entry that has been in an outbox for this many seconds was left behind.
LEFT_BEHIND_S = 5.0
#: How many entries of an outbox are read at a time: each may be large.
_PAGE = 10
#: When this many removals are to be reported they are reported at once; else at the next renewal or sweep.
_MANY = 500

_log = logging.getLogger("laneway")
_write = msgspec.json.Encoder().encode  # JSON text, because arguments of scripts cannot hold bytes
_read = msgspec.json.Decoder(list[NewJob]).decode


@dataclass(slots=True)
class OutboxEntry:
    """Jobs for one queue, in the outbox of another one or its own."""

    #: What the keys of the queue with the outbox begin with.
    root: str
    id: str
    jobs: list[NewJob]
    #: When the jobs were sent, by the clock of that queue's server. None: just now.
    sent_at: float | None = None

    @property
    def queue(self) -> str:
        """The queue that the jobs are for."""
        return _queue_of(self.id)

    @classmethod
    def stored(cls, root: str, id: str, value: bytes) -> OutboxEntry:
        """An entry as it is stored: the time it was sent, the worker that sent it, and its jobs."""
        sent_at, _, text = value.split(b"\n", 2)
        return cls(root, id, _read(text), float(sent_at))


def _queue_of(id: str) -> str:
    return id.rpartition(":")[2]


def _count_of(id: str) -> int:
    return int(id.split(":")[-2])


def text_of(jobs: Sequence[NewJob]) -> str:
    """Jobs as they are stored, without the brackets around them."""
    return _write(jobs)[1:-1].decode()


def by_queue(jobs: Iterable[NewJob]) -> dict[str, list[NewJob]]:
    """Jobs by the queue that they are for."""
    found: dict[str, list[NewJob]] = {}
    for job in jobs:
        found.setdefault(job.queue, []).append(job)
    return found


class ClusterOutbox:
    """The outboxes of all queues."""

    def __init__(self, layouts: Layouts, writer: JobWriter) -> None:
        self._layouts = layouts
        self._writer = writer
        self._lock = threading.Lock()
        #: By the queue that received them: delivered entries that are in no outbox any more.
        self._removed: dict[str, list[str]] = {}

    # -- the verb `enqueue` ----------------------------------------------------------------------------

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        """Store jobs; all copies of an event, or none."""
        queues: dict[str, set[str]] = {}
        for job in jobs:
            if job.event_id:
                queues.setdefault(job.event_id, set()).add(job.queue)
        spread = {event for event, some in queues.items() if len(some) > 1}
        if not spread:
            self._writer.enqueue(jobs)
            return
        chunks = chunks_of([job for job in jobs if job.event_id in spread])  # refuses an event with too many copies
        stored = [job for job in jobs if job.event_id not in spread]
        if stored:
            self._writer.enqueue(stored)
        for chunk in chunks:
            try:
                entries = self._put(chunk)
            except (BrokerError, EnqueueError) as error:
                if len(jobs) == len(chunk):
                    raise
                raise partly_stored(error, stored, jobs) from error
            stored += chunk
            if armed:
                reach("after post")
            self.deliver(entries)

    def _put(self, copies: Sequence[NewJob]) -> list[OutboxEntry]:
        """Put all copies of some events into the outbox of the queue of the first one."""
        name = new_id()
        for _ in range(TRIES):
            layout = self._layouts.declare(copies[0].queue, DEFAULT_SHARDS)
            entries = [
                OutboxEntry(layout.root, f"{name}:{len(jobs)}:{queue}", jobs)
                for queue, jobs in by_queue(copies).items()
            ]
            args = [part for entry in entries for part in (entry.id, f"[{text_of(entry.jobs)}]")]
            answer = self._layouts.server.run(load("outbox_put"), [layout.root], [self._layouts.args(entries=args)])
            if answer[0] == b"ok":
                for entry in entries:
                    entry.sent_at = float(answer[1])
                return entries
            self._layouts.refresh(layout)
        raise outdated(copies[0].queue)

    # -- delivery --------------------------------------------------------------------------------------

    def deliver(self, entries: Sequence[OutboxEntry]) -> None:
        """Store the jobs of entries, in order, and remove the entries. What cannot be stored now stays for a sweep.

        A job whose key now belongs to another kind is given up: its run is settled and cannot fail any more.
        """
        waiting = {queue: deque(some) for queue, some in _by_target(entries).items()}
        delivered: list[OutboxEntry] = []
        for _ in range(TRIES + len(entries)):
            if not waiting:
                break
            for queue, answer in self._store_first(waiting):
                entry = waiting[queue][0]
                if isinstance(answer, BrokerError):
                    if not isinstance(answer, BrokerAwayError):
                        _log.warning("What was sent is kept, and will be stored later: %s", answer)
                    del waiting[queue]
                elif answer[0] == b"kind":
                    job = entry.jobs.pop(answer[1] - 1)
                    _log.error("What was sent cannot be stored: %s", another_kind(job, Kind(answer[2])))
                elif answer[0] == b"ok":
                    delivered.append(waiting[queue].popleft())
                    if not waiting[queue]:
                        del waiting[queue]
        self._remove(delivered)

    def _store_first(self, waiting: dict[str, deque[OutboxEntry]]) -> Iterator[tuple[str, Any]]:
        """Store the first entry for each queue; yields the answers, or the errors in their place."""
        calls: dict[str, Call] = {}
        for queue, some in list(waiting.items()):
            entry = some[0]
            if not entry.jobs:  # all of them were given up
                yield queue, [b"ok"]
                continue
            how: dict[str, object] = {} if entry.sent_at is None else {"now": entry.sent_at}
            try:
                calls[queue] = self._writer.call(entry.jobs, {}, entry=entry.id, **how)
            except BrokerError as error:  # the layout of its queue cannot be read
                yield queue, error
        for queue, answer in zip(calls, self._layouts.server.try_all(list(calls.values())), strict=True):
            if not isinstance(answer, BrokerError) and answer[0] == b"stale":
                self._layouts.forget(queue)
            yield queue, answer

    def _remove(self, entries: Sequence[OutboxEntry]) -> None:
        ids: dict[str, list[str]] = {}
        for entry in entries:
            ids.setdefault(entry.root, []).append(entry.id)
        try:
            self._layouts.server.do_all([("HDEL", f"{root}:outbox", *some) for root, some in ids.items()])
        except BrokerError:
            return  # the next sweep finds the entries, which are not delivered twice, and removes them
        with self._lock:
            for entry in entries:
                self._removed.setdefault(entry.queue, []).append(entry.id)
            is_time = sum(map(len, self._removed.values())) >= _MANY
        if is_time:
            self.report_removed()

    def report_removed(self) -> None:
        """Tell the receiving queues which entries are removed. A queue that is away remembers them for longer."""
        with self._lock:
            removed, self._removed = self._removed, {}
        root, args = self._layouts.keys.root, self._layouts.args
        self._layouts.server.try_all(
            [(load("delivered"), [root(queue)], [args(entries=ids)]) for queue, ids in removed.items()]
        )

    # -- entries that are not delivered yet ------------------------------------------------------------

    def sent_in(self, layout: Layout, turn: str) -> list[OutboxEntry]:
        """What a turn that is repeated has sent, as far as it is not removed yet."""
        return self._read([(root, id) for root, id in self._ids([layout]) if id.startswith(turn)])

    def waiting(self) -> Counter[str]:
        """How many jobs are on their way to each queue."""
        found: Counter[str] = Counter()
        for _, id in self._undelivered():
            found[_queue_of(id)] += _count_of(id)
        return found

    def find(self, queue: str, key: str) -> list[NewJob]:
        """The jobs of a key that are on their way to a queue."""
        named = [(root, id) for root, id in self._undelivered() if _queue_of(id) == queue]
        pages = (named[first : first + _PAGE] for first in range(0, len(named), _PAGE))
        return [job for page in pages for entry in self._read(page) for job in entry.jobs if job.key == key]

    def _undelivered(self) -> list[tuple[str, str]]:
        """The entries that their queues have not received yet."""
        named = self._ids(self._layouts.read_all())
        root = self._layouts.keys.root
        marks = self._layouts.server.do_all([("ZSCORE", f"{root(_queue_of(id))}:delivered", id) for _, id in named])
        return [each for each, mark in zip(named, marks, strict=True) if mark is None]

    def _ids(self, layouts: Iterable[Layout]) -> list[tuple[str, str]]:
        """All entries in the outboxes of some queues, by root and id."""
        roots = [layout.root for layout in layouts]
        names = self._layouts.server.do_all([("HKEYS", f"{root}:outbox") for root in roots])
        return [(root, name.decode()) for root, some in zip(roots, names, strict=True) for name in some]

    def _read(self, named: Sequence[tuple[str, str]]) -> list[OutboxEntry]:
        """Entries by root and id, without those that were delivered meanwhile."""
        values = self._layouts.server.do_all([("HGET", f"{root}:outbox", id) for root, id in named])
        return [
            OutboxEntry.stored(root, id, value)
            for (root, id), value in zip(named, values, strict=True)
            if value is not None
        ]

    def sweep(self, now: float) -> None:
        """Deliver entries that their senders have left behind."""
        roots = [layout.root for layout in self._layouts.read_all()]
        while roots:
            commands = [("HRANDFIELD", f"{root}:outbox", _PAGE, "WITHVALUES") for root in roots]
            found = dict(zip(roots, self._layouts.server.do_all(commands), strict=True))
            left = self._left_behind(found, now)
            try:
                self.deliver(left)
            except BrokerError as error:
                _log.warning("What was sent is kept, and will be stored later: %s", error)
                return
            # Look again in outboxes that may have more. Entries that could not be delivered wait for the next sweep.
            names = [("HEXISTS", f"{entry.root}:outbox", entry.id) for entry in left]
            kept = self._layouts.server.do_all(names)
            gone = {entry.root for entry, is_kept in zip(left, kept, strict=True) if not is_kept}
            roots = [root for root, rows in found.items() if len(rows) >= 2 * _PAGE and root in gone]

    def _left_behind(self, found: dict[str, list[bytes]], now: float) -> list[OutboxEntry]:
        """The entries whose worker is gone, or that are old; the oldest first."""
        rows = [(root, some[n].decode(), some[n + 1]) for root, some in found.items() for n in range(0, len(some), 2)]
        living = self._living({value.split(b"\n", 2)[1] for *_, value in rows} - {b""})  # publishers have no name
        left = []
        for root, id, value in rows:
            sent_at, worker, _ = value.split(b"\n", 2)
            if (worker and worker not in living) or float(sent_at) < now - LEFT_BEHIND_S:
                left.append(OutboxEntry.stored(root, id, value))
        return sorted(left, key=lambda entry: entry.sent_at or 0.0)

    def _living(self, workers: Collection[bytes]) -> set[bytes]:
        if not workers:
            return set()
        counters: list[Any] = self._layouts.server.do("HMGET", self._layouts.keys.leases, *workers)
        return {name for name, counter in zip(workers, counters, strict=True) if counter is not None}


def _by_target(entries: Iterable[OutboxEntry]) -> dict[str, list[OutboxEntry]]:
    found: dict[str, list[OutboxEntry]] = {}
    for entry in entries:
        found.setdefault(entry.queue, []).append(entry)
    return found
