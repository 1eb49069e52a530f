"""Table: the waiter table: puts, claims, releases, moves, removes, counts and lists delayed jobs.

Nothing leaves the table before it is stored in its next place. A process claims an item before it sends or removes
it, by a conditional update that may be repeated; moving an item is such an update, too. So a lost answer strands no
item, and the claim of a process that died expires. Pages are by due time, over all partitions. `items` defines the
format of an item; the further rows of the table are in `retry_state`, `workers` and `job_history`.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from ....jobs.data import Status
from ...page_cursor import read_cursor, write_cursor
from .client import Item, Request, key, number, real
from .items import (
    INDEX,
    RUBY,
    DelayedItem,
    UnreadableError,
    item_of,
    moved_note,
    names,
    partition_of,
    sqs_name,
    waiting_of,
)
from .job_history import HistoryRow, HistoryRows
from .retry_state import RetryStateRows
from .workers import WorkerRows

#: Where a listing continues: for each partition, the due time and the id of the last item listed.
_Places = dict[str, tuple[str, str]]


def page(
    table: Table, queue: str, *, start: float | None, after: str | None, reverse: bool, limit: int
) -> tuple[list[DelayedItem], str | None]:
    places = {} if after is None else read_cursor(after, _Places)
    streams = [
        _listed(table, queue, partition, start, places.get(partition), reverse, limit)
        for partition in table.partitions()
    ]
    merged = heapq.merge(*streams, key=lambda each: (each.perform_at, each.job_id), reverse=reverse)
    found = list(islice(merged, limit + 1))
    if len(found) <= limit:
        return found, None
    found.pop()
    for each in found:
        places[each.partition] = each.seen, each.job_id
    return found, write_cursor(places)


def count(table: Table, queue: str, *, until: float | None) -> int:
    return sum(
        answer["Count"]
        for partition in table.partitions()
        for answer in table.query(Select="COUNT", **_question(table, queue, partition, until, "<="))
    )


def _listed(
    table: Table,
    queue: str,
    partition: str,
    start: float | None,
    place: tuple[str, str] | None,
    reverse: bool,
    limit: int,
) -> Iterator[DelayedItem]:
    """The items of one partition, by due time."""
    question = _question(table, queue, partition, start, "<=" if reverse else ">=")
    if place is not None:
        question["ExclusiveStartKey"] = key(partition, place[1]) | {"perform_at": {"N": place[0]}}
    for answer in table.query(ScanIndexForward=not reverse, Limit=limit + 1, **question):
        yield from table.read(answer["Items"])


def _question(table: Table, queue: str, partition: str, bound: float | None, compare: str) -> dict[str, Any]:
    """A query for the items of a queue in one partition, due at, before or after `bound`."""
    names = {"#scheduler": "scheduler"}
    values: dict[str, Any] = {":scheduler": {"S": partition}}
    condition = "#scheduler = :scheduler"
    if bound is not None:
        names["#at"], values[":bound"] = "perform_at", number(bound)
        condition += f" AND #at {compare} :bound"
    if partition == RUBY:
        names |= {"#body": "sqs_message_body", "#name": "queue_name"}
        name = sqs_name(table.settings, queue)
        values |= {":name": {"S": name}, ":fifo": {"S": f"{name}.fifo"}}
        only = "#body.#name IN (:name, :fifo)"
    else:
        names["#queue"], values[":queue"] = "queue", {"S": queue}
        only = "#queue = :queue"
    return {
        "IndexName": INDEX,
        "KeyConditionExpression": condition,
        "FilterExpression": only,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
        "ConsistentRead": table.consistent,
    }


#: Seconds for which a claimed item cannot be claimed by another process.
CLAIM_S = 120.0
#: Every process claims under this name to remove a job. So a removal can be repeated after a lost answer or a crash.
_REMOVING = "removing"
#: How often a verb reads an item again that another process changes meanwhile.
_TRIES = 5

_log = logging.getLogger("laneway")

#: Aliases for attribute names, because DynamoDB reserves hundreds of words.
_NAMES = {"#id": "job_id", "#at": "perform_at", "#claim": "claim", "#until": "claim_until"}
_FREE = "(attribute_not_exists(#claim) OR #until < :now"


class Table(RetryStateRows, WorkerRows, HistoryRows):
    """One waiter table."""

    _announced = 0
    _told: frozenset[str] = frozenset()

    # -- jobs in ---------------------------------------------------------------------------------------

    def put(self, waiting: Sequence[DelayedItem]) -> None:
        """Store jobs, 25 per request, and replace items with the same ids. If that fails midway, the error names the
        jobs that were not stored. Raises EnqueueError, and stores nothing, if one is too large for DynamoDB."""
        size = self.settings.partitions
        items = {each.job_id: item_of(each, size) for each in waiting}
        if self._announced < size:
            self._announce(size)
        self.write([{"PutRequest": {"Item": item}} for item in items.values()], _not_stored)

    def partitions(self) -> list[str]:
        """All partitions that may hold items, whatever number of partitions they were stored with."""
        held = self.item("laneway", "partitions") or {}
        return names(max(self.settings.partitions, int(real(held, "size"))))

    def _announce(self, size: int) -> None:
        """Make all pollers read this many partitions from now on, before the first item is stored in a new one."""
        self.write_if(
            "update_item",
            "attribute_not_exists(#size) OR #size < :size",
            Key=key("laneway", "partitions"),
            UpdateExpression="SET #size = :size",
            ExpressionAttributeNames={"#size": "size"},
            ExpressionAttributeValues={":size": number(size)},
        )
        self._announced = size

    # -- reading ---------------------------------------------------------------------------------------

    def due(self, partition: str, until: float) -> Iterator[DelayedItem]:
        """The items of one partition that are due by `until`, earliest first, all pages."""
        for answer in self.query(
            IndexName=INDEX,
            KeyConditionExpression="#scheduler = :scheduler AND #at <= :until",
            ExpressionAttributeNames={"#scheduler": "scheduler", "#at": "perform_at"},
            ExpressionAttributeValues={":scheduler": {"S": partition}, ":until": number(until)},
            ConsistentRead=self.consistent,
        ):
            yield from self.read(answer["Items"])

    def get(self, job_id: str) -> DelayedItem | None:
        """The job with this id, if it is in this table."""
        return self.get_all([job_id]).get(job_id)

    def get_all(self, job_ids: Iterable[str]) -> dict[str, DelayedItem]:
        """The jobs with these ids that are in this table, by id."""
        found: dict[str, DelayedItem] = {}
        wanted = dict.fromkeys(each for each in job_ids if each)
        size = self.settings.partitions
        homes = [key(partition_of(each, size), each) for each in wanted]
        for waiting in self.read(self.items(homes)):
            found[waiting.job_id] = waiting
        missing = [each for each in wanted if each not in found]
        if missing:
            # Stored with another number of partitions, or by a third party.
            others = [key(each, id) for id in missing for each in self.partitions() if each != partition_of(id, size)]
            for waiting in self.read(self.items(others)):
                found.setdefault(waiting.job_id, waiting)
        return found

    def page(
        self,
        queue: str,
        *,
        start: float | None = None,
        after: str | None = None,
        reverse: bool = False,
        limit: int = 100,
    ) -> tuple[list[DelayedItem], str | None]:
        """The jobs of a queue by due time, and the `after` of the next page; None at the end.

        `start` is the first due time, inclusive. With `reverse` the latest come first.
        """
        return page(self, queue, start=start, after=after, reverse=reverse, limit=limit)

    def count(self, queue: str, until: float | None = None) -> int:
        """How many jobs of a queue are in this table; with `until`, only those that are due by then."""
        return count(self, queue, until=until)

    def read(self, items: Iterable[Item]) -> Iterator[DelayedItem]:
        """Decode items into jobs. An item that is not a job is left in the table, and logged once."""
        for item in items:
            try:
                yield waiting_of(item, self.settings, self.home)
            except UnreadableError as error:
                self._report(f"{item['scheduler']['S']}/{item['job_id']['S']}", error)

    def _report(self, place: str, error: UnreadableError) -> None:
        if place not in self._told:
            self._told |= {place}
            _log.error("the item %s of the table %s cannot be sent, and stays there: %s", place, self.name, error)

    # -- claiming --------------------------------------------------------------------------------------

    def claim(self, waiting: DelayedItem, mine: str, now: float) -> bool:
        """Claim an item as `mine` for a while, if it is unclaimed and its due time has not changed. May be repeated."""
        return self._update(
            waiting,
            f"attribute_exists(#id) AND #at = :seen AND {_FREE} OR #claim = :mine)",
            "SET #claim = :mine, #until = :until",
            {
                ":seen": {"N": waiting.seen},
                ":now": number(now),
                ":mine": {"S": mine},
                ":until": number(now + CLAIM_S),
            },
        )

    def release(self, waiting: DelayedItem, mine: str) -> bool:
        """Release a claim: the item was not sent, and another process may try."""
        return self._update(waiting, "#claim = :mine", "REMOVE #claim, #until", {":mine": {"S": mine}})

    def done(self, waiting: DelayedItem, mine: str) -> bool:
        """Delete an item that is stored in its next place. False: it is no longer `mine`, or already deleted."""
        deleted = self.write_if(
            "delete_item",
            "#claim = :mine",
            Key=key(waiting.partition, waiting.job_id),
            ExpressionAttributeNames={"#claim": "claim"},
            ExpressionAttributeValues={":mine": {"S": mine}},
        )
        return deleted is not None

    def remove(self, job_id: str, now: float, status: Status = "gone") -> bool:
        """Remove a job for good. `status` is its status from then on. False: it is not in this table, or being sent."""
        mine = _REMOVING
        for _ in range(_TRIES):
            waiting = self.get(job_id)
            if waiting is None or waiting.claimed(now, by_others_than=mine):
                return False
            # Claimed first, although a conditional delete would take only one request. If the answer to that delete
            # were lost, its repeat could not tell our delete from that of another process that sent the job.
            if self.claim(waiting, mine, now):
                # If we die here, a poller sends the job after the claim has expired. While it is in the table, the
                # history row does not count.
                self.amend(waiting.queue, job_id, HistoryRow(status, now))
                return self.done(waiting, mine) or self.get(job_id) is None
        return False

    def move(self, job_id: str, perform_at: float, now: float) -> bool:
        """Change the due time of a job. False: the job is not in this table, or being sent."""
        for _ in range(_TRIES):
            waiting = self.get(job_id)
            if waiting is None or waiting.claimed(now):
                return False
            if self._move(waiting, perform_at, now):
                return True
        return False

    def _move(self, waiting: DelayedItem, perform_at: float, now: float) -> bool:
        note = moved_note(waiting, perform_at)
        values = {":seen": {"N": waiting.seen}, ":at": number(perform_at), ":now": number(now)}
        sets, more = "SET #at = :at", {}
        if note is not None:
            sets += ", #attributes.#laneway.#text = :note"
            values[":note"] = {"S": note}
            more = {"#attributes": "sqs_message_attributes", "#laneway": "laneway", "#text": "StringValue"}
        return self._update(
            waiting,
            # If the answer to an earlier try was lost, the item may have been moved already.
            f"attribute_exists(#id) AND (#at = :seen OR #at = :at) AND {_FREE})",
            f"{sets} REMOVE #claim, #until",
            values,
            more,
        )

    def _update(
        self, waiting: DelayedItem, condition: str, update: str, values: Item, more: dict[str, str] | None = None
    ) -> bool:
        said = condition + update
        updated = self.write_if(
            "update_item",
            condition,
            Key=key(waiting.partition, waiting.job_id),
            UpdateExpression=update,
            ExpressionAttributeNames={short: name for short, name in _NAMES.items() if short in said} | (more or {}),
            ExpressionAttributeValues=values,
        )
        return updated is not None


def _not_stored(requests: list[Request]) -> str:
    """Names the jobs that a `put` did not store."""
    ids = [request["PutRequest"]["Item"]["job_id"]["S"] for request in requests]
    return f"These jobs were not stored: {', '.join(ids[:10])}{f' and {len(ids) - 10} more' if len(ids) > 10 else ''}."
