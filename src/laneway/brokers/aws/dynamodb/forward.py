"""Forwarder: claims an item, sends it, then deletes it. In this order no interruption loses a job.

The claim is an update that may be repeated. The item is sent as it is stored, and deleted only then. If this process
dies after the claim, the claim expires and another process sends the item. If it dies after the send, the item is
sent again, under the same job id. An item that SQS refuses stays in the table.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ....errors import BrokerAwayError, BrokerError
from ....failpoints import armed, reach
from ....ids import new_id
from ..errors import BatchRefusedError, DeniedError, MissingError
from ..settings import LONGEST_DELAY_S
from ..sqs.message import SQSQueue, entry_of, group_of, size_of
from ..sqs.send_batch import rounds, send_batch, split
from .items import DelayedItem
from .tables import Table

if TYPE_CHECKING:
    from ..account import Account

#: Parallel requests. Each is for one item, and waits for DynamoDB most of the time.
_THREADS = 10

T = TypeVar("T")
R = TypeVar("R")


class ForwardResult(msgspec.Struct):
    """What happened to the items of a `forward`."""

    sent: list[DelayedItem] = []
    #: Not sent, and still in the table: SQS did not accept them, or their queue is missing.
    kept: list[DelayedItem] = []
    #: Another process has claimed them, moved them or sent them.
    others: list[DelayedItem] = []
    #: Not tried, because another process seems to be sending them.
    skipped: list[DelayedItem] = []
    #: Why some were kept, if a later try may succeed.
    errors: list[BrokerError] = []

    def add(self, more: ForwardResult) -> None:
        self.sent += more.sent
        self.kept += more.kept
        self.others += more.others
        self.skipped += more.skipped
        self.errors += more.errors


class Forwarder:
    """Sends items of tables to their queues. Each forwarder has its own claims, even within one process."""

    def __init__(self, account: Account) -> None:
        self.holder = new_id()
        self._account = account

    def forward(
        self, table: Table, items: Sequence[DelayedItem], stuck: set[tuple[str, str]] | None = None
    ) -> ForwardResult:
        """Send items, each to its own queue. The items of a FIFO group go in order, and none after one that fails.

        Groups with such an item are added to `stuck`, by queue. The caller passes it again with later items.
        """
        stuck = set() if stuck is None else stuck
        found = ForwardResult()
        by_queue: dict[tuple[str, bool], list[DelayedItem]] = {}
        for item in items:
            by_queue.setdefault((item.queue, item.fifo), []).append(item)
        with ThreadPoolExecutor(_THREADS, "laneway-forward") as pool:
            for (queue, fifo), part in by_queue.items():
                try:
                    sqs_queue = self._account.queues.of(queue, fifo)
                except MissingError as error:
                    self._log_once(
                        f"missing queue {queue}",
                        f"{error} Delayed jobs wait for it in the table {table.name}; laneway delayed -Q {queue} lists "
                        "them.",
                    )
                    found.kept += part
                except DeniedError as error:
                    if queue in self._account.queues.declared():
                        found.errors.append(error)
                        found.kept += part
                    else:  # another app's queue: its workers send them
                        found.others += part
                else:
                    if fifo:
                        found.add(self._in_order(table, sqs_queue, part, pool, stuck))
                    else:
                        found.add(self._in_tens(table, sqs_queue, part, pool))
        return found

    def _in_tens(
        self, table: Table, sqs_queue: SQSQueue, items: list[DelayedItem], pool: ThreadPoolExecutor
    ) -> ForwardResult:
        """Send items to a standard queue. If SQS is away, the items after that are not tried."""
        found = ForwardResult()
        batches = self._batches(items)
        # Several pollers may have read the same items. In random order they seldom compete for a batch.
        random.shuffle(batches)
        for batch in batches:
            if found.errors:
                found.kept += batch
            else:
                found.add(self._batch(table, sqs_queue, batch, pool))
        return found

    def _in_order(
        self,
        table: Table,
        sqs_queue: SQSQueue,
        items: list[DelayedItem],
        pool: ThreadPoolExecutor,
        stuck: set[tuple[str, str]],
    ) -> ForwardResult:
        """Send items to a FIFO queue: those of a group one after the other, and none after one that was not sent."""
        found = ForwardResult()
        groups = [(sqs_queue.name, group_of(item.outgoing.note.key or item.job_id)) for item in items]
        group_by_id = dict(zip((item.job_id for item in items), groups, strict=True))
        for numbers in rounds(groups):
            found.kept += [items[n] for n in numbers if groups[n] in stuck]
            for batch in self._batches([items[n] for n in numbers if groups[n] not in stuck]):
                part = self._batch(table, sqs_queue, batch, pool)
                found.add(part)
                # An item that is gone blocks no other. One that another process is sending blocks its group.
                blocking = part.kept + [item for item in part.others if table.delayed.get(item.job_id) is not None]
                stuck.update(group_by_id[item.job_id] for item in blocking)
        return found

    def _batches(self, items: list[DelayedItem]) -> list[list[DelayedItem]]:
        """Items in order, in batches that fit into one request."""
        sizes = [size_of(item.outgoing) for item in items]
        return [items[part.start : part.stop] for part in split(sizes, self._account.settings.max_body)]

    # -- one batch -------------------------------------------------------------------------------------

    def _batch(
        self, table: Table, sqs_queue: SQSQueue, items: list[DelayedItem], pool: ThreadPoolExecutor
    ) -> ForwardResult:
        now = self._account.clock.now()
        if not sqs_queue.fifo and not table.delayed.claim(items[0], self.holder, now):
            # The process that has claimed the first item of a batch most likely has all of it. To ask for the rest
            # would cost a request for each item.
            return ForwardResult(others=items[:1], skipped=items[1:])
        first = 0 if sqs_queue.fifo else 1
        claims = [True] * first
        claims += _at_once(pool, lambda item: table.delayed.claim(item, self.holder, now), items[first:])
        claimed = [item for item, claim in zip(items, claims, strict=True) if claim]
        found = ForwardResult(others=[item for item, claim in zip(items, claims, strict=True) if not claim])
        if not claimed:
            return found
        if armed:
            reach("after table claim")
        self._send(table, sqs_queue, claimed, found)
        if armed:
            reach("after table send")
        _at_once(pool, lambda item: self._delete(table, item), found.sent)
        if not found.errors:
            # After an error they may have been sent, so the claims stay: if they have to be sent again, this process
            # does it.
            _at_once(pool, lambda item: table.delayed.release(item, self.holder), found.kept)
        return found

    def _delete(self, table: Table, item: DelayedItem) -> bool:
        if armed:
            reach("before table delete")
        return table.delayed.done(item, self.holder)

    def _send(self, table: Table, sqs_queue: SQSQueue, items: list[DelayedItem], found: ForwardResult) -> None:
        """Send one batch of items as they are stored."""
        now = self._account.clock.now()
        entries = {n: self._entry(item, str(n), sqs_queue, now) for n, item in enumerate(items)}
        sent: set[int] = set()
        if armed:
            reach("before table send")
        try:
            send_batch(self._account.clients, sqs_queue.url, entries, sent.add)
        except BrokerAwayError as away:
            found.errors.append(away)
        except BatchRefusedError as refused:
            for n in refused.entries:
                self._log_once(
                    f"refused delayed job {sqs_queue.url} {items[n].job_id}",
                    f"SQS refuses the delayed job {items[n].job_id} for {sqs_queue.name} ({refused}); it stays in the "
                    f"table {table.name}, where it can be cancelled.",
                )
        except BrokerError as error:
            if isinstance(error, MissingError):
                self._account.queues.forget(sqs_queue)
            self._log_once(
                f"delayed jobs stay {sqs_queue.url}",
                f"{error} {len(items)} delayed jobs stay in the table {table.name}.",
            )
        else:
            self._account.log_again(f"delayed jobs stay {sqs_queue.url}")
        found.sent += [item for n, item in enumerate(items) if n in sent]
        found.kept += [item for n, item in enumerate(items) if n not in sent]

    def _entry(self, item: DelayedItem, id: str, sqs_queue: SQSQueue, now: float) -> dict[str, Any]:
        delay_s = max(0, min(LONGEST_DELAY_S, math.ceil(item.perform_at - now)))
        entry = entry_of(item.outgoing, id, sqs_queue, 0 if sqs_queue.fifo else delay_s)
        entry["MessageAttributes"] = item.attributes
        return entry

    def _log_once(self, subject: str, message: str) -> None:
        self._account.log_once(subject, message, level=logging.WARNING)


def _at_once(pool: ThreadPoolExecutor, do: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Do it for all items in parallel. An error is raised after all have been tried."""
    waits = [pool.submit(do, item) for item in items]
    errors = [error for each in waits if (error := each.exception()) is not None]
    if errors:
        raise errors[0]
    return [each.result() for each in waits]
