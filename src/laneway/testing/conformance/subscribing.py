"""Subscriptions: which queues want what is published to a topic, kept for publishers who know nothing of listeners."""

from __future__ import annotations

import threading

import pytest

from ...broker import Broker
from ...errors import LanewayError
from ...events.event import FilterPolicy, Subscription
from .fixtures import LONG_S, Kit

#: A filter with one of everything, and no larger than SNS takes it.
EVERYTHING: FilterPolicy = {
    "country": ["DE", {"prefix": "A"}, {"anything-but": ["AT", "AQ"]}, {"equals-ignore-case": "pl"}, {"suffix": "x"}],
    "cents": [5, 0.1 + 0.2, -(2**53), {"numeric": [">=", 1.5, "<", 10]}],
    "quoted.name-1": ['"', "'; DROP TABLE subscriptions; --", "\\", "ü🚲", "a\0b", "", "line\nbreak"],
    "kind": [{"exists": False}],
}


class Subscribing(Kit):
    def test_a_subscription_is_there_from_the_moment_that_it_was_made(self, broker: Broker) -> None:
        """Whoever publishes finds it; nobody else has one."""
        assert broker.subscriptions() == broker.subscriptions("sold") == []
        assert broker.subscribe(Subscription("sold", "mail"))
        assert broker.subscriptions() == broker.subscriptions("sold") == [Subscription("sold", "mail")]
        assert broker.subscriptions("returned") == []

    def test_subscribing_again_changes_nothing_and_says_so(self, broker: Broker) -> None:
        """Every worker does it when it starts."""
        for wanted in (Subscription("sold", "mail"), Subscription("sold", "stock", EVERYTHING)):
            assert broker.subscribe(wanted)
            assert not broker.subscribe(wanted)
        assert broker.subscriptions("sold") == [
            Subscription("sold", "mail"),
            Subscription("sold", "stock", EVERYTHING),
        ]

    def test_another_filter_takes_the_place_of_the_one_before(self, broker: Broker) -> None:
        """A queue has one subscription to a topic; with a filter, with another, or with none."""
        broker.subscribe(Subscription("sold", "stock", {"country": ["PL"]}))
        for policy in (None, {"country": ["DE"]}, {"country": ["DE", "PL"]}, None):
            assert broker.subscribe(Subscription("sold", "mail", policy))
            assert broker.subscriptions("sold") == [
                Subscription("sold", "mail", policy),
                Subscription("sold", "stock", {"country": ["PL"]}),
            ]

    def test_a_filter_comes_out_as_it_went_in(self, broker: Broker) -> None:
        """Texts to the last character, numbers to the last bit, and whole ones stay whole."""
        broker.subscribe(Subscription("sold", "mail", EVERYTHING))
        (found,) = broker.subscriptions("sold")
        assert found.filter == EVERYTHING
        assert [type(each) for each in (found.filter or {})["cents"]] == [int, float, int, dict]

    def test_a_filter_that_says_the_same_is_the_same(self, broker: Broker) -> None:
        """In whatever order its attributes were written; and one that asks for nothing is none."""
        assert broker.subscribe(Subscription("sold", "mail", {"a": ["x"], "b": ["y"]}))
        assert not broker.subscribe(Subscription("sold", "mail", {"b": ["y"], "a": ["x"]}))
        assert broker.subscribe(Subscription("sold", "mail", {}))
        assert not broker.subscribe(Subscription("sold", "mail"))
        assert broker.subscriptions() == [Subscription("sold", "mail")]

    def test_subscriptions_are_shown_by_topic_and_queue(self, broker: Broker) -> None:
        """All, or those of one topic: not those of others whose names begin like it."""
        names = [("sold", "stock"), ("sold-again", "b"), ("Sold", "a"), ("sold", "mail"), ("so", "z"), ("sold", "Z")]
        for topic, queue in names:
            broker.subscribe(Subscription(topic, queue))
        assert broker.subscriptions() == [Subscription(*name) for name in sorted(names)]
        assert [each.queue for each in broker.subscriptions("sold")] == ["Z", "mail", "stock"]

    def test_a_topic_has_many_queues_and_a_queue_many_topics(self, broker: Broker) -> None:
        """Each pair is a subscription of its own."""
        queues, topics = [f"queue-{n:03}" for n in range(150)], [f"topic-{n}" for n in range(5)]
        for queue in reversed(queues):
            assert broker.subscribe(Subscription("sold", queue))
        for topic in topics:
            assert broker.subscribe(Subscription(topic, "mail", {"topic": [topic]}))
        assert [each.queue for each in broker.subscriptions("sold")] == queues
        for topic in topics:
            assert broker.subscriptions(topic) == [Subscription(topic, "mail", {"topic": [topic]})]

    def test_unsubscribing_ends_that_subscription_alone(self, broker: Broker) -> None:
        """And says whether there was one."""
        for topic, queue in (("sold", "mail"), ("sold", "stock"), ("returned", "mail")):
            broker.subscribe(Subscription(topic, queue))
        assert broker.unsubscribe("sold", "mail")
        assert not broker.unsubscribe("sold", "mail")
        assert not broker.unsubscribe("sold", "nowhere")
        assert not broker.unsubscribe("nothing", "stock")
        assert broker.subscriptions() == [Subscription("returned", "mail"), Subscription("sold", "stock")]

    def test_a_subscription_that_was_ended_begins_anew(self, broker: Broker) -> None:
        """Without the filter from before."""
        broker.subscribe(Subscription("sold", "mail", {"country": ["DE"]}))
        broker.unsubscribe("sold", "mail")
        assert broker.subscribe(Subscription("sold", "mail"))
        assert broker.subscriptions("sold") == [Subscription("sold", "mail")]

    @pytest.mark.parametrize("name", ["", "a b", "ü", "a.b", "x" * 81, "half \ud800"])
    def test_names_that_no_queue_can_have_are_refused(self, broker: Broker, name: str) -> None:
        """Before anything is stored."""
        for bad in (Subscription(name, "mail"), Subscription("sold", name)):
            with pytest.raises(LanewayError):
                broker.subscribe(bad)
        assert broker.subscriptions() == []

    def test_a_filter_that_cannot_be_kept_is_refused(self, broker: Broker) -> None:
        """And the one from before stays."""
        broker.subscribe(Subscription("sold", "mail", {"country": ["DE"]}))
        for bad in ({"country": ["half \ud800"]}, {"country": [object()]}):
            with pytest.raises(LanewayError):
                broker.subscribe(Subscription("sold", "mail", bad))
        assert broker.subscriptions() == [Subscription("sold", "mail", {"country": ["DE"]})]

    def test_a_filter_that_is_shown_is_a_copy(self, broker: Broker) -> None:
        """Whoever changes what he gave, or what he got, changes nothing in the broker."""
        policy: FilterPolicy = {"country": ["DE"]}
        broker.subscribe(Subscription("sold", "mail", policy))
        policy["country"].append("PL")
        (found,) = broker.subscriptions("sold")
        assert found.filter == {"country": ["DE"]}
        (found.filter or {})["country"].append("AT")
        assert broker.subscriptions("sold") == [Subscription("sold", "mail", {"country": ["DE"]})]

    def test_subscriptions_outlive_connections_and_repairs(self, broker: Broker) -> None:
        """They are nothing that is unwell, and they are never removed by themselves."""
        broker.subscribe(Subscription("sold", "mail", EVERYTHING))
        assert (broker.check(), broker.repair()) == ([], [])
        broker.close()
        assert broker.subscriptions("sold") == [Subscription("sold", "mail", EVERYTHING)]

    def test_many_subscribe_at_once(self, broker: Broker) -> None:
        """All of them are kept, and of those that say the same one is told that it was the first."""
        told: list[bool] = []

        def start(number: int) -> None:
            for n in range(10):
                broker.subscribe(Subscription("sold", f"queue-{number}-{n}"))
            told.append(broker.subscribe(Subscription("sold", "mail", {"country": ["DE"]})))

        threads = [threading.Thread(target=start, args=(number,), daemon=True) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG_S)
        assert sorted(told) == [False, False, False, True]
        expected = {"mail", *(f"queue-{number}-{n}" for number in range(4) for n in range(10))}
        assert [each.queue for each in broker.subscriptions("sold")] == sorted(expected)
