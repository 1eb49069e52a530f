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
from typing import Any, TypeVar

import msgspec

from ....clock import Clock
from ....errors import BrokerAwayError, BrokerError
from ....failpoints import armed, reach
from ....ids import new_id
from ..clients import Clients
from ..errors import BatchRefusedError, DeniedError, MissingError
from ..settings import LONGEST_DELAY_S, AWSSettings
from ..sqs.message import SQSQueue, entry_of, group_of, size_of
from ..sqs.queues import SQSQueues
from ..sqs.send_batch import rounds, send_batch, split
from .delayed_jobs import Table
from .items import DelayedItem

#: Parallel requests. Each is for one item, and waits for DynamoDB most of the time.
_THREADS = 10

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger("laneway")


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

    def __init__(
        self,
        clients: Clients,
        channels: SQSQueues,
        settings: AWSSettings,
        clock: Clock,
        missing: set[str] | None = None,
    ) -> None:
        """`missing` has the queues that this or another forwarder of the process has logged as missing."""
        self.mine = new_id()
        self._clients = clients
        self._channels = channels
        self._settings = settings
        self._clock = clock
        self._told: set[str] = set()
        self._logged_missing = set() if missing is None else missing

    def forward(
        self, table: Table, items: Sequence[DelayedItem], stuck: set[tuple[str, str]] | None = None
    ) -> ForwardResult:
        """Send items, each to its own queue. The items of a FIFO group go in order, and none after one that fails.

        Groups with such an item are added to `stuck`, by queue. The caller passes it again with later items.
        """
        stuck = set() if stuck is None else stuck
        found = ForwardResult()
        places: dict[tuple[str, bool], list[DelayedItem]] = {}
        for item in items:
            places.setdefault((item.queue, item.fifo), []).append(item)
        with ThreadPoolExecutor(_THREADS, "laneway-forward") as pool:
            for (queue, fifo), held in places.items():
                try:
                    channel = self._channels.of(queue, fifo)
                except MissingError as error:
                    if queue not in self._logged_missing:
                        self._logged_missing.add(queue)
                        text = "%s Delayed jobs wait for it in the table %s; laneway delayed -Q %s lists them."
                        _log.warning(text, error, table.name, queue)
                    found.kept += held
                except DeniedError as error:
                    if queue in self._channels.declared():
                        found.errors.append(error)
                        found.kept += held
                    else:  # another app's queue: its workers send them
                        found.others += held
                else:
                    if fifo:
                        found.add(self._in_order(table, channel, held, pool, stuck))
                    else:
                        found.add(self._in_tens(table, channel, held, pool))
        return found

    def _in_tens(
        self, table: Table, channel: SQSQueue, items: list[DelayedItem], pool: ThreadPoolExecutor
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
                found.add(self._batch(table, channel, batch, pool))
        return found

    def _in_order(
        self,
        table: Table,
        channel: SQSQueue,
        items: list[DelayedItem],
        pool: ThreadPoolExecutor,
        stuck: set[tuple[str, str]],
    ) -> ForwardResult:
        """Send items to a FIFO queue: those of a group one after the other, and none after one that was not sent."""
        found = ForwardResult()
        groups = [(channel.name, group_of(item.outgoing.note.key or item.job_id)) for item in items]
        group_by_id = dict(zip((item.job_id for item in items), groups, strict=True))
        for numbers in rounds(groups):
            found.kept += [items[n] for n in numbers if groups[n] in stuck]
            for batch in self._batches([items[n] for n in numbers if groups[n] not in stuck]):
                part = self._batch(table, channel, batch, pool)
                found.add(part)
                # An item that is gone blocks no other. One that another process is sending blocks its group.
                blocking = part.kept + [item for item in part.others if table.get(item.job_id) is not None]
                stuck.update(group_by_id[item.job_id] for item in blocking)
        return found

    def _batches(self, items: list[DelayedItem]) -> list[list[DelayedItem]]:
        """Items in order, in batches that fit into one request."""
        sizes = [size_of(item.outgoing) for item in items]
        return [items[part.start : part.stop] for part in split(sizes, self._settings.max_body)]

    # -- one batch -------------------------------------------------------------------------------------

    def _batch(
        self, table: Table, channel: SQSQueue, items: list[DelayedItem], pool: ThreadPoolExecutor
    ) -> ForwardResult:
        now = self._clock.now()
        if not channel.fifo and not table.claim(items[0], self.mine, now):
            # The process that has claimed the first item of a batch most likely has all of it. To ask for the rest
            # would cost a request for each item.
            return ForwardResult(others=items[:1], skipped=items[1:])
        first = 0 if channel.fifo else 1
        claims = [True] * first + _at_once(pool, lambda item: table.claim(item, self.mine, now), items[first:])
        claimed = [item for item, claim in zip(items, claims, strict=True) if claim]
        found = ForwardResult(others=[item for item, claim in zip(items, claims, strict=True) if not claim])
        if not claimed:
            return found
        if armed:
            reach("after table claim")
        self._send(table, channel, claimed, found)
        if armed:
            reach("after table send")
        _at_once(pool, lambda item: self._delete(table, item), found.sent)
        if not found.errors:
            # After an error they may have been sent, so the claims stay: if they have to be sent again, this process
            # does it.
            _at_once(pool, lambda item: table.release(item, self.mine), found.kept)
        return found

    def _delete(self, table: Table, item: DelayedItem) -> bool:
        if armed:
            reach("before table delete")
        return table.done(item, self.mine)

    def _send(self, table: Table, channel: SQSQueue, items: list[DelayedItem], found: ForwardResult) -> None:
        """Send one batch of items as they are stored."""
        now = self._clock.now()
        entries = {n: self._entry(item, str(n), channel, now) for n, item in enumerate(items)}
        sent: set[int] = set()
        if armed:
            reach("before table send")
        try:
            send_batch(self._clients, channel.url, entries, sent.add)
        except BrokerAwayError as away:
            found.errors.append(away)
        except BatchRefusedError as refused:
            for n in refused.entries:
                self._report(
                    f"{channel.url} {items[n].job_id}",
                    "SQS refuses the delayed job %s for %s (%s); it stays in the table %s, where it can be cancelled.",
                    items[n].job_id,
                    channel.name,
                    refused,
                    table.name,
                )
        except BrokerError as error:
            if isinstance(error, MissingError):
                self._channels.forget(channel)
            self._report(channel.url, "%s %d delayed jobs stay in the table %s.", error, len(items), table.name)
        else:
            self._told.discard(channel.url)
        found.sent += [item for n, item in enumerate(items) if n in sent]
        found.kept += [item for n, item in enumerate(items) if n not in sent]

    def _entry(self, item: DelayedItem, id: str, channel: SQSQueue, now: float) -> dict[str, Any]:
        delay_s = max(0, min(LONGEST_DELAY_S, math.ceil(item.perform_at - now)))
        entry = entry_of(item.outgoing, id, channel, 0 if channel.fifo else delay_s)
        entry["MessageAttributes"] = item.attributes
        return entry

    def _report(self, about: str, text: str, *args: object) -> None:
        """Log a problem, once until it is solved."""
        if about not in self._told:
            self._told.add(about)
            _log.warning(text, *args)


def _at_once(pool: ThreadPoolExecutor, do: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Do it for all items in parallel. An error is raised after all have been tried."""
    waits = [pool.submit(do, item) for item in items]
    errors = [error for each in waits if (error := each.exception()) is not None]
    if errors:
        raise errors[0]
    return [each.result() for each in waits]
