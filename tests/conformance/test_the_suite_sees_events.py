"""The conformance suite detects brokers that are wrong about subscriptions and event copies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec
import pytest

from laneway.broker import Answer, Turn
from laneway.clock import Clock
from laneway.errors import EnqueueError
from laneway.events.event import Subscription
from laneway.jobs.data import NewJob
from laneway.jobs.settlement import Settlement
from tests.conformance.suite_check import check_seen
from tests.support.second_broker import SecondBroker
from tests.support.second_broker.job import MemoryJob
from tests.support.second_broker.queue import MemoryQueue

pytestmark = pytest.mark.conformance


class LosesFilters(SecondBroker):
    """Keeps who wants an event, and not which."""

    def subscribe(self, subscription: Subscription) -> bool:
        return super().subscribe(msgspec.structs.replace(subscription, filter=None))


class TheFirstFilterStays(SecondBroker):
    """Takes a subscription with another filter for the one that it has."""

    def subscribe(self, subscription: Subscription) -> bool:
        there = (subscription.topic, subscription.queue) in self._subscriptions
        return False if there else super().subscribe(subscription)


class AlwaysNew(SecondBroker):
    """Says of every subscription that it was not there."""

    def subscribe(self, subscription: Subscription) -> bool:
        super().subscribe(subscription)
        return True


class FiltersByTheLetter(SecondBroker):
    """Compares filters as they were written."""

    written: dict[tuple[str, str], str]

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.written = {}

    def subscribe(self, subscription: Subscription) -> bool:
        name, text = (subscription.topic, subscription.queue), repr(subscription.filter)
        super().subscribe(subscription)
        return self.written.get(name) != text or bool(self.written.update({name: text}))


class WholeNumbersMelt(SecondBroker):
    """Has every number of a filter be a float."""

    def subscriptions(self, topic: str | None = None) -> list[Subscription]:
        found = super().subscriptions(topic)
        for each in found:
            for wanted in (each.filter or {}).values():
                wanted[:] = [float(value) if type(value) is int else value for value in wanted]
        return found


class SharesFilters(SecondBroker):
    """Hands out the filter itself."""

    given: dict[tuple[str, str], Subscription]

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.given = {}

    def subscribe(self, subscription: Subscription) -> bool:
        self.given[subscription.topic, subscription.queue] = subscription
        return super().subscribe(subscription)

    def subscriptions(self, topic: str | None = None) -> list[Subscription]:
        return [self.given[each.topic, each.queue] for each in super().subscriptions(topic)]


class TakesAnyName(SecondBroker):
    """Checks nothing."""

    def subscribe(self, subscription: Subscription) -> bool:
        self._subscriptions[subscription.topic, subscription.queue] = None
        return True


class TopicsByPrefix(SecondBroker):
    """Finds all topics whose names begin alike."""

    def subscriptions(self, topic: str | None = None) -> list[Subscription]:
        return [each for each in super().subscriptions() if topic is None or each.topic.startswith(topic)]


class AsTheyCame(SecondBroker):
    """Shows subscriptions in the order in which they were made."""

    def subscriptions(self, topic: str | None = None) -> list[Subscription]:
        found = {(each.topic, each.queue): each for each in super().subscriptions(topic)}
        return [found[name] for name in self._subscriptions if name in found]


class FirstPageOnly(SecondBroker):
    """Reads no further than a page."""

    def subscriptions(self, topic: str | None = None) -> list[Subscription]:
        return super().subscriptions(topic)[:100]


class OneTopicForAQueue(SecondBroker):
    """Keeps a queue's last subscription alone."""

    def subscribe(self, subscription: Subscription) -> bool:
        for topic, queue in list(self._subscriptions):
            if queue == subscription.queue and topic != subscription.topic:
                del self._subscriptions[topic, queue]
        return super().subscribe(subscription)


class ForgetsUnsubscribing(SecondBroker):
    """Says that it was done."""

    def unsubscribe(self, topic: str, queue: str) -> bool:
        return (topic, queue) in self._subscriptions


class EndsTheTopic(SecondBroker):
    """Ends the subscriptions of all queues for one of them."""

    def unsubscribe(self, topic: str, queue: str) -> bool:
        ended = super().unsubscribe(topic, queue)
        for name in [name for name in self._subscriptions if ended and name[0] == topic]:
            del self._subscriptions[name]
        return ended


class FiltersComeBack(SecondBroker):
    """Remembers the filter of a subscription that was ended."""

    ended: dict[tuple[str, str], Any]

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.ended = {}

    def unsubscribe(self, topic: str, queue: str) -> bool:
        self.ended[topic, queue] = next(each.filter for each in self.subscriptions(topic) if each.queue == queue)
        return super().unsubscribe(topic, queue)

    def subscribe(self, subscription: Subscription) -> bool:
        before = self.ended.pop((subscription.topic, subscription.queue), None)
        return super().subscribe(msgspec.structs.replace(subscription, filter=subscription.filter or before))


class ClosingForgets(SecondBroker):
    """Keeps subscriptions where its connections are."""

    def close(self) -> None:
        self._subscriptions.clear()
        super().close()


class EmptiesTheQueue(SecondBroker):
    """Ends the jobs with the subscription."""

    def unsubscribe(self, topic: str, queue: str) -> bool:
        if queue in self._queues:
            self._queues[queue] = MemoryQueue(queue, 5)
        return super().unsubscribe(topic, queue)


class OneByOne(SecondBroker):
    """Stores copies until one of them is refused."""

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        for job in jobs:
            super().enqueue([job])


class SkipsTheBad(SecondBroker):
    """Stores those that can be, and then complains."""

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        refused = None
        for job in jobs:
            try:
                super().enqueue([job])
            except EnqueueError as error:
                refused = error
        if refused is not None:
            raise refused


class ByThousands(SecondBroker):
    """Checks and stores a thousand at a time."""

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        for start in range(0, len(jobs), 1_000):
            super().enqueue(jobs[start : start + 1_000])


class KnownQueuesOnly(SecondBroker):
    """Drops the copies for queues that nobody has declared."""

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        super().enqueue([job for job in jobs if not job.event or job.queue in self._queues])


class OneCopyOfAnEvent(SecondBroker):
    """Takes an event that it has seen for a repeat."""

    seen: set[str]

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.seen = set()

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        super().enqueue([job for job in jobs if not job.event or job.event not in self.seen])
        self.seen.update(job.event for job in jobs)


class EveryRepeatIsNew(SecondBroker):
    """Stores a copy beside the one that runs."""

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        again = [self._queues[job.queue].by_key.get(job.key) if job.queue in self._queues else None for job in jobs]
        super().enqueue(
            [
                msgspec.structs.replace(new, key=f"{new.key}+") if old is not None and old.worker is not None else new
                for new, old in zip(jobs, again, strict=True)
            ]
        )


class TheValueIsTheEvent(SecondBroker):
    """Tells events apart by what is in them."""

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        first = {(job.queue, job.body): job for job in reversed(jobs)}
        super().enqueue([job for job in jobs if first[job.queue, job.body] is job])


class OneFailsForAll(SecondBroker):
    """Has all copies of an event wait for the one that failed."""

    def _settle(self, counted: MemoryQueue, worker: Any, job: MemoryJob, settlement: Settlement, now: float) -> None:
        super()._settle(counted, worker, job, settlement, now)
        event = job.key.partition("@")[0]
        for queue in self._queues.values():
            for other in [each for each in queue.by_key.values() if each.key.startswith(f"{event}@")]:
                if settlement.verdict == "retry":
                    other.retry_count = job.retry_count


class OneSettlesAll(SecondBroker):
    """Takes an event for done when one of its copies is."""

    def _settle(self, counted: MemoryQueue, worker: Any, job: MemoryJob, settlement: Settlement, now: float) -> None:
        super()._settle(counted, worker, job, settlement, now)
        event = job.key.partition("@")[0]
        for queue in self._queues.values():
            other = queue.by_key.get(f"{event}@{queue.name}")
            if other is not None and other.worker is None and settlement.verdict == "done":
                queue.remove(other)


class OutboxesForOneQueue(SecondBroker):
    """Stores of what a run published the copy of the first queue."""

    def _store(self, jobs: Iterable[NewJob], now: float) -> None:
        jobs = list(jobs)
        kept = {job.event: job.queue for job in reversed(jobs)}
        super()._store([job for job in jobs if not job.event or kept[job.event] == job.queue], now)


class PublishesForTheRefused(SecondBroker):
    """Publishes before it looks whether the run still counts."""

    def turn(self, turn: Turn) -> Answer:
        for settlement in turn.settlements:
            self.enqueue([job for job in settlement.outbox or () if job.event])
        return super().turn(turn)


class PausedQueuesMiss(SecondBroker):
    """Stores nothing for a queue that is paused."""

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        super().enqueue([job for job in jobs if job.queue not in self._queues or not self._queues[job.queue].paused])


class TellsOfOneQueue(SecondBroker):
    """Tells those who wait of the first queue that has something."""

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        return set(sorted(super().wait(queues, timeout_s))[:1])


SEEN = {
    LosesFilters: "test_a_filter_comes_out_as_it_went_in",
    TheFirstFilterStays: "test_another_filter_takes_the_place_of_the_one_before",
    AlwaysNew: "test_subscribing_again_changes_nothing_and_says_so",
    FiltersByTheLetter: "test_a_filter_that_says_the_same_is_the_same",
    WholeNumbersMelt: "test_a_filter_comes_out_as_it_went_in",
    SharesFilters: "test_a_filter_that_is_shown_is_a_copy",
    TakesAnyName: "test_a_filter_that_cannot_be_kept_is_refused",
    TopicsByPrefix: "test_subscriptions_are_shown_by_topic_and_queue",
    AsTheyCame: "test_subscriptions_are_shown_by_topic_and_queue",
    FirstPageOnly: "test_a_topic_has_many_queues_and_a_queue_many_topics",
    OneTopicForAQueue: "test_a_topic_has_many_queues_and_a_queue_many_topics",
    ForgetsUnsubscribing: "test_unsubscribing_ends_that_subscription_alone",
    EndsTheTopic: "test_unsubscribing_ends_that_subscription_alone",
    FiltersComeBack: "test_a_subscription_that_was_ended_begins_anew",
    ClosingForgets: "test_subscriptions_outlive_connections_and_repairs",
    EmptiesTheQueue: "test_what_is_in_a_queue_outlives_its_subscription",
    OneByOne: "test_copies_are_stored_all_or_none",
    SkipsTheBad: "test_copies_are_stored_all_or_none",
    ByThousands: "test_many_events_go_in_at_once",
    KnownQueuesOnly: "test_every_queue_gets_a_copy",
    OneCopyOfAnEvent: "test_a_repeat_brings_a_queue_its_copy_that_has_none",
    EveryRepeatIsNew: "test_publishing_again_stores_nothing_twice",
    TheValueIsTheEvent: "test_events_with_equal_values_are_two",
    OneFailsForAll: "test_a_copy_that_fails_is_tried_again_alone",
    OneSettlesAll: "test_every_queue_gets_a_copy",
    OutboxesForOneQueue: "test_what_a_run_published_is_stored_when_it_is_done",
    PublishesForTheRefused: "test_what_a_run_published_is_lost_with_it",
    PausedQueuesMiss: "test_a_paused_queue_gets_its_copy",
    TellsOfOneQueue: "test_every_queue_is_told_of",
}


@pytest.mark.parametrize(("broken", "test"), SEEN.items(), ids=[broken.__name__ for broken in SEEN])
def test_a_broken_broker_is_seen(broken: Callable[[Clock], Any], test: str) -> None:
    check_seen(broken, test)


def test_names_that_are_not_checked_are_seen() -> None:
    """The test of them is given each name by pytest."""
    check_seen(TakesAnyName, "test_names_that_no_queue_can_have_are_refused", name="a b")
