"""Copies of an event: a job for each queue that wants it, stored together, and apart from then on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from ...broker import Broker
from ...clock import ManualClock
from ...errors import EnqueueError, LanewayError
from ...events.event import Subscription, copy_key
from ...jobs.data import NewJob
from ...jobs.settlement import buried, done, failed, released
from .fixtures import LONG_S, Hand, Kit, job, keys, only, put

QUEUES = ("audit", "mail", "stock")


def copies(id: str, queues: Iterable[str] = QUEUES, body: str = '{"order":17}', **fields: Any) -> list[NewJob]:
    """One event's copies for these queues."""
    return [NewJob(queue=queue, key=copy_key(id, queue), body=body, event=id, **fields) for queue in queues]


def lengths(broker: Broker) -> dict[str, int]:
    """How many jobs are queued or running in each queue that has any."""
    return {each.queue: each.length + each.busy for each in broker.stats() if each.length + each.busy}


class Copies(Kit):
    def test_every_queue_gets_a_copy(self, broker: Broker) -> None:
        """Queues that do not exist yet, too; a copy is a plain job, with an id of its own and the event's value."""
        broker.declare("mail", 3)
        assert broker.subscribe(Subscription("sold", "audit"))
        broker.enqueue(copies("e1", headers={"country": "DE"}))
        assert lengths(broker) == dict.fromkeys(QUEUES, 1)
        hand = Hand(broker)
        for queue in QUEUES:
            claim = hand.one(queue)
            assert (claim.queue, claim.key) == (queue, f"e1@{queue}")
            assert ([each.body for each in claim.payloads], claim.headers) == (['{"order":17}'], {"country": "DE"})
            assert hand.settle(done(claim), queue=queue) == []
        assert lengths(broker) == {}

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

    def test_many_events_go_in_at_once(self, broker: Broker) -> None:
        """Every queue has all of them, in the order in which they were published; with a bad one, none."""
        events = [each for n in range(700) for each in copies(f"e{n}")]
        with pytest.raises(EnqueueError):
            broker.enqueue([*events, *copies("bad", priority=2**80)])
        assert lengths(broker) == {}
        broker.enqueue(events)
        hand = Hand(broker)
        for queue in QUEUES:
            assert keys(hand.claim(queue=queue)) == [f"e{n}@{queue}" for n in range(700)]

    def test_publishing_again_stores_nothing_twice(self, broker: Broker) -> None:
        """Not while the copies are queued, nor while they run: a publisher that got no answer may repeat itself."""
        hand = Hand(broker)
        broker.enqueue(copies("e1"))
        broker.enqueue([*copies("e1"), *copies("e1")])
        claim = hand.one("mail")
        broker.enqueue(copies("e1"))
        assert lengths(broker) == {"audit": 1, "mail": 1, "stock": 1}
        assert hand.claim(queue="mail") == []
        assert hand.settle(done(claim), queue="mail") == []
        assert lengths(broker) == {"audit": 1, "stock": 1}

    def test_a_repeat_brings_a_queue_its_copy_that_has_none(self, broker: Broker) -> None:
        """Each copy is stored unless it is there itself: the others' say nothing of it."""
        broker.enqueue(copies("e1", ["mail"]))
        broker.enqueue(copies("e1"))
        assert lengths(broker) == {"audit": 1, "mail": 1, "stock": 1}

    def test_events_with_equal_values_are_two(self, broker: Broker) -> None:
        """They are told apart by their ids."""
        broker.enqueue([*copies("e1"), *copies("e2")])
        assert lengths(broker) == {"audit": 2, "mail": 2, "stock": 2}

    def test_a_copy_that_fails_is_tried_again_alone(self, broker: Broker, clock: ManualClock) -> None:
        """What becomes of one copy is nothing to the others: retried, buried, done, cancelled or revived."""
        broker.enqueue(copies("e1"))
        hand = Hand(broker)
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
        assert broker.revive("audit", ["e1@audit"]) == 1
        clock.advance(60)
        assert [(queue, hand.one(queue).attempt) for queue in ("audit", "mail")] == [("audit", 2), ("mail", 2)]
        assert broker.status("stock", "e1@stock") == "cancelled"

    def test_a_copy_may_be_late_or_urgent_like_any_job(self, broker: Broker, clock: ManualClock) -> None:
        """Each in its own queue."""
        broker.enqueue([*copies("e1"), *copies("e2", delay_s=30), *copies("e3", priority=7)])
        hand = Hand(broker)
        assert keys(hand.claim(queue="mail")) == ["e3@mail", "e1@mail"]
        clock.advance(30)
        assert keys(hand.claim(queue="mail")) == ["e2@mail"]
        assert keys(hand.claim(queue="stock")) == ["e3@stock", "e1@stock", "e2@stock"]

    def test_what_a_run_published_is_stored_when_it_is_done(self, broker: Broker) -> None:
        """All copies in the step that settles the run, in that order; a repeat of the turn stores nothing twice."""
        put(broker, "a")
        hand = Hand(broker)
        assert hand.settle(done(hand.one(), [*copies("e1"), job("child"), *copies("e2")])) == []
        hand.again()
        assert lengths(broker) == {"audit": 2, "mail": 2, "q": 1, "stock": 2}
        for queue in QUEUES:
            assert keys(hand.claim(queue=queue)) == [f"e1@{queue}", f"e2@{queue}"]

    def test_what_a_run_published_is_lost_with_it(self, broker: Broker) -> None:
        """A settlement that is refused publishes nothing."""
        put(broker, "a")
        hand = Hand(broker)
        stale = hand.one()
        hand.settle(released(stale))
        assert hand.settle(done(stale, copies("e1"))) == ["a"]
        assert lengths(broker) == {"q": 1}

    def test_a_run_with_a_copy_that_cannot_be_stored_is_not_settled(self, broker: Broker) -> None:
        """The turn is refused as a whole: nothing is stored, and the claim is still the worker's."""
        put(broker, "a")
        hand = Hand(broker)
        claim = hand.one()
        with pytest.raises(LanewayError):
            hand.settle(done(claim, [*copies("e1"), *copies("e1", ["bad"], priority=2**80)]))
        assert (lengths(broker), broker.status("q", "a")) == ({"q": 1}, "running")
        assert hand.settle(done(claim, copies("e1"))) == []
        assert lengths(broker) == {"audit": 1, "mail": 1, "stock": 1}

    def test_a_paused_queue_gets_its_copy(self, broker: Broker) -> None:
        """It runs when the queue goes on; the others do not wait for it."""
        broker.declare("mail", 5)
        broker.pause("mail")
        broker.enqueue(copies("e1"))
        hand = Hand(broker)
        assert (hand.claim(queue="mail"), keys(hand.claim(queue="stock"))) == ([], ["e1@stock"])
        broker.resume("mail")
        assert keys(hand.claim(queue="mail")) == ["e1@mail"]

    def test_every_queue_is_told_of(self, broker: Broker) -> None:
        """Whoever waits for any of them is woken."""
        broker.enqueue(copies("e1"))
        for queue in QUEUES:
            assert broker.wait([queue, "q"], LONG_S) == {queue}
        assert broker.wait([*QUEUES, "q"], LONG_S) == set(QUEUES)

    def test_what_is_in_a_queue_outlives_its_subscription(self, broker: Broker) -> None:
        """Ending one ends no job: it was published while somebody wanted it."""
        broker.subscribe(Subscription("sold", "mail"))
        broker.enqueue(copies("e1", ["mail"]))
        assert broker.unsubscribe("sold", "mail")
        assert keys(Hand(broker).claim(queue="mail")) == ["e1@mail"]
