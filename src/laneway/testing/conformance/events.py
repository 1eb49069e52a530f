"""Tests of subscriptions, and of the copies of an event: stored together, and independent from then on.

A broker stores which queues want a topic, because publishers do not know the listeners.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest

from ...broker import Broker
from ...clock import ManualClock
from ...errors import EnqueueError, LanewayError
from ...events.event import FilterPolicy, Subscription, copy_key
from ...jobs.data import EventCopy, NewJob
from ...jobs.settlement import buried, done, failed, released
from .fixtures import LONG_S, BrokerFixtures, ScriptedWorker, job, keys, needs, only, put

#: A filter with one of everything, and no larger than SNS takes it.
EVERYTHING: FilterPolicy = {
    "country": ["DE", {"prefix": "A"}, {"anything-but": ["AT", "AQ"]}, {"equals-ignore-case": "pl"}, {"suffix": "x"}],
    "cents": [5, 0.1 + 0.2, -(2**53), {"numeric": [">=", 1.5, "<", 10]}],
    "quoted.name-1": ['"', "'; DROP TABLE subscriptions; --", "\\", "ü🚲", "a\0b", "", "line\nbreak"],
    "kind": [{"exists": False}],
}


@needs("events")
class SubscriptionTests(BrokerFixtures):
    def test_a_subscription_is_there_from_the_moment_that_it_was_made(self, broker: Broker) -> None:
        """Whoever publishes finds it; nobody else has one."""
        assert broker.events.subscriptions() == broker.events.subscriptions("sold") == []
        assert broker.events.subscribe(Subscription("sold", "mail"))
        assert broker.events.subscriptions() == broker.events.subscriptions("sold") == [Subscription("sold", "mail")]
        assert broker.events.subscriptions("returned") == []

    def test_subscribing_again_changes_nothing_and_says_so(self, broker: Broker) -> None:
        """Every worker does it when it starts."""
        for wanted in (Subscription("sold", "mail"), Subscription("sold", "stock", EVERYTHING)):
            assert broker.events.subscribe(wanted)
            assert not broker.events.subscribe(wanted)
        assert broker.events.subscriptions("sold") == [
            Subscription("sold", "mail"),
            Subscription("sold", "stock", EVERYTHING),
        ]

    def test_another_filter_takes_the_place_of_the_one_before(self, broker: Broker) -> None:
        """A queue has one subscription to a topic; with a filter, with another, or with none."""
        broker.events.subscribe(Subscription("sold", "stock", {"country": ["PL"]}))
        for policy in (None, {"country": ["DE"]}, {"country": ["DE", "PL"]}, None):
            assert broker.events.subscribe(Subscription("sold", "mail", policy))
            assert broker.events.subscriptions("sold") == [
                Subscription("sold", "mail", policy),
                Subscription("sold", "stock", {"country": ["PL"]}),
            ]

    def test_a_filter_comes_out_as_it_went_in(self, broker: Broker) -> None:
        """Texts to the last character, numbers to the last bit, and whole ones stay whole."""
        broker.events.subscribe(Subscription("sold", "mail", EVERYTHING))
        (found,) = broker.events.subscriptions("sold")
        assert found.filter == EVERYTHING
        assert [type(each) for each in (found.filter or {})["cents"]] == [int, float, int, dict]

    def test_a_filter_that_says_the_same_is_the_same(self, broker: Broker) -> None:
        """In whatever order its attributes were written; and one that asks for nothing is none."""
        assert broker.events.subscribe(Subscription("sold", "mail", {"a": ["x"], "b": ["y"]}))
        assert not broker.events.subscribe(Subscription("sold", "mail", {"b": ["y"], "a": ["x"]}))
        assert broker.events.subscribe(Subscription("sold", "mail", {}))
        assert not broker.events.subscribe(Subscription("sold", "mail"))
        assert broker.events.subscriptions() == [Subscription("sold", "mail")]

    def test_subscriptions_are_shown_by_topic_and_queue(self, broker: Broker) -> None:
        """All, or those of one topic: not those of others whose names begin like it."""
        names = [("sold", "stock"), ("sold-again", "b"), ("Sold", "a"), ("sold", "mail"), ("so", "z"), ("sold", "Z")]
        for topic, queue in names:
            broker.events.subscribe(Subscription(topic, queue))
        assert broker.events.subscriptions() == [Subscription(*name) for name in sorted(names)]
        assert [each.queue for each in broker.events.subscriptions("sold")] == ["Z", "mail", "stock"]

    def test_a_topic_has_many_queues_and_a_queue_many_topics(self, broker: Broker) -> None:
        """Each pair is a subscription of its own."""
        queues, topics = [f"queue-{n:03}" for n in range(150)], [f"topic-{n}" for n in range(5)]
        for queue in reversed(queues):
            assert broker.events.subscribe(Subscription("sold", queue))
        for topic in topics:
            assert broker.events.subscribe(Subscription(topic, "mail", {"topic": [topic]}))
        assert [each.queue for each in broker.events.subscriptions("sold")] == queues
        for topic in topics:
            assert broker.events.subscriptions(topic) == [Subscription(topic, "mail", {"topic": [topic]})]

    def test_unsubscribing_ends_that_subscription_alone(self, broker: Broker) -> None:
        """And says whether there was one."""
        for topic, queue in (("sold", "mail"), ("sold", "stock"), ("returned", "mail")):
            broker.events.subscribe(Subscription(topic, queue))
        assert broker.events.unsubscribe("sold", "mail")
        assert not broker.events.unsubscribe("sold", "mail")
        assert not broker.events.unsubscribe("sold", "nowhere")
        assert not broker.events.unsubscribe("nothing", "stock")
        assert broker.events.subscriptions() == [Subscription("returned", "mail"), Subscription("sold", "stock")]

    def test_a_subscription_that_was_ended_begins_anew(self, broker: Broker) -> None:
        """Without the filter from before."""
        broker.events.subscribe(Subscription("sold", "mail", {"country": ["DE"]}))
        broker.events.unsubscribe("sold", "mail")
        assert broker.events.subscribe(Subscription("sold", "mail"))
        assert broker.events.subscriptions("sold") == [Subscription("sold", "mail")]

    @pytest.mark.parametrize("name", ["", "a b", "ü", "a.b", "x" * 81, "half \ud800"])
    def test_names_that_no_queue_can_have_are_refused(self, broker: Broker, name: str) -> None:
        """Before anything is stored."""
        for bad in (Subscription(name, "mail"), Subscription("sold", name)):
            with pytest.raises(LanewayError):
                broker.events.subscribe(bad)
        assert broker.events.subscriptions() == []

    def test_a_filter_that_cannot_be_kept_is_refused(self, broker: Broker) -> None:
        """And the one from before stays."""
        broker.events.subscribe(Subscription("sold", "mail", {"country": ["DE"]}))
        for bad in ({"country": ["half \ud800"]}, {"country": [object()]}):
            with pytest.raises(LanewayError):
                broker.events.subscribe(Subscription("sold", "mail", bad))
        assert broker.events.subscriptions() == [Subscription("sold", "mail", {"country": ["DE"]})]

    def test_a_filter_that_is_shown_is_a_copy(self, broker: Broker) -> None:
        """Whoever changes what he gave, or what he got, changes nothing in the broker."""
        policy: FilterPolicy = {"country": ["DE"]}
        broker.events.subscribe(Subscription("sold", "mail", policy))
        policy["country"].append("PL")
        (found,) = broker.events.subscriptions("sold")
        assert found.filter == {"country": ["DE"]}
        (found.filter or {})["country"].append("AT")
        assert broker.events.subscriptions("sold") == [Subscription("sold", "mail", {"country": ["DE"]})]

    @needs("health")
    def test_subscriptions_outlive_connections_and_repairs(self, broker: Broker) -> None:
        """They are nothing that is unwell, and they are never removed by themselves."""
        broker.events.subscribe(Subscription("sold", "mail", EVERYTHING))
        assert (broker.health.check(), broker.health.repair()) == ([], [])
        broker.close()
        assert broker.events.subscriptions("sold") == [Subscription("sold", "mail", EVERYTHING)]

    def test_many_subscribe_at_once(self, broker: Broker) -> None:
        """All of them are kept, and of those that say the same one is told that it was the first."""
        told: list[bool] = []

        def start(number: int) -> None:
            for n in range(10):
                broker.events.subscribe(Subscription("sold", f"queue-{number}-{n}"))
            told.append(broker.events.subscribe(Subscription("sold", "mail", {"country": ["DE"]})))

        threads = [threading.Thread(target=start, args=(number,), daemon=True) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG_S)
        # Where topics are a service of their own, it may tell several that they were the first.
        assert told.count(True) == 1 or (broker.capabilities.relays and any(told))
        expected = {"mail", *(f"queue-{number}-{n}" for number in range(4) for n in range(10))}
        assert [each.queue for each in broker.events.subscriptions("sold")] == sorted(expected)


QUEUES = ("audit", "mail", "stock")


def copies(id: str, queues: Iterable[str] = QUEUES, body: str = '{"order":17}', **fields: Any) -> list[NewJob]:
    """One event's copies for these queues."""
    return [NewJob(queue=queue, key=copy_key(id, queue), body=body, event=EventCopy(id), **fields) for queue in queues]


def lengths(broker: Broker) -> dict[str, int]:
    """How many jobs are queued or running in each queue that has any."""
    return {each.queue: each.length + each.busy for each in broker.inspect.stats() if each.length + each.busy}


class EventCopyTests(BrokerFixtures):
    @needs("inspect", "events")
    def test_every_queue_gets_a_copy(self, broker: Broker) -> None:
        """Queues that do not exist yet, too; a copy is a plain job, with an id of its own and the event's value."""
        broker.declare("mail", 3)
        assert broker.events.subscribe(Subscription("sold", "audit"))
        broker.enqueue(copies("e1", headers={"country": "DE"}))
        assert lengths(broker) == dict.fromkeys(QUEUES, 1)
        hand = ScriptedWorker(broker)
        for queue in QUEUES:
            claim = hand.one(queue)
            assert (claim.queue, claim.key) == (queue, f"e1@{queue}")
            assert ([each.body for each in claim.payloads], claim.headers) == (['{"order":17}'], {"country": "DE"})
            assert hand.settle(done(claim), queue=queue) == []
        assert lengths(broker) == {}

    @needs("inspect")
    def test_copies_are_stored_all_or_none(self, broker: Broker) -> None:
        """With one among them that cannot be stored, wherever it stands, no queue gets its own."""
        unstorable: tuple[dict[str, Any], ...] = (
            {"priority": 2**80},
            {"body": "half \ud800"},
            {"delay_s": float("inf")},
            {"headers": {"half \udfff": ""}},
        )
        for fields in unstorable:
            bad = copies("e1", ["bad"], **fields)
            for place in range(len(QUEUES) + 1):
                event = copies("e1")
                with pytest.raises(EnqueueError):
                    broker.enqueue([*copies("e0"), *event[:place], *bad, *event[place:]])
                assert lengths(broker) == {}
        broker.enqueue([*copies("e0"), *copies("e1")])
        assert lengths(broker) == {"audit": 2, "mail": 2, "stock": 2}

    @needs("inspect")
    def test_many_events_go_in_at_once(self, broker: Broker) -> None:
        """Every queue has all of them, in the order in which they were published; with a bad one, none."""
        events = [each for n in range(700) for each in copies(f"e{n}")]
        with pytest.raises(EnqueueError):
            broker.enqueue([*events, *copies("bad", priority=2**80)])
        assert lengths(broker) == {}
        broker.enqueue(events)
        hand = ScriptedWorker(broker)
        for queue in QUEUES:
            assert keys(hand.claim(queue=queue)) == [f"e{n}@{queue}" for n in range(700)]

    @needs("inspect", "unique_keys")
    def test_publishing_again_stores_nothing_twice(self, broker: Broker) -> None:
        """Not while the copies are queued, nor while they run: a publisher that got no answer may repeat itself."""
        hand = ScriptedWorker(broker)
        broker.enqueue(copies("e1"))
        broker.enqueue([*copies("e1"), *copies("e1")])
        claim = hand.one("mail")
        broker.enqueue(copies("e1"))
        assert lengths(broker) == {"audit": 1, "mail": 1, "stock": 1}
        assert hand.claim(queue="mail") == []
        assert hand.settle(done(claim), queue="mail") == []
        assert lengths(broker) == {"audit": 1, "stock": 1}

    @needs("inspect", "unique_keys")
    def test_a_repeat_brings_a_queue_its_copy_that_has_none(self, broker: Broker) -> None:
        """Each copy is stored unless it is there itself: the others' say nothing of it."""
        broker.enqueue(copies("e1", ["mail"]))
        broker.enqueue(copies("e1"))
        assert lengths(broker) == {"audit": 1, "mail": 1, "stock": 1}

    @needs("inspect")
    def test_events_with_equal_values_are_two(self, broker: Broker) -> None:
        """They are told apart by their ids."""
        broker.enqueue([*copies("e1"), *copies("e2")])
        assert lengths(broker) == {"audit": 2, "mail": 2, "stock": 2}

    @needs("operate")
    def test_each_copy_is_settled_alone(self, broker: Broker, clock: ManualClock) -> None:
        """One is retried, one is buried and revived, and the others are as they were."""
        broker.enqueue(copies("e1"))
        hand = ScriptedWorker(broker)
        claims = {queue: hand.one(queue) for queue in ("audit", "mail")}
        assert hand.settle(failed(claims["mail"], "no", 25, 60.0), queue="mail") == []
        assert hand.settle(buried(claims["audit"], "never"), queue="audit") == []
        assert hand.one("stock").attempt == 1
        assert [hand.claim(queue=queue) for queue in QUEUES] == [[], [], []]
        assert broker.operate.revive("audit", ["e1@audit"]) == 1
        clock.advance(60)
        again = {queue: hand.one(queue) for queue in ("audit", "mail")}
        assert {queue: (claim.key, claim.retry_count) for queue, claim in again.items()} == {
            "audit": ("e1@audit", -1),
            "mail": ("e1@mail", 0),
        }

    @needs("inspect", "operate", "queued_jobs")
    def test_a_copy_that_fails_is_tried_again_alone(self, broker: Broker, clock: ManualClock) -> None:
        """What becomes of one copy is nothing to the others: retried, buried, done, cancelled or revived."""
        broker.enqueue(copies("e1"))
        hand = ScriptedWorker(broker)
        claims = {queue: hand.one(queue) for queue in ("audit", "mail")}
        assert hand.settle(failed(claims["mail"], "no", 25, 60.0), queue="mail") == []
        assert hand.settle(buried(claims["audit"], "never"), queue="audit") == []
        found = {queue: only(broker, f"e1@{queue}", queue) for queue in QUEUES}
        assert {queue: (view.status, view.retry_count) for queue, view in found.items()} == {
            "audit": ("dead", 0),
            "mail": ("delayed", 0),
            "stock": ("queued", -1),
        }
        assert broker.cancel("stock", "e1@stock")
        assert broker.operate.revive("audit", ["e1@audit"]) == 1
        clock.advance(60)
        assert [(queue, hand.one(queue).attempt) for queue in ("audit", "mail")] == [("audit", 2), ("mail", 2)]
        assert broker.status("stock", "e1@stock") == "cancelled"

    @needs("priorities")
    def test_a_copy_may_be_late_or_urgent_like_any_job(self, broker: Broker, clock: ManualClock) -> None:
        """Each in its own queue."""
        broker.enqueue([*copies("e1"), *copies("e2", delay_s=30), *copies("e3", priority=7)])
        hand = ScriptedWorker(broker)
        assert keys(hand.claim(queue="mail")) == ["e3@mail", "e1@mail"]
        clock.advance(30)
        assert keys(hand.claim(queue="mail")) == ["e2@mail"]
        assert keys(hand.claim(queue="stock")) == ["e3@stock", "e1@stock", "e2@stock"]

    @needs("inspect")
    def test_what_a_run_published_is_stored_when_it_is_done(self, broker: Broker) -> None:
        """All copies in the step that settles the run, in that order; a repeat of the turn stores nothing twice."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        assert hand.settle(done(hand.one(), [*copies("e1"), job("child"), *copies("e2")])) == []
        hand.again()
        assert lengths(broker) == {"audit": 2, "mail": 2, "q": 1, "stock": 2}
        for queue in QUEUES:
            assert keys(hand.claim(queue=queue)) == [f"e1@{queue}", f"e2@{queue}"]

    @needs("inspect")
    def test_what_a_run_published_is_lost_with_it(self, broker: Broker) -> None:
        """A settlement that is refused publishes nothing."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        stale = hand.one()
        hand.settle(released(stale))
        assert hand.settle(done(stale, copies("e1"))) == ["a"]
        assert lengths(broker) == {"q": 1}

    @needs("inspect")
    def test_a_run_with_a_copy_that_cannot_be_stored_is_not_settled(self, broker: Broker) -> None:
        """The turn is refused as a whole: nothing is stored, and the claim is still the worker's."""
        put(broker, "a")
        hand = ScriptedWorker(broker)
        claim = hand.one()
        with pytest.raises(LanewayError):
            hand.settle(done(claim, [*copies("e1"), *copies("e1", ["bad"], priority=2**80)]))
        assert (lengths(broker), broker.status("q", "a")) == ({"q": 1}, "running")
        assert hand.settle(done(claim, copies("e1"))) == []
        assert lengths(broker) == {"audit": 1, "mail": 1, "stock": 1}

    @needs("operate")
    def test_a_paused_queue_gets_its_copy(self, broker: Broker) -> None:
        """It runs when the queue goes on; the others do not wait for it."""
        broker.declare("mail", 5)
        broker.operate.pause("mail")
        broker.enqueue(copies("e1"))
        hand = ScriptedWorker(broker)
        assert (hand.claim(queue="mail"), keys(hand.claim(queue="stock"))) == ([], ["e1@stock"])
        broker.operate.resume("mail")
        assert keys(hand.claim(queue="mail")) == ["e1@mail"]

    def test_every_queue_is_told_of(self, broker: Broker) -> None:
        """Whoever waits for any of them is woken."""
        broker.enqueue(copies("e1"))
        ScriptedWorker(broker)
        for queue in QUEUES:
            assert broker.wait([queue, "q"], LONG_S) == {queue}
        assert broker.wait([*QUEUES, "q"], LONG_S) == set(QUEUES)

    @needs("events")
    def test_what_is_in_a_queue_outlives_its_subscription(self, broker: Broker) -> None:
        """Ending one ends no job: it was published while somebody wanted it."""
        broker.events.subscribe(Subscription("sold", "mail"))
        broker.enqueue(copies("e1", ["mail"]))
        assert broker.events.unsubscribe("sold", "mail")
        assert keys(ScriptedWorker(broker).claim(queue="mail")) == ["e1@mail"]
