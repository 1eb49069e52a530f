"""What waits in the tables: numbers of each queue, and pages of jobs. Reads only.

A table has no index by queue, so each look reads it as a whole, a request for about every 2,000 jobs, and a long one is
not counted again for a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge, nlargest, nsmallest
from itertools import islice

import msgspec

from ...broker import Listing, Order, Page
from ...clock import Clock
from ...jobs.data import JobView, Kind, Payload
from ..page_cursor import Position, check_order, check_start, read_position, write_position
from .dynamodb.delayed_jobs import Table
from .dynamodb.items import Waiting

#: A table with more jobs is counted only so often.
LONG = 10_000
LONG_S = 60.0
#: How the ids of rows about queues begin.
QUEUE = "queue:"
#: Later than any job is due.
NEVER = 1e12


class Numbers(msgspec.Struct):
    """What waits of one queue."""

    waiting: int = 0
    delayed: int = 0
    retries: int = 0
    #: When the first of them is due.
    earliest: float = NEVER


class Surveys:
    """Counts tables, and remembers the numbers of long ones."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, tuple[float, dict[str, Numbers]]] = {}

    def of(self, table: Table) -> dict[str, Numbers]:
        """The numbers of every queue that has something in a table."""
        known = self._known.get(table.name)
        if known is not None and self._clock.monotonic() - known[0] < LONG_S:
            return known[1]
        now = self._clock.now()
        found: dict[str, Numbers] = {}
        for item in all_of(table):
            numbers = found.setdefault(item.queue, Numbers())
            numbers.waiting += 1
            numbers.delayed += item.perform_at > now
            numbers.retries += item.outgoing.note.retry_count >= 0
            numbers.earliest = min(numbers.earliest, item.perform_at)
        self._known.pop(table.name, None)
        if sum(numbers.waiting for numbers in found.values()) > LONG:
            self._known[table.name] = self._clock.monotonic(), found
        return found


def queues_of(table: Table) -> list[str]:
    """The queues that somebody has paused, or run something of."""
    answers = table.query(
        KeyConditionExpression="#scheduler = :laneway AND begins_with(#id, :queue)",
        ExpressionAttributeNames={"#scheduler": "scheduler", "#id": "job_id"},
        ExpressionAttributeValues={":laneway": {"S": "laneway"}, ":queue": {"S": QUEUE}},
    )
    return [item["job_id"]["S"].removeprefix(QUEUE) for answer in answers for item in answer["Items"]]


def all_of(table: Table) -> Iterator[Waiting]:
    """All that waits in a table, the next one first."""
    parts = [table.due(partition, NEVER) for partition in table.partitions()]
    return merge(*parts, key=lambda item: (item.perform_at, item.job_id))


def listing(
    table: Table,
    queue: str,
    which: Listing,
    now: float,
    *,
    order: Order | None,
    reverse: bool,
    start: float | str | None,
    after: str | None,
    limit: int,
) -> Page:
    """A page of what waits: all that is not due yet, or all that has failed."""
    order = check_order(which, order)
    check_start(order, start)
    behind = None if after is None else read_position(order, after)

    def place(item: Waiting) -> Position:
        values = {"perform_at": item.perform_at, "key": _key(item), "retry_count": item.outgoing.note.retry_count}
        return values[order], item.perform_at, 0, item.job_id

    def fits(item: Waiting) -> bool:
        if item.queue != queue or not (item.perform_at > now if which == "delayed" else _has_failed(item)):
            return False
        at = place(item)
        if start is not None and (at[0] > start if reverse else at[0] < start):
            return False
        return behind is None or (at < behind if reverse else at > behind)

    items = filter(fits, all_of(table))
    if order == "perform_at" and not reverse:
        page = list(islice(items, limit + 1))
    else:
        page = (nlargest if reverse else nsmallest)(limit + 1, items, key=place)
    more = write_position(order, place(page[limit - 1])) if len(page) > limit else None
    return Page([view_of(item, now) for item in page[:limit]], more)


def calls_of(table: Table, queue: str, key: str) -> list[Waiting]:
    """The calls of a key that wait, the next one first."""
    return [item for item in all_of(table) if item.fifo and item.queue == queue and item.outgoing.note.key == key]


def view_of(item: Waiting, now: float) -> JobView:
    """What waits in a table as a job."""
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


def _key(item: Waiting) -> str:
    return (item.outgoing.note.key if item.fifo else "") or item.job_id


def _has_failed(item: Waiting) -> bool:
    return item.outgoing.note.retry_count >= 0
