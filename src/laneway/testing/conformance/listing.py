"""Tests of listings: which jobs each shows, and page by page.

The orders too: by time, key and retry_count, in both directions, and from a given value on.
"""

from __future__ import annotations

from typing import Any

import pytest

from ...broker import Broker, Listing, Order
from ...clock import ManualClock
from ...errors import BrokerError
from ...jobs.data import JobView
from ...jobs.settlement import buried, failed
from .fixtures import CANCELLABLE, BrokerFixtures, ScriptedWorker, call, calls, job, keys, needs, put, value


def pages(broker: Broker, which: Listing, limit: int) -> list[list[str]]:
    """All pages of a listing, as keys."""
    found: list[list[str]] = []
    after: str | None = None
    while True:
        page = broker.inspect.listing("q", which, after=after, limit=limit)
        found.append(keys(page.jobs))
        if page.after is None:
            return found
        after = page.after


def whole(broker: Broker, which: Listing, limit: int = 2) -> list[str]:
    """A listing put together from its pages, none of which is too long."""
    found = pages(broker, which, limit)
    assert all(len(page) <= limit for page in found)
    return [key for page in found for key in page]


@needs("inspect")
class ListingTests(BrokerFixtures):
    @needs("priorities")
    def test_queued_shows_all_that_waits_by_due_time(self, broker: Broker) -> None:
        """Delayed jobs and retries included, over all shards and priorities; being run not."""
        broker.enqueue([job(f"k{n}", delay_s=float((n * 7) % 20 - 10), priority=n % 3) for n in range(20)])
        everything = sorted((f"k{n}" for n in range(20)), key=lambda key: (int(key[1:]) * 7) % 20)
        assert whole(broker, "queued") == everything
        running = keys(ScriptedWorker(broker).claim(limit=3))
        assert whole(broker, "queued") == [key for key in everything if key not in running]

    def test_delayed_shows_what_is_not_yet_due(self, broker: Broker, clock: ManualClock) -> None:
        """By the broker's clock; a job that is due this instant is not delayed."""
        for n in range(6):
            put(broker, f"k{n}", delay_s=float(n), hints=CANCELLABLE)
        assert whole(broker, "delayed") == ["k1", "k2", "k3", "k4", "k5"]
        clock.advance(3)
        assert whole(broker, "delayed") == ["k4", "k5"]
        assert {view.status for view in broker.inspect.listing("q", "delayed").jobs} == {"delayed"}

    def test_retries_shows_what_failed_and_waits(self, broker: Broker) -> None:
        """By the time of the retry; not what is fresh."""
        put(broker, *"abcde")
        hand = ScriptedWorker(broker)
        hand.settle(*(failed(claim, "no", 25, 3_650.0 - n) for n, claim in enumerate(hand.claim(limit=4))))
        assert whole(broker, "retries") == ["d", "c", "b", "a"]

    @needs("queued_jobs")
    def test_retries_shows_what_is_due_and_not_what_runs(self, broker: Broker, clock: ManualClock) -> None:
        """A retry that waits for a worker, however short it was."""
        put(broker, *"abcde")
        hand = ScriptedWorker(broker)
        hand.settle(*(failed(claim, "no", 25, 50.0 - n) for n, claim in enumerate(hand.claim(limit=4))))
        assert whole(broker, "retries") == ["d", "c", "b", "a"]
        clock.advance(48)
        assert whole(broker, "retries") == ["d", "c", "b", "a"]
        assert keys(hand.claim(limit=2)) == ["e", "d"]
        assert whole(broker, "retries") == ["c", "b", "a"]

    @needs("queued_jobs")
    def test_running_shows_what_is_claimed_and_by_whom(self, broker: Broker) -> None:
        """By due time, over all workers."""
        put(broker, *"abcde")
        ScriptedWorker(broker).claim(limit=2)
        ScriptedWorker(broker, "worker-2").claim(limit=2)
        assert whole(broker, "running") == ["a", "b", "c", "d"]
        shown = [(view.worker, view.status) for view in broker.inspect.listing("q", "running").jobs]
        assert shown == [("worker-1", "running")] * 2 + [("worker-2", "running")] * 2

    def test_dead_shows_the_morgue_by_burial(self, broker: Broker, clock: ManualClock) -> None:
        """Whoever was buried first comes first, whenever it had been due; within one instant nobody is left out."""
        put(broker, *"abcd")
        hand = ScriptedWorker(broker)
        first, second, third, fourth = hand.claim()
        hand.settle(buried(third, "no"))
        clock.advance(1)
        hand.settle(buried(second, "no"), buried(fourth, "no"))
        clock.advance(1)
        hand.settle(buried(first, "no"))
        found = whole(broker, "dead")
        assert (found[0], set(found[1:3]), found[3]) == ("c", {"b", "d"}, "a")
        assert {view.status for view in broker.inspect.listing("q", "dead").jobs} == {"dead"}

    @needs("queued_jobs")
    def test_pages_neither_skip_nor_repeat(self, broker: Broker, clock: ManualClock) -> None:
        """Also where times are equal, or differ only in their last bits."""
        base = clock.now()
        broker.enqueue([job(f"k{n:03}", perform_at=base + (n // 4) * 2.5e-7) for n in range(100)])
        for limit in (1, 7, 50, 100, 1_000):
            assert whole(broker, "queued", limit) == [f"k{n:03}" for n in range(100)]

    @needs("queued_jobs")
    def test_a_page_says_where_the_next_begins_until_the_end(self, broker: Broker) -> None:
        """`after` is None at the end, and a full last page is followed by an empty one at most."""
        put(broker, *"abc")
        assert pages(broker, "queued", 2) == [["a", "b"], ["c"]]
        assert pages(broker, "queued", 3) in ([["a", "b", "c"]], [["a", "b", "c"], []])
        assert broker.inspect.listing("q", "running").after is None

    @needs("queued_jobs")
    def test_jobs_that_go_between_two_pages_disturb_nothing(self, broker: Broker) -> None:
        """A position is a place in the order, not a number of jobs to skip."""
        put(broker, *"abcdef")
        page = broker.inspect.listing("q", "queued", limit=3)
        for key in "abc":
            broker.cancel("q", key)
        assert keys(broker.inspect.listing("q", "queued", after=page.after, limit=3).jobs) == ["d", "e", "f"]

    def test_a_position_that_is_none_is_an_error(self, broker: Broker) -> None:
        """It may come from a URL."""
        for nonsense in ("", "here", "1.0:x", "1;2"):
            with pytest.raises(BrokerError):
                broker.inspect.listing("q", "queued", after=nonsense)

    def test_a_listing_of_nothing_is_empty(self, broker: Broker) -> None:
        """No jobs, no next page; nor when none are asked for."""
        which: Listing
        for which in ("delayed", "retries", "dead"):
            page = broker.inspect.listing("q", which)
            assert (page.jobs, page.after) == ([], None)
        put(broker, "a", delay_s=60, hints=CANCELLABLE)
        assert broker.inspect.listing("q", "delayed", limit=0).jobs == []

    @needs("queued_jobs")
    def test_a_listing_of_nothing_queued_is_empty(self, broker: Broker) -> None:
        """Nor does anything run."""
        which: Listing
        for which in ("queued", "running"):
            page = broker.inspect.listing("q", which)
            assert (page.jobs, page.after) == ([], None)
        put(broker, "a")
        assert broker.inspect.listing("q", "queued", limit=0).jobs == []

    def test_pages_of_delayed_jobs_neither_skip_nor_repeat(self, broker: Broker, clock: ManualClock) -> None:
        """Also where times are equal."""
        due = clock.now() + 60
        broker.enqueue([job(f"k{n:02}", perform_at=due + n // 4, hints=CANCELLABLE) for n in range(20)])
        for limit in (1, 7, 20, 1_000):
            assert whole(broker, "delayed", limit) == [f"k{n:02}" for n in range(20)]


#: What each listing can be sorted by.
ORDERS: dict[Listing, tuple[Order, ...]] = {
    "queued": ("perform_at", "key", "retry_count"),
    "delayed": ("perform_at", "key", "retry_count"),
    "retries": ("perform_at", "key", "retry_count"),
    "running": ("perform_at", "key"),
    "dead": ("updated_at", "key"),
}


def whole_in_order(broker: Broker, which: Listing, limit: int, **how: Any) -> list[JobView]:
    """A listing put together from its pages."""
    found: list[JobView] = []
    after: str | None = None
    while True:
        page = broker.inspect.listing("q", which, limit=limit, after=after, **how)
        assert len(page.jobs) <= limit
        found += page.jobs
        if page.after is None:
            return found
        after = page.after


def fill(broker: Broker, clock: ManualClock) -> None:
    """Jobs of every kind in every place, many alike in what they are sorted by."""
    hand = ScriptedWorker(broker)
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


@needs("inspect")
class ListingOrderTests(BrokerFixtures):
    @needs("keyed", "collecting", "priorities")
    def test_every_listing_can_be_sorted_in_every_order_that_it_has(self, broker: Broker, clock: ManualClock) -> None:
        """Forwards and backwards, whatever the size of the pages: nothing is left out, nothing shown twice."""
        fill(broker, clock)
        for which, orders in ORDERS.items():
            everything = set(keys(whole_in_order(broker, which, 1_000)))
            assert len(everything) >= 5
            for order in orders:
                found = whole_in_order(broker, which, 1_000, order=order)
                expected = [getattr(view, order) for view in found]
                assert expected == sorted(expected)
                assert set(keys(found)) == everything
                assert len(found) == len(everything)
                for limit in (1, 3):
                    assert whole_in_order(broker, which, limit, order=order) == found
                    assert whole_in_order(broker, which, limit, order=order, reverse=True) == found[::-1]

    @needs("keyed", "collecting", "priorities")
    def test_a_listing_without_an_order_is_by_time(self, broker: Broker, clock: ManualClock) -> None:
        """By due time, the dead by their burial."""
        fill(broker, clock)
        for which, orders in ORDERS.items():
            assert whole_in_order(broker, which, 1_000) == whole_in_order(broker, which, 1_000, order=orders[0])

    @needs("queued_jobs")
    def test_equals_come_by_due_time_then_arrival(self, broker: Broker) -> None:
        """Of all that have failed equally often, say."""
        put(broker, "late", delay_s=20)
        put(broker, "soon-1", "soon-2", delay_s=10)
        put(broker, "past", delay_s=-10)
        assert keys(whole_in_order(broker, "queued", 2, order="retry_count")) == ["past", "soon-1", "soon-2", "late"]
        assert keys(whole_in_order(broker, "queued", 2, order="retry_count", reverse=True))[:2] == ["late", "soon-2"]

    @needs("queued_jobs")
    def test_keys_are_sorted_by_their_bytes(self, broker: Broker) -> None:
        """Those of UTF-8, so that every broker agrees."""
        expected = ["", "A", "Z", "a", "a\0", "a\0b", "aa", "b", "é", "ü", "\uff5e", "🚲"]
        put(broker, *reversed(expected))
        assert keys(whole_in_order(broker, "queued", 5, order="key")) == expected

    @needs("keyed", "collecting", "priorities")
    def test_a_listing_begins_with_a_value(self, broker: Broker, clock: ManualClock) -> None:
        """Itself included, in either direction, for every order; paging goes on from there."""
        fill(broker, clock)
        for which, orders in ORDERS.items():
            for order in orders:
                everything = whole_in_order(broker, which, 1_000, order=order)
                for start in {getattr(view, order) for view in everything}:
                    above = [view for view in everything if getattr(view, order) >= start]
                    below = [view for view in everything if getattr(view, order) <= start]
                    assert whole_in_order(broker, which, 3, order=order, start=start) == above
                    assert whole_in_order(broker, which, 3, order=order, start=start, reverse=True) == below[::-1]

    @needs("queued_jobs")
    def test_a_value_that_is_not_there_is_as_good(self, broker: Broker) -> None:
        """Before the first, between two, behind the last."""
        put(broker, "b", "d", "f", perform_at=10.0)
        asked = [
            keys(broker.inspect.listing("q", "queued", order="key", start=start).jobs)
            for start in ("a", "c", "dd", "g")
        ]
        assert asked == [["b", "d", "f"], ["d", "f"], ["f"], []]
        assert keys(broker.inspect.listing("q", "queued", order="key", start="e", reverse=True).jobs) == ["d", "b"]
        assert len(broker.inspect.listing("q", "queued", start=9.5).jobs) == 3
        assert broker.inspect.listing("q", "queued", start=10.5).jobs == []
        assert len(broker.inspect.listing("q", "queued", order="perform_at", start=10, reverse=True).jobs) == 3

    @needs("queued_jobs")
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
            page = broker.inspect.listing("q", "queued", order=order, reverse=reverse, limit=4)
            gone = keys(page.jobs)
            for key in gone:
                broker.cancel("q", key)
            put(broker, "k", delay_s=-1)
            put(broker, "l", delay_s=1)
            rest = broker.inspect.listing("q", "queued", order=order, reverse=reverse, after=page.after)
            left = sorted(set(names) - set(gone), reverse=reverse)
            assert [key for key in keys(rest.jobs) if key in names] == left
            for key in (*left, "k", "l"):
                broker.cancel("q", key)

    @needs("queued_jobs")
    def test_an_order_that_a_listing_does_not_have_is_an_error(self, broker: Broker) -> None:
        """So is a value that is none of the order's, and a position of another order or none at all."""
        put(broker, "a", "b")
        position = broker.inspect.listing("q", "queued", order="key", limit=1).after
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
                broker.inspect.listing("q", which, **how)

    def test_delayed_jobs_are_sorted_by_time_or_key(self, broker: Broker) -> None:
        """In both directions, and from a value on, whether or not it is there."""
        for key, delay_s in (("b", 30.0), ("ü", 10.0), ("A", 20.0), ("a", 20.0), ("🚲", 40.0)):
            put(broker, key, delay_s=delay_s, hints=CANCELLABLE)
        by_time, by_key = ["ü", "A", "a", "b", "🚲"], ["A", "a", "b", "ü", "🚲"]
        orders: list[tuple[Order, list[str]]] = [("perform_at", by_time), ("retry_count", by_time), ("key", by_key)]
        for order, expected in orders:
            for limit in (2, 1_000):
                assert keys(whole_in_order(broker, "delayed", limit, order=order)) == expected
                assert keys(whole_in_order(broker, "delayed", limit, order=order, reverse=True)) == expected[::-1]
        assert keys(whole_in_order(broker, "delayed", 2, order="key", start="aa")) == ["b", "ü", "🚲"]
        assert keys(whole_in_order(broker, "delayed", 2, order="key", start="b", reverse=True)) == ["b", "a", "A"]

    def test_delayed_jobs_that_come_and_go_between_two_pages_disturb_nothing(self, broker: Broker) -> None:
        """What was there all the time is shown once."""
        names = [f"k{n}" for n in range(10)]
        put(broker, *names, delay_s=60, hints=CANCELLABLE)
        page = broker.inspect.listing("q", "delayed", order="key", limit=4)
        for key in keys(page.jobs):
            assert broker.cancel("q", key)
        put(broker, "j", "l", delay_s=60, hints=CANCELLABLE)
        rest = broker.inspect.listing("q", "delayed", order="key", after=page.after)
        assert keys(rest.jobs) == [*names[4:], "l"]

    def test_an_order_that_delayed_or_dead_jobs_do_not_have_is_an_error(self, broker: Broker) -> None:
        """So is a value that is none of the order's, and a position of another order or none at all."""
        put(broker, "a", "b", delay_s=60, hints=CANCELLABLE)
        position = broker.inspect.listing("q", "delayed", order="key", limit=1).after
        bad: list[tuple[Listing, dict[str, Any]]] = [
            ("dead", {"order": "perform_at"}),
            ("dead", {"order": "retry_count"}),
            ("delayed", {"order": "updated_at"}),
            ("delayed", {"order": "key", "start": 1.0}),
            ("delayed", {"order": "perform_at", "start": "a"}),
            ("delayed", {"order": "retry_count", "after": position}),
            ("delayed", {"order": "key", "after": "[]"}),
        ]
        for which, how in bad:
            with pytest.raises(BrokerError):
                broker.inspect.listing("q", which, **how)

    @needs("keyed", "queued_jobs")
    def test_what_is_set_aside_is_not_listed(self, broker: Broker) -> None:
        """Its key is among the running ones, with what runs."""
        calls(broker, "k", "a")
        ScriptedWorker(broker).one()
        calls(broker, "k", "b", delay_s=5)
        assert [len(broker.inspect.listing("q", which).jobs) for which in ORDERS] == [0, 0, 0, 1, 0]
        (view,) = broker.inspect.listing("q", "running").jobs
        assert [payload.body for payload in view.payloads] == ["a"]
