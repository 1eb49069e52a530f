"""From the table into the queue: claim, send, delete. Owns that order, which loses nothing wherever it is cut short.

An item is claimed by a repeatable update, sent as it is stored, and deleted only then. If this process dies after the
claim, the claim ends by itself and somebody else sends the item; if it dies after the send, the item is sent again,
under the same job id. What SQS does not take stays in the table.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from ...clock import Clock
from ...errors import BrokerAwayError, BrokerError
from ...failpoints import armed, reach
from ...ids import new_id
from .channels import Channels
from .clients import Clients
from .items import Waiting
from .messages import Channel, entry_of, group_of, size_of
from .table import Table
from .trouble import MissingError
from .urls import Settings

#: SQS's longest delay, in seconds, and its largest batch.
LONGEST_DELAY_S = 900
_TEN = 10
#: Requests that are made at a time: each is one item's, and waits for DynamoDB most of the time.
_THREADS = 10

#: Seconds before what was not taken of a batch is sent again.
_PAUSES_S = (0.05, 0.2)

T = TypeVar("T")
R = TypeVar("R")

_log = logging.getLogger("laneway")


class Forwarded(msgspec.Struct):
    """What became of items that were to be sent."""

    sent: list[Waiting] = []
    #: Not sent, and still in the table: SQS did not take them, or their queue is missing.
    kept: list[Waiting] = []
    #: Somebody else has them, has moved them or has sent them.
    others: list[Waiting] = []
    #: Why some were kept, if a repeat may help.
    errors: list[BrokerError] = []

    def add(self, more: Forwarded) -> None:
        self.sent += more.sent
        self.kept += more.kept
        self.others += more.others
        self.errors += more.errors


class Forwarder:
    """Sends items of tables to their queues. Its claims are its own: another one, also in this process, is another."""

    def __init__(self, clients: Clients, channels: Channels, settings: Settings, clock: Clock) -> None:
        self.mine = new_id()
        self._clients = clients
        self._channels = channels
        self._settings = settings
        self._clock = clock
        self._told: set[str] = set()

    def forward(self, table: Table, items: Sequence[Waiting]) -> Forwarded:
        """Send items, each to its own queue. Those for one FIFO group go in order, and none after one that cannot."""
        found = Forwarded()
        places: dict[tuple[str, bool], list[Waiting]] = {}
        for item in items:
            places.setdefault((item.queue, item.fifo), []).append(item)
        with ThreadPoolExecutor(_THREADS, "laneway-forward") as pool:
            for (queue, fifo), held in places.items():
                try:
                    channel = self._channels.of(queue, fifo)
                except MissingError as error:
                    self._tell(f"{queue} {fifo}", "%s %d delayed jobs wait for it in %s.", error, len(held), table.name)
                    found.kept += held
                else:
                    self._told.discard(f"{queue} {fifo}")
                    send = self._in_order if fifo else self._in_tens
                    found.add(send(table, channel, held, pool))
        return found

    # -- standard queues -------------------------------------------------------------------------------

    def _in_tens(self, table: Table, channel: Channel, items: list[Waiting], pool: ThreadPoolExecutor) -> Forwarded:
        found = Forwarded()
        for batch in _batches(items, self._settings.max_body):
            found.add(self._batch(table, channel, batch, pool))
            if found.errors:
                break
        done = {id(item) for item in (*found.sent, *found.kept, *found.others)}
        found.kept += [item for item in items if id(item) not in done]
        return found

    # -- FIFO queues -----------------------------------------------------------------------------------

    def _in_order(self, table: Table, channel: Channel, items: list[Waiting], pool: ThreadPoolExecutor) -> Forwarded:
        """Send the items of each group one after the other. A batch has one of each group at most: SQS may take some
        entries of a batch and not others, and what comes after one that it did not take must not overtake it."""
        found = Forwarded()
        groups: dict[str, list[Waiting]] = {}
        for item in items:
            groups.setdefault(_group(item), []).append(item)
        while groups:
            heads = [held.pop(0) for held in groups.values()]
            stuck: set[str] = set()
            for batch in _batches(heads, self._settings.max_body):
                part = self._batch(table, channel, batch, pool)
                found.add(part)
                stuck.update(map(_group, part.kept))
                # One that is gone holds nobody up; one that somebody else is sending does.
                stuck.update(_group(item) for item in part.others if table.get(item.job_id) is not None)
            for group in stuck:
                found.kept += groups.pop(group)
            groups = {group: held for group, held in groups.items() if held}
        return found

    # -- one batch -------------------------------------------------------------------------------------

    def _batch(self, table: Table, channel: Channel, items: list[Waiting], pool: ThreadPoolExecutor) -> Forwarded:
        now = self._clock.now()
        claims = _at_once(pool, lambda item: table.claim(item, self.mine, now), items)
        claimed = [item for item, claim in zip(items, claims, strict=True) if claim]
        others = [item for item, claim in zip(items, claims, strict=True) if not claim]
        if not claimed:
            return Forwarded(others=others)
        if armed:
            reach("after table claim")
        try:
            sent, errors = self._send(channel, claimed)
        except BrokerAwayError as away:
            # Perhaps they were sent. The claim stays: if they must be sent again, this process is to do it.
            return Forwarded(kept=claimed, others=others, errors=[away])
        except BrokerError as refused:
            if isinstance(refused, MissingError):
                self._channels.forget(channel)
            self._tell(channel.url, "%s %d delayed jobs stay in %s.", refused, len(claimed), table.name)
            sent, errors = [], []
        else:
            self._told.discard(channel.url)
        if armed:
            reach("after table send")
        taken = {item.job_id for item in sent}
        kept = [item for item in claimed if item.job_id not in taken]
        _at_once(pool, lambda item: self._delete(table, item), sent)
        _at_once(pool, lambda item: table.release(item, self.mine), kept)
        return Forwarded(sent, kept, others, errors)

    def _delete(self, table: Table, item: Waiting) -> bool:
        if armed:
            reach("before table delete")
        return table.done(item, self.mine)

    def _send(self, channel: Channel, items: list[Waiting]) -> tuple[list[Waiting], list[BrokerError]]:
        """Send one batch as it is stored, and what SQS did not take another time. Returns those that it has taken."""
        sent: list[Waiting] = []
        for pause_s in (*_PAUSES_S, None):
            now = self._clock.now()
            entries = [self._entry(item, str(n), channel, now) for n, item in enumerate(items)]
            answer = self._clients.sqs("send_message_batch", QueueUrl=channel.url, Entries=entries)
            sent += [items[int(each["Id"])] for each in answer.get("Successful", ())]
            failed = answer.get("Failed", ())
            for each in failed:
                if each.get("SenderFault"):
                    self._refused(channel, items[int(each["Id"])], each.get("Code", ""))
            items = [items[int(each["Id"])] for each in failed if not each.get("SenderFault")]
            if not items or pause_s is None:
                break
            time.sleep(pause_s)
        if not items:
            return sent, []
        away = BrokerAwayError(f"SQS did not take {len(items)} delayed jobs into {channel.name}; they are kept.")
        return sent, [away]

    def _refused(self, channel: Channel, item: Waiting, code: str) -> None:
        self._tell(
            f"{channel.url} {item.job_id}",
            "SQS refuses the delayed job %s for the queue %s (%s); it stays in its table, where it can be cancelled.",
            item.job_id,
            channel.name,
            code,
        )

    def _entry(self, item: Waiting, id: str, channel: Channel, now: float) -> dict[str, Any]:
        delay_s = max(0, min(LONGEST_DELAY_S, math.ceil(item.perform_at - now)))
        entry = entry_of(item.outgoing, id, channel, 0 if channel.fifo else delay_s)
        entry["MessageAttributes"] = item.attributes
        return entry

    def _tell(self, about: str, text: str, *args: object) -> None:
        """Say what is wrong, once until it is well again."""
        if about not in self._told:
            self._told.add(about)
            _log.warning(text, *args)


def _group(item: Waiting) -> str:
    return group_of(item.outgoing.note.key or item.job_id)


def _batches(items: Iterable[Waiting], limit: int) -> Iterator[list[Waiting]]:
    """Items in order, as many together as one request takes."""
    batch: list[Waiting] = []
    in_all = 0
    for item in items:
        size = size_of(item.outgoing)
        if batch and (len(batch) == _TEN or in_all + size > limit):
            yield batch
            batch, in_all = [], 0
        batch.append(item)
        in_all += size
    if batch:
        yield batch


def _at_once(pool: ThreadPoolExecutor, do: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Do it for all items at the same time. An error is raised when all have been tried."""
    waits = [pool.submit(do, item) for item in items]
    errors = [error for each in waits if (error := each.exception()) is not None]
    if errors:
        raise errors[0]
    return [each.result() for each in waits]
