"""Store: what all parts of the SQLite broker share: the database, the clock and the cached queues."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ...clock import Clock
from ...jobs.data import NewJob
from ...jobs.shards import DEFAULT_SHARDS
from ..shared import unknown_queue
from .database import Database, Transaction
from .queues import QueueRow, add_priority, queues
from .wait import DatabaseWait


class Store:
    """One SQLite database of jobs. The tiers of a broker share it."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self.db = db
        self.clock = clock
        self.waiting = DatabaseWait(db, clock)
        #: The queues, and the epoch in which they were read; it changes when the shards of any of them do. One
        #: value, because another thread may read them again at any time, and from an older snapshot.
        self.known: tuple[int, dict[str, QueueRow]] = (0, {})

    def forget(self) -> None:
        """Drop the cached queues."""
        self.known = (0, {})

    def read_queues(self) -> dict[str, QueueRow]:
        """Read every queue."""
        with self.db.read() as tx:
            return self.read_queues_in(tx)

    def read_queues_in(self, tx: Transaction) -> dict[str, QueueRow]:
        """Read every queue within a transaction."""
        # The epoch first: if it grows in between, the queues are read once too often, not once too rarely.
        epoch: int = tx.value("epoch")
        known = queues(tx)
        self.known = (epoch, known)
        return known

    def current_queues(self, tx: Transaction, names: Collection[str]) -> dict[str, QueueRow]:
        """Within a transaction: these queues with their shards as they are now, whichever process changed them."""
        epoch, known = self.known
        if tx.value("epoch") == epoch and known.keys() >= set(names):
            return known
        return self.read_queues_in(tx)

    def queue(self, name: str) -> QueueRow:
        """A queue; raises NoQueueError if there is none."""
        self.db.check_file()
        queue = self.known[1].get(name) or self.read_queues().get(name)
        if queue is None:
            raise unknown_queue(name)
        return queue

    def declare(self, name: str, shards: int) -> QueueRow:
        """A queue, made if there is none."""
        if name not in self.read_queues():
            with self.db.write() as tx:
                tx.run("make_queue", name=name, shards=shards)
            self.read_queues()
        return self.queue(name)

    def ensure_queues(self, jobs: Iterable[NewJob]) -> None:
        """Make new queues and priorities, before the jobs that use them first."""
        self.db.check_file()
        for name, priority in {(job.queue, job.priority) for job in jobs}:
            queue = self.known[1].get(name) or self.declare(name, DEFAULT_SHARDS)
            if priority not in queue.priorities:
                with self.db.write() as tx:
                    add_priority(tx, name, priority)
                self.read_queues()
