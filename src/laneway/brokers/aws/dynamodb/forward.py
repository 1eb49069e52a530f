"""Forwarder: claims an item, sends it, deletes it: an order that loses nothing wherever it is interrupted.

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

#: Requests that are made at a time: each is one item's, and waits for DynamoDB most of the time.
_THREADS = 10

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger("laneway")


class ForwardResult(msgspec.Struct):
    """What became of items that were to be sent."""

    sent: list[DelayedItem] = []
    #: Not sent, and still in the table: SQS did not take them, or their queue is missing.
    kept: list[DelayedItem] = []
    #: Somebody else has them, has moved them or has sent them.
    others: list[DelayedItem] = []
    #: Not tried, because somebody else seems to be sending them.
    skipped: list[DelayedItem] = []
    #: Why some were kept, if a repeat may help.
    errors: list[BrokerError] = []

    def add(self, more: ForwardResult) -> None:
        self.sent += more.sent
        self.kept += more.kept
        self.others += more.others
        self.skipped += more.skipped
        self.errors += more.errors


class Forwarder:
    """Sends items of tables to their queues. Its claims are its own: another one, also in this process, is another."""

    def __init__(
        self, clients: Clients, channels: SQSQueues, settings: AWSSettings, clock: Clock, told: set[str] | None = None
    ) -> None:
        """`told` are queues of which it was said that they are missing, by this forwarder or another of the process."""
        self.mine = new_id()
        self._clients = clients
        self._channels = channels
        self._settings = settings
        self._clock = clock
        self._told: set[str] = set()
        self._told_missing = set() if told is None else told

    def forward(
        self, table: Table, items: Sequence[DelayedItem], stuck: set[tuple[str, str]] | None = None
    ) -> ForwardResult:
        """Send items, each to its own queue. Those for one FIFO group go in order, and none after one that cannot.

        Groups with such a one are kept in `stuck`, by queue: whoever goes on with later items hands it in again.
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
                    if queue not in self._told_missing:
                        self._told_missing.add(queue)
                        told = "%s Delayed jobs wait for it in the table %s; laneway delayed -Q %s lists them."
                        _log.warning(told, error, table.name, queue)
                    found.kept += held
                except DeniedError as error:
                    if queue in self._channels.declared():
                        found.errors.append(error)
                        found.kept += held
                    else:  # another app's, whose workers send them
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
        """Send items to a standard queue. If SQS is away, what comes after that is not even tried."""
        found = ForwardResult()
        batches = self._batches(items)
        # Several pollers have read the same items: they begin at different ones, and seldom meet.
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
        """Send items to a FIFO queue: of each group one after the other, and none after one that was not sent."""
        found = ForwardResult()
        groups = [(channel.name, group_of(item.outgoing.note.key or item.job_id)) for item in items]
        group_by_id = dict(zip((item.job_id for item in items), groups, strict=True))
        for numbers in rounds(groups):
            found.kept += [items[n] for n in numbers if groups[n] in stuck]
            for batch in self._batches([items[n] for n in numbers if groups[n] not in stuck]):
                part = self._batch(table, channel, batch, pool)
                found.add(part)
                # One that is gone holds nobody up; one that somebody else is sending does.
                blocking = part.kept + [item for item in part.others if table.get(item.job_id) is not None]
                stuck.update(group_by_id[item.job_id] for item in blocking)
        return found

    def _batches(self, items: list[DelayedItem]) -> list[list[DelayedItem]]:
        """Items in order, as many together as one request takes."""
        sizes = [size_of(item.outgoing) for item in items]
        return [items[part.start : part.stop] for part in split(sizes, self._settings.max_body)]

    # -- one batch -------------------------------------------------------------------------------------

    def _batch(
        self, table: Table, channel: SQSQueue, items: list[DelayedItem], pool: ThreadPoolExecutor
    ) -> ForwardResult:
        now = self._clock.now()
        if not channel.fifo and not table.claim(items[0], self.mine, now):
            # Whoever has the first of a batch most likely has all of it; to ask for each would be a request each.
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
            # Else perhaps they were sent, and the claim stays: if they must be sent again, this process is to do it.
            _at_once(pool, lambda item: table.release(item, self.mine), found.kept)
        return found

    def _delete(self, table: Table, item: DelayedItem) -> bool:
        if armed:
            reach("before table delete")
        return table.done(item, self.mine)

    def _send(self, table: Table, channel: SQSQueue, items: list[DelayedItem], found: ForwardResult) -> None:
        """Send one batch as it is stored."""
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
        """Say what is wrong, once until it is well again."""
        if about not in self._told:
            self._told.add(about)
            _log.warning(text, *args)


def _at_once(pool: ThreadPoolExecutor, do: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Do it for all items at the same time. An error is raised when all have been tried."""
    waits = [pool.submit(do, item) for item in items]
    errors = [error for each in waits if (error := each.exception()) is not None]
    if errors:
        raise errors[0]
    return [each.result() for each in waits]
