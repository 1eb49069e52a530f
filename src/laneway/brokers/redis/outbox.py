"""ClusterOutbox: delivers what runs and publishers send to several queues of a Cluster.

On a Cluster no script can touch two queues. So jobs that a run sends to other queues are put into the outbox of its own
queue, in the step that settles the run, and the copies of an event for several queues into the outbox of one of them.
The sender delivers them at once. If it dies, or a server is away, any worker delivers them in its next sweep. Until
then their status is `queued`, and they count in the numbers of the queue that they are for.

An entry of an outbox has the jobs for one queue. Its id begins with its number, and ends with how many jobs it has and
that queue. Entries of one outbox for one queue are delivered in the order of their numbers, so that the calls that the
runs of a key send stay in order. The number is 0 if all jobs are plain: their order does not matter.

An entry is delivered again if it could not be removed, because its server was away. So the receiving queue remembers
delivered entries for a week, and for only ten minutes once the entry is known to be removed: from then on only a
process that had read the entry before can deliver it again. If this process dies before it reports a removal, the queue
remembers the entry for the rest of the week.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ...errors import BrokerAwayError, BrokerError
from ...failpoints import armed, reach
from ...ids import new_id
from ...jobs.data import Kind, NewJob
from ...jobs.shards import DEFAULT_SHARDS
from ..shared import another_kind
from .client.server import Call
from .enqueue import enqueue_call
from .layout import TRIES, Layout, Layouts, outdated
from .script import load

#: An entry that has been in an outbox for this many seconds was left behind.
LEFT_BEHIND_S = 5.0
#: How many entries of an outbox are read at a time: each may be large. And how many entries a turn delivers at most.
_PAGE, _MOST = 10, 100
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
        """An entry as it is stored: the time it was sent, and its jobs."""
        sent_at, _, text = value.partition(b"\n")
        return cls(root, id, _read(text), float(sent_at))


def _number_of(id: str) -> int:
    return int(id.partition(":")[0])


def _queue_of(id: str) -> str:
    return id.rpartition(":")[2]


def _count_of(id: str) -> int:
    return int(id.split(":")[-2])


def is_ordered(jobs: Sequence[NewJob]) -> bool:
    """Whether the order of these jobs matters."""
    return any(job.kind is not Kind.PLAIN for job in jobs)


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

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts
        self._lock = threading.Lock()
        #: By the queue that received them: delivered entries that are in no outbox any more.
        self._removed: dict[str, list[str]] = {}

    def put(self, copies: Sequence[NewJob]) -> list[OutboxEntry]:
        """Put all copies of some events into the outbox of the queue of the first one."""
        name = new_id()
        for _ in range(TRIES):
            layout = self._layouts.declare(copies[0].queue, DEFAULT_SHARDS)
            entries = [
                OutboxEntry(layout.root, f"0:{name}:{len(jobs)}:{queue}", jobs)
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

    def deliver(self, entries: Sequence[OutboxEntry]) -> set[str]:
        """Store the jobs of entries, in order, and remove the entries. What cannot be stored now stays for a sweep.

        Returns the queues of which that is so. A job whose key now belongs to another kind is given up: its run is
        settled and cannot fail any more.
        """
        if armed:
            reach("after post")
        undelivered: set[str] = set()
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
                    undelivered.add(queue)
                elif answer[0] == b"kind":
                    job = entry.jobs.pop(answer[1] - 1)
                    _log.error("What was sent cannot be stored: %s", another_kind(job, Kind(answer[2])))
                elif answer[0] == b"ok":
                    delivered.append(waiting[queue].popleft())
                    if not waiting[queue]:
                        del waiting[queue]
        self._remove(delivered)
        return undelivered | waiting.keys()

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
                calls[queue] = enqueue_call(self._layouts, entry.jobs, {}, entry=entry.id, **how)
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

    def deliver_stored(self, layout: Layout, queues: Collection[str]) -> None:
        """Deliver what is in the outbox of a queue for these other ones, in order. If that is much, some stays."""
        named = [(root, id) for root, id in self._ids([layout]) if _queue_of(id) in queues]
        self._deliver_in_order(named, lambda entry: True, _MOST)

    def sweep(self, now: float) -> None:
        """Deliver entries that their senders have left behind."""

        def is_left_behind(entry: OutboxEntry) -> bool:
            return abs(now - (entry.sent_at or 0.0)) > LEFT_BEHIND_S

        try:
            self._deliver_in_order(self._ids(self._layouts.read_all()), is_left_behind)
        except BrokerError as error:
            _log.warning("What was sent is kept, and will be stored later: %s", error)

    def _deliver_in_order(
        self, named: Sequence[tuple[str, str]], is_due: Callable[[OutboxEntry], bool], most: int | None = None
    ) -> None:
        """Deliver stored entries, by root and id, as far as they are due and none before them has to wait."""
        in_order = sorted(named, key=lambda each: _number_of(each[1]))[:most]
        # Roots and queues between which an entry has to wait: no other may overtake it. Queues that are away.
        waiting: set[tuple[str, str]] = set()
        away: set[str] = set()
        for first in range(0, len(in_order), _PAGE):
            due = []
            for entry in self._read(in_order[first : first + _PAGE]):
                if entry.queue in away or (entry.root, entry.queue) in waiting:
                    continue
                if is_due(entry):
                    due.append(entry)
                elif _number_of(entry.id):
                    waiting.add((entry.root, entry.queue))
            if due:
                away |= self.deliver(due)


def _by_target(entries: Iterable[OutboxEntry]) -> dict[str, list[OutboxEntry]]:
    found: dict[str, list[OutboxEntry]] = {}
    for entry in entries:
        found.setdefault(entry.queue, []).append(entry)
    return found
