"""Listings: which jobs each one shows, in which order, and page by page."""

from __future__ import annotations

import pytest

from ...broker import Broker, Listing
from ...clock import ManualClock
from ...errors import BrokerError
from ...jobs.settlement import buried, failed
from .fixtures import Hand, Kit, job, keys, put


def pages(broker: Broker, which: Listing, limit: int) -> list[list[str]]:
    """All pages of a listing, as keys."""
    found: list[list[str]] = []
    after: str | None = None
    while True:
        page = broker.listing("q", which, after=after, limit=limit)
        found.append(keys(page.jobs))
        if page.after is None:
            return found
        after = page.after


def whole(broker: Broker, which: Listing, limit: int = 2) -> list[str]:
    """A listing put together from its pages, none of which is too long."""
    found = pages(broker, which, limit)
    assert all(len(page) <= limit for page in found)
    return [key for page in found for key in page]


class Listings(Kit):
    def test_queued_shows_all_that_waits_by_due_time(self, broker: Broker) -> None:
        """Delayed jobs and retries included, over all shards and priorities; being run not."""
        broker.enqueue([job(f"k{n}", delay_s=float((n * 7) % 20 - 10), priority=n % 3) for n in range(20)])
        everything = sorted((f"k{n}" for n in range(20)), key=lambda key: (int(key[1:]) * 7) % 20)
        assert whole(broker, "queued") == everything
        running = keys(Hand(broker).claim(limit=3))
        assert whole(broker, "queued") == [key for key in everything if key not in running]

    def test_delayed_shows_what_is_not_yet_due(self, broker: Broker, clock: ManualClock) -> None:
        """By the broker's clock; a job that is due this instant is not delayed."""
        for n in range(6):
            put(broker, f"k{n}", delay_s=float(n))
        assert whole(broker, "delayed") == ["k1", "k2", "k3", "k4", "k5"]
        clock.advance(3)
        assert whole(broker, "delayed") == ["k4", "k5"]
        assert {view.status for view in broker.listing("q", "delayed").jobs} == {"delayed"}

    def test_retries_shows_what_failed_and_waits(self, broker: Broker, clock: ManualClock) -> None:
        """By the time of the retry; not what is fresh, nor a retry that runs."""
        put(broker, *"abcde")
        hand = Hand(broker)
        hand.settle(*(failed(claim, "no", 25, 50.0 - n) for n, claim in enumerate(hand.claim(limit=4))))
        assert whole(broker, "retries") == ["d", "c", "b", "a"]
        clock.advance(47)
        assert keys(hand.claim()) == ["e", "d"]
        assert whole(broker, "retries") == ["c", "b", "a"]

    def test_running_shows_what_is_claimed_and_by_whom(self, broker: Broker) -> None:
        """By due time, over all workers."""
        put(broker, *"abcde")
        Hand(broker).claim(limit=2)
        Hand(broker, "worker-2").claim(limit=2)
        assert whole(broker, "running") == ["a", "b", "c", "d"]
        shown = [(view.worker, view.status) for view in broker.listing("q", "running").jobs]
        assert shown == [("worker-1", "running")] * 2 + [("worker-2", "running")] * 2

    def test_dead_shows_the_morgue_by_burial(self, broker: Broker, clock: ManualClock) -> None:
        """Whoever was buried first comes first, whenever it had been due; within one instant nobody is left out."""
        put(broker, *"abcd")
        hand = Hand(broker)
        first, second, third, fourth = hand.claim()
        hand.settle(buried(third, "no"))
        clock.advance(1)
        hand.settle(buried(second, "no"), buried(fourth, "no"))
        clock.advance(1)
        hand.settle(buried(first, "no"))
        found = whole(broker, "dead")
        assert (found[0], set(found[1:3]), found[3]) == ("c", {"b", "d"}, "a")
        assert {view.status for view in broker.listing("q", "dead").jobs} == {"dead"}

    def test_pages_neither_skip_nor_repeat(self, broker: Broker, clock: ManualClock) -> None:
        """Also where times are equal, or differ only in their last bits."""
        base = clock.now()
        broker.enqueue([job(f"k{n:03}", perform_at=base + (n // 4) * 2.5e-7) for n in range(100)])
        for limit in (1, 7, 50, 100, 1_000):
            assert whole(broker, "queued", limit) == [f"k{n:03}" for n in range(100)]

    def test_a_page_says_where_the_next_begins_until_the_end(self, broker: Broker) -> None:
        """`after` is None at the end, and a full last page is followed by an empty one at most."""
        put(broker, *"abc")
        assert pages(broker, "queued", 2) == [["a", "b"], ["c"]]
        assert pages(broker, "queued", 3) in ([["a", "b", "c"]], [["a", "b", "c"], []])
        assert broker.listing("q", "running").after is None

    def test_jobs_that_go_between_two_pages_disturb_nothing(self, broker: Broker) -> None:
        """A position is a place in the order, not a number of jobs to skip."""
        put(broker, *"abcdef")
        page = broker.listing("q", "queued", limit=3)
        for key in "abc":
            broker.cancel("q", key)
        assert keys(broker.listing("q", "queued", after=page.after, limit=3).jobs) == ["d", "e", "f"]

    def test_a_position_that_is_none_is_an_error(self, broker: Broker) -> None:
        """It may come from a URL."""
        for nonsense in ("", "here", "1.0:x", "1;2"):
            with pytest.raises(BrokerError):
                broker.listing("q", "queued", after=nonsense)

    def test_a_listing_of_nothing_is_empty(self, broker: Broker) -> None:
        """No jobs, no next page; nor when none are asked for."""
        which: Listing
        for which in ("queued", "delayed", "retries", "running", "dead"):
            page = broker.listing("q", which)
            assert (page.jobs, page.after) == ([], None)
        put(broker, "a")
        assert broker.listing("q", "queued", limit=0).jobs == []
