"""Heartbeat: writes this worker's heartbeat and counters to the tables, and reads pauses; a duty of the worker.

A round takes place every ten seconds. Without a table nothing is written, and no queue can be paused. A table that
is away does no harm: counters are written later.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection
from typing import TypeVar

import msgspec

from ....clock import Clock
from ....errors import BrokerError, BrokerRefusedError
from ....jobs.data import StartedRun, WorkerView
from .delayed_jobs import Table
from .tables import Tables

#: Seconds between two heartbeats.
ROUND_S = 10.0
#: So many ids of running jobs are told with one; and only a stranger's are longer than this.
MOST_TOLD = 500
LONGEST_TOLD = 64

T = TypeVar("T")

_log = logging.getLogger("laneway")


class Heartbeat:
    """Tells others of a worker, and the worker which queues are paused."""

    name = "reporter"

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables = tables
        self._clock = clock
        #: How many jobs of a queue this process holds, as whoever holds them says.
        self.holding: Callable[[str], int] = lambda queue: 0
        #: The ids of what a worker of this process runs, those that it has had longest first.
        self.running: Callable[[str], list[str]] = lambda worker: []
        self._views: dict[str, WorkerView] = {}
        #: Queue, processed, failed: appended by any thread, and taken by the round alone.
        self._counts: deque[tuple[str, int, int]] = deque()
        self._paused: dict[str, bool] = {}

    # -- the worker ------------------------------------------------------------------------------------

    def join(self, view: WorkerView) -> None:
        """Take note of this process's worker, and see which of its queues are paused.

        One that joins again tells which shards it serves now, and nothing else of it changes.
        """
        known = self._views.get(view.id)
        if known is None:
            view = msgspec.structs.replace(view, started_at=self._clock.now())
        else:
            view = msgspec.structs.replace(known, shards=view.shards)
        self._views[view.id] = view
        try:
            self._beat()
            self._read_pauses()
        except BrokerError as error:
            # The queues may be well although the table is not; the first round says so, and goes on trying.
            _log.debug("a table could not be read: %s", error)

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> None:
        """Forget a worker, and count a death for what ended its process.

        A death that cannot be counted is an error; that the worker is still listed for a while is none.
        """
        for table, runs in self._by_table(died, lambda run: run.queue).items():
            table.add_deaths([run.identity or run.key for run in runs], worker)
        was_here = self._views.pop(worker, None) is not None
        if not was_here and not died:
            return  # it was somebody else's, and nobody knows of it that it has died
        try:
            if was_here:
                self._write_counts()
            for table in self._tables.known():
                table.forget_worker(worker)
        except BrokerError as error:
            _log.debug("a table could not be written: %s", error)

    def counted(self, queue: str, processed: int, failed: int) -> None:
        """Count runs that were settled; they are told in the next round."""
        if processed or failed:
            self._counts.append((queue, processed, failed))

    def round(self) -> float:
        """Tell and be told. Returns the seconds until the next time."""
        self._beat()
        self._write_counts()
        self._read_pauses()
        return ROUND_S

    # -- pauses ----------------------------------------------------------------------------------------

    def paused(self, queue: str) -> bool:
        """Whether a queue was paused when somebody last looked."""
        return self._paused.get(queue, False)

    def pause(self, queue: str, paused: bool) -> bool:
        """Pause or resume a queue, for all workers within their next round. False: it was so already."""
        table = self._tables.of(queue)
        if table is None:
            raise BrokerRefusedError(
                f"A queue on SQS is paused by way of a DynamoDB table, and {queue} has none; make the table "
                f"{self._tables.name(queue)} with `laneway aws create`."
            )
        changed = table.set_paused(queue, paused)
        self._paused[queue] = paused
        return changed

    # -- a round's parts -------------------------------------------------------------------------------

    def _queues(self) -> list[str]:
        return list(dict.fromkeys(queue for view in list(self._views.values()) for queue in view.queues))

    def _beat(self) -> None:
        now = self._clock.now()
        for view in list(self._views.values()):
            busy = sum(self.holding(queue) for queue in view.queues)
            running = self._heartbeat_jobs(view) if self._tables.keeps_records else []
            for table in self._by_table(view.queues, lambda queue: queue):
                table.save_worker(msgspec.structs.replace(view, seen_at=now, busy=busy), now, running)

    def _heartbeat_jobs(self, view: WorkerView) -> list[str]:
        """What of the jobs that a worker runs is told: a heartbeat must stay small."""
        return [id for id in self.running(view.id) if len(id) <= LONGEST_TOLD][:MOST_TOLD]

    def _write_counts(self) -> None:
        processed: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        while self._counts:
            queue, good, bad = self._counts.popleft()
            processed[queue] += good
            failed[queue] += bad
        queues = dict.fromkeys([*processed, *failed])
        try:
            while queues:
                queue, _ = queues.popitem()
                table = self._tables.of(queue)
                if table is not None:
                    table.count_runs(queue, processed[queue], failed[queue])
                processed.pop(queue, None)
                failed.pop(queue, None)
        finally:
            self._counts.extend((queue, processed[queue], failed[queue]) for queue in {*processed, *failed})

    def _read_pauses(self) -> None:
        for table, queues in self._by_table(self._queues(), lambda queue: queue).items():
            for queue, item in table.queue_items(queues).items():
                self._paused[queue] = item.paused

    def _by_table(self, things: Collection[T], queue_of: Callable[[T], str]) -> dict[Table, list[T]]:
        """Things by the table of their queue; without those that have none."""
        found: dict[Table, list[T]] = {}
        for thing in things:
            table = self._tables.of(queue_of(thing))
            if table is not None:
                found.setdefault(table, []).append(thing)
        return found
