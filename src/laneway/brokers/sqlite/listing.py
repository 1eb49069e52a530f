"""Pages of jobs, sorted by time, key or retry_count, either way. Reads only."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

import msgspec

from ...broker import Listing, Order, Page
from ...errors import BrokerError
from .inspect import SHOWN_IN_LISTING, views
from .queues import Queue, Sql

#: A place in a listing: what it is sorted by, then ties, then the id.
Position = tuple[Any, ...]

_FIRST, _LAST = -(2**62), 2**62


class Request(msgspec.Struct):
    """What a page is asked for."""

    which: Listing
    order: Order | None
    reverse: bool
    start: float | str | None
    after: str | None
    limit: int


def listing(db: Any, sql: Sql, queue: Queue, request: Request, now: float) -> Page:
    """One page."""
    order = check_order(request.which, request.order)
    found = _positions(db, sql, queue, request, order, now)
    page = list(islice(found, max(request.limit, 0)))
    statement = "dead_rows" if request.which == "dead" else "job_rows"
    jobs = views(db, sql, statement, queue.name, [each[-1] for each in page], now, SHOWN_IN_LISTING)
    more = page and len(page) == request.limit
    return Page(jobs, msgspec.json.encode(page[-1]).decode() if more else None)


def check_order(which: Listing, order: Order | None) -> Order:
    """What a listing is sorted by; raises for an order that it cannot have."""
    if order is None:
        return "updated_at" if which == "dead" else "perform_at"
    allowed: dict[str, tuple[Order, ...]] = {
        "dead": ("updated_at", "key"),
        "running": ("perform_at", "key"),
    }
    possible = allowed.get(which, ("perform_at", "key", "retry_count"))
    if order not in possible:
        raise BrokerError(f"{which.capitalize()} jobs can be listed by {' or '.join(possible)}, not by {order!r}.")
    return order


def _positions(db: Any, sql: Sql, queue: Queue, request: Request, order: Order, now: float) -> Iterator[Position]:
    """The positions of a page, in order."""
    which, reverse = request.which, request.reverse
    width = 3 if order == "retry_count" else 2
    position = _position(request, width, text=order == "key")
    values = {
        "queue": queue.id,
        "limit": request.limit,
        "due_after": now if which == "delayed" else _FIRST,
        "least": 0 if which == "retries" else -1,
        "fresh": False,
    }

    def rows(statement: str, position: Position, **more: Any) -> list[Position]:
        count, at, id = position if len(position) == 3 else (None, *position)
        text = turned(sql[statement]) if reverse else sql[statement]
        return list(db.execute(text, {**values, "count": count, "at": at, "id": id, **more}).fetchall())

    def queued(position: Position, *, fresh: bool) -> Iterable[Position]:
        """Of all shards and priorities, merged."""
        parts = [
            rows("list_by_time", position, shard=shard, priority=priority, fresh=fresh)
            for shard in range(max(queue.shards, queue.target))
            for priority in queue.priorities
        ]
        return heapq.merge(*parts, reverse=reverse)

    if order == "key":
        statement = f"list_{which}_by_key" if which in ("running", "dead") else "list_by_key"
        return iter(rows(statement, position))
    if order != "retry_count":
        if which in ("queued", "delayed"):
            return iter(queued(position, fresh=False))
        return iter(rows(f"list_{which}_by_time", position))
    failed = rows("list_by_retry_count", position)
    if which == "retries":
        return iter(failed)
    # Those that have not failed are in no index by retry_count; they come before all others, by due time.
    count, at, id = position
    past = at, id
    if count != -1:
        past = (float("-inf"), _FIRST) if count < -1 else (float("inf"), _LAST)
    fresh = [(-1, *each) for each in queued(past, fresh=True)]
    return chain(failed, fresh) if reverse else chain(fresh, failed)


def turned(statement: str) -> str:
    """A listing's statement for the other direction."""
    return statement.replace(" ASC", " DESC").replace(") > (", ") < (")


def _position(request: Request, width: int, *, text: bool) -> Position:
    """Where a page begins: just beyond the one before, or at a value, that itself included."""
    if request.after is not None:
        return _read_position(request.after, width, text=text)
    edge = float("inf") if request.reverse else float("-inf")
    ties = (*(edge,) * (width - 2), _LAST if request.reverse else _FIRST)
    if request.start is not None:
        if isinstance(request.start, str) is not text:
            raise BrokerError(f"A listing by {request.order or 'time'} cannot begin with {request.start!r}.")
        return (request.start, *ties)
    if text:
        return (b"" if request.reverse else "", *ties)  # SQLite sorts any text before any bytes
    return (edge, *ties)


def _read_position(after: str, width: int, *, text: bool) -> Position:
    """What a page before has given as its `after`: the position of its last job, as JSON."""
    kinds = (str if text else (int, float), *((int, float),) * (width - 2), int)
    try:
        position = msgspec.json.decode(after, type=list[float | int | str])
    except msgspec.DecodeError:
        position = []
    if len(position) != width or not all(map(isinstance, position, kinds)):
        raise BrokerError(f"{after!r} is not a position of a listing; take it from the page before.")
    return (*position[:-1], max(_FIRST, min(int(position[-1]), _LAST)))
