"""Stores which queue gets which event. Each verb is one transaction."""

from __future__ import annotations

from ...events.event import Subscription
from ..shared import check_subscription, read_filter, write_filter
from .store import Store


class SQLiteEvents:
    """The events tier: subscriptions in a table."""

    def __init__(self, store: Store) -> None:
        self._db = store.db

    def subscribe(self, subscription: Subscription) -> bool:
        check_subscription(subscription)
        values = {"topic": subscription.topic, "queue": subscription.queue, "filter": write_filter(subscription)}
        self._db.check_file()
        with self._db.write() as tx:
            return bool(tx.run("subscribe", **values).rowcount)

    def unsubscribe(self, topic: str, queue: str) -> bool:
        self._db.check_file()
        with self._db.write() as tx:
            return bool(tx.run("unsubscribe", topic=topic, queue=queue).rowcount)

    def subscriptions(self, topic: str | None = None) -> list[Subscription]:
        self._db.check_file()
        with self._db.read() as tx:
            if topic is None:
                rows = tx.all("subscriptions")
            else:
                rows = tx.all("subscriptions_of", topic=topic)
        return [Subscription(topic, queue, read_filter(topic, queue, text)) for topic, queue, text in rows]
