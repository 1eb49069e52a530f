"""Stores which queue gets which event. Each verb is one transaction."""

from __future__ import annotations

from ...events.event import Subscription
from ..shared import check_subscription, read_filter, write_filter
from .store import Store


class SQLiteEvents:
    """The events tier: subscriptions in a table."""

    def __init__(self, store: Store) -> None:
        self._db = store.db
        self._sql = store.sql

    def subscribe(self, subscription: Subscription) -> bool:
        check_subscription(subscription)
        values = {"topic": subscription.topic, "queue": subscription.queue, "filter": write_filter(subscription)}
        self._db.check_file()
        with self._db.write() as db:
            return bool(db.execute(self._sql["subscribe"], values).rowcount)

    def unsubscribe(self, topic: str, queue: str) -> bool:
        self._db.check_file()
        with self._db.write() as db:
            return bool(db.execute(self._sql["unsubscribe"], {"topic": topic, "queue": queue}).rowcount)

    def subscriptions(self, topic: str | None = None) -> list[Subscription]:
        self._db.check_file()
        with self._db.read() as db:
            if topic is None:
                rows = db.execute(self._sql["subscriptions"]).fetchall()
            else:
                rows = db.execute(self._sql["subscriptions_of"], {"topic": topic}).fetchall()
        return [Subscription(topic, queue, read_filter(topic, queue, text)) for topic, queue, text in rows]
