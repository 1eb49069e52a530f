"""Stores which queue gets which event. Each verb is one transaction."""

from __future__ import annotations

from collections.abc import Mapping

from ...events.event import Subscription
from ..shared import check_subscription, read_filter, write_filter
from .database import Database


class SQLiteSubscriptions:
    """The part of the SQLite broker that keeps subscriptions."""

    _db: Database
    _sql: Mapping[str, str]

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
