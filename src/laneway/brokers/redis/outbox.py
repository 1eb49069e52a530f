"""ClusterOutbox: keeps the jobs of runs and the copies of events on a Cluster until they are delivered.

The script that settles a run puts the run's jobs into the outbox of its shard in the same step. No step can touch
all shards of an event's copies, so ClusterEnqueuer first puts them into the outbox of one of these shards, in one
step: from then on all are stored. Enqueued jobs, and events with one copy each, need no outbox.

The sender delivers at once: store, then remove from the outbox. If it dies first, or a shard is away, any worker
delivers in its next sweep. A second delivery stores nothing, for a week (DeliveryMarks in `cluster_enqueue`). The
stored entries are delivered, never those of a repeated turn: new shards may divide them differently.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from typing import Any

import msgspec

from ...errors import BrokerAwayError, BrokerError, EnqueueError
from ...failpoints import armed, reach
from ...ids import new_id
from ...jobs.data import NewJob
from ...jobs.shards import DEFAULT_SHARDS
from ..shared import another_kind
from .cluster_enqueue import ClusterJobWriter, DeliveryMarks, EnqueueGroup, by_shard
from .enqueue import chunks_of, partly_stored
from .layout import TRIES, Layouts, outdated
from .script import load
from .wakeup import wake_all

#: An entry that has been in an outbox for this many seconds was left behind.
LEFT_BEHIND_S = 5.0
#: How many entries of a shard are read at a time: each may be large.
_SOME = 10
#: With more entries than this in an outbox, `holds` does not check to which queues they go.
_MANY = 1_000

_log = logging.getLogger("laneway")
_write = msgspec.json.Encoder().encode  # JSON text, because arguments of scripts cannot hold bytes
_read = msgspec.json.Decoder(list[NewJob]).decode


class OutboxEntry:
    """An entry in the outbox of a shard: the jobs that a run has sent to one shard, or copies of events for one queue.

    The receiving shard is by the layout at the time of sending. The id ends with the queue that the entry goes to.
    """

    __slots__ = ("id", "jobs", "sent_at", "tag")

    def __init__(self, tag: str, id: str, jobs: Sequence[NewJob]) -> None:
        self.tag = tag
        self.id = id
        self.jobs = jobs
        #: The time by the clock of the shard's server.
        self.sent_at: float | None = None


class ClusterOutbox:
    """The outboxes of all shards."""

    def __init__(self, layouts: Layouts, storing: ClusterJobWriter) -> None:
        self._layouts = layouts
        self._storing = storing
        self.delivered = DeliveryMarks(layouts)

    def entries(self, tag: str, name: str, jobs: Iterable[NewJob]) -> list[OutboxEntry]:
        """The entries for what a run has sent, for the outbox of its shard. No other run ever uses the same `name`."""
        groups = by_shard(jobs, self._layouts)
        return [OutboxEntry(tag, f"{name}:{n}:{group[0].queue}", group) for n, group in enumerate(groups)]

    def ids(self, tag: str, start: str) -> list[str]:
        """The ids in the outbox of a shard that begin with `start`."""
        names: list[bytes] = self._layouts.server.do("HKEYS", f"{tag}:outbox")
        return [name.decode() for name in names if name.startswith(start.encode())]

    def still_there(self, ids: Sequence[tuple[str, str]]) -> list[OutboxEntry]:
        """Of the entries with these tags and ids, those that are not delivered yet, as they are stored."""
        found = self._layouts.server.do_all([("HGET", f"{tag}:outbox", id) for tag, id in ids])
        return [_stored(tag, id, value) for (tag, id), value in zip(ids, found, strict=True) if value is not None]

    def deliver(self, entries: Sequence[OutboxEntry]) -> None:
        """Store the jobs of the entries, in order, and remove the entries. What cannot be stored now stays for a later
        sweep.

        A job whose key now belongs to another kind is given up: its run is settled and cannot fail any more.
        """
        parcels = {entry.id: EnqueueGroup(entry.jobs, 0, entry.id, entry.sent_at) for entry in entries}
        for parcel in parcels.values():
            parcel.first = self._storing.arrivals.take(len(parcel.jobs))
        woken: set[str] = set()
        for _ in range(TRIES):
            todo = [parcel for parcel in parcels.values() if parcel.left and not parcel.trouble]
            if not todo:
                break
            stale = self._storing.round(todo, woken)
            for parcel in todo:
                self._give_up(parcel)
            for layout in stale:
                self._layouts.refresh(layout)
        delivered: dict[str, list[str]] = {}
        for entry in entries:
            if not parcels[entry.id].left:
                delivered.setdefault(entry.tag, []).append(entry.id)
        try:
            self._layouts.server.do_all([("HDEL", f"{tag}:outbox", *ids) for tag, ids in delivered.items()])
        finally:
            wake_all(self._layouts, woken)
        for parcel in parcels.values():
            if not parcel.left:
                self.delivered.add(parcel.marks)
        for parcel in parcels.values():
            if parcel.trouble and not isinstance(parcel.trouble, BrokerAwayError):
                _log.warning("What was sent is kept, and will be stored later: %s", parcel.trouble)

    @staticmethod
    def _give_up(parcel: EnqueueGroup) -> None:
        if parcel.refused is not None:
            number, kind = parcel.refused
            parcel.left.remove(number)
            parcel.refused = None
            _log.error("What was sent cannot be stored: %s", another_kind(parcel.jobs[number], kind))

    def holds(self, queues: Collection[str]) -> bool:
        """Whether anything sent from these queues, or to them, is not delivered yet."""
        server = self._layouts.server
        homes = {tag: layout.queue for layout in self._layouts.read_all() for tag in layout.all_tags}
        sizes = server.do_all([("HLEN", f"{tag}:outbox") for tag in homes])
        filled = {tag: size for tag, size in zip(homes, sizes, strict=True) if size}
        if any(homes[tag] in queues or size > _MANY for tag, size in filled.items()):
            return True
        ends = tuple(f":{queue}".encode() for queue in queues)
        found = server.do_all([("HKEYS", f"{tag}:outbox") for tag in filled])
        return any(name.endswith(ends) for names in found for name in names)

    def sweep(self, now: float) -> None:
        """Deliver entries that their senders have left behind."""
        tags = [tag for layout in self._layouts.read_all() for tag in layout.all_tags]
        while tags:
            left: list[OutboxEntry] = []
            found = self._layouts.server.do_all([("HRANDFIELD", f"{tag}:outbox", _SOME, "WITHVALUES") for tag in tags])
            stored = [
                (tag, rows[n].decode(), rows[n + 1])
                for tag, rows in zip(tags, found, strict=True)
                for n in range(0, len(rows), 2)
            ]
            living = self._living({value.split(b"\n", 2)[1] for *_, value in stored} - {b""})  # publishers have no name
            for tag, id, value in stored:
                sent_at, worker, _ = value.split(b"\n", 2)
                if (worker and worker not in living) or float(sent_at) < now - LEFT_BEHIND_S:
                    left.append(_stored(tag, id, value))
            left.sort(key=lambda entry: entry.sent_at or 0.0)
            try:
                self.deliver(left)
            except BrokerError as error:
                _log.warning("What was sent is kept, and will be stored later: %s", error)
                return
            # Look again in shards that may have more. Entries that could not be delivered are left for the next sweep.
            gone = {entry.tag for entry in left if self._is_gone(entry)} if left else set()
            tags = [tag for tag, rows in zip(tags, found, strict=True) if len(rows) >= 2 * _SOME and tag in gone]

    def _is_gone(self, entry: OutboxEntry) -> bool:
        return not self._layouts.server.do("HEXISTS", f"{entry.tag}:outbox", entry.id)

    def _living(self, workers: set[bytes]) -> set[bytes]:
        if not workers:
            return set()
        names = list(workers)
        counters: list[Any] = self._layouts.server.do("HMGET", self._layouts.keys.leases, *names)
        return {name for name, counter in zip(names, counters, strict=True) if counter is not None}


def _stored(tag: str, id: str, value: bytes) -> OutboxEntry:
    """Decodes a stored entry: the time it was sent, the worker that sent it, and its jobs."""
    sent_at, _, text = value.split(b"\n", 2)
    entry = OutboxEntry(tag, id, _read(text))
    entry.sent_at = float(sent_at)
    return entry


def text_of(entry: OutboxEntry) -> str:
    """An entry's jobs as they are stored."""
    return _write(entry.jobs).decode()


class ClusterEnqueuer:
    """The verb `enqueue` on a Cluster, for jobs and for copies of events."""

    def __init__(self, layouts: Layouts, storing: ClusterJobWriter, outbox: ClusterOutbox) -> None:
        self._layouts = layouts
        self._storing = storing
        self._outbox = outbox

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        copies = [job for job in jobs if job.event_id]
        if len({job.event_id for job in copies}) == len(copies):
            self._storing.enqueue(jobs)
            return
        chunks = chunks_of(copies)  # raises if an event has too many copies; then nothing is stored
        others = [job for job in jobs if not job.event_id]
        if others:
            self._store(others)
        stored = len(others)
        for chunk in chunks:
            try:
                entries = self._post(chunk)
            except (BrokerError, EnqueueError) as error:
                if len(jobs) == len(chunk):
                    raise
                raise partly_stored(error, stored, [*others, *chain(*chunks)]) from error
            stored += len(chunk)
            if armed:
                reach("after post")
            self._deliver(entries)

    def _store(self, others: Sequence[NewJob]) -> None:
        try:
            self._storing.enqueue(others)
        except (BrokerError, EnqueueError) as error:
            error.add_note("Of the events that were to be stored with them none was.")
            raise

    def _post(self, copies: Sequence[NewJob]) -> list[OutboxEntry]:
        """Put all copies of whole events into one outbox: that of a shard to which one of the copies goes."""
        name = new_id()
        for _ in range(TRIES):
            layout = self._layouts.declare(copies[0].queue, DEFAULT_SHARDS)
            tag = layout.tags_of_key(copies[0].key)[
                -1
            ]  # while the queue is resharded, the new shard, not the one that is being left
            entries = _entries(tag, name, copies)
            told = [part for entry in entries for part in (entry.id, text_of(entry))]
            answer = self._layouts.server.run(load("outbox_put"), [tag], [self._layouts.args(entries=told)])
            if answer[0] == b"ok":
                for entry in entries:
                    entry.sent_at = float(answer[1])
                return entries
            self._layouts.refresh(layout)
        raise outdated(copies[0].queue)

    def _deliver(self, entries: Sequence[OutboxEntry]) -> None:
        try:
            self._outbox.deliver(entries)
        except BrokerError:
            pass  # they are in the outbox: the next worker that sweeps delivers them


def _entries(tag: str, name: str, copies: Sequence[NewJob]) -> list[OutboxEntry]:
    """One entry for each queue, so that the copies for a queue arrive in order."""
    by_queue: dict[str, list[NewJob]] = {}
    for copy in copies:
        by_queue.setdefault(copy.queue, []).append(copy)
    return [OutboxEntry(tag, f"{name}:{n}:{queue}", some) for n, (queue, some) in enumerate(by_queue.items())]
