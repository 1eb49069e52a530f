"""The SQLite broker in memory: whose jobs they are, what keeps them, what a fork does, and who is woken."""

from __future__ import annotations

import gc
import os
import sqlite3
import subprocess
import sys
import threading
import weakref

import pytest

from laneway import sentinel
from laneway.brokers.sqlite import MemoryBroker, SQLiteBroker
from laneway.errors import BrokerRefusedError, ConfigError, EnqueueError
from laneway.testing.conformance.fixtures import ScriptedWorker, call, keys, put
from laneway.urls import Url, open_broker

pytestmark = pytest.mark.unit

#: So long a test waits for what must happen.
PATIENCE_S = 60.0


def test_a_memory_url_opens_the_sqlite_broker() -> None:
    broker = open_broker("memory:")
    assert isinstance(broker, SQLiteBroker)
    assert (broker.capabilities.shared, broker.capabilities.remote) == (False, False)


def test_every_memory_url_is_a_broker_of_its_own() -> None:
    first, second = open_broker("memory:"), open_broker("memory:")
    put(first, "a")
    assert second.inspect.queues() == {}


@pytest.mark.parametrize("url", ["memory:?size=3", "memory:name", "memory://"])
def test_a_memory_url_is_nothing_but_memory(url: str) -> None:
    with pytest.raises(ConfigError):
        open_broker(url)
    with pytest.raises(ConfigError):
        MemoryBroker.from_url(Url.parse(url))


def test_the_jobs_stay_when_it_is_closed() -> None:
    broker = MemoryBroker()
    put(broker, "a")
    broker.close()
    broker.close()
    assert keys(ScriptedWorker(broker).claim()) == ["a"]


def test_the_memory_is_freed_with_the_broker() -> None:
    broker = MemoryBroker()
    put(broker, "a")
    connection = broker._db._connections["write"]
    gone = weakref.ref(broker)
    del broker
    gc.collect()
    assert gone() is None
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def test_it_leaves_no_file(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    broker = MemoryBroker()
    put(broker, "a")
    assert broker.health.check() == []
    assert list(tmp_path.iterdir()) == []


def test_half_of_a_transaction_is_not_stored() -> None:
    broker = MemoryBroker()
    put(broker, "a")
    with pytest.raises(EnqueueError):
        broker.enqueue([call("k", "b"), call("a", "c")])  # a is a plain job
    assert broker.status("q", "k") == "gone"
    put(broker, "d")
    assert sorted(keys(ScriptedWorker(broker).claim())) == ["a", "d"]


def test_closed_descriptors_do_not_concern_it(monkeypatch) -> None:
    """A file's broker must write no more then."""

    class Torn:
        def is_whole(self) -> bool:
            return False

    monkeypatch.setattr(sentinel, "_sentinel", Torn())
    broker = MemoryBroker()
    put(broker, "a")
    with pytest.raises(EnqueueError):
        broker.enqueue([call("a", "c")])
    assert keys(ScriptedWorker(broker).claim()) == ["a"]


def test_threads_take_turns() -> None:
    """They have one connection: no transaction may begin inside of another thread's."""
    broker = MemoryBroker()
    broker.declare("q", 5)

    def store(number: int) -> None:
        for each in range(50):
            put(broker, f"{number}-{each}")
            broker.inspect.find("q", f"{number}-{each}")
            broker.inspect.listing("q", "queued", limit=3)
            broker.wait(["q"], 0)

    threads = [threading.Thread(target=store, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert broker.inspect.stats()[0].length == 400


# -- waiting -------------------------------------------------------------------------------------------


class Waiter:
    """A thread that waits for a job of the queue `q`."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.ready: set[str] = set()
        self._thread = threading.Thread(target=self._main, args=(broker,))
        self._thread.start()
        while not broker._waiting._sleepers:
            self._thread.join(0.001)

    def _main(self, broker: MemoryBroker) -> None:
        self.ready = broker.wait(["q"], PATIENCE_S)

    def is_woken(self) -> bool:
        self._thread.join(PATIENCE_S / 2)
        return not self._thread.is_alive()


def test_other_threads_are_not_held_up_by_one_that_waits() -> None:
    broker = MemoryBroker()
    broker.declare("q", 5)
    waiter = Waiter(broker)
    assert broker.inspect.queues() == {"q": 5}
    put(broker, "a")
    assert waiter.is_woken()
    assert waiter.ready == {"q"}


def test_the_begin_of_a_resharding_wakes_those_who_wait() -> None:
    """Nothing is due then, and nothing says so: the waiter sees that something was written."""
    broker = MemoryBroker()
    put(broker, "a", "b", delay_s=3600.0)
    waiter = Waiter(broker)
    assert not broker.shards.reshard("q", 7, limit=1).done
    assert waiter.is_woken()
    assert waiter.ready == {"q"}


# -- forks ---------------------------------------------------------------------------------------------

FORKING = """
import os, threading
from laneway.brokers.sqlite import MemoryBroker
from laneway.testing.conformance.fixtures import put

broker = MemoryBroker()
put(broker, "before")
stop = threading.Event()

def use():
    number = 0
    while not stop.is_set():
        number += 1
        put(broker, f"other-{number}")
        broker.inspect.listing("q", "queued", limit=1)

thread = threading.Thread(target=use)
thread.start()
for number in range(30):
    child = os.fork()
    if not child:
        put(broker, "child")
        statuses = [broker.status("q", key) for key in ("before", "child")]
        os._exit(0 if statuses == ["queued", "queued"] and not broker.health.check() else 1)
    assert os.waitpid(child, 0)[1] == 0, "a child has lost its copy"
stop.set()
thread.join()
assert broker.status("q", "before") == "queued"
assert broker.status("q", "child") == "gone"
assert broker.health.check() == []
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_the_child_of_a_fork_has_a_copy_and_the_parent_keeps_its_jobs() -> None:
    """In a program of its own, while another thread is at work: a lock that it holds must not stay locked for ever."""
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKING], check=True, timeout=PATIENCE_S)


def test_its_errors_name_it_as_users_do() -> None:
    broker = MemoryBroker()
    with (
        pytest.raises(BrokerRefusedError, match="The database memory: refused: no such table"),
        broker._db.read() as tx,
    ):
        tx.connection.execute("SELECT * FROM pigeons")
