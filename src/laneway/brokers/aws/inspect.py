"""What can be seen of the queues: numbers, workers, and the jobs that wait in a table or are dead.

SQS counts its messages, about right and some seconds late, and shows none of them. What cannot be seen is said in a
sentence, as a BrokerError, and never taken for gone. A table may be shared with others, whose queues are shown if that
is allowed, and left out if it is not.
"""

from __future__ import annotations

import msgspec

from ...broker import Listing, Order, Page
from ...clock import Clock
from ...config import DEFAULT_QUEUE
from ...errors import BrokerError
from ...jobs.data import JobView, QueueStats, WorkerView
from .dynamodb.delayed_jobs import Table
from .dynamodb.tables import Tables
from .errors import DeniedError, MissingError
from .settings import Settings
from .sqs.dead_letters import Morgue
from .sqs.queues import LOOK_AGAIN_S, Channels
from .surveying import Numbers, Surveys, calls_of, listing, queues_of, view_of


class Looking:
    """Looks at queues, jobs and workers."""

    def __init__(self, channels: Channels, tables: Tables, morgue: Morgue, settings: Settings, clock: Clock) -> None:
        self._channels = channels
        self._tables = tables
        self._morgue = morgue
        self._settings = settings
        self._clock = clock
        self._surveys = Surveys(clock)
        #: Queues of others that may not be looked at, and until when they are not tried again, on the monotonic clock.
        self._denied: dict[str, float] = {}
        #: Those that somebody has asked for and that have no SQS queue, but jobs that wait for one.
        self._only_in_table: set[str] = set()

    # -- queues ----------------------------------------------------------------------------------------

    def exists(self, queue: str) -> bool:
        """Whether there is an SQS queue for it, or the table has jobs for it; one that was found is known then."""
        if self._channels.existing(queue):
            self._channels.declare(queue)
            return True
        self._only_in_table.discard(queue)
        if self._is_waited_for(queue):
            self._only_in_table.add(queue)
        return queue in self._only_in_table

    def _is_waited_for(self, queue: str) -> bool:
        table = self._tables.of(queue)
        try:
            return table is not None and bool(table.page(queue, limit=1)[0])
        except (DeniedError, MissingError):
            return False

    def queues(self) -> dict[str, int]:
        """Those that exist of the ones that this process has heard of, or that are in a table that it knows."""
        names = dict.fromkeys(self._channels.known())
        if self._settings.names_default or not names:
            names[DEFAULT_QUEUE] = None
        for name in names:
            self._tables.declare(name)
        for table in self._tables.known():
            try:
                names.update(dict.fromkeys(queues_of(table)))
            except DeniedError:
                pass  # whoever may not read it is told by whatever needs it
        seen = {name for name in names if self._is_seen(name)}
        return dict.fromkeys(sorted(seen | self._only_in_table), 1)

    def is_own(self, queue: str) -> bool:
        """Whether somebody has declared a queue, or asked for it; without any such, the one that the URL names is."""
        own = self._channels.declared()
        return queue in own or (not own and self._settings.names_default and queue == DEFAULT_QUEUE)

    def _is_seen(self, queue: str) -> bool:
        """Whether a queue exists and, if it is another's, may be looked at."""
        if self._denied.get(queue, 0.0) > self._clock.monotonic():
            return False
        try:
            return bool(self._channels.existing(queue))
        except (DeniedError, MissingError):
            if self.is_own(queue):
                raise
            self._deny(queue)
            return False

    def _deny(self, queue: str) -> None:
        self._denied[queue] = self._clock.monotonic() + LOOK_AGAIN_S

    def stats(self) -> list[QueueStats]:
        """Those queues in numbers. What is hidden counts as busy: it runs, or waits for the retry of a keyed call."""
        surveyed: dict[str, dict[str, Numbers]] = {}
        found: list[QueueStats] = []
        for queue in self.queues():
            try:
                found.append(self._stats(queue, surveyed))
            except DeniedError:
                if self.is_own(queue):
                    raise
                self._deny(queue)  # one that we may send to, and no more
        return found

    def _stats(self, queue: str, surveyed: dict[str, dict[str, Numbers]]) -> QueueStats:
        found = QueueStats(queue=queue, shards=1)
        for channel in self._channels.existing(queue):
            attributes = self._channels.attributes(channel)
            delayed = int(attributes.get("ApproximateNumberOfMessagesDelayed", 0))
            found.delayed += delayed
            found.length += delayed + int(attributes.get("ApproximateNumberOfMessages", 0))
            found.busy += int(attributes.get("ApproximateNumberOfMessagesNotVisible", 0))
        found.dead = self._morgue.count(queue)
        table = self._tables.of(queue)
        if table is not None:
            item = table.queue_item(queue)
            found.processed, found.failed, found.paused = item.processed, item.failed, item.paused
            if table.name not in surveyed:  # one table may serve many queues
                surveyed[table.name] = self._surveys.of(table)
            numbers = surveyed[table.name].get(queue, Numbers())
            found.length += numbers.waiting
            found.delayed += numbers.delayed
            found.retries = numbers.retries
            found.lag = max(0.0, self._clock.now() - numbers.earliest)
        found.fresh = found.length - found.retries
        return found

    # -- workers ---------------------------------------------------------------------------------------

    def workers(self) -> list[WorkerView]:
        """Every worker that writes into a table."""
        self.queues()  # so that their tables are known
        tables = self._tables.known()
        if not tables:
            raise BrokerError(
                "SQS knows no workers, and there is no waiter table that does; make it with laneway aws create TARGET."
            )
        found = {worker.id: worker for table in tables for worker in table.workers()}
        return sorted(found.values(), key=lambda worker: (worker.started_at, worker.id))

    # -- one job ---------------------------------------------------------------------------------------

    def find(self, queue: str, key: str) -> list[JobView]:
        """A key's job in the table, and the one in the morgue; a BrokerError if it is in neither."""
        table = self._tables.of(queue)
        found = [] if table is None else self._waiting(table, queue, key)
        if not found or found[0].size > 1 or found[0].payloads[0].identity:
            found += self._morgue.find(queue, key)
        if not found:
            places = "neither in the table nor" if table is not None else "not"
            raise BrokerError(
                f"The job {key!r} is {places} among the dead letters of {queue}; it may be queued, running or done, "
                "which SQS does not tell."
            )
        return found

    def _waiting(self, table: Table, queue: str, key: str) -> list[JobView]:
        """The job that waits in a table, by its id; or all calls of a key as one."""
        now = self._clock.now()
        item = table.get(key)
        if item is not None and not item.fifo:
            return [view_of(item, now)] if item.queue == queue else []
        views = [view_of(call, now) for call in calls_of(table, queue, key)]
        if not views:
            return []
        payloads = [payload for view in views for payload in view.payloads]
        return [msgspec.structs.replace(views[0], payloads=payloads, size=len(payloads))]

    # -- pages -----------------------------------------------------------------------------------------

    def listing(
        self,
        queue: str,
        which: Listing,
        *,
        order: Order | None = None,
        reverse: bool = False,
        start: float | str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """A page of the dead, or of what waits in the table."""
        if which == "dead":
            return self._morgue.listing(queue, order=order, reverse=reverse, start=start, after=after, limit=limit)
        if which in ("queued", "running"):
            raise BrokerError(
                f"SQS does not show which jobs are {which}; laneway stats counts them, laneway delayed lists those "
                "that wait in the table, and laneway morgue the dead ones."
            )
        table = self._tables.of(queue)
        if table is None:
            raise BrokerError(
                f"SQS does not show which jobs of {queue} are delayed or will be retried, and there is no waiter "
                "table; make one with laneway aws create TARGET, and those that wait there can be listed."
            )
        now = self._clock.now()
        return listing(table, queue, which, now, order=order, reverse=reverse, start=start, after=after, limit=limit)
