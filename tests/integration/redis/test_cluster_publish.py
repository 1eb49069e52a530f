"""Tests of events on a Cluster, where one step cannot store copies in several queues.

All copies of an event are first stored in one outbox and then delivered. If the publisher dies, a worker delivers
them.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

import pytest

from laneway import failpoints
from laneway.brokers.redis import RedisBroker
from laneway.brokers.redis.client.connections import Command
from laneway.clock import ManualClock
from laneway.errors import BrokerAwayError, EnqueueError
from laneway.ids import new_id
from laneway.jobs.data import NewJob
from laneway.jobs.settlement import done
from laneway.testing.conformance.events import QUEUES, copies, lengths
from laneway.testing.conformance.fixtures import ScriptedWorker, call, job, keys, only
from tests.integration.redis.test_cluster_enqueue import Deaf
from tests.integration.redis.test_cluster_lost_replies import CUTS
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisCluster

pytestmark = pytest.mark.integration

EVENTS = [f"event-{n}" for n in range(6)]
ALL = [copy for event in EVENTS for copy in copies(event)]


class Died(Exception):
    """The process is gone, as far as the test is concerned."""


@pytest.fixture
def deaf(redis_cluster: RedisCluster, open_url: Opener) -> Deaf:
    return Deaf(open_url(redis_cluster.url))


@pytest.fixture
def broker(deaf: Deaf, clock: ManualClock) -> RedisBroker:
    broker = RedisBroker(deaf, clock=clock)
    for queue in QUEUES:
        broker.declare(queue, 2)
    return broker


def publish_and_die(broker: RedisBroker, jobs: Sequence[NewJob]) -> None:
    """Be gone when they are in the outbox."""

    def die() -> None:
        raise Died

    with pytest.MonkeyPatch.context() as dying:
        dying.setitem(failpoints.armed, "after post", die)
        with pytest.raises(Died):
            broker.enqueue(jobs)


def sweep(broker: RedisBroker, clock: ManualClock) -> None:
    clock.advance(10)
    broker.reclaim()


def work(broker: RedisBroker, ran: Counter[str]) -> None:
    hand = ScriptedWorker(broker, new_id())
    for queue in QUEUES:
        while claims := hand.claim(queue=queue):
            ran.update(keys(claims))
            assert hand.settle(*map(done, claims), queue=queue) == []


def left_in_outboxes(broker: RedisBroker) -> int:
    return sum(broker._server.do_all([("HLEN", f"{layout.root}:outbox") for layout in broker._layouts.read_all()]))


@pytest.mark.parametrize("how", CUTS)
def test_publishing_is_cut(redis_cluster: RedisCluster, open_url: Opener, how: str) -> None:
    """Every listener gets its copy once, or none gets one, also if what seemed to be lost arrives at last."""
    deaf, at, was_cut = Deaf(open_url(redis_cluster.url)), 0, True
    while was_cut:
        redis_cluster.flush()
        clock, ran = ManualClock(), Counter[str]()
        broker, other = RedisBroker(CutOnce(deaf, at, how), clock=clock), RedisBroker(deaf, clock=clock)
        for queue in QUEUES:
            other.declare(queue, 2)
        try:
            broker.enqueue(ALL)
        except BrokerAwayError:
            work(other, ran)
        cut = broker._server
        assert isinstance(cut, CutOnce)
        was_cut = cut.at is None
        work(other, ran)
        deaf.exchange(cut.late)
        sweep(other, clock)
        work(other, ran)
        assert ran in (Counter(), Counter(copy.key for copy in ALL))
        assert left_in_outboxes(other) == 0
        at += 1
    assert at > 4
    assert ran


class CutOnce(Deaf):
    """A Cluster to which the connection is cut once."""

    def __init__(self, inner: Deaf, at: int, how: str) -> None:
        super().__init__(inner)
        self.at, self.how = at, CUTS[how]

    def exchange(self, commands: Sequence[Command]) -> list[object]:
        return super(Deaf, self).exchange(commands)


def test_a_worker_delivers_what_a_publisher_left_behind(broker: RedisBroker, clock: ManualClock) -> None:
    publish_and_die(broker, [*copies("now"), *copies("later", delay_s=60.0)])
    at = clock.now() + 60
    assert lengths(broker) == dict.fromkeys(QUEUES, 2), "they count in the queues that they are for"
    broker.reclaim()
    assert left_in_outboxes(broker) == 3, "the publisher may be about to deliver them"
    sweep(broker, clock)
    assert lengths(broker) == dict.fromkeys(QUEUES, 2)
    assert left_in_outboxes(broker) == 0
    assert [only(broker, copy.key, copy.queue).perform_at for copy in copies("later")] == [at] * 3
    assert broker.health.check() == []


def test_other_listeners_need_not_wait_for_a_queue_that_is_away(
    broker: RedisBroker, deaf: Deaf, clock: ManualClock
) -> None:
    event = copies("event")
    deaf.queue = event[1].queue
    broker.enqueue(event)
    deaf.queue = None
    ran = Counter[str]()
    work(broker, ran)
    assert ran == Counter(copy.key for copy in (event[0], event[2]))
    sweep(broker, clock)
    work(broker, ran)
    assert ran == Counter(copy.key for copy in event)


def test_no_listener_gets_a_copy_if_the_outbox_is_away(broker: RedisBroker, deaf: Deaf) -> None:
    event = copies("event")
    deaf.queue = event[0].queue
    with pytest.raises(BrokerAwayError):
        broker.enqueue(event)
    deaf.queue = None
    assert lengths(broker) == {}
    broker.enqueue(event)
    assert lengths(broker) == dict.fromkeys(QUEUES, 1)


def test_what_was_stored_of_a_long_list_is_said(
    broker: RedisBroker, deaf: Deaf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laneway.brokers.redis.enqueue.CHUNK", 3)
    first, second = copies("one"), copies("two", (QUEUES[1], QUEUES[2]))
    deaf.queue = QUEUES[1]
    with pytest.raises(BrokerAwayError, match="4 of the 6 jobs were stored") as caught:
        broker.enqueue([*first, job("plain", queue=QUEUES[0]), *second])
    assert caught.value.unstored == [4, 5]
    deaf.queue = None
    assert lengths(broker) == {QUEUES[0]: 2, QUEUES[1]: 1, QUEUES[2]: 1}


def test_no_event_is_stored_beside_a_job_that_cannot_be(broker: RedisBroker) -> None:
    broker.enqueue([job("taken", queue="mail")])
    with pytest.raises(EnqueueError, match="'taken'"):
        broker.enqueue([*copies("event"), call("taken", "a", queue="mail")])
    assert lengths(broker) == {"mail": 1}


def test_a_copy_whose_key_another_job_has_holds_nothing_up(
    broker: RedisBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """As on one server: what has the key stays, as if it were the copy."""
    event = copies("event")
    broker.enqueue([call(event[1].key, "not a copy", queue=event[1].queue)])
    with caplog.at_level(logging.WARNING, "laneway"):
        broker.enqueue(event)
    assert lengths(broker) == dict.fromkeys(QUEUES, 1)
    assert left_in_outboxes(broker) == 0
    assert caplog.text == ""
