"""The steps of the state machine that subscribe, unsubscribe and publish, as the core does."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import note

from laneway.broker import Broker
from laneway.events.event import Subscription
from laneway.jobs.data import NewJob
from tests.support.choices import COUNTRIES, EVENTS, FILTERS, QUEUES, TOPICS, Choices, Name
from tests.support.model_events import copies
from tests.support.reference import ReferenceBroker, same


class EventSteps:
    """A part of the machine."""

    broker: Broker
    reference: ReferenceBroker

    def _store(self, *jobs: NewJob) -> Iterable[Name]:
        """Somebody enqueues."""
        raise NotImplementedError

    def _end_run(self, outbox: list[NewJob], choices: Choices) -> Iterable[Name]:
        """A run succeeds, and has sent this; if nobody runs anything, nothing happens."""
        raise NotImplementedError

    def _begin_with_subscriptions(self) -> None:
        """Or else most of what is published would go nowhere."""
        for queue in QUEUES:
            self._write(Subscription(TOPICS[0], queue))
        self._write(Subscription(TOPICS[1], QUEUES[0], FILTERS[1]))

    def _write(self, subscription: Subscription) -> None:
        expected = self.reference.subscriptions.subscribe(subscription)
        same(f"subscribe({subscription})", self.broker.events.subscribe(subscription), expected)

    def _subscribe(self, how: Choices, more: Choices) -> Iterable[Name]:
        subscription = Subscription(how.of(TOPICS), how.of(QUEUES), how.of(FILTERS))
        note(("subscribe", subscription))
        self._write(subscription)
        self._compare_subscriptions()
        return ()

    def _unsubscribe(self, how: Choices, more: Choices) -> Iterable[Name]:
        """Mostly one that there is."""
        there = self.reference.subscriptions.names() if how.below(4) else []
        topic, queue = how.of(there or [(topic, queue) for topic in TOPICS for queue in (*QUEUES, "nowhere")])
        note(("unsubscribe", topic, queue))
        expected = self.reference.subscriptions.unsubscribe(topic, queue)
        same(f"unsubscribe({topic!r}, {queue!r})", self.broker.events.unsubscribe(topic, queue), expected)
        self._compare_subscriptions()
        return ()

    def _publish(self, how: Choices, more: Choices) -> Iterable[Name]:
        """An event, or two at once, by anybody or by a run; the ids are few, so that many are repeats."""
        jobs = self._copies(how)
        jobs += self._copies(more) if how.below(3) == 2 else []
        return self._end_run(jobs, more) if how.below(3) else self._store(*jobs)

    def _copies(self, choices: Choices) -> list[NewJob]:
        """What is to be stored for an event, by what the broker says of its subscriptions."""
        topic = choices.of(TOPICS)
        found = self.broker.events.subscriptions(topic)
        same(f"subscriptions({topic!r})", found, self.reference.subscriptions.shown(topic))
        return copies(found, choices.of(EVENTS), choices.of(COUNTRIES))

    def _compare_subscriptions(self) -> None:
        same("subscriptions()", self.broker.events.subscriptions(), self.reference.subscriptions.shown())
