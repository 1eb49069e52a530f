"""AWSOperate: cancels, moves, runs, buries and deletes delayed jobs in a table.

No request reaches a message inside an SQS queue. If a job is not in the table, `cancel` and `reschedule` raise an
error instead of reporting it as gone: SQS itself may be delaying it. With `records=on` the job history may show that
it has ended. A burial sends the job to the dead-letter queue first and then deletes the item: if we die in between,
the job is in both places for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

import msgspec

from ...broker import EmptyMorgueResult
from ...errors import BrokerRefusedError
from ..shared import due_at
from .account import Account
from .dynamodb.forward import Forwarder
from .dynamodb.heartbeat import Heartbeat
from .dynamodb.items import DelayedItem
from .dynamodb.job_history import HistoryRow
from .dynamodb.tables import Table
from .sqs.dead_letters import DeadLetterMorgue, MorgueEmptier
from .sqs.message import OutgoingMessage


class AWSOperate:
    """The operate tier, and the verbs `cancel` and `reschedule` of the broker."""

    def __init__(self, account: Account, forwarder: Forwarder, morgue: DeadLetterMorgue, heartbeat: Heartbeat) -> None:
        self._account = account
        self._forwarder = forwarder
        self._morgue = morgue
        self._heartbeat = heartbeat
        self.revive = morgue.revive
        self.delete_dead = morgue.delete

    # -- one job ---------------------------------------------------------------------------------------

    def cancel(self, queue: str, key: str, identity: str | None = None) -> bool:
        """Remove a job or, with `identity`, one call of a keyed job. False while it is being sent to its queue, and if
        a record shows that it has ended.

        If a poller died while it was sending the job, the job may be in its queue, and runs anyway.
        """
        table, items = self._wanted(queue, key, identity, "cancelled")
        now = self._account.clock.now()
        removed = [table.delayed.remove(item.job_id, now, "cancelled") for item in items]
        return any(removed)

    def reschedule(
        self,
        queue: str,
        key: str,
        identity: str | None = None,
        *,
        delay_s: float = 0.0,
        perform_at: float | None = None,
    ) -> bool:
        """Change the due time of a job. False while it is being sent to its queue, and if a record shows that it has
        ended.

        A job that is due before the next poll is sure to happen goes to its queue at once, where it cannot be
        cancelled. A job that has to stay in the table until it is due may be late, unless this process has the poller.
        """
        now = self._account.clock.now()
        at = due_at(now, delay_s, perform_at)
        table, items = self._wanted(queue, key, identity, "moved")
        moved = [item.job_id for item in items if table.delayed.move(item.job_id, at, now)]
        self._forward(table, [item for item in table.delayed.get_all(moved).values() if self._is_soon(item, now)])
        return bool(moved)

    def _is_soon(self, item: DelayedItem, now: float) -> bool:
        """Whether an item goes to its queue at once. It could be late if it waited for the next poll."""
        return item.perform_at <= (now if item.stays else now + self._account.settings.poll_s)

    def _wanted(self, queue: str, key: str, identity: str | None, done: str) -> tuple[Table, list[DelayedItem]]:
        table = self._account.tables.of(queue)
        if table is None:
            raise BrokerRefusedError(
                f"A job on SQS can be {done} while it waits in a DynamoDB table, and the queue {queue} has none: make "
                f"the table {self._account.tables.name(queue)} with `laneway aws create`, and enqueue with "
                "using(cancellable=True)."
            )
        if identity:
            items = [item for item in table.delayed.get_all([identity]).values() if item.queue == queue]
        else:
            items = list(self._found(table, queue, [key]))
        if not items and not self._has_ended(table, identity or key):
            raise BrokerRefusedError(
                f"The job {identity or key!r} is not in the table {table.name}, where it could be {done}: it is in its "
                "SQS queue, running or gone. Enqueue with using(cancellable=True) what may have to be, and any delay "
                "is spent in the table."
            )
        return table, items

    def _has_ended(self, table: Table, id: str) -> bool:
        """Whether a record shows that a job has ended. Without a record it may be in its SQS queue."""
        record = table.history.get(id) if self._account.settings.records else None
        return record is not None and record.status != "queued"

    # -- many jobs -------------------------------------------------------------------------------------

    def run_now(self, queue: str, keys: Sequence[str]) -> int:
        """Send jobs to their queues now. Returns the number of keys."""
        now = self._account.clock.now()

        def run(table: Table, items: list[DelayedItem]) -> list[DelayedItem]:
            moved = [item.job_id for item in items if table.delayed.move(item.job_id, now, now)]
            self._forward(table, list(table.delayed.get_all(moved).values()))
            return [item for item in items if item.job_id in moved]

        return self._act(queue, keys, run)

    def bury_failed(self, queue: str, keys: Sequence[str]) -> int:
        """Send failed jobs to the dead-letter queue. Returns the number of keys."""
        return self._act(queue, keys, lambda table, items: [item for item in items if self._bury(table, item)])

    def delete_failed(self, queue: str, keys: Sequence[str]) -> int:
        """Remove failed jobs for good. Returns the number of keys."""
        now = self._account.clock.now()
        return self._act(
            queue,
            keys,
            lambda table, items: [
                item for item in items if _has_failed(item) and table.delayed.remove(item.job_id, now)
            ],
        )

    def _bury(self, table: Table, item: DelayedItem) -> bool:
        """Send to the dead-letter queue, then delete the item. If we die in between, the job is in both for a while."""
        holder, now = self._forwarder.holder, self._account.clock.now()
        if not _has_failed(item) or not table.delayed.claim(item, holder, now):
            return False
        outgoing = item.outgoing
        note = msgspec.structs.replace(outgoing.note, queue=item.queue, hop=outgoing.note.hop + 1)
        try:
            self._morgue.bury(
                self._account.queues.of(item.queue, item.fifo),
                [OutgoingMessage(outgoing.body, note, outgoing.attributes)],
            )
        except BrokerRefusedError:  # if AWS is away it may have been sent: then the claim expires
            table.delayed.release(item, holder)
            raise
        table.history.amend(item.queue, item.job_id, HistoryRow("dead", now))
        table.delayed.done(item, holder)
        return True

    def empty_morgue(self, queue: str, *, revive: bool, most: int) -> Generator[int, None, EmptyMorgueResult]:
        """Revive or delete dead plain jobs, ten at a time, without listing them first."""
        return MorgueEmptier(self._account, self._morgue, queue, revive=revive).steps(most)

    # -- queues ----------------------------------------------------------------------------------------

    def pause(self, queue: str) -> bool:
        return bool(self._account.queues.existing(queue)) and self._heartbeat.pause(queue, True)

    def resume(self, queue: str) -> bool:
        return bool(self._account.queues.existing(queue)) and self._heartbeat.pause(queue, False)

    # -- finding ---------------------------------------------------------------------------------------

    def _act(
        self, queue: str, keys: Sequence[str], act: Callable[[Table, list[DelayedItem]], list[DelayedItem]]
    ) -> int:
        """Call `act` with the jobs of the keys that are in the table. Returns the number of keys that it acted on."""
        table = self._account.tables.of(queue)
        if table is None or not keys:
            return 0
        done = act(table, list(self._found(table, queue, keys)))
        return len({item.outgoing.note.key or item.job_id for item in done})

    def _found(self, table: Table, queue: str, keys: Sequence[str]) -> Iterator[DelayedItem]:
        """The jobs of a queue in the table: plain jobs and calls with these ids, and all calls with these keys."""
        found = {id: item for id, item in table.delayed.get_all(keys).items() if item.queue == queue}
        yield from found.values()
        rest = {key for key in keys if key not in found}
        if rest:  # a table has no index by key: all of it is read
            for item in table.delayed.due():
                if item.queue == queue and item.outgoing.note.key in rest:
                    yield item

    def _forward(self, table: Table, items: list[DelayedItem]) -> None:
        """Send items now instead of with the next poll. Items that cannot be sent now are left to a poller."""
        items = sorted(items, key=lambda item: (item.perform_at, item.job_id))
        while items:
            items = self._forwarder.forward(table, items).skipped


def _has_failed(item: DelayedItem) -> bool:
    return item.outgoing.note.retry_count >= 0
