"""Heartbeat: writes this worker's heartbeat and counters to the tables, and reads pauses; a duty of the worker.

A round takes place every ten seconds. Without a table nothing is written, and no queue can be paused. If a table is
away, its counters are written later.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from ....errors import BrokerError, BrokerRefusedError
from ....jobs.data import StartedRun, WorkerView
from .tables import Table

if TYPE_CHECKING:
    from ..account import Account
    from ..sqs.inflight import Inflight

#: Seconds between two heartbeats.
ROUND_S = 10.0
#: The most ids of running jobs in a heartbeat, and the longest id. Only third-party ids are longer.
MOST_IDS = 500
LONGEST_ID = 64

_log = logging.getLogger("laneway")


class Heartbeat:
    """Publishes this process's workers to other processes, and knows which queues are paused."""

    name = "heartbeat"

    def __init__(self, account: Account, inflight: Inflight) -> None:
        """`inflight` knows what this process runs. It is woken after a queue was resumed, here or elsewhere."""
        self._account = account
        self._inflight = inflight
        self.sooner: Callable[[float], None] = lambda seconds: None
        self._views: dict[str, WorkerView] = {}
        #: Queue, processed, failed. Any thread appends; `_write_counts` empties it.
        self._counts: deque[tuple[str, int, int]] = deque()
        self._paused: dict[str, bool] = {}

    # -- the worker ------------------------------------------------------------------------------------

    def join(self, view: WorkerView) -> None:
        """Register a worker of this process, and read which of its queues are paused.

        If a worker joins again, only its shards are updated.
        """
        known = self._views.get(view.id)
        if known is None:
            view = msgspec.structs.replace(view, started_at=self._account.clock.now())
        else:
            view = msgspec.structs.replace(known, shards=view.shards)
        self._views[view.id] = view
        try:
            self._beat()
            self._read_pauses()
        except BrokerError as error:
            # The queues may work although the table does not. The first round reports the error, and rounds repeat.
            _log.debug("a table could not be read: %s", error)

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> None:
        """Forget a worker, and count a death for each run in `died`.

        Raises if a death cannot be counted. It does not raise if the worker stays listed for a while.
        """
        for run in died:
            table = self._account.tables.of(run.queue)
            if table is not None:
                table.retry_states.add_death(run.identity or run.key, worker)
        was_here = self._views.pop(worker, None) is not None
        if not was_here and not died:
            return  # it belongs to another process, and is not known to have died
        try:
            if was_here:
                self._write_counts()
            for table in self._account.tables.known():
                table.workers.forget(worker)
        except BrokerError as error:
            _log.debug("a table could not be written: %s", error)

    def counted(self, queue: str, processed: int, failed: int) -> None:
        """Count settled runs. The next round writes the numbers."""
        if processed or failed:
            self._counts.append((queue, processed, failed))

    def round(self) -> float:
        """Write the heartbeat and counters, and read pauses. Returns the seconds until the next round."""
        self._beat()
        self._write_counts()
        self._read_pauses()
        return ROUND_S

    # -- pauses ----------------------------------------------------------------------------------------

    def paused(self, queue: str) -> bool:
        """Whether a queue was paused when its row was last read."""
        return self._paused.get(queue, False)

    def pause(self, queue: str, paused: bool) -> bool:
        """Pause or resume a queue. All workers notice in their next round. False: nothing changed."""
        table = self._account.tables.of(queue)
        if table is None:
            raise BrokerRefusedError(
                f"A queue on SQS is paused by way of a DynamoDB table, and {queue} has none; make the table "
                f"{self._account.tables.name(queue)} with `laneway aws create`."
            )
        changed = table.queues.set_paused(queue, paused)
        self._note_pauses({queue: paused})
        return changed

    # -- a round's parts -------------------------------------------------------------------------------

    def _beat(self) -> None:
        now = self._account.clock.now()
        for view in list(self._views.values()):
            busy = sum(self._inflight.count(queue) for queue in view.queues)
            running = self._heartbeat_jobs(view) if self._account.settings.records else []
            for table in self._by_table(view.queues):
                table.workers.save(msgspec.structs.replace(view, seen_at=now, busy=busy), now, running)

    def _heartbeat_jobs(self, view: WorkerView) -> list[str]:
        """The ids of running jobs that a heartbeat lists. A heartbeat must stay small."""
        return [id for id in self._inflight.running(view.id) if len(id) <= LONGEST_ID][:MOST_IDS]

    def _write_counts(self) -> None:
        totals: dict[str, tuple[int, int]] = {}
        while self._counts:
            queue, processed, failed = self._counts.popleft()
            before = totals.get(queue, (0, 0))
            totals[queue] = before[0] + processed, before[1] + failed
        try:
            for queue, counts in list(totals.items()):
                table = self._account.tables.of(queue)
                if table is not None:
                    table.queues.count_runs(queue, *counts)
                del totals[queue]
        finally:
            self._counts.extend((queue, *counts) for queue, counts in totals.items())

    def _read_pauses(self) -> None:
        read = dict.fromkeys(queue for view in list(self._views.values()) for queue in view.queues)
        for table, queues in self._by_table(read).items():
            self._note_pauses({queue: row.paused for queue, row in table.queues.get_all(queues).items()})

    def _note_pauses(self, paused: Mapping[str, bool]) -> None:
        resumed = any(self.paused(queue) and not now for queue, now in paused.items())
        self._paused.update(paused)
        if resumed:
            self._inflight.wake()

    def _by_table(self, queues: Iterable[str]) -> dict[Table, list[str]]:
        """Group queues by their table. Queues without a table are left out."""
        found: dict[Table, list[str]] = {}
        for queue in queues:
            table = self._account.tables.of(queue)
            if table is not None:
                found.setdefault(table, []).append(queue)
        return found
