"""Events in a file that several processes use: shared subscriptions, and copies stored all or none after a kill."""

from __future__ import annotations

import json
import os

import pytest

from laneway.brokers.sqlite import SQLiteBroker
from laneway.events.event import Subscription
from laneway.jobs.settlement import done
from laneway.testing.conformance.events import QUEUES, copies, lengths
from laneway.testing.conformance.fixtures import ScriptedWorker, keys, put
from tests.support.sqlite_fixtures import Spawn

pytestmark = pytest.mark.chaos

#: `killed` does something in a process of its own that is killed at the nth time that it reaches a place. Two jobs go
#: into one statement, so that the three copies of an event are never stored by one.
KILLED = """
import signal
from laneway import failpoints
from laneway.brokers.sqlite import enqueue
from laneway.jobs.settlement import done
from laneway.testing.conformance.events import copies, lengths
enqueue.CHUNK = 2
def kill():
    os.kill(os.getpid(), signal.SIGKILL)
def killed(act, place="nowhere", nth=1):
    child = os.fork()
    if child == 0:
        reached = []
        failpoints.armed[place] = lambda: (reached.append(1), kill() if len(reached) == nth else None)
        act()
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
"""
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")


def test_two_processes_subscribe_at_once(broker: SQLiteBroker, spawn: Spawn) -> None:
    """None overwrites what another has written, and of those that say the same one is told that it was the first."""
    script = """
from laneway.events.event import Subscription
say("ready"); hear()
told = [broker.events.subscribe(Subscription(f"topic-{n}", "shared", {"n": [n]})) for n in range(20)]
told += [broker.events.subscribe(Subscription("sold", f"queue-{sys.argv[2]}-{n}")) for n in range(20)]
import json; say(json.dumps(told))
"""
    processes = [spawn(script, name) for name in range(2)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    told = [json.loads(process.stdout.readline()) for process in processes if process.stdout is not None]
    assert [sum(column) for column in zip(*(each[:20] for each in told), strict=True)] == [1] * 20
    assert all(all(each[20:]) for each in told)
    assert len(broker.events.subscriptions("sold")) == 40
    assert [broker.events.subscriptions(f"topic-{n}")[0].filter for n in range(20)] == [{"n": [n]} for n in range(20)]


def test_what_one_process_subscribes_or_ends_another_sees_at_once(broker: SQLiteBroker, spawn: Spawn) -> None:
    """A publisher keeps nothing in mind."""
    process = spawn("""
from laneway.events.event import Subscription
while hear().strip():
    say(sorted(each.queue for each in broker.events.subscriptions("sold")))
""")
    assert process.stdin is not None
    assert process.stdout is not None
    steps = (
        (lambda: broker.events.subscribe(Subscription("sold", "mail")), ["mail"]),
        (lambda: broker.events.subscribe(Subscription("sold", "stock")), ["mail", "stock"]),
        (lambda: broker.events.unsubscribe("sold", "mail"), ["stock"]),
    )
    for step, expected in steps:
        assert step()
        process.stdin.write("look\n")
        process.stdin.flush()
        assert process.stdout.readline() == f"{expected}\n"


@forks
def test_a_publisher_killed_midway_has_published_nothing(broker: SQLiteBroker, spawn: Spawn) -> None:
    """After some of the copies were written, and after all: until the transaction is over there are none. Publishing
    again, as whoever got no answer does, brings each queue one."""
    process = spawn(
        KILLED
        + """
for nth in (1, 2, 3):
    killed(lambda: broker.enqueue([*copies("e1"), *copies("e2")]), "inside enqueue", nth)
    assert lengths(broker) == {}, (nth, lengths(broker))
"""
    )
    assert process.wait() == 0
    broker.enqueue([*copies("e1"), *copies("e2")])
    assert lengths(broker) == dict.fromkeys(QUEUES, 2)
    assert broker.health.check() == []


@forks
def test_a_run_killed_while_it_is_settled_has_published_nothing(broker: SQLiteBroker, spawn: Spawn) -> None:
    """Its end and its copies are one: neither is stored, it runs again, and then both are."""
    put(broker, "a")
    process = spawn(
        KILLED
        + """
for place, nth in (("inside enqueue", 1), ("inside enqueue", 2), ("inside settle", 1)):
    hand = ScriptedWorker(broker, f"{place} {nth}")
    claim = hand.one()
    killed(lambda: hand.settle(done(claim, copies("e1"))), place, nth)
    assert (lengths(broker), broker.status("q", "a")) == ({"q": 1}, "running"), (place, nth)
    assert broker.leave(hand.name) == 1
"""
    )
    assert process.wait() == 0
    hand = ScriptedWorker(broker)
    assert hand.settle(done(hand.one(), copies("e1"))) == []
    assert lengths(broker) == dict.fromkeys(QUEUES, 1)
    assert broker.health.check() == []


@forks
def test_a_publisher_killed_after_its_transaction_may_publish_again(broker: SQLiteBroker, spawn: Spawn) -> None:
    """It got no answer, and all copies are there: queued or being run, none of them is stored twice."""
    script = "broker._waiting.wake = kill; killed(lambda: broker.enqueue(copies('e1')))"
    assert spawn(KILLED + script).wait() == 0
    assert lengths(broker) == dict.fromkeys(QUEUES, 1)
    hand = ScriptedWorker(broker)
    assert keys(hand.claim(queue="mail")) == ["e1@mail"]
    broker.enqueue(copies("e1"))
    assert lengths(broker) == dict.fromkeys(QUEUES, 1)
