"""Full disk, locked, read-only or moved file: a clear error, and nothing half written."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from laneway.brokers.sqlite import SQLiteBroker
from laneway.errors import BrokerAwayError, ConfigError
from laneway.jobs.settlement import done
from laneway.testing.conformance.fixtures import ScriptedWorker, job, keys, numbers, put

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
    assert hasty.inspect.queues() == {"q": 5}, "reading goes on"
    assert hasty.health.check() == []
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
    with broker._db.write() as tx:
        pages = tx.connection.execute("PRAGMA page_count").fetchone()[0]
        tx.connection.execute(f"PRAGMA max_page_count = {pages}")


def make_room(broker: SQLiteBroker) -> None:
    with broker._db.write() as tx:
        tx.connection.execute("PRAGMA max_page_count = 1000000")


def test_a_full_disk_stores_all_of_a_call_or_nothing(broker: SQLiteBroker) -> None:
    put(broker, "before")
    fill(broker)
    with pytest.raises(BrokerAwayError, match="full; nothing was written"):
        broker.enqueue([job(f"k{n}", "x" * 1_000) for n in range(2_000)])
    assert numbers(broker).length == 1
    make_room(broker)
    put(broker, "after")
    assert (keys(ScriptedWorker(broker).claim()), broker.health.check()) == (["before", "after"], [])


def test_a_full_disk_does_not_half_settle(broker: SQLiteBroker) -> None:
    """The run stays unsettled with its outbox unsent, and the same turn succeeds when there is room."""
    put(broker, "a", "b")
    hand = ScriptedWorker(broker)
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
    hand = ScriptedWorker(broker)
    hand.claim(limit=1)
    fill(broker)
    while claims := hand.claim(limit=50):
        assert hand.settle(*(done(claim) for claim in claims)) == []
    assert (numbers(broker).length, numbers(broker).processed) == (0, 499)


def test_a_broken_settlement_settles_nothing(broker: SQLiteBroker) -> None:
    """All of a turn, or none of it."""
    put(broker, "a", "b")
    hand = ScriptedWorker(broker)
    first, second = hand.claim()
    with pytest.raises(Exception, match="finite"):
        hand.settle(done(first), done(second, [job("bad", perform_at=float("nan"))]))
    assert (numbers(broker).busy, numbers(broker).processed) == (2, 0)


def test_jobs_with_nul_in_the_middle_of_a_large_call_keep_their_place(broker: SQLiteBroker) -> None:
    """They go in by another statement than their neighbours."""
    jobs = [job(f"k{n}\0" if n % 700 == 5 else f"k{n}") for n in range(2_500)]
    broker.enqueue(jobs)
    assert keys(ScriptedWorker(broker).claim(limit=10_000)) == [each.key for each in jobs]


def test_large_bodies_are_cut_into_several_statements(broker: SQLiteBroker) -> None:
    """SQLite takes no parameter over a billion bytes; a call may hold more than fits into one."""
    broker.enqueue([job(f"k{n}", "x" * broker.capabilities.max_body) for n in range(40)])
    assert numbers(broker).length == 40


@contextmanager
def without_privileges() -> Iterator[None]:
    """Permissions do not stop root: be an ordinary user meanwhile."""
    users = os.getresuid()
    if users[1] == 0:
        os.setresuid(65_534, 65_534, 0)
    try:
        yield
    finally:
        os.setresuid(*users)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that any user can reach; those that pytest makes are private."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)
        Path(name).chmod(0o777)


def refused(path: Path) -> str:
    """What an ordinary user is told who enqueues."""
    broker = SQLiteBroker(path)
    with without_privileges(), pytest.raises(ConfigError) as caught:
        put(broker, "a")
    broker.close()
    return str(caught.value)


@pytest.mark.parametrize("read_only", ["jobs.db", "jobs.db-wal", "."])
def test_a_database_that_cannot_be_written_is_called_read_only(folder: Path, read_only: str) -> None:
    path = folder / "jobs.db"
    holder = SQLiteBroker(path)
    put(holder, "before")
    if read_only == ".":
        holder.close()  # and so its log is gone, and another must be made
    for each in folder.iterdir():
        each.chmod(0o666)
    (folder / read_only).chmod(0o555)
    said = refused(path)
    assert said.startswith(f"The database {path} is read-only: {folder / read_only} cannot be written")
    assert "Make its file, the folder and" in said
    (folder / read_only).chmod(0o777)
    assert keys(ScriptedWorker(holder).claim()) == ["before"]
    holder.close()


def test_a_database_that_cannot_be_made_names_its_folder(folder: Path) -> None:
    folder.chmod(0o555)
    assert f"is read-only: {folder} cannot be written" in refused(folder / "jobs.db")


def test_a_folder_is_not_called_a_read_only_database(folder: Path) -> None:
    place = folder / "jobs.db"
    place.mkdir(mode=0o555)
    assert "cannot be opened" in refused(place)


def test_what_cannot_even_be_read_is_not_called_read_only(folder: Path) -> None:
    place = folder / "jobs.db"
    place.touch(mode=0o000)
    assert "cannot be opened" in refused(place)


def test_what_sqlite_itself_calls_read_only_is_called_so(broker: SQLiteBroker) -> None:
    """Whatever the reason is, as long as it is so."""
    with broker._db.write() as tx:
        tx.connection.execute("PRAGMA query_only = 1")
    with pytest.raises(ConfigError, match=r"jobs\.db is read-only: .*readonly"):
        put(broker, "a")


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
    assert keys(broker.inspect.listing("q", "queued").jobs) == ["before", "after"]


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
