"""The verb `enqueue` on a Cluster: how copies of events get in, which lie in shards that no step can touch together.

First they are put into an outbox of one shard, in one step: from then on all of them are stored. Then they are
delivered from there. If this process dies in between, or a shard is away, any worker delivers them in its next sweep
(see outbox). A copy is delivered once, for as long as its shard remembers it, also if whoever publishes repeats it.

An event with one copy needs none of this, and other jobs do not either.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from ...errors import BrokerError, EnqueueError
from ...failpoints import armed, reach
from ...ids import new_id
from ...jobs.data import NewJob
from ...jobs.shards import DEFAULT_SHARDS
from .cluster_enqueue import ClusterStoring
from .enqueue import chunks_of, partly_stored
from .layout import Layouts, outdated
from .outbox import Entry, Outbox, text_of
from .script import load

_TRIES = 20


class ClusterPublishing:
    """Jobs and copies of events on their way in."""

    def __init__(self, layouts: Layouts, storing: ClusterStoring, outbox: Outbox) -> None:
        self._layouts = layouts
        self._storing = storing
        self._outbox = outbox

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        copies = [job for job in jobs if job.event]
        if len({job.event for job in copies}) == len(copies):
            self._storing.enqueue(jobs)
            return
        chunks = chunks_of(copies)  # they may be too many, and then nothing is stored
        others = [job for job in jobs if not job.event]
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

    def _post(self, copies: Sequence[NewJob]) -> list[Entry]:
        """Put copies of whole events into an outbox, that of a shard to which one of them goes."""
        name = new_id()
        for _ in range(_TRIES):
            layout = self._layouts.declare(copies[0].queue, DEFAULT_SHARDS)
            tag = layout.homes(copies[0].key)[-1]  # not in the shard that is being left, if the queue is resharded
            entries = _entries(tag, name, copies)
            told = [part for entry in entries for part in (entry.id, text_of(entry))]
            answer = self._layouts.server.run(load("outbox_put"), [tag], [self._layouts.args(entries=told)])
            if answer[0] == b"ok":
                for entry in entries:
                    entry.sent_at = float(answer[1])
                return entries
            self._layouts.refresh(layout)
        raise outdated(copies[0].queue)

    def _deliver(self, entries: Sequence[Entry]) -> None:
        try:
            self._outbox.deliver(entries)
        except BrokerError:
            pass  # they are in the outbox: whoever sweeps next delivers them


def _entries(tag: str, name: str, copies: Sequence[NewJob]) -> list[Entry]:
    """One for each queue, so that what goes there arrives in its order."""
    by_queue: dict[str, list[NewJob]] = {}
    for copy in copies:
        by_queue.setdefault(copy.queue, []).append(copy)
    return [Entry(tag, f"{name}:{n}:{queue}", some) for n, (queue, some) in enumerate(by_queue.items())]
