"""Helpers for tests of publishing: an app on a broker that records the jobs it receives."""

from __future__ import annotations

from typing import Any

from laneway import Context, Laneway
from laneway.broker import Capabilities
from laneway.brokers.sqlite import MemoryBroker
from laneway.events.event import Subscription
from laneway.jobs.data import Claim, JobView, Kind, NewJob, Payload

TOPIC = "eventboss-shop-placed-test"
GENERIC = "eventboss-placed-test"


class Recording(MemoryBroker):
    """Keeps what it is handed."""

    def __init__(self) -> None:
        super().__init__()
        self.handed: list[list[NewJob]] = []

    def enqueue(self, jobs):
        self.handed.append([*jobs])
        super().enqueue(jobs)


class Relaying(Recording):
    """Makes the copies itself, as SNS does; it only keeps what it is handed."""

    capabilities = Capabilities(shared=False, relays=True, derives_ids=True)

    def __init__(self) -> None:
        super().__init__()
        self.events.subscriptions = self._no_subscriptions

    def enqueue(self, jobs):
        self.handed.append([*jobs])

    def _no_subscriptions(self, topic=None):
        raise AssertionError("a broker that relays is not asked for subscriptions")


def app_on(broker: MemoryBroker, **options: Any) -> Laneway:
    return Laneway(broker=broker, name="shop", env="test", **options)


def heard(broker: MemoryBroker) -> Laneway:
    """An app to whose event `placed` the queues a and b have subscribed."""
    for queue in "ab":
        broker.events.subscribe(Subscription(TOPIC, queue))
    return app_on(broker)


def copies(app: Laneway) -> list[JobView]:
    queues = sorted(app.broker.inspect.queues())
    return [job for queue in queues for job in app.broker.inspect.listing(queue, "queued").jobs]


def context_of(app: Laneway, kind: Kind = Kind.PLAIN) -> Context:
    claim = Claim("default", 1, "run", 7, 0.0, -1, 1, 0, [Payload("x", 0.0, "call")], kind=kind)
    return Context(app, claim, app.task(name="t")(lambda: None))
