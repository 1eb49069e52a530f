"""Tests the table of features in docs/brokers.md: tries each feature on each broker.

SQS is tried without a table, with a table, and with `records=on`. The Redis column must equal the SQLite column;
the conformance suite tests Redis itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from laneway.broker import Broker
from laneway.brokers.aws.broker import AWSBroker
from laneway.brokers.memory import MemoryBroker
from laneway.brokers.sqlite import SQLiteBroker
from laneway.capabilities import relays
from laneway.errors import LanewayError
from laneway.events.event import Attribute, FilterPolicy, Subscription, copy_key
from laneway.events.filters import passes
from laneway.jobs.data import NewJob
from laneway.jobs.settlement import buried, done, failed
from laneway.testing.conformance.fixtures import ScriptedWorker, bodies, call, job, keys, numbers, value
from tests.support.aws.brokers import opened, ready
from tests.support.aws.fake.server import FakeServer

PAGE = Path(__file__).parents[3] / "docs" / "brokers.md"
DAY = 86_400.0
BROKERS = ("memory", "SQLite", "Redis", "SQS")


def rows() -> dict[str, dict[str, str]]:
    """The table: feature → broker → yes, with the table, or refused."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(r"^\| feature \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, flags=re.MULTILINE)
    assert found is not None
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]
    return {name: dict(zip(BROKERS, cells, strict=True)) for name, *cells in lines}


# -- each feature, used --------------------------------------------------------------------------------


def plain(broker: Broker) -> None:
    broker.enqueue([job("a")])
    hand = ScriptedWorker(broker)
    hand.settle(failed(hand.one(), "no", 5, 0.0))
    claim = hand.one()
    assert (claim.key, claim.attempt, claim.retry_count, claim.error) == ("a", 2, 0, "no")
    hand.settle(done(claim, [job("sent")]))
    assert keys(hand.claim()) == ["sent"]


def keyed(broker: Broker) -> None:
    broker.enqueue([call("k", "x"), call("k", "y")])
    hand = ScriptedWorker(broker)
    ran: list[str] = []
    while claims := hand.claim():
        ran += [body for claim in claims for body in bodies(claim)]
        hand.settle(*map(done, claims))
    assert ran == ["x", "y"]


def publish(broker: Broker, topic: str, id: str, **attributes: Attribute) -> None:
    """As the core does."""
    if relays(broker):
        broker.enqueue([NewJob(queue=topic, key=id, body="7", event=id, to_topic=True, attributes=attributes)])
        return
    queues = [each.queue for each in broker.subscriptions(topic) if passes(each.filter, attributes)]
    broker.enqueue([NewJob(queue=queue, key=copy_key(id, queue), body="7", event=id) for queue in queues])


def listen(broker: Broker, *filters: FilterPolicy | None) -> None:
    """Subscribe the queues `q`, `q2` and so on to the topic `t`."""
    if isinstance(broker, AWSBroker):
        broker.topics.create("t")
    for number, wanted in enumerate(filters, 1):
        assert broker.subscribe(Subscription("t", "q" if number == 1 else f"q{number}", wanted))


def events(broker: Broker) -> None:
    listen(broker, None, {"country": ["DE"]})
    publish(broker, "t", "e1", country="DE")
    publish(broker, "t", "e2", country="AT")
    hand = ScriptedWorker(broker)
    assert sorted(keys(hand.claim())) == ["e1@q", "e2@q"]
    assert keys(hand.claim(queue="q2")) == ["e1@q2"]


def delayed_copies(broker: Broker) -> None:
    listen(broker, None)
    publish(broker, "t", "e1")
    hand = ScriptedWorker(broker)
    hand.settle(failed(hand.one(), "no", 5, DAY))
    assert keys(broker.listing("q", "retries").jobs) == ["e1@q"]
    assert broker.cancel("q", "e1@q")
    assert numbers(broker).length == 0


def dead_copies(broker: Broker) -> None:
    listen(broker, None, None)
    publish(broker, "t", "e1")
    hand = ScriptedWorker(broker)
    for queue in ("q", "q2"):
        hand.settle(buried(hand.one(queue), "no"), queue=queue)
        (view,) = broker.listing(queue, "dead").jobs
        assert (view.key, bodies(view), view.error) == (f"e1@{queue}", ["7"], "no")
    assert broker.revive("q", ["e1@q"]) == 1
    assert keys(hand.claim()) == ["e1@q"]
    assert keys(broker.listing("q2", "dead").jobs) == ["e1@q2"]


def collecting(broker: Broker) -> None:
    broker.enqueue([value("k", "v")])


def long_delays(broker: Broker) -> None:
    broker.enqueue([job("soon", delay_s=60), job("later", delay_s=300 * DAY)])
    assert ScriptedWorker(broker).claim() == []
    assert numbers(broker).delayed == 2


def keyed_delays(broker: Broker) -> None:
    broker.enqueue([call("k", "x", delay_s=60)])
    assert ScriptedWorker(broker).claim() == []
    assert numbers(broker).delayed == 1


def _later(cancellable: bool = True) -> NewJob:
    return job("later", delay_s=60, cancellable=cancellable)


def cancelling(broker: Broker) -> None:
    broker.enqueue([_later()])
    assert broker.reschedule("q", "later", delay_s=DAY)
    assert broker.cancel("q", "later")
    assert numbers(broker).length == 0


def running_now(broker: Broker) -> None:
    broker.enqueue([_later()])
    assert broker.run_now("q", ["later"]) == 1
    assert keys(ScriptedWorker(broker).claim()) == ["later"]


def status(broker: Broker) -> None:
    broker.enqueue([_later()])
    assert broker.status("q", "later") == "delayed"


def any_status(broker: Broker) -> None:
    broker.enqueue([job("done"), job("dead")])
    assert broker.status("q", "done") == "queued"
    hand = ScriptedWorker(broker)
    claims = {claim.key: claim for claim in hand.claim()}
    assert broker.status("q", "done") == "running"
    hand.settle(done(claims["done"]), buried(claims["dead"], "no"))
    assert broker.status("q", "done") in ("done", "gone")
    assert broker.status("q", "dead") == "dead"


def listing_delayed(broker: Broker) -> None:
    broker.enqueue([job("later", delay_s=DAY)])
    assert keys(broker.listing("q", "delayed").jobs) == ["later"]


def listing_queued(broker: Broker) -> None:
    broker.enqueue([job("a")])
    assert keys(broker.listing("q", "queued").jobs) == ["a"]


def listing_running(broker: Broker) -> None:
    broker.enqueue([job("a")])
    ScriptedWorker(broker).one()
    assert keys(broker.listing("q", "running").jobs) == ["a"]


def morgue(broker: Broker) -> None:
    broker.enqueue([job("a"), job("b")])
    hand = ScriptedWorker(broker)
    hand.settle(*(buried(claim, "no") for claim in hand.claim()))
    assert {(view.key, view.error) for view in broker.listing("q", "dead").jobs} == {("a", "no"), ("b", "no")}
    assert broker.delete_dead("q", ["b"]) == 1
    assert broker.revive("q", ["a"]) == 1
    assert keys(hand.claim()) == ["a"]


def in_numbers(broker: Broker) -> None:
    broker.enqueue([job("a")])
    ScriptedWorker(broker).one()
    broker.enqueue([job("b"), job("later", delay_s=60)])
    found = numbers(broker)
    assert (found.length, found.delayed, found.busy) == (2, 1, 1)


def counting(broker: Broker) -> None:
    broker.enqueue([job("a")])
    hand = ScriptedWorker(broker)
    hand.settle(done(hand.one()))
    for duty in getattr(broker, "duties", lambda queues: [])(["q"]):
        duty.round()
    assert numbers(broker).processed == 1


def listing_workers(broker: Broker) -> None:
    ScriptedWorker(broker, "w-1")
    assert [worker.id for worker in broker.workers()] == ["w-1"]


def pausing(broker: Broker) -> None:
    broker.enqueue([job("a")])
    hand = ScriptedWorker(broker)
    assert broker.pause("q")
    assert hand.claim() == []
    assert broker.resume("q")
    assert keys(hand.claim()) == ["a"]


def sharding(broker: Broker) -> None:
    assert broker.reshard("q", 7).total == 0


FEATURES: dict[str, Callable[[Broker], None]] = {
    "plain tasks, retries, the outbox": plain,
    "keyed tasks, in order": keyed,
    "events: a copy for each listener, filters": events,
    "copies of an event that are delayed: listed, cancelled": delayed_copies,
    "dead copies of an event: listed, revived": dead_copies,
    "collecting tasks": collecting,
    "delays of plain jobs, of any length": long_delays,
    "delays of keyed jobs": keyed_delays,
    "cancelling and moving delayed jobs": cancelling,
    "running delayed jobs now": running_now,
    "the status of a delayed job": status,
    "the status of any other job": any_status,
    "listing delayed jobs": listing_delayed,
    "listing queued jobs": listing_queued,
    "listing running jobs": listing_running,
    "the morgue: listing, reviving, deleting": morgue,
    "queues in numbers": in_numbers,
    "counting what is processed and failed": counting,
    "listing workers": listing_workers,
    "pausing queues": pausing,
    "shards and resharding": sharding,
}


# -- and the table -------------------------------------------------------------------------------------


@contextmanager
def on(name: str, fake: FakeServer, folder: Path) -> Iterator[Broker]:
    """An empty broker with the queue `q`."""
    if name == "SQS":
        for queue in ("q", "q2"):
            fake.create_queues(queue)
        with opened(fake, table=None) as broker:
            broker.declare("q", 5)
            yield broker
        return
    if name in ("SQS with the table", "SQS with records"):
        with ready(fake, "q", "q2", records=name == "SQS with records") as broker:
            yield broker
        return
    other: Broker = MemoryBroker() if name == "memory" else SQLiteBroker(folder / "jobs.db")
    other.declare("q", 5)
    yield other
    other.close()


def outcome(feature: str, name: str, fake: FakeServer, folder: Path) -> str:
    """How it went. A failed assertion is no refusal, but where nobody keeps count there is nothing to be refused."""
    with on(name, fake, folder) as broker:
        try:
            FEATURES[feature](broker)
        except LanewayError as error:
            return "refused" if str(error).endswith(".") else f"refused, and not in a sentence: {error}"
        except AssertionError:
            if feature != "counting what is processed and failed" or name != "SQS":
                raise
            return "refused"
    return "yes"


def test_every_row_is_tried() -> None:
    assert list(rows()) == list(FEATURES)
    assert all(cells["Redis"] == cells["SQLite"] for cells in rows().values())  # the conformance suite sees to it


@pytest.mark.parametrize("feature", FEATURES)
def test_the_table_is_true(feature: str, fake: FakeServer, tmp_path: Path) -> None:
    said = rows()[feature]
    for name in ("memory", "SQLite"):
        assert outcome(feature, name, fake, tmp_path) == said[name]
    without = outcome(feature, "SQS", fake, tmp_path)
    fake.reset()
    with_table = outcome(feature, "SQS with the table", fake, tmp_path)
    fake.reset()
    with_records = outcome(feature, "SQS with records", fake, tmp_path)
    assert {
        ("yes", "yes", "yes"): "yes",
        ("refused", "yes", "yes"): "with the table",
        ("refused", "refused", "yes"): "with the table and `records=on`",
        ("refused", "refused", "refused"): "refused",
    }[without, with_table, with_records] == said["SQS"]
