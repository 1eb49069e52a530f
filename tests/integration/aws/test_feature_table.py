"""The table of features in docs/brokers.md is made from the capabilities, and what they say is true.

SQS is tried without a table, with a table, and with `records=on`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from laneway.broker import Broker, Feature, complete
from laneway.brokers.aws.broker import AWSBroker
from laneway.brokers.aws.sqs.intake import MOMENT_S
from laneway.brokers.sqlite import MemoryBroker, SQLiteBroker
from laneway.errors import LanewayError
from laneway.events.event import Attribute, FilterPolicy, Subscription, copy_key
from laneway.events.filters import passes
from laneway.jobs.data import EventCopy, Hints, NewJob
from laneway.jobs.settlement import buried, done, failed, released
from laneway.testing.conformance.fixtures import LONG_S, ScriptedWorker, bodies, call, job, keys, numbers, value
from tests.support.aws.brokers import opened, ready
from tests.support.aws.fake.server import FakeServer
from tests.support.feature_table import BROKERS, feature_table, split_page

DAY = 86_400.0


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
    if broker.capabilities.relays:
        broker.enqueue(
            [NewJob(queue=topic, key=id, body="7", event=EventCopy(id, topic, to_topic=True, attributes=attributes))]
        )
        return
    queues = [each.queue for each in broker.events.subscriptions(topic) if passes(each.filter, attributes)]
    broker.enqueue([NewJob(queue=queue, key=copy_key(id, queue), body="7", event=EventCopy(id)) for queue in queues])


def listen(broker: Broker, *filters: FilterPolicy | None) -> None:
    """Subscribe the queues `q`, `q2` and so on to the topic `t`."""
    if isinstance(broker, AWSBroker):
        broker.account.topics.create("t")
    for number, wanted in enumerate(filters, 1):
        assert broker.events.subscribe(Subscription("t", "q" if number == 1 else f"q{number}", wanted))


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
    assert keys(broker.inspect.listing("q", "retries").jobs) == ["e1@q"]
    assert broker.cancel("q", "e1@q")
    assert numbers(broker).length == 0


def dead_copies(broker: Broker) -> None:
    listen(broker, None, None)
    publish(broker, "t", "e1")
    hand = ScriptedWorker(broker)
    for queue in ("q", "q2"):
        hand.settle(buried(hand.one(queue), "no"), queue=queue)
        (view,) = broker.inspect.listing(queue, "dead").jobs
        assert (view.key, bodies(view), view.error) == (f"e1@{queue}", ["7"], "no")
    assert broker.operate.revive("q", ["e1@q"]) == 1
    assert keys(hand.claim()) == ["e1@q"]
    assert keys(broker.inspect.listing("q2", "dead").jobs) == ["e1@q2"]


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
    return job("later", delay_s=60, hints=Hints(cancellable=cancellable))


def cancelling(broker: Broker) -> None:
    broker.enqueue([_later()])
    assert broker.reschedule("q", "later", delay_s=DAY)
    assert broker.cancel("q", "later")
    assert numbers(broker).length == 0


def running_now(broker: Broker) -> None:
    broker.enqueue([_later()])
    assert broker.operate.run_now("q", ["later"]) == 1
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
    assert keys(broker.inspect.listing("q", "delayed").jobs) == ["later"]


def listing_queued(broker: Broker) -> None:
    broker.enqueue([job("a")])
    assert keys(broker.inspect.listing("q", "queued").jobs) == ["a"]


def morgue(broker: Broker) -> None:
    broker.enqueue([job("a"), job("b")])
    hand = ScriptedWorker(broker)
    hand.settle(*(buried(claim, "no") for claim in hand.claim()))
    assert {(view.key, view.error) for view in broker.inspect.listing("q", "dead").jobs} == {("a", "no"), ("b", "no")}
    assert broker.operate.delete_dead("q", ["b"]) == 1
    assert broker.operate.revive("q", ["a"]) == 1
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
    for duty in broker.health.duties(["q"]):
        duty.round()
    assert numbers(broker).processed == 1


def listing_workers(broker: Broker) -> None:
    ScriptedWorker(broker, "w-1")
    assert [worker.id for worker in broker.inspect.workers()] == ["w-1"]


def claiming(broker: Broker) -> None:
    """Not in one turn: a worker waits, and takes another turn."""
    broker.enqueue([job("a"), job("b")])
    hand = ScriptedWorker(broker)
    assert broker.wait(["q"], 5.0) == {"q"}
    assert sorted(keys(hand.claim(1) + hand.claim(1))) == ["a", "b"]


def giving_back(broker: Broker) -> None:
    broker.enqueue([job("a")])
    hand = ScriptedWorker(broker)
    hand.settle(released(hand.one()))
    assert broker.wait(["q"], 5.0) == {"q"}
    assert keys(hand.claim()) == ["a"]


def pausing(broker: Broker) -> None:
    broker.enqueue([job("a")])
    hand = ScriptedWorker(broker)
    assert broker.operate.pause("q")
    assert hand.claim() == []
    assert broker.operate.resume("q")
    assert keys(hand.claim()) == ["a"]


def priorities(broker: Broker) -> None:
    broker.enqueue([job("low", priority=1), job("high", priority=2)])
    assert keys(ScriptedWorker(broker).claim()) == ["high", "low"]


def control_characters(broker: Broker) -> None:
    broker.enqueue([job("a", "\x01")])
    assert bodies(ScriptedWorker(broker).one()) == ["\x01"]


def sharding(broker: Broker) -> None:
    assert broker.shards.reshard("q", 7).total == 0


#: How the features are tried that some broker lacks, or that are what a broker is for. The conformance suite tries all.
TRIES: dict[Feature, Callable[[Broker], None]] = {
    "inspect": in_numbers,
    "operate": morgue,
    "events": events,
    "shards": sharding,
    "keyed": keyed,
    "collecting": collecting,
    "priorities": priorities,
    "queued_jobs": listing_queued,
    "control_characters": control_characters,
}

CONDITIONS: dict[str, Callable[[Broker], None]] = {
    "delays of keyed jobs": keyed_delays,
    "cancelling and moving delayed jobs": cancelling,
    "running delayed jobs now": running_now,
    "listing delayed jobs": listing_delayed,
    "the status of a delayed job": status,
    "the status of any other job": any_status,
    "copies of an event that are delayed: listed, cancelled": delayed_copies,
    "counting what is processed and failed": counting,
    "listing workers": listing_workers,
    "pausing queues": pausing,
    "a turn claims all that is due, and a wait names all queues with due jobs": claiming,
    "what is given back, or retried without a delay, is due at once": giving_back,
}

#: What the words of a condition mean: whether SQS can do it without a table, with one, and with records.
MEANINGS = {
    "with the table": ["no", "yes", "yes"],
    "with the table; numbers are up to 10 s old": ["no", "yes", "yes"],
    "with the table and `records=on`": ["no", "no", "yes"],
    "those whose messages have arrived": ["yes", "yes", "yes"],
    "within a second": ["yes", "yes", "yes"],
}

#: What every broker does, whatever it lacks.
ALWAYS = (plain, long_delays, dead_copies)


# -- and the table -------------------------------------------------------------------------------------


@contextmanager
def on(name: str, fake: FakeServer, folder: Path) -> Iterator[Broker]:
    """An empty broker with the queue `q`."""
    if name == "SQS":
        for queue in ("q", "q2"):
            fake.create_queues(queue)
        with opened(fake, table=None) as broker:
            broker.declare("q", 5)
            yield complete(broker)
        return
    if name in ("SQS with the table", "SQS with records"):
        with ready(fake, "q", "q2", records=name == "SQS with records") as broker:
            yield complete(broker)
        return
    other: Broker = MemoryBroker() if name == "memory" else SQLiteBroker(folder / "jobs.db")
    other.declare("q", 5)
    yield other
    other.close()


def outcome(attempt: Callable[[Broker], None], name: str, fake: FakeServer, folder: Path) -> str:
    """How it went. A failed assertion is no refusal, but without a table nobody keeps count, so nothing is refused."""
    with on(name, fake, folder) as broker:
        try:
            attempt(broker)
        except LanewayError as error:
            return "no" if str(error).endswith(".") else f"no, and not in a sentence: {error}"
        except AssertionError:
            if attempt is not counting or name != "SQS":
                raise
            return "no"
    return "yes"


def test_the_page_has_the_table_that_the_capabilities_give() -> None:
    assert split_page()[1] == feature_table(), "write it again with: make feature-table"


@pytest.mark.parametrize("feature", TRIES)
@pytest.mark.parametrize("name", ["memory", "SQLite", "SQS with the table"])
def test_what_the_capabilities_say_is_true(feature: Feature, name: str, fake: FakeServer, tmp_path: Path) -> None:
    can = BROKERS[name.partition(" ")[0]]
    assert outcome(TRIES[feature], name, fake, tmp_path) == ("yes" if can.has(feature) else "no")


@pytest.mark.parametrize("attempt", ALWAYS)
@pytest.mark.parametrize("name", ["memory", "SQLite", "SQS"])
def test_what_every_broker_does(attempt: Callable[[Broker], None], name: str, fake: FakeServer, tmp_path: Path) -> None:
    assert outcome(attempt, name, fake, tmp_path) == "yes"


def test_every_condition_is_tried() -> None:
    assert list(CONDITIONS) == list(BROKERS["SQS"].conditions)


@pytest.mark.parametrize("what", CONDITIONS)
def test_a_condition_is_true(what: str, fake: FakeServer, tmp_path: Path) -> None:
    tries = []
    for name in ("memory", "SQLite", "SQS", "SQS with the table", "SQS with records"):
        tries.append(outcome(CONDITIONS[what], name, fake, tmp_path))
        fake.reset()
    assert tries == ["yes", "yes", *MEANINGS[BROKERS["SQS"].conditions[what]]]


def test_numbers_are_as_old_as_the_last_heartbeat(fake: FakeServer) -> None:
    """A worker's heartbeat reports what it holds and what it has settled, every ten seconds."""
    with ready(fake, "q") as aws:
        broker = complete(aws)
        broker.enqueue([job("a"), job("b")])
        hand = ScriptedWorker(broker)
        claims = hand.claim()
        hand.settle(done(claims[0]))
        assert (numbers(broker).processed, [worker.busy for worker in broker.inspect.workers()]) == (0, [0])
        assert aws.heartbeat.round() == 10.0
        assert (numbers(broker).processed, [worker.busy for worker in broker.inspect.workers()]) == (1, [1])


def test_a_turn_and_a_wait_do_not_see_what_has_not_arrived(fake: FakeServer) -> None:
    """Neither asks SQS: the receiving threads do. This one is held back."""
    with ready(fake, "q", inline=False) as broker:
        broker.enqueue([job("a")])
        (buffer,) = (each for each in broker.turns._receivers.open("q") if not each.sqs_queue.fifo)
        with broker.turns._receivers._receivers[buffer.sqs_queue.url]._asking:
            hand = ScriptedWorker(complete(broker))
            assert hand.claim() == []
            assert broker.wait(["q"], 0.01) == set()
        assert broker.wait(["q"], LONG_S) == {"q"}
        assert keys(hand.claim()) == ["a"]


def test_what_is_received_while_it_is_given_back_is_hidden_for_a_second(
    fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQS hands it out again before the settlement has ended. Then it comes a second time."""
    with ready(fake, "q") as broker:
        broker.enqueue([job("a")])
        hand = ScriptedWorker(complete(broker))
        claim = hand.one()
        conclude = broker.turns._settler._conclude

        def receive_and_conclude(*args: Any) -> None:
            assert broker.wait(["q"], 0.0) == set()
            conclude(*args)

        monkeypatch.setattr(broker.turns._settler, "_conclude", receive_and_conclude)
        hand.settle(released(claim))
        assert (hand.claim(), fake.queues["q"].counts.in_flight) == ([], 1)
        (message,) = fake.queues["q"].messages
        assert 0 < message.visible_at - fake._now() <= MOMENT_S == 1
