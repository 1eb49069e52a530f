"""Which queues of the in-memory broker get a copy of what is published where. A part of it, under its lock."""

from __future__ import annotations

import threading

from ...events.event import Subscription
from ..subscribing import check_subscription, read_filter, write_filter


class Subscribing:
    """The verbs of subscriptions."""

    _changed: threading.Condition

    def __init__(self) -> None:
        #: Filters by topic and queue. As texts, so that nobody holds a part of one.
        self._subscriptions: dict[tuple[str, str], str | None] = {}

    def subscribe(self, subscription: Subscription) -> bool:
        check_subscription(subscription)
        name, text = (subscription.topic, subscription.queue), write_filter(subscription)
        with self._changed:
            if name in self._subscriptions and self._subscriptions[name] == text:
                return False
            self._subscriptions[name] = text
            return True

    def unsubscribe(self, topic: str, queue: str) -> bool:
        with self._changed:
            if (topic, queue) not in self._subscriptions:
                return False
            del self._subscriptions[topic, queue]
            return True

    def subscriptions(self, topic: str | None = None) -> list[Subscription]:
        with self._changed:
            wanted = sorted(name for name in self._subscriptions if topic is None or name[0] == topic)
            return [Subscription(*name, read_filter(*name, self._subscriptions[name])) for name in wanted]
