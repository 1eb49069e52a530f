"""The model of events: the subscriptions, and the copies that a publisher makes from them.

It uses none of the core's filters. It knows only the filters that the state machine uses: exact texts.
"""

from __future__ import annotations

from laneway.events.event import FilterPolicy, Subscription, copy_key
from laneway.jobs.data import EventCopy, NewJob


class Subscriptions:
    """Every subscription that a broker under test should hold."""

    def __init__(self) -> None:
        self._filters: dict[tuple[str, str], FilterPolicy | None] = {}

    def subscribe(self, subscription: Subscription) -> bool:
        """Write one; whether that changed anything."""
        name = subscription.topic, subscription.queue
        changed = name not in self._filters or self._filters[name] != subscription.filter
        self._filters[name] = subscription.filter
        return changed

    def unsubscribe(self, topic: str, queue: str) -> bool:
        """End one; whether there was one."""
        there = (topic, queue) in self._filters
        self._filters.pop((topic, queue), None)
        return there

    def names(self) -> list[tuple[str, str]]:
        """Topic and queue of each, in order."""
        return sorted(self._filters)

    def shown(self, topic: str | None = None) -> list[Subscription]:
        """Those of a topic, or all."""
        return [Subscription(*name, self._filters[name]) for name in self.names() if topic in (None, name[0])]


def copies(subscriptions: list[Subscription], id: str, country: str | None) -> list[NewJob]:
    """What a publisher enqueues for an event, by the subscriptions that it was shown."""
    return [
        NewJob(
            queue=each.queue,
            key=copy_key(id, each.queue),
            body=f'{{"event":"{id}"}}',
            event=EventCopy(id),
            headers=None if country is None else {"country": country},
        )
        for each in subscriptions
        if each.filter is None or country in each.filter["country"]
    ]
