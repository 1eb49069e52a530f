"""Where one job is, as its handle asks. Looks, and changes nothing.

SQS shows none of its messages. What waits in the table is seen there; with `records=on` so is how a job ended, and
what workers run is in their heartbeats. A job that is in none of these places is in its SQS queue, or it ended longer
ago than records are kept: its id tells which of the two is possible. What cannot be known is a BrokerError.
"""

from __future__ import annotations

from ...clock import Clock
from ...errors import BrokerError
from ...ids import made_at
from ...jobs.data import Status
from ..shared import REMEMBER_ENDED_S
from .dynamodb.delayed_jobs import Table
from .dynamodb.tables import Tables
from .sqs.turn import Turns

#: Seconds for which what the heartbeats said is taken for true: they come every ten, and all of them are read.
FRESH_S = 1.0


class Whereabouts:
    """Finds jobs by their ids."""

    def __init__(self, tables: Tables, turns: Turns, clock: Clock) -> None:
        self._tables = tables
        self._turns = turns
        self._clock = clock
        #: By table: when its workers were read, on the monotonic clock, and what they run.
        self._running: dict[str, tuple[float, frozenset[str]]] = {}

    def status(self, queue: str, key: str, identity: str | None = None) -> Status:
        """Where a job is. Raises a BrokerError if that cannot be known."""
        id = identity or key
        if self._turns.is_held(id):
            return "running"
        table = self._tables.of(queue)
        if table is None:
            raise self._no_table(queue, id)
        # In this order: a job that moves on meanwhile is found in its next place, and never seems to go back.
        runs = self._tables.keeps_records and id in self._runs(table)
        item = table.get(id)
        if item is not None:
            return "delayed" if item.perform_at > self._clock.now() else "queued"
        if not self._tables.keeps_records:
            raise BrokerError(
                f"SQS does not tell where the job {id!r} is: it may be queued, running, dead or done. With records=on "
                "in the URL, of workers too, it is kept how jobs end. Delayed ones can be found if they wait in the "
                "table, as with using(cancellable=True)."
            )
        record = table.record_of(id)
        if record is not None and record.status != "queued":
            return record.status
        if runs:
            return "running"
        if record is None and self._may_be_forgotten(id):
            raise BrokerError(
                f"The job {id!r} was enqueued more than a day ago, and it is kept for a day how a job ended: it may "
                "have ended before that, or still be queued, which SQS does not tell."
            )
        return "queued"

    def _runs(self, table: Table) -> frozenset[str]:
        """The ids that living workers run, as of their last heartbeats."""
        now = self._clock.monotonic()
        read_at, running = self._running.get(table.name, (now - FRESH_S, frozenset[str]()))
        if now - read_at >= FRESH_S:
            running = frozenset(table.running())
            self._running[table.name] = now, running
        return running

    def _may_be_forgotten(self, id: str) -> bool:
        """Whether a job is so old that its record may have expired. An id that does not tell is taken for a new one."""
        made = made_at(id.partition("@")[0])  # a copy of an event is as old as that
        return made is not None and made < self._clock.now() - REMEMBER_ENDED_S

    def _no_table(self, queue: str, id: str) -> BrokerError:
        name = self._tables.name(queue)
        if self._tables.keeps_records:
            return BrokerError(
                f"The job {id!r} cannot be found: records=on keeps how jobs end in a DynamoDB table, and the queue "
                f"{queue} has none; make the table {name} with `laneway aws create`."
            )
        return BrokerError(
            f"SQS does not tell where the job {id!r} is: it may be queued, running, dead or done. That can be known "
            f"with records=on in the URL and a waiter table; make the table {name} with `laneway aws create`. Delayed "
            "jobs can be found with the table alone, and using(cancellable=True)."
        )
