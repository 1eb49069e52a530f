"""Tests of a publisher that is killed while it publishes: all listeners get their copy of an event, or none does.

On one server that holds at once, on a Cluster after a worker has delivered the remaining copies. No copy runs
twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

import pytest

from laneway.broker import Broker
from laneway.brokers.redis import RedisBroker, outbox
from laneway.events.event import copy_key
from laneway.ids import new_id
from laneway.jobs.settlement import done
from laneway.testing.conformance.events import QUEUES
from laneway.testing.conformance.fixtures import ScriptedWorker
from tests.integration.redis.publisher import EVENTS, HOWS, MANY, Publishers
from tests.integration.redis.test_cluster_publish import left_in_outboxes
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisCluster, RedisServer, wait_until

pytestmark = pytest.mark.integration


def work(broker: Broker, ran: Counter[str]) -> None:
    """Run all that there is."""
    hand = ScriptedWorker(broker, new_id())
    for queue in QUEUES:
        broker.declare(queue, 5)
        while claims := hand.claim(queue=queue):
            ran.update(claim.key for claim in claims)
            assert hand.settle(*map(done, claims), queue=queue) == []


def all_or_none(ran: Counter[str], events: Collection[str]) -> list[str]:
    """The events of which every listener has got its copy once; of others nobody has got one."""
    found = [event for event in events if any(copy_key(event, queue) in ran for queue in QUEUES)]
    assert ran == Counter(copy_key(event, queue) for event in found for queue in QUEUES)
    return found


@pytest.fixture(scope="module")
def publishers() -> Iterator[Publishers]:
    with Publishers() as publishers:
        yield publishers


def test_on_one_server(redis_server: RedisServer, open_url: Opener, publishers: Publishers) -> None:
    at, seen, killed = 0, set[int](), True
    broker = RedisBroker(open_url(redis_server.url))
    while killed:
        redis_server.flush()
        killed = publishers.publish(redis_server.url, at, "after")
        ran = Counter[str]()
        work(broker, ran)
        seen.add(len(all_or_none(ran, EVENTS)))
        at += 1
    assert seen == set(range(len(EVENTS) + 1)), "each event is a step of its own here"


def test_on_one_server_at_any_moment(redis_server: RedisServer, open_url: Opener, publishers: Publishers) -> None:
    """A long list, sent ahead of the answers."""
    broker = RedisBroker(open_url(redis_server.url))
    broker.declare(QUEUES[0], 5)
    with publishers.publishing_many(redis_server.url):
        wait_until(lambda: bool(broker.inspect.lags(QUEUES[0])), lambda: "Nothing was published.")
    ran = Counter[str]()
    work(broker, ran)
    assert all_or_none(ran, [f"event-{n}" for n in range(MANY)]), "the first of them were there when it was killed"


@pytest.mark.parametrize("how", HOWS)
def test_on_a_cluster(
    redis_cluster: RedisCluster,
    open_url: Opener,
    publishers: Publishers,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = RedisBroker(open_url(redis_cluster.url))
    at, seen, left, killed = 0, set[int](), 0, True
    while killed:
        redis_cluster.flush()
        killed = publishers.publish(redis_cluster.url, at, how)
        ran = Counter[str]()
        left += left_in_outboxes(broker)
        work(broker, ran)
        with monkeypatch.context() as later:
            later.setattr(outbox, "LEFT_BEHIND_S", -1.0)
            broker.reclaim()
        work(broker, ran)
        seen.add(len(all_or_none(ran, EVENTS)))
        assert left_in_outboxes(broker) == 0
        at += 1
    assert seen == set(range(len(EVENTS) + 1))
    assert left, "sometimes a worker has to deliver"
