"""A single plain job is stored by one statement, and by a whole transaction where one statement is not enough."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from laneway.brokers.sqlite import SQLiteBroker
from laneway.errors import BrokerAwayError
from laneway.jobs.data import Kind, NewJob
from laneway.testing.conformance.fixtures import ScriptedWorker, job, keys, numbers, put

pytestmark = pytest.mark.unit

IN_A_TRANSACTION = ["BEGIN", "SELECT", "INSERT", "COMMIT"]


def statements(broker: SQLiteBroker, act: Callable[[], None]) -> list[str]:
    """The first words of the statements that all connections of a broker run meanwhile."""
    seen: list[str] = []
    for connection in broker._db._connections.values():
        connection.set_trace_callback(seen.append)
    act()
    for connection in broker._db._connections.values():
        connection.set_trace_callback(None)
    lines = [[line for line in text.splitlines() if not line.startswith("--")] for text in seen]
    return [first.split()[0] for first, *_ in lines]


def keyed(key: str) -> NewJob:
    return NewJob(queue="q", key=key, body="{}", kind=Kind.KEYED, identity=key)


def test_a_single_plain_job_is_one_statement(broker: SQLiteBroker) -> None:
    put(broker, "first")
    assert statements(broker, lambda: put(broker, "a")) == ["INSERT"]
    assert statements(broker, lambda: broker.enqueue([job("b", headers={"h": "x"}, delay_s=60.0)])) == ["INSERT"]
    assert sorted(keys(broker.inspect.listing("q", "queued").jobs)) == ["a", "b", "first"]


def test_several_jobs_are_one_transaction(broker: SQLiteBroker) -> None:
    put(broker, "first")
    assert statements(broker, lambda: put(broker, "a", "b")) == IN_A_TRANSACTION
    assert statements(broker, lambda: broker.enqueue([keyed("c")]))[0] == "BEGIN"


def test_a_repeat_changes_nothing(broker: SQLiteBroker) -> None:
    put(broker, "a")
    before = broker.inspect.find("q", "a")
    assert statements(broker, lambda: broker.enqueue([job("a", "other")])) == ["INSERT", *IN_A_TRANSACTION]
    assert broker.inspect.find("q", "a") == before


def test_a_job_goes_to_the_shard_that_it_has_since_another_process_has_resharded(
    broker: SQLiteBroker, path: Path
) -> None:
    """The process has cached the queue with five shards. A job in a shard that is gone would never be claimed."""
    put(broker, "first")
    with closing(SQLiteBroker(path)) as other:  # stands for another process
        assert other.shards.reshard("q", 1).done
    for n in range(10):
        put(broker, f"k{n}")
    assert broker.health.check() == []
    assert {view.shard for view in broker.inspect.listing("q", "queued").jobs} == {0}
    assert statements(broker, lambda: put(broker, "a")) == ["INSERT"], "the new shards are cached"


def test_another_thread_may_close_the_broker_meanwhile(broker: SQLiteBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing empties the cache of queues, and a close may come between two steps of an enqueue."""
    put(broker, "first")
    ensure = broker._store.ensure_queues

    def and_close(jobs: list[NewJob]) -> None:
        ensure(jobs)
        broker.close()

    monkeypatch.setattr(broker._store, "ensure_queues", and_close)
    put(broker, "a")
    assert sorted(keys(ScriptedWorker(broker).claim())) == ["a", "first"]


def test_a_full_disk_refuses_a_single_job(broker: SQLiteBroker) -> None:
    put(broker, "before")
    with broker._db.write() as tx:
        pages = tx.connection.execute("PRAGMA page_count").fetchone()[0]
        tx.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(BrokerAwayError, match="full; nothing was written"):
        broker.enqueue([job("a", "x" * 100_000)])
    with broker._db.write() as tx:
        tx.connection.execute("PRAGMA max_page_count = 1000000")
    assert numbers(broker).length == 1
    put(broker, "after")
    assert (keys(ScriptedWorker(broker).claim()), broker.health.check()) == (["before", "after"], [])
