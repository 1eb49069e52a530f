"""Stats, workers, find, listings, and the status of one job. Changes no job.

SQS counts its messages, approximately and some seconds late, and lists none of them. If the answer cannot be known,
a BrokerError is raised: a job that cannot be seen is never reported as gone. The queues of other apps in a shared table
are shown if the credentials allow it. A table has no index by queue, so each count or page reads all of it (a
request for about every 2,000 jobs); above 10,000 jobs it is counted at most once a minute.

`status` reads our claims, the table and, with `records=on`, heartbeats and history, in an order that finds a
moving job in its next place. A job in none of them is in its SQS queue or, if its id is old, may have ended.
"""

from __future__ import annotations

import math

import msgspec

from ...broker import Listing, Order, Page
from ...config import DEFAULT_QUEUE
from ...errors import BrokerError, BrokerRefusedError
from ...ids import made_at
from ...jobs.data import JobView, Kind, Payload, QueueStats, Status, WorkerView
from ..page_cursor import page_of
from ..shared import REMEMBER_ENDED_S
from .account import Account
from .dynamodb.items import DelayedItem
from .dynamodb.tables import Table
from .errors import DeniedError, MissingError
from .settings import LOOK_AGAIN_S
from .sqs.dead_letters import DeadLetterMorgue
from .sqs.inflight import Inflight

#: A table with more jobs than this is counted at most once in `LONG_S` seconds.
LONG = 10_000
LONG_S = 60.0
#: Seconds for which the heartbeats are cached. Workers write one every ten seconds, and a read reads all of them.
FRESH_S = 1.0


class TableCounts(msgspec.Struct):
    """The numbers of one queue in a table."""

    waiting: int = 0
    delayed: int = 0
    retries: int = 0
    #: The earliest due time.
    earliest: float = math.inf


class TableCounter:
    """Counts the jobs in tables, and caches the numbers of long tables."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._known: dict[str, tuple[float, dict[str, TableCounts]]] = {}

    def of(self, table: Table) -> dict[str, TableCounts]:
        """The numbers of every queue that has jobs in a table."""
        known = self._known.get(table.name)
        if known is not None and self._account.clock.monotonic() - known[0] < LONG_S:
            return known[1]
        now = self._account.clock.now()
        found: dict[str, TableCounts] = {}
        for item in table.delayed.due():
            numbers = found.setdefault(item.queue, TableCounts())
            numbers.waiting += 1
            numbers.delayed += item.perform_at > now
            numbers.retries += item.outgoing.note.retry_count >= 0
            numbers.earliest = min(numbers.earliest, item.perform_at)
        self._known.pop(table.name, None)
        if sum(numbers.waiting for numbers in found.values()) > LONG:
            self._known[table.name] = self._account.clock.monotonic(), found
        return found


def calls_of(table: Table, queue: str, key: str) -> list[DelayedItem]:
    """The calls of a key in a table, by due time."""
    return [item for item in table.delayed.due() if item.fifo and item.queue == queue and item.outgoing.note.key == key]


def view_of(item: DelayedItem, now: float) -> JobView:
    """The view of a job in a table."""
    note, body = item.outgoing.note, item.outgoing.body
    payload = Payload(body)
    if item.fifo:
        payload = Payload(body, item.perform_at, item.job_id, note.attempt, note.headers, note.deaths)
    return JobView(
        queue=item.queue,
        key=_key(item),
        status="delayed" if item.perform_at > now else "queued",
        shard=0,
        payloads=[payload],
        perform_at=item.perform_at,
        retry_count=note.retry_count,
        attempt=0 if item.fifo else note.attempt,
        kind=Kind.KEYED if item.fifo else Kind.PLAIN,
        deaths=note.deaths,
        error=note.error,
    )


def _key(item: DelayedItem) -> str:
    return (item.outgoing.note.key if item.fifo else "") or item.job_id


def _has_failed(item: DelayedItem) -> bool:
    return item.outgoing.note.retry_count >= 0


class AWSInspect:
    """The inspect tier, and the verb `status` of the broker."""

    def __init__(self, account: Account, inflight: Inflight, morgue: DeadLetterMorgue) -> None:
        self._account = account
        self._inflight = inflight
        self._morgue = morgue
        self._counter = TableCounter(account)
        #: Queues of other apps that we may not read, and until when they are not tried again, on the monotonic clock.
        self._denied: dict[str, float] = {}
        #: Queues that a caller has asked for, and that have jobs in a table but no SQS queue.
        self._only_in_table: set[str] = set()
        #: By table: when its workers were read, on the monotonic clock, and the ids of the jobs that they run.
        self._running: dict[str, tuple[float, frozenset[str]]] = {}

    # -- queues ----------------------------------------------------------------------------------------

    def exists(self, queue: str) -> bool:
        """Whether a queue has an SQS queue, or jobs in a table. A queue that is found is known from then on."""
        if self._account.queues.existing(queue):
            self._account.queues.declare(queue)
            return True
        self._only_in_table.discard(queue)
        if self._is_waited_for(queue):
            self._only_in_table.add(queue)
        return queue in self._only_in_table

    def _is_waited_for(self, queue: str) -> bool:
        table = self._account.tables.of(queue)
        try:
            return table is not None and any(item.queue == queue for item in table.delayed.due())
        except (DeniedError, MissingError):
            return False

    def queues(self) -> dict[str, int]:
        """The existing queues that this process knows, or that are in a table that it knows."""
        names = dict.fromkeys(self._account.queues.known())
        if self._account.settings.names_default or not names:
            names[DEFAULT_QUEUE] = None
        for name in names:
            self._account.tables.declare(name)
        for table in self._account.tables.known():
            try:
                names.update(dict.fromkeys(table.queues.names()))
            except DeniedError:
                pass  # the calls that need the table report this
        seen = {name for name in names if self._is_seen(name)}
        return dict.fromkeys(sorted(seen | self._only_in_table), 1)

    def is_own(self, queue: str) -> bool:
        """Whether a queue was declared or asked for. If none was, the queue that the URL names counts as such."""
        own = self._account.queues.declared()
        return queue in own or (not own and self._account.settings.names_default and queue == DEFAULT_QUEUE)

    def _is_seen(self, queue: str) -> bool:
        """Whether a queue exists and, if it belongs to another app, may be read."""
        if self._denied.get(queue, 0.0) > self._account.clock.monotonic():
            return False
        try:
            return bool(self._account.queues.existing(queue))
        except (DeniedError, MissingError):
            if self.is_own(queue):
                raise
            self._deny(queue)
            return False

    def _deny(self, queue: str) -> None:
        self._denied[queue] = self._account.clock.monotonic() + LOOK_AGAIN_S

    def stats(self) -> list[QueueStats]:
        """The numbers of all queues. A hidden message counts as busy: it runs, or is a keyed call before its retry."""
        surveyed: dict[str, dict[str, TableCounts]] = {}
        found: list[QueueStats] = []
        for queue in self.queues():
            try:
                found.append(self._stats(queue, surveyed))
            except DeniedError:
                if self.is_own(queue):
                    raise
                self._deny(queue)  # we may send to it, but not read its attributes
        return found

    def _stats(self, queue: str, surveyed: dict[str, dict[str, TableCounts]]) -> QueueStats:
        found = QueueStats(queue=queue, shards=1)
        for sqs_queue in self._account.queues.existing(queue):
            attributes = self._account.queues.attributes(sqs_queue)
            delayed = int(attributes.get("ApproximateNumberOfMessagesDelayed", 0))
            found.delayed += delayed
            found.length += delayed + int(attributes.get("ApproximateNumberOfMessages", 0))
            found.busy += int(attributes.get("ApproximateNumberOfMessagesNotVisible", 0))
        found.dead = self._morgue.count(queue)
        table = self._account.tables.of(queue)
        if table is not None:
            item = table.queues.get(queue)
            found.processed, found.failed, found.paused = item.processed, item.failed, item.paused
            if table.name not in surveyed:  # one table may serve many queues
                surveyed[table.name] = self._counter.of(table)
            numbers = surveyed[table.name].get(queue, TableCounts())
            found.length += numbers.waiting
            found.delayed += numbers.delayed
            found.retries = numbers.retries
            found.lag = max(0.0, self._account.clock.now() - numbers.earliest)
        found.fresh = found.length - found.retries
        return found

    def lags(self, queue: str) -> dict[int, float]:
        """Empty: SQS queues have no shards."""
        return {}

    # -- workers ---------------------------------------------------------------------------------------

    def workers(self) -> list[WorkerView]:
        """Every worker that writes heartbeats to a table."""
        self.queues()  # makes their tables known
        tables = self._account.tables.known()
        if not tables:
            raise BrokerRefusedError(
                "SQS knows no workers, and there is no waiter table that does; make it with laneway aws create TARGET."
            )
        found = {worker.id: worker for table in tables for worker in table.workers.all()}
        return sorted(found.values(), key=lambda worker: (worker.started_at, worker.id))

    # -- one job ---------------------------------------------------------------------------------------

    def find(self, queue: str, key: str) -> list[JobView]:
        """The job of a key in the table, and the one in the morgue. Raises a BrokerError if it is in neither."""
        table = self._account.tables.of(queue)
        found = [] if table is None else self._waiting(table, queue, key)
        if not found or found[0].size > 1 or found[0].payloads[0].identity:
            found += (view for view in self._morgue.views(queue) if view.key == key)
        if not found:
            places = "neither in the table nor" if table is not None else "not"
            raise BrokerRefusedError(
                f"The job {key!r} is {places} among the dead letters of {queue}; it may be queued, running or done, "
                "which SQS does not tell."
            )
        return found

    def _waiting(self, table: Table, queue: str, key: str) -> list[JobView]:
        """The job in a table with this id, or all calls of this key as one job."""
        now = self._account.clock.now()
        item = table.delayed.get(key)
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
        """A page of dead jobs, or of jobs in the table."""
        if which == "dead":
            views = self._morgue.views(queue)
            return page_of(views, which, order=order, reverse=reverse, start=start, after=after, limit=limit)
        if which in ("queued", "running"):
            raise BrokerRefusedError(
                f"SQS does not show which jobs are {which}; laneway stats counts them, laneway delayed lists those "
                "that wait in the table, and laneway morgue the dead ones."
            )
        table = self._account.tables.of(queue)
        if table is None:
            raise BrokerRefusedError(
                f"SQS does not show which jobs of {queue} are delayed or will be retried, and there is no waiter "
                "table; make one with laneway aws create TARGET, and those that wait there can be listed."
            )
        now = self._account.clock.now()
        jobs = (
            view_of(item, now)
            for item in table.delayed.due()
            if item.queue == queue and (item.perform_at > now if which == "delayed" else _has_failed(item))
        )
        return page_of(jobs, which, order=order, reverse=reverse, start=start, after=after, limit=limit, by_due=True)

    # -- status ----------------------------------------------------------------------------------------

    def status(self, queue: str, key: str, identity: str | None = None) -> Status:
        """The status of a job. Raises a BrokerError if it cannot be known."""
        id = identity or key
        if self._inflight.is_claimed(queue, id):
            return "running"
        table = self._account.tables.of(queue)
        if table is None:
            raise self._no_table(queue, id)
        # In this order a job that moves meanwhile is found in its next place, and never seems to move back.
        runs = self._account.settings.records and id in self._runs(table)
        item = table.delayed.get(id)
        if item is not None and item.queue == queue:
            return "delayed" if item.perform_at > self._account.clock.now() else "queued"
        if not self._account.settings.records:
            raise BrokerRefusedError(
                f"SQS does not tell where the job {id!r} is: it may be queued, running, dead or done. With records=on "
                "in the URL, of workers too, it is kept how jobs end. Delayed ones can be found if they wait in the "
                "table, as with using(cancellable=True)."
            )
        record = table.history.get(id)
        if record is not None and record.status != "queued":
            return record.status
        if runs:
            return "running"
        if record is None and self._may_be_forgotten(id):
            raise BrokerRefusedError(
                f"The job {id!r} was enqueued more than a day ago, and it is kept for a day how a job ended: it may "
                "have ended before that, or still be queued, which SQS does not tell."
            )
        return "queued"

    def _runs(self, table: Table) -> frozenset[str]:
        """The ids of the jobs that living workers run, as of their last heartbeats."""
        now = self._account.clock.monotonic()
        read_at, running = self._running.get(table.name, (now - FRESH_S, frozenset[str]()))
        if now - read_at >= FRESH_S:
            running = frozenset(table.workers.running())
            self._running[table.name] = now, running
        return running

    def _may_be_forgotten(self, id: str) -> bool:
        """Whether a job is so old that its record may have expired. An id without a time counts as new."""
        made = made_at(id.partition("@")[0])  # the id of an event's copy begins with that of the event
        return made is not None and made < self._account.clock.now() - REMEMBER_ENDED_S

    def _no_table(self, queue: str, id: str) -> BrokerError:
        name = self._account.tables.name(queue)
        if self._account.settings.records:
            return BrokerRefusedError(
                f"The job {id!r} cannot be found: records=on keeps how jobs end in a DynamoDB table, and the queue "
                f"{queue} has none; make the table {name} with `laneway aws create`."
            )
        return BrokerRefusedError(
            f"SQS does not tell where the job {id!r} is: it may be queued, running, dead or done. That can be known "
            f"with records=on in the URL and a waiter table; make the table {name} with `laneway aws create`. Delayed "
            "jobs can be found with the table alone, and using(cancellable=True)."
        )
