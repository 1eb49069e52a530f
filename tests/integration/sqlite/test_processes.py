"""Several processes on one file."""

from __future__ import annotations

import json
import os
import threading
from contextlib import closing
from pathlib import Path

import pytest

from laneway.brokers.sqlite import SQLiteBroker, enqueue
from laneway.brokers.sqlite.queues import queues
from laneway.jobs.settlement import released
from laneway.testing.conformance.fixtures import LONG_S, ScriptedWorker, keys, numbers, put
from tests.support.sqlite_fixtures import Spawn

pytestmark = pytest.mark.chaos


def test_four_processes_enqueue_and_claim_at_once(path: Path, spawn: Spawn) -> None:
    """They open a file that does not exist yet, all at the same time; nothing is lost and nothing doubled."""
    script = """
from laneway.jobs.settlement import done
name = sys.argv[2]
say("ready"); hear()
hand = ScriptedWorker(broker, name)
broker.declare("q", 5)
got = []
for n in range(50):
    broker.enqueue([job(f"{name}-{n}-{m}", priority=int(name)) for m in range(5)])
    claims = hand.claim(limit=4)
    got += keys(claims)
    assert hand.settle(*(done(claim, [job(f"child of {claim.key}", queue="children")]) for claim in claims)) == []
say("stored"); hear()
while claims := hand.claim(limit=7):
    got += keys(claims)
    assert hand.settle(*(done(claim, [job(f"child of {claim.key}", queue="children")]) for claim in claims)) == []
import json; say(json.dumps(got))
"""
    processes = [spawn(script, name) for name in range(4)]
    got: list[str] = []
    for step in ("ready", "stored", None):
        for process in processes:
            assert process.stdout is not None
            assert process.stdin is not None
            line = process.stdout.readline().strip()
            if step is None:
                got += json.loads(line)
            else:
                assert line == step
        for process in processes if step else ():
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
    expected = [f"{name}-{n}-{m}" for name in range(4) for n in range(50) for m in range(5)]
    assert sorted(got) == sorted(expected)
    broker = SQLiteBroker(path)
    assert (numbers(broker).length, numbers(broker).processed) == (0, len(expected))
    assert (numbers(broker, "children").length, broker.health.check()) == (len(expected), [])
    broker.close()


def test_a_job_from_another_process_wakes_a_waiter(broker: SQLiteBroker, spawn: Spawn) -> None:
    """Also in a queue, and of a priority, that this process has never heard of."""
    assert broker.wait(["q", "new"], 0.0) == set()
    process = spawn("hear(); put(broker, 'a', queue='new', priority=9)")
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    assert broker.wait(["q", "new"], LONG_S) == {"new"}
    assert keys(ScriptedWorker(broker).claim(queue="new")) == ["a"]


def test_a_pause_holds_in_every_process_and_its_end_wakes_them(broker: SQLiteBroker, spawn: Spawn) -> None:
    put(broker, "a")
    process = spawn("say(broker.operate.pause('q')); hear(); say(broker.operate.resume('q'))")
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "True\n"
    hand = ScriptedWorker(broker)
    assert (hand.claim(), broker.wait(["q"], 0.0)) == ([], set())
    process.stdin.write("go\n")
    process.stdin.flush()
    assert broker.wait(["q"], LONG_S) == {"q"}
    assert keys(hand.claim()) == ["a"]


def test_a_priority_from_another_process_is_claimed_and_listed(broker: SQLiteBroker, spawn: Spawn) -> None:
    """What a process knows by heart of a queue may be out of date."""
    hand = ScriptedWorker(broker)
    assert hand.claim() == []
    assert spawn("put(broker, 'low', priority=-1); put(broker, 'high', priority=8)").wait() == 0
    assert sorted(keys(broker.inspect.listing("q", "queued").jobs)) == ["high", "low"]
    assert keys(hand.claim()) == ["high", "low"]


def test_priorities_added_by_two_brokers_are_both_kept(broker: SQLiteBroker, path: Path) -> None:
    """Each knew of none but its own."""
    other = SQLiteBroker(path)
    other.inspect.queues()
    broker.inspect.queues()
    put(broker, "a", priority=1)
    put(other, "b", priority=2)
    assert keys(ScriptedWorker(broker).claim()) == ["b", "a"]
    other.close()


@pytest.mark.parametrize(
    "then",
    [
        "pass",
        "broker.close()",
        "child = os.fork() or os._exit(0); os.waitpid(child, 0)",
        "broker = SQLiteBroker(sys.argv[1])",
        "while os.open(os.devnull, os.O_WRONLY) < 255: pass",
    ],
)
def test_a_process_whose_descriptors_were_closed_does_not_use_the_file(path: Path, spawn: Spawn, then: str) -> None:
    """SQLite would get a number under which another part of the process still writes, such as its log."""
    script = f"""
from contextlib import suppress
from laneway.errors import BrokerAwayError
log = [os.open(os.devnull, os.O_WRONLY) for _ in range(20)]
put(broker, "a")
os.closerange(3, 256)
{then}
for verb in (broker.inspect.stats, lambda: put(broker, "b"), lambda: broker.wait(["q"], 0.0)):
    try:
        verb()
        say("used it")
    except BrokerAwayError as error:
        say(error)
for fd in log:
    with suppress(OSError):
        os.write(fd, b"a line of the log, longer than the header of a database " * 4)
os._exit(0)
"""
    output, _ = spawn(script).communicate()
    refused = f"This process can no longer use the database {path}: its file descriptors were closed. Restart it."
    assert output.splitlines() == [refused] * 3
    with closing(SQLiteBroker(path)) as broker:
        assert (keys(broker.inspect.listing("q", "queued").jobs), broker.health.check()) == (["a"], [])


def test_a_transaction_whose_descriptors_were_closed_is_not_written(path: Path, spawn: Spawn) -> None:
    """Not while it waits for another's lock, and not before its end: SQLite would write into other files."""
    script = """
import threading
from laneway.errors import BrokerAwayError
holder = SQLiteBroker(sys.argv[1])
put(broker, "a")
others = [os.path.join(os.path.dirname(sys.argv[1]), str(n)) for n in range(20)]
for other in others:
    open(other, "wb").write(b"x" * 1_000_000)
def close_all():
    os.closerange(3, 256)
    for other in others:
        os.open(other, os.O_RDWR)
def refused(store):
    try:
        store()
        say("stored")
    except BrokerAwayError as error:
        say("refused")
if sys.argv[2] == "waiting":
    say("ready"); hear()
    thread = threading.Thread(target=refused, args=(lambda: put(broker, "b"),))
    thread.start()
    while not broker._db._locks["write"].locked(): pass
    threading.Event().wait(0.05)
    close_all()
    thread.join()
else:
    def store():
        with broker._db.write() as tx:
            tx.connection.execute("UPDATE queues SET shards = 9")
            close_all()
    refused(store)
say(all(open(other, "rb").read() == b"x" * 1_000_000 for other in others))
os._exit(0)
"""
    waiting = spawn(script, "waiting")
    assert waiting.stdout is not None
    assert waiting.stdin is not None
    assert waiting.stdout.readline() == "ready\n"
    with closing(SQLiteBroker(path)) as broker:
        with broker._db.write():
            waiting.stdin.write("go\n")
            waiting.stdin.flush()
            assert waiting.stdout.read() == "refused\nTrue\n"
        ending, _ = spawn(script, "ending").communicate()
        assert ending == "refused\nTrue\n"
        assert (keys(broker.inspect.listing("q", "queued").jobs), broker.health.check()) == (["a"], [])


@pytest.mark.parametrize("limit", [64, 150])
def test_descriptors_are_watched_whatever_their_limit_is(path: Path, spawn: Spawn, limit: int) -> None:
    script = """
import resource
from laneway.errors import BrokerAwayError
limit = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
put(broker, "a")
os.closerange(int(sys.argv[3]), limit)
try:
    put(broker, "b")
except BrokerAwayError as error:
    say("refused")
"""
    for first in (3, 10):
        output, _ = spawn(script, limit, first).communicate()
        assert output == "refused\n"


def test_a_program_without_standard_error_may_write_there(path: Path, spawn: Spawn) -> None:
    script = """
os.close(2)
put(broker, "a")
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
os.write(2, b"a line")
put(broker, "b")
say("stored")
"""
    output, _ = spawn(script).communicate()
    assert output == "stored\n"


def test_a_daemon_that_closes_all_descriptors_after_its_fork_opens_the_file_itself(path: Path, spawn: Spawn) -> None:
    script = """
import os
put(broker, "a")
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
else:
    os.closerange(3, 256)
    put(broker, "b")
    os._exit(0)
put(broker, "c")
say("stored")
"""
    output, _ = spawn(script).communicate()
    assert output == "stored\n"
    with closing(SQLiteBroker(path)) as broker:
        assert (sorted(keys(broker.inspect.listing("q", "queued").jobs)), broker.health.check()) == (
            ["a", "b", "c"],
            [],
        )


def test_a_killed_process_leaves_nothing_half_written(broker: SQLiteBroker, path: Path, spawn: Spawn) -> None:
    """Its open transaction is as if it had never begun, and its lock is gone."""
    process = spawn("""
broker.declare("q", 5)
with broker._db.write() as tx:
    tx.connection.execute("INSERT INTO queues (name, shards) VALUES ('half', 1)")
    say("written"); hear()
""")
    assert process.stdout is not None
    assert process.stdout.readline() == "written\n"
    process.kill()
    process.wait()
    put(broker, "a")
    assert broker.inspect.queues() == {"q": 5}
    assert broker.health.check() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_what_a_forked_child_stores_outlives_its_parents_close(broker: SQLiteBroker, spawn: Spawn) -> None:
    """SQLite's locks do not pass to a child: it must not share its parent's view of the file."""
    process = spawn("""
put(broker, "parent")
from_child, to_parent = os.pipe()
from_parent, to_child = os.pipe()
child = os.fork()
if child == 0:
    put(broker, "child-1")
    os.write(to_parent, b"1")
    os.read(from_parent, 1)
    put(broker, *(f"child-{n}" for n in range(2, 20)))
    broker.close()
    os._exit(0)
os.read(from_child, 1)
broker.close()
put(broker, "after")
broker.close()
os.write(to_child, b"1")
assert os.waitpid(child, 0)[1] == 0
put(broker, "last")
say("done")
""")
    assert process.stdout is not None
    assert process.stdout.readline() == "done\n"
    assert process.wait() == 0
    assert sorted(keys(ScriptedWorker(broker).claim())) == sorted(
        ["parent", "after", "last", *(f"child-{n}" for n in range(1, 20))]
    )
    assert broker.health.check() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_fork_while_threads_use_the_file_is_safe(broker: SQLiteBroker, spawn: Spawn) -> None:
    """The child takes over neither a lock that a thread of its parent holds nor a connection in use."""
    process = spawn("""
import threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of just this
stop = threading.Event()
def write(name):
    n = 0
    while not stop.is_set():
        put(broker, f"{name}-{n}"); broker.inspect.stats(); broker.wait(["nothing"], 0.001); n += 1
threads = [threading.Thread(target=write, args=(f"thread-{n}",)) for n in range(3)]
for thread in threads: thread.start()
for n in range(20):
    child = os.fork()
    if child == 0:
        put(broker, f"child-{n}")
        broker.wait(["q"], 1.0)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads: thread.join()
say(len([key for key in keys(ScriptedWorker(broker).claim(limit=10**6)) if key.startswith("child")]))
""")
    assert process.stdout is not None
    assert process.stdout.readline() == "20\n"
    assert broker.health.check() == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_two_threads_may_fork_at_once(broker: SQLiteBroker, spawn: Spawn) -> None:
    """Jobs that start processes do so in several threads of a worker."""
    process = spawn("""
import threading, warnings
warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of just this
put(broker, "before")
def fork():
    for _ in range(20):
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
threads = [threading.Thread(target=fork) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
put(broker, "after")
say("done")
""")
    assert process.stdout is not None
    assert process.stdout.readline() == "done\n"
    assert broker.inspect.stats()[0].length == 2


def test_claims_are_exclusive_between_processes(broker: SQLiteBroker, spawn: Spawn) -> None:
    """A settlement from here is refused once another process holds the job."""
    put(broker, "a")
    hand = ScriptedWorker(broker)
    stale = hand.one()
    hand.settle(released(stale))
    assert spawn("assert ScriptedWorker(broker, 'other').one().key == 'a'").wait() == 0
    assert hand.settle(released(stale)) == ["a"]
    assert broker.inspect.find("q", "a")[0].worker == "other"


def test_shards_that_another_process_has_changed_are_seen_by_every_thread(path: Path, monkeypatch) -> None:
    """A thread that read the queues before the change, and remembers them after it, misleads nobody."""
    broker, other = SQLiteBroker(path), SQLiteBroker(path)  # the other one stands for another process
    broker.declare("q", 8)
    read, go = threading.Event(), threading.Event()

    def slowly(tx):
        found = queues(tx)
        if threading.current_thread().name == "slow":
            read.set()
            assert go.wait(LONG_S)
        return found

    monkeypatch.setattr("laneway.brokers.sqlite.store.queues", slowly)
    slow = threading.Thread(target=broker.inspect.queues, name="slow")
    slow.start()
    assert read.wait(LONG_S)
    while not other.shards.reshard("q", 2).done:
        pass
    insert = enqueue.insert

    def after_the_slow_one(*args) -> None:
        go.set()
        slow.join(LONG_S)
        insert(*args)

    monkeypatch.setattr(enqueue, "insert", after_the_slow_one)
    put(broker, *(f"key-{n}" for n in range(20)))
    assert other.health.check() == []
    broker.close()
    other.close()
