"""Sort orders of listings, pages, and the cursor: the text that says where the next page begins. No state.

Brokers find the next jobs in different ways, but take the same orders, starts and cursors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from heapq import nlargest, nsmallest
from itertools import islice
from typing import Any, TypeVar

import msgspec

from ..broker import Listing, Order, Page
from ..errors import BrokerRefusedError
from ..jobs.data import JobView

#: What each listing can be sorted by; the first is what it is sorted by unless told otherwise.
ORDERS: dict[Listing, tuple[Order, ...]] = {
    "queued": ("perform_at", "key", "retry_count"),
    "delayed": ("perform_at", "key", "retry_count"),
    "retries": ("perform_at", "key", "retry_count"),
    "running": ("perform_at", "key"),
    "dead": ("updated_at", "key"),
}

#: A value of the order, then what decides between equals: due time or burial, arrival, key.
Position = tuple[Any, float, int, str]

Place = TypeVar("Place")


def check_order(which: Listing, order: Order | None) -> Order:
    """What a listing is sorted by; raises for an order that it does not have."""
    order = order or ORDERS[which][0]
    if order not in ORDERS[which]:
        raise BrokerRefusedError(
            f"Jobs that are {which} cannot be sorted by {order}; use {' or '.join(ORDERS[which])}."
        )
    return order


def check_start(order: Order, start: float | str | None) -> None:
    """Refuse a value that is none of the order's."""
    if start is None:
        return
    if isinstance(start, str):
        fits = order == "key" and not any("\ud800" <= char <= "\udfff" for char in start)
    else:
        fits = order != "key" and not math.isnan(start)
    if not fits:
        raise BrokerRefusedError(f"A listing by {order} cannot begin with {start!r}.")


def page_of(
    jobs: Iterable[JobView],
    which: Listing,
    *,
    order: Order | None,
    reverse: bool,
    start: float | str | None,
    after: str | None,
    limit: int,
    by_due: bool = False,
) -> Page:
    """A page of a listing, for a store that cannot sort. All jobs are read, unless they come `by_due` time."""
    order = check_order(which, order)
    check_start(order, start)
    behind = None if after is None else read_position(order, after)

    def place(job: JobView) -> Position:
        at = job.updated_at if which == "dead" else job.perform_at
        return getattr(job, order), at or 0.0, 0, job.payloads[0].identity or job.key

    def fits(job: JobView) -> bool:
        at = place(job)
        if start is not None and (at[0] > start if reverse else at[0] < start):
            return False
        return behind is None or (at < behind if reverse else at > behind)

    fitting = filter(fits, jobs)
    if by_due and order == "perform_at" and not reverse:
        page = list(islice(fitting, limit + 1))
    else:
        page = (nlargest if reverse else nsmallest)(limit + 1, fitting, key=place)
    more = write_position(order, place(page[limit - 1])) if len(page) > limit else None
    return Page(page[:limit], more)


def write_position(order: Order, position: Position) -> str:
    """A position as a page gives it away."""
    return write_cursor((order, *position))


def read_position(order: Order, after: str) -> Position:
    """The position that a page of this order has given away."""
    sorted_by, value, at, arrival, key = read_cursor(after, tuple[Order, float | str, float, int, str])
    if sorted_by != order or isinstance(value, str) != (order == "key"):
        raise _no_cursor(after)
    return value, at, arrival, key


def write_cursor(place: object) -> str:
    """A place in a listing as text."""
    return msgspec.json.encode(place).decode()


def read_cursor(after: str, kind: type[Place]) -> Place:
    """The place that `write_cursor` was given, which is of this type."""
    try:
        return msgspec.json.decode(after, type=kind)
    except ValueError:  # msgspec's errors are among them
        raise _no_cursor(after) from None


def _no_cursor(after: str) -> BrokerRefusedError:
    return BrokerRefusedError(f"{after!r} is not a position of a listing; take it from the page before.")
