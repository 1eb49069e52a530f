"""RedisEvents: stores which queues get a copy of the events of a topic.

Publishing reads the subscriptions of a topic each time, so reading them is one command. They are stored beside the
records of the queues, on a Cluster in the same slot: a subscription is made or ended in one step.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...events.event import Subscription
from ..shared import check_subscription, read_filter, write_filter
from .layout import Layouts
from .script import load


class RedisEvents:
    """The events tier."""

    def __init__(self, layouts: Layouts) -> None:
        self._layouts = layouts

    def subscribe(self, subscription: Subscription) -> bool:
        check_subscription(subscription)
        text = write_filter(subscription) or ""
        return self._change("subscribe", topic=subscription.topic, queue=subscription.queue, filter=text)

    def unsubscribe(self, topic: str, queue: str) -> bool:
        return self._change("unsubscribe", topic=topic, queue=queue)

    def subscriptions(self, topic: str | None = None) -> list[Subscription]:
        server, keys = self._layouts.server, self._layouts.keys
        if topic is not None:
            return _read(topic, server.do("HGETALL", keys.topic(topic)))
        topics = sorted(name.decode() for name in server.do("SMEMBERS", keys.topics))
        found = server.do_all([("HGETALL", keys.topic(name)) for name in topics])
        return [each for name, stored in zip(topics, found, strict=True) for each in _read(name, stored)]

    def _change(self, verb: str, topic: str, **what: str) -> bool:
        keys = self._layouts.keys
        args = self._layouts.args(topic=topic, **what)
        return bool(self._layouts.server.run(load(verb), [keys.topics, keys.topic(topic)], [args]))


def _read(topic: str, stored: Sequence[bytes]) -> list[Subscription]:
    filters = {stored[i].decode(): stored[i + 1].decode() for i in range(0, len(stored), 2)}
    return [Subscription(topic, queue, read_filter(topic, queue, filters[queue] or None)) for queue in sorted(filters)]
