"""`check` finds damage to the file, and `repair` fixes it without throwing data away."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from laneway.brokers.sqlite import SQLiteBroker
from laneway.errors import BrokerError
from laneway.events.event import Subscription
from laneway.jobs.settlement import buried, done
from laneway.testing.conformance.fixtures import ScriptedWorker, calls, put, values

pytestmark = pytest.mark.unit


@pytest.fixture
def stocked(broker: SQLiteBroker) -> SQLiteBroker:
    """A queue with a job of each kind, and a dead one."""
    hand = ScriptedWorker(broker)
    values(broker, "dead", {"v": 1.0})
    hand.settle(buried(hand.one(), "no"))
    put(broker, "plain")
    calls(broker, "keyed", "a", "b")
    values(broker, "collected", {"v": 1.0, "w": 2.0})
    assert broker.health.check() == []
    return broker


def texts(broker: SQLiteBroker) -> list[str]:
    """What `check` finds, as sentences."""
    findings = broker.health.check()
    assert {finding.level for finding in findings} <= {"problem"}
    return [finding.text for finding in findings]


def damage(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute(statement).rowcount
        db.commit()


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE jobs SET shard = shard + 1 WHERE key = 'keyed'", "Jobs in the wrong shard, where no worker looks: 1"),
        ("UPDATE morgue SET shard = shard + 1", "Jobs in the wrong shard, where no worker looks: 1"),
        (
            "UPDATE jobs SET worker = 99, token = 1 WHERE key = 'plain'",
            "Jobs claimed by a worker that does not exist: 1",
        ),
        ("UPDATE queues SET shards = 0", "Queues without shards: 1"),
        ("UPDATE queues SET shards = -1", "Queues without shards: 1"),
        (
            "UPDATE jobs SET perform_at = 9e10 WHERE key = 'keyed'",
            "Keyed jobs that are not due with their earliest call: 1",
        ),
        ("UPDATE payloads SET place = 1 WHERE identity = 'a'", "Jobs queued and running at once: 1"),
    ],
)
def test_what_is_mended_is_as_it_was(stocked: SQLiteBroker, path: Path, statement: str, found: str) -> None:
    before = [stocked.inspect.find("q", key) for key in ("plain", "keyed", "collected", "dead")]
    damage(path, statement)
    broker = SQLiteBroker(path, clock=stocked._clock)
    assert texts(broker) == [f"{found}; mend it with laneway check --repair."]
    assert broker.health.repair()
    assert broker.health.check() == []
    assert [broker.inspect.find("q", key) for key in ("plain", "keyed", "collected", "dead")] == before
    hand = ScriptedWorker(broker, "after")
    assert hand.settle(*map(done, hand.claim())) == []
    broker.close()


def test_jobs_of_a_queue_that_is_gone_are_found(stocked: SQLiteBroker, path: Path) -> None:
    """Under another name, because nobody knows the old one."""
    damage(path, "DELETE FROM queues")
    broker = SQLiteBroker(path)
    assert texts(broker) == ["Queues that are gone and have left jobs behind: 1; mend it with laneway check --repair."]
    assert broker.health.repair() == ["Queues that were gone, and are lost-and-found-… now: 1."]
    (name,) = broker.inspect.queues()
    assert len(broker.inspect.listing(name, "queued").jobs) == 3
    assert len(broker.inspect.listing(name, "dead").jobs) == 1
    assert broker.health.check() == []
    broker.close()


def test_payloads_without_a_job_are_kept(stocked: SQLiteBroker, path: Path) -> None:
    damage(path, "DELETE FROM jobs WHERE key = 'collected'")
    assert texts(stocked) == ["Payloads without a job: 2; mend it with laneway check --repair."]
    assert stocked.health.repair() == ["Payloads without a job put into the morgue of the queue lost-and-found: 2."]
    assert sorted(job.payloads[0].body for job in stocked.inspect.listing("lost-and-found", "dead").jobs) == ["v", "w"]
    assert stocked.health.check() == []


@pytest.mark.parametrize("place", [0, 2])
def test_jobs_without_a_payload_are_removed(stocked: SQLiteBroker, path: Path, place: int) -> None:
    damage(path, f"DELETE FROM payloads WHERE place = {place}")
    count = 2 if place == 0 else 1
    assert texts(stocked) == [f"Jobs without any payload: {count}; mend it with laneway check --repair."]
    assert stocked.health.repair() == [f"Jobs without any payload removed: {count}."]
    assert stocked.health.check() == []


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", "5", '{"country": "DE"}', '{"country": ["DE"], "cents": {}}', "{"]
)
def test_a_filter_that_cannot_be_read_is_named_and_removed(stocked: SQLiteBroker, path: Path, text: str) -> None:
    """Whoever wanted some of the events gets all of them, until it is written anew; nothing else is touched."""
    wanted = {"country": ["DE", {"prefix": "P"}]}
    for topic, queue, policy in (("sold", "a", None), ("sold", "b", wanted), ("sold", "c", {"x": ["y"]})):
        stocked.events.subscribe(Subscription(topic, queue, policy))
    damage(path, f"UPDATE subscriptions SET filter = '{text}' WHERE queue = 'c'")
    with pytest.raises(BrokerError, match=r"The filter of the queue c.* cannot be read .*laneway subscribe"):
        stocked.events.subscriptions("sold")
    assert stocked.events.subscriptions("returned") == []
    found = "Subscriptions whose filter cannot be read, so that no program can publish: 1"
    assert texts(stocked) == [f"{found}; mend it with laneway check --repair."]
    assert stocked.health.repair() == ["Subscriptions without a filter now, until their listener's worker restarts: 1."]
    assert (stocked.health.check(), stocked.health.repair()) == ([], [])
    kept = [Subscription("sold", "a"), Subscription("sold", "b", wanted)]
    assert stocked.events.subscriptions("sold") == [*kept, Subscription("sold", "c")]
    assert stocked.events.subscribe(Subscription("sold", "c", {"x": ["y"]}))
