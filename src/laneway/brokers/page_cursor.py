"""Sort orders of listings, and the cursor: the text that says where the next page begins. No state.

The memory, Redis and AWS brokers use it. They find the next jobs in different ways, but take the same orders, starts
and cursors. SQLite has a cursor of its own, in `sqlite/inspect.py`.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from ..broker import Listing, Order
from ..errors import BrokerRefusedError

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

_read = msgspec.json.Decoder(tuple[Order, float | str, float, int, str]).decode


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


def write_position(order: Order, position: Position) -> str:
    """A position as a page gives it away."""
    return msgspec.json.encode((order, *position)).decode()


def read_position(order: Order, after: str) -> Position:
    """The position that a page of this order has given away."""
    try:
        sorted_by, value, at, arrival, key = _read(after)
        if sorted_by == order and isinstance(value, str) == (order == "key"):
            return value, at, arrival, key
    except (msgspec.DecodeError, ValueError):
        pass
    raise BrokerRefusedError(f"{after!r} is not a position of a listing; take it from the page before.")
