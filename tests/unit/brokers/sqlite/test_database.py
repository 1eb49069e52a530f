"""The database file: how it is opened, recognised and migrated."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from laneway.brokers.sqlite import SQLiteBroker
from laneway.brokers.sqlite.database import APPLICATION_ID, Database, read_statements
from laneway.errors import ConfigError
from laneway.events.event import Subscription
from laneway.jobs.data import Kind, NewJob, StartedRun
from laneway.jobs.shards import shard_of
from laneway.testing.conformance.fixtures import put

pytestmark = pytest.mark.unit


def pragma(path: Path, name: str) -> object:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(f"PRAGMA {name}").fetchone()[0]


#: What this Laneway writes.
VERSION = len(read_statements("schema.sql"))


def make_foreign(path: Path, version: int = 0) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY)")
        db.execute(f"PRAGMA user_version = {version}")
        db.commit()


def test_a_new_file_is_ours_and_in_wal_mode(broker: SQLiteBroker, path: Path) -> None:
    assert pragma(path, "journal_mode") == "wal"
    assert (pragma(path, "application_id"), pragma(path, "user_version")) == (APPLICATION_ID, VERSION)


@pytest.mark.parametrize(("option", "number"), [("normal", 1), ("full", 2)])
def test_every_connection_is_as_synchronous_as_it_was_told(path: Path, option: str, number: int) -> None:
    database = Database(path, synchronous=option)
    for connect in (database.write, database.read, database.watch):
        with connect() as tx:
            assert tx.connection.execute("PRAGMA synchronous").fetchone() == (number,)
    database.close()


def test_a_transaction_holds_the_write_lock_from_its_beginning(path: Path) -> None:
    """BEGIN IMMEDIATE: one that reads first and writes later could be refused in the middle."""
    database, other = Database(path), Database(path, timeout_s=0.0)
    with other.read():
        pass
    with database.write(), pytest.raises(Exception, match="locked"), other.write():
        pass
    database.close()
    other.close()


def test_a_transaction_that_fails_leaves_nothing(path: Path) -> None:
    database = Database(path)

    def die_midway() -> None:
        with database.write() as tx:
            tx.connection.execute("INSERT INTO queues (name, shards) VALUES ('half', 1)")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        die_midway()
    with database.write() as tx:
        assert tx.connection.execute("SELECT count(*) FROM queues").fetchone() == (0,)
    database.close()


def test_a_file_of_a_newer_laneway_is_refused(broker: SQLiteBroker, path: Path) -> None:
    broker.close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 7")
    with pytest.raises(ConfigError, match=rf"newer Laneway \(schema 7, this one knows {VERSION}\); upgrade Laneway"):
        broker.inspect.stats()


def newer(path: Path, *, statements: str = "ALTER TABLE queues ADD COLUMN colour TEXT;") -> Database:
    """The database as the next Laneway opens it, with one version more."""
    database = Database(path)
    database._schema[f"version_{VERSION + 1}"] = "CREATE TABLE extra (id INTEGER);\n" + statements
    return database


def test_an_older_file_is_brought_up_to_date(broker: SQLiteBroker, path: Path) -> None:
    put(broker, "a")
    broker.close()
    database = newer(path)
    with database.read() as tx:
        assert tx.connection.execute("SELECT name, colour FROM queues").fetchall() == [("q", None)]
        assert tx.connection.execute("SELECT count(*) FROM jobs").fetchone() == (1,)
    database.close()
    assert pragma(path, "user_version") == VERSION + 1


def test_a_file_of_the_first_version_goes_on(path: Path) -> None:
    """What was stored by a Laneway that knew plain jobs alone is run, and keyed jobs can be added."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(read_statements("schema.sql")["version_1"])
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("PRAGMA user_version = 1")
        db.execute("INSERT INTO queues (name, shards) VALUES ('q', 5)")
        db.execute("INSERT INTO jobs (queue, shard, key, payload, perform_at) VALUES (1, 2, 'old', '{}', 1.0)")
        db.execute("INSERT INTO endings (queue, key, status, ended_at) VALUES (1, 'ended', 'cancelled', 1.0)")
        db.commit()
    broker = SQLiteBroker(path)
    broker.enqueue([NewJob(queue="q", key="order-1", body="{}", kind=Kind.KEYED, identity="call-1")])
    assert [(job.key, job.kind) for job in broker.inspect.listing("q", "queued").jobs] == [
        ("old", Kind.PLAIN),
        ("order-1", Kind.KEYED),
    ]
    assert broker.health.check() == []
    assert [view.deaths for view in broker.inspect.listing("q", "queued").jobs] == [0, 0]
    assert broker.operate.pause("q")
    broker.close()
    assert pragma(path, "user_version") == VERSION


def test_a_file_of_the_second_version_goes_on(path: Path) -> None:
    """What a Laneway stored that counted no deaths has had none; what it has claimed can be settled and blamed."""
    statements = read_statements("schema.sql")
    with closing(sqlite3.connect(path)) as db:
        db.executescript(statements["version_1"] + statements["version_2"])
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("PRAGMA user_version = 2")
        db.execute("INSERT INTO queues (name, shards, paused) VALUES ('q', 5, 0)")
        db.execute(
            "INSERT INTO workers (name, host, pid, queues, concurrency, lease_s, started_at, seen_at)"
            " VALUES ('worker-1', 'h', 1, '[]', 1, 30, 1, 1)"
        )
        db.execute(
            "INSERT INTO jobs (queue, shard, key, kind, perform_at, attempt, worker, token)"
            " VALUES (1, ?, 'order-1', 1, 1.0, 1, 1, 7)",
            (shard_of("order-1", 5),),
        )
        for place, name in ((1, "ran"), (0, "waits")):
            db.execute(
                "INSERT INTO payloads (job, place, score, identity, payload, perform_at) VALUES (1, ?, 1.0, ?, ?, 1.0)",
                (place, name, name),
            )
        db.execute("UPDATE jobs SET next_at = 1.0")
        db.execute(
            "INSERT INTO morgue (queue, shard, key, payload, perform_at, retry_count, attempt, deaths, updated_at)"
            " VALUES (1, ?, 'dead', '{}', 1.0, 3, 4, 0, 1.0)",
            (shard_of("dead", 5),),
        )
        db.commit()
    broker = SQLiteBroker(path)
    assert broker.health.check() == []
    assert [view.deaths for view in (*broker.inspect.find("q", "order-1"), *broker.inspect.find("q", "dead"))] == [
        0,
        0,
        0,
    ]
    assert broker.leave("worker-1", [StartedRun("q", "order-1", 7, "ran")]) == 1
    assert {each.body: each.deaths for each in broker.inspect.find("q", "order-1")[0].payloads} == {
        "ran": 1,
        "waits": 0,
    }
    assert broker.operate.pause("q")
    broker.close()
    assert pragma(path, "user_version") == VERSION


def test_a_file_of_the_third_version_goes_on(path: Path) -> None:
    """What a Laneway stored that knew no events is run, and queues of it can be subscribed."""
    statements = read_statements("schema.sql")
    with closing(sqlite3.connect(path)) as db:
        db.executescript("".join(statements[f"version_{number}"] for number in (1, 2, 3)))
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("PRAGMA user_version = 3")
        db.execute("INSERT INTO queues (name, shards, paused) VALUES ('q', 5, 1)")
        db.execute(
            "INSERT INTO jobs (queue, shard, key, payload, perform_at) VALUES (1, ?, 'old', '{}', 1.0)",
            [shard_of("old", 5)],
        )
        db.commit()
    first, second = SQLiteBroker(path), SQLiteBroker(path)
    assert first.events.subscriptions() == second.events.subscriptions() == []
    assert first.events.subscribe(Subscription("sold", "q", {"country": ["DE"]}))
    assert second.events.subscriptions("sold") == [Subscription("sold", "q", {"country": ["DE"]})]
    assert [job.key for job in second.inspect.listing("q", "queued").jobs] == ["old"]
    assert (second.inspect.stats()[0].paused, second.health.check()) == (True, [])
    first.close()
    second.close()
    assert pragma(path, "user_version") == VERSION


def test_a_migration_that_dies_midway_leaves_the_old_version(broker: SQLiteBroker, path: Path) -> None:
    put(broker, "a")
    broker.close()
    database = newer(path, statements="INSERT INTO nowhere VALUES (1);")
    with pytest.raises(Exception, match="nowhere"), database.read():
        pass
    assert pragma(path, "user_version") == VERSION
    assert broker.status("q", "a") == "queued"
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'extra'").fetchone() == (0,)


@pytest.mark.parametrize("version", [0, 1, 9])
def test_a_database_of_another_program_is_refused_untouched(path: Path, version: int) -> None:
    """Whatever number it keeps in user_version."""
    make_foreign(path, version)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="another program"):
        SQLiteBroker(path).inspect.stats()
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_untouched(path: Path) -> None:
    path.write_text("Dear diary, " * 1_000)
    with pytest.raises(ConfigError, match="not a database of Laneway"):
        SQLiteBroker(path).inspect.stats()
    assert path.read_text().startswith("Dear diary")


def test_an_empty_file_becomes_a_database(path: Path) -> None:
    path.touch()
    broker = SQLiteBroker(path)
    assert broker.inspect.stats() == []
    broker.close()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no folder .*missing; make it first"):
        SQLiteBroker(tmp_path / "missing" / "jobs.db").inspect.stats()


def test_a_path_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "folder.db"
    folder.mkdir()
    with pytest.raises(ConfigError, match=r"folder\.db cannot be opened"):
        SQLiteBroker(folder).inspect.stats()


def test_a_file_that_was_deleted_is_made_anew_after_close(broker: SQLiteBroker, path: Path) -> None:
    put(broker, "a")
    broker.close()
    path.unlink()
    put(broker, "b")
    assert [stats.length for stats in broker.inspect.stats()] == [1]
