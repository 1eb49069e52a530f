"""A disk that is full and a file that is locked: a clear error, and nothing half written."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from laneway.brokers.sqlite import SQLiteBroker
from laneway.errors import BrokerAwayError
from laneway.outcome import done
from laneway.testing.conformance.kit import Hand, job, keys, numbers, put

pytestmark = pytest.mark.unit


@pytest.fixture
def locked(broker: SQLiteBroker, path: Path) -> Iterator[None]:
    """Somebody else is writing, and does not stop."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@pytest.mark.usefixtures("locked")
def test_a_locked_file_is_waited_for_and_then_named(path: Path) -> None:
    hasty = SQLiteBroker(path, timeout_s=0.05)
    with pytest.raises(BrokerAwayError, match=r"jobs\.db was locked by others for 0\.05 s; nothing was written"):
        put(hasty, "a")
    assert hasty.queues() == {"q": 5}, "reading goes on"
    assert hasty.check() == []
    hasty.close()


def test_a_lock_that_ends_in_time_is_not_noticed(broker: SQLiteBroker, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.05, lambda: other.execute("COMMIT"))
    timer.start()
    put(broker, "a")
    timer.join()
    other.close()
    assert broker.status("q", "a") == "queued"


def fill(broker: SQLiteBroker) -> None:
    """Leave no room for another page."""
    with broker._db.write() as db:
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages}")


def make_room(broker: SQLiteBroker) -> None:
    with broker._db.write() as db:
        db.execute("PRAGMA max_page_count = 1000000")


def test_a_full_disk_stores_all_of_a_call_or_nothing(broker: SQLiteBroker) -> None:
    put(broker, "before")
    fill(broker)
    with pytest.raises(BrokerAwayError, match="full; nothing was written"):
        broker.enqueue([job(f"k{n}", "x" * 1_000) for n in range(2_000)])
    assert numbers(broker).length == 1
    make_room(broker)
    put(broker, "after")
    assert (keys(Hand(broker).claim()), broker.check()) == (["before", "after"], [])


def test_a_full_disk_does_not_half_settle(broker: SQLiteBroker) -> None:
    """The run stays unsettled with its outbox unsent, and the same turn succeeds when there is room."""
    put(broker, "a", "b")
    hand = Hand(broker)
    first, second = hand.claim()
    fill(broker)
    settlements = [done(first, [job(f"k{n}", "x" * 1_000) for n in range(500)]), done(second)]
    with pytest.raises(BrokerAwayError, match="full"):
        hand.turn(0, *settlements)
    assert (numbers(broker).busy, numbers(broker).length, numbers(broker).processed) == (2, 0, 0)
    make_room(broker)
    assert hand.again().refused == []
    assert (numbers(broker).busy, numbers(broker).length, numbers(broker).processed) == (0, 500, 2)


def test_a_full_disk_can_still_be_drained(broker: SQLiteBroker) -> None:
    put(broker, *(f"k{n}" for n in range(500)), body="x" * 500)
    hand = Hand(broker)
    hand.claim(limit=1)
    fill(broker)
    while claims := hand.claim(limit=50):
        assert hand.settle(*(done(claim) for claim in claims)) == []
    assert (numbers(broker).length, numbers(broker).processed) == (0, 499)


def test_a_broken_settlement_settles_nothing(broker: SQLiteBroker) -> None:
    """All of a turn, or none of it."""
    put(broker, "a", "b")
    hand = Hand(broker)
    first, second = hand.claim()
    with pytest.raises(Exception, match="finite"):
        hand.settle(done(first), done(second, [job("bad", perform_at=float("nan"))]))
    assert (numbers(broker).busy, numbers(broker).processed) == (2, 0)


def test_jobs_with_nul_in_the_middle_of_a_large_call_keep_their_place(broker: SQLiteBroker) -> None:
    """They go in by another statement than their neighbours."""
    jobs = [job(f"k{n}\0" if n % 700 == 5 else f"k{n}") for n in range(2_500)]
    broker.enqueue(jobs)
    assert keys(Hand(broker).claim(limit=10_000)) == [each.key for each in jobs]


def test_large_bodies_are_cut_into_several_statements(broker: SQLiteBroker) -> None:
    """SQLite takes no parameter over a billion bytes; a call may hold more than fits into one."""
    broker.enqueue([job(f"k{n}", "x" * broker.max_body) for n in range(40)])
    assert numbers(broker).length == 40


def a_second_passes(broker: SQLiteBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker._db, "_looked_at", float("-inf"))


def test_a_file_that_was_moved_away_is_missed_and_used_again_when_it_is_back(
    path: Path, broker: SQLiteBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(broker, "before")
    path.rename(f"{path}.away")
    a_second_passes(broker, monkeypatch)
    for _ in range(2):
        with pytest.raises(BrokerAwayError, match="is gone while it was in use; put it back"):
            put(broker, "meanwhile")
    assert not path.exists(), "no empty one is put in its place"
    Path(f"{path}.away").rename(path)
    put(broker, "after")
    assert keys(broker.listing("q", "queued").jobs) == ["before", "after"]


def test_a_file_that_was_replaced_is_noticed(
    path: Path, broker: SQLiteBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(broker, "before")
    other = SQLiteBroker(tmp_path / "other.db")
    other.declare("q", 1)
    other.close()
    path.rename(f"{path}.away")
    (tmp_path / "other.db").rename(path)
    a_second_passes(broker, monkeypatch)
    with pytest.raises(BrokerAwayError, match="was replaced by another file while it was in use"):
        put(broker, "meanwhile")
    path.unlink()
    Path(f"{path}.away").rename(path)
    put(broker, "after")
