"""Listings in other orders: by key, retry_count and time, in both directions, from a value on, page by page."""

from __future__ import annotations

from typing import Any

import pytest

from ...broker import Broker, Listing, Order
from ...clock import ManualClock
from ...errors import BrokerError
from ...jobs.data import JobView
from ...jobs.settlement import buried, failed
from .fixtures import Hand, Kit, call, calls, job, keys, put, value

#: What each listing can be sorted by.
ORDERS: dict[Listing, tuple[Order, ...]] = {
    "queued": ("perform_at", "key", "retry_count"),
    "delayed": ("perform_at", "key", "retry_count"),
    "retries": ("perform_at", "key", "retry_count"),
    "running": ("perform_at", "key"),
    "dead": ("updated_at", "key"),
}


def whole(broker: Broker, which: Listing, limit: int, **how: Any) -> list[JobView]:
    """A listing put together from its pages."""
    found: list[JobView] = []
    after: str | None = None
    while True:
        page = broker.listing("q", which, limit=limit, after=after, **how)
        assert len(page.jobs) <= limit
        found += page.jobs
        if page.after is None:
            return found
        after = page.after


def fill(broker: Broker, clock: ManualClock) -> None:
    """Jobs of every kind in every place, many alike in what they are sorted by."""
    hand = Hand(broker)
    broker.enqueue([job(f"r{n}é", priority=n % 2) for n in range(8)])
    for count in range(3):
        for n, claim in enumerate(hand.claim()):
            hand.settle(failed(claim, "no", 25, 50.0 + n % 4 if n % 3 <= count else 0.0))
    broker.enqueue([call(f"d{n % 5}", f"c{n}") for n in range(9)] + [value(f"d{n}", "v") for n in range(5, 9)])
    for n, claim in enumerate(hand.claim(limit=9)):
        clock.advance(n % 2)
        hand.settle(buried(claim, "no"))
    hand.claim()
    broker.enqueue([job(f"b{n}", delay_s=-float(n % 3)) for n in range(7)])
    broker.enqueue([call(f"B{n}", "c", delay_s=float(n % 3)) for n in range(7)])
    hand.claim(limit=4)
    broker.enqueue([value(f"ü{n}", "c", delay_s=float(n % 4 - 1), priority=n % 2) for n in range(6)])


class Sorting(Kit):
    def test_every_listing_can_be_sorted_in_every_order_that_it_has(self, broker: Broker, clock: ManualClock) -> None:
        """Forwards and backwards, whatever the size of the pages: nothing is left out, nothing shown twice."""
        fill(broker, clock)
        for which, orders in ORDERS.items():
            everything = set(keys(whole(broker, which, 1_000)))
            assert len(everything) >= 5
            for order in orders:
                found = whole(broker, which, 1_000, order=order)
                expected = [getattr(view, order) for view in found]
                assert expected == sorted(expected)
                assert set(keys(found)) == everything
                assert len(found) == len(everything)
                for limit in (1, 3):
                    assert whole(broker, which, limit, order=order) == found
                    assert whole(broker, which, limit, order=order, reverse=True) == found[::-1]

    def test_a_listing_without_an_order_is_by_time(self, broker: Broker, clock: ManualClock) -> None:
        """By due time, the dead by their burial."""
        fill(broker, clock)
        for which, orders in ORDERS.items():
            assert whole(broker, which, 1_000) == whole(broker, which, 1_000, order=orders[0])

    def test_equals_come_by_due_time_then_arrival(self, broker: Broker) -> None:
        """Of all that have failed equally often, say."""
        put(broker, "late", delay_s=20)
        put(broker, "soon-1", "soon-2", delay_s=10)
        put(broker, "past", delay_s=-10)
        assert keys(whole(broker, "queued", 2, order="retry_count")) == ["past", "soon-1", "soon-2", "late"]
        assert keys(whole(broker, "queued", 2, order="retry_count", reverse=True))[:2] == ["late", "soon-2"]

    def test_keys_are_sorted_by_their_bytes(self, broker: Broker) -> None:
        """Those of UTF-8, so that every broker agrees."""
        expected = ["", "A", "Z", "a", "a\0", "a\0b", "aa", "b", "é", "ü", "\uff5e", "🚲"]
        put(broker, *reversed(expected))
        assert keys(whole(broker, "queued", 5, order="key")) == expected

    def test_a_listing_begins_with_a_value(self, broker: Broker, clock: ManualClock) -> None:
        """Itself included, in either direction, for every order; paging goes on from there."""
        fill(broker, clock)
        for which, orders in ORDERS.items():
            for order in orders:
                everything = whole(broker, which, 1_000, order=order)
                for start in {getattr(view, order) for view in everything}:
                    above = [view for view in everything if getattr(view, order) >= start]
                    below = [view for view in everything if getattr(view, order) <= start]
                    assert whole(broker, which, 3, order=order, start=start) == above
                    assert whole(broker, which, 3, order=order, start=start, reverse=True) == below[::-1]

    def test_a_value_that_is_not_there_is_as_good(self, broker: Broker) -> None:
        """Before the first, between two, behind the last."""
        put(broker, "b", "d", "f", perform_at=10.0)
        asked = [keys(broker.listing("q", "queued", order="key", start=start).jobs) for start in ("a", "c", "dd", "g")]
        assert asked == [["b", "d", "f"], ["d", "f"], ["f"], []]
        assert keys(broker.listing("q", "queued", order="key", start="e", reverse=True).jobs) == ["d", "b"]
        assert len(broker.listing("q", "queued", start=9.5).jobs) == 3
        assert broker.listing("q", "queued", start=10.5).jobs == []
        assert len(broker.listing("q", "queued", order="perform_at", start=10, reverse=True).jobs) == 3

    def test_jobs_that_come_and_go_between_two_pages_disturb_nothing(self, broker: Broker) -> None:
        """In any order and direction: what was there all the time is shown once."""
        ways: list[tuple[Order, bool]] = [
            ("perform_at", True),
            ("key", False),
            ("key", True),
            ("retry_count", False),
            ("retry_count", True),
        ]
        for order, reverse in ways:
            names = [f"k{n}" for n in range(10)]
            put(broker, *names)
            page = broker.listing("q", "queued", order=order, reverse=reverse, limit=4)
            gone = keys(page.jobs)
            for key in gone:
                broker.cancel("q", key)
            put(broker, "k", delay_s=-1)
            put(broker, "l", delay_s=1)
            rest = broker.listing("q", "queued", order=order, reverse=reverse, after=page.after)
            left = sorted(set(names) - set(gone), reverse=reverse)
            assert [key for key in keys(rest.jobs) if key in names] == left
            for key in (*left, "k", "l"):
                broker.cancel("q", key)

    def test_an_order_that_a_listing_does_not_have_is_an_error(self, broker: Broker) -> None:
        """So is a value that is none of the order's, and a position of another order or none at all."""
        put(broker, "a", "b")
        position = broker.listing("q", "queued", order="key", limit=1).after
        bad: list[tuple[Listing, dict[str, Any]]] = [
            ("dead", {"order": "perform_at"}),
            ("dead", {"order": "retry_count"}),
            ("running", {"order": "retry_count"}),
            ("queued", {"order": "updated_at"}),
            ("queued", {"order": "colour"}),
            ("queued", {"order": "key", "start": 1.0}),
            ("queued", {"order": "perform_at", "start": "a"}),
            ("queued", {"order": "retry_count", "after": position}),
            ("queued", {"order": "key", "after": "[]"}),
            ("queued", {"order": "key", "after": '"a"'}),
        ]
        for which, how in bad:
            with pytest.raises(BrokerError):
                broker.listing("q", which, **how)

    def test_what_is_set_aside_is_not_listed(self, broker: Broker) -> None:
        """Its key is among the running ones, with what runs."""
        calls(broker, "k", "a")
        Hand(broker).one()
        calls(broker, "k", "b", delay_s=5)
        assert [len(broker.listing("q", which).jobs) for which in ORDERS] == [0, 0, 0, 1, 0]
        (view,) = broker.listing("q", "running").jobs
        assert [payload.body for payload in view.payloads] == ["a"]
