"""Tests of publishing while the listeners' queues are resharded: every listener gets every event once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest

from laneway.brokers.redis import RedisBroker
from laneway.clock import ManualClock
from laneway.ids import new_id
from laneway.jobs.settlement import done
from laneway.testing.conformance.events import QUEUES, copies, lengths
from laneway.testing.conformance.fixtures import ScriptedWorker, keys
from tests.integration.redis.test_cluster_publish import publish_and_die, sweep
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisCluster, RedisServer

pytestmark = pytest.mark.integration

Open = Callable[[], RedisBroker]


class Publisher(threading.Thread):
    """Publishes until the test ends it, three at a time."""

    def __init__(self, broker: RedisBroker) -> None:
        super().__init__()
        self._broker = broker
        self._ended = threading.Event()
        self.published: list[str] = []
        self.trouble: Exception | None = None
        #: Set when there is something to be moved.
        self.begun = threading.Event()

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                events = [f"event-{len(self.published) + n}" for n in range(3)]
                self._broker.enqueue([copy for event in events for copy in copies(event)])
                self.published += events
                if len(self.published) > 30:
                    self.begun.set()
        except Exception as error:
            self.trouble = error
            self.begun.set()

    def end(self) -> list[str]:
        self._ended.set()
        self.join()
        if self.trouble is not None:
            raise self.trouble
        return self.published


def reshard_amid(publisher: RedisBroker, mover: RedisBroker) -> None:
    for queue in QUEUES:
        mover.declare(queue, 2)
    publishing = Publisher(publisher)
    publishing.start()
    try:
        assert publishing.begun.wait(60)
        before = len(publishing.published)
        for queue, shards in (("mail", 5), ("audit", 1), ("mail", 3)):
            while not mover.shards.reshard(queue, shards, limit=20).done:
                pass
    finally:
        events = publishing.end()
    assert len(events) > before
    assert mover.inspect.queues() == {"audit": 1, "mail": 3, "stock": 2}
    hand, ran = ScriptedWorker(mover, new_id()), Counter[str]()
    for queue in QUEUES:
        while claims := hand.claim(1_000, queue=queue):
            ran.update(keys(claims))
            hand.settle(*map(done, claims), queue=queue)
    assert ran == Counter(copy.key for event in events for copy in copies(event))


def test_on_one_server(redis_server: RedisServer, open_url: Opener) -> None:
    reshard_amid(*(RedisBroker(open_url(redis_server.url)) for _ in range(2)))


def test_on_a_cluster(redis_cluster: RedisCluster, open_url: Opener) -> None:
    reshard_amid(*(RedisBroker(open_url(redis_cluster.url)) for _ in range(2)))


def test_what_a_publisher_left_behind_is_stored_once_after_a_resharding(
    redis_cluster: RedisCluster, open_url: Opener, clock: ManualClock
) -> None:
    """The outbox belongs to the queue, whatever its shards are."""
    publisher, mover = (RedisBroker(open_url(redis_cluster.url), clock=clock) for _ in range(2))
    for queue in ("q", "mail"):
        publisher.declare(queue, 2)
    publish_and_die(publisher, copies("event", ["q", "mail"]))
    for queue, shards in (("q", 3), ("mail", 7)):
        while not mover.shards.reshard(queue, shards).done:
            pass
    sweep(mover, clock)
    assert lengths(mover) == {"q": 1, "mail": 1}
    assert mover.health.check() == []
