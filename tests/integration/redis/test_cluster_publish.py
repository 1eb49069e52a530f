"""Tests of events on a Cluster, where one step cannot store copies in several shards.

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


def home(broker: RedisBroker, copy: NewJob) -> str:
    return broker._layouts.get(copy.queue).tags_of_key(copy.key)[0]


@pytest.mark.parametrize("how", CUTS)
def test_publishing_is_cut_and_repeated(redis_cluster: RedisCluster, open_url: Opener, how: str) -> None:
    """By whoever publishes, after others have run what was there; and what was thought to be lost arrives at last."""
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
            broker.enqueue(ALL)
        cut = broker._server
        assert isinstance(cut, CutOnce)
        was_cut = cut.at is None
        work(other, ran)
        deaf.exchange(cut.late)
        sweep(other, clock)
        work(other, ran)
        assert ran == Counter(copy.key for copy in ALL)
        assert not other.inspect.undelivered(QUEUES)
        at += 1
    assert at > 4


class CutOnce(Deaf):
    """A Cluster to which the connection is cut once."""

    def __init__(self, inner: Deaf, at: int, how: str) -> None:
        super().__init__(inner)
        self.at, self.how = at, CUTS[how]

    def exchange(self, commands: Sequence[Command]) -> list[object]:
        return super(Deaf, self).exchange(commands)


def test_a_worker_delivers_what_a_publisher_left_behind(broker: RedisBroker, clock: ManualClock) -> None:
    broker.declare("other", 1)
    publish_and_die(broker, [*copies("now"), *copies("later", delay_s=60.0)])
    at = clock.now() + 60
    assert lengths(broker) == {}
    assert [broker.inspect.undelivered([queue]) for queue in (*QUEUES, "other", "none")] == [
        True,
        True,
        True,
        False,
        False,
    ]
    broker.reclaim()
    assert lengths(broker) == {}, "whoever publishes may be about to deliver it"
    sweep(broker, clock)
    assert lengths(broker) == dict.fromkeys(QUEUES, 2)
    assert not broker.inspect.undelivered(QUEUES)
    assert [only(broker, copy.key, copy.queue).perform_at for copy in copies("later")] == [at] * 3
    assert broker.health.check() == []


def test_others_need_not_wait_for_a_shard_that_is_away(broker: RedisBroker, deaf: Deaf, clock: ManualClock) -> None:
    event = copies("event")
    deaf.tag = home(broker, event[1])
    broker.enqueue(event)
    deaf.tag = None
    assert lengths(broker) == {"audit": 1, "stock": 1}
    ran = Counter[str]()
    work(broker, ran)
    sweep(broker, clock)
    assert lengths(broker) == {"mail": 1}
    work(broker, ran)
    assert ran == Counter(copy.key for copy in event)


def test_nobody_gets_a_copy_if_the_outbox_is_away(broker: RedisBroker, deaf: Deaf) -> None:
    event = copies("event")
    deaf.tag = home(broker, event[0])
    with pytest.raises(BrokerAwayError):
        broker.enqueue(event)
    deaf.tag = None
    assert lengths(broker) == {}
    assert not broker.inspect.undelivered(QUEUES)
    broker.enqueue(event)
    assert lengths(broker) == dict.fromkeys(QUEUES, 1)


def test_what_was_stored_of_a_long_list_is_said(
    broker: RedisBroker, deaf: Deaf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laneway.brokers.redis.enqueue.CHUNK", 3)
    first, second = (next(copies(f"e{n}") for n in range(99) if is_at(broker, n, shard)) for shard in range(2))
    deaf.tag = home(broker, second[0])
    with pytest.raises(BrokerAwayError, match=f"4 of the 7 jobs were stored, those up to the key '{first[-1].key}'"):
        broker.enqueue([*first, job("plain", queue="mail"), *second])
    deaf.tag = None
    assert lengths(broker) == {"audit": 1, "mail": 2, "stock": 1}


def is_at(broker: RedisBroker, number: int, shard: int) -> bool:
    return home(broker, copies(f"e{number}")[0]) == broker._layouts.get("audit").tags[shard]


def test_no_event_is_stored_beside_a_job_that_cannot_be(broker: RedisBroker) -> None:
    broker.enqueue([job("taken", queue="mail")])
    with pytest.raises(EnqueueError) as caught:
        broker.enqueue([*copies("event"), call("taken", "a", queue="mail")])
    assert caught.value.__notes__ == ["Of the events that were to be stored with them none was."]
    assert lengths(broker) == {"mail": 1}


def test_a_copy_whose_key_somebody_else_has_holds_nothing_up(
    broker: RedisBroker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """As on one server: what has the key stays, as if it were the copy."""
    event = copies("event")
    broker.enqueue([call(event[1].key, "not a copy", queue=event[1].queue)])
    with caplog.at_level(logging.WARNING, "laneway"):
        broker.enqueue(event)
    assert lengths(broker) == dict.fromkeys(QUEUES, 1)
    assert not broker.inspect.undelivered(QUEUES)
    assert caplog.text == ""


def test_copies_are_remembered_by_their_key_alone(broker: RedisBroker, clock: ManualClock) -> None:
    """Whatever they come in, so that a repeat may be divided otherwise."""
    ran = Counter[str]()
    broker.enqueue(ALL)
    work(broker, ran)
    broker.enqueue([copy for n, event in enumerate(EVENTS) for copy in copies(event, QUEUES[n % 2 :])])
    work(broker, ran)
    assert ran == Counter(copy.key for copy in ALL)
    tag = home(broker, ALL[0])
    marks = broker._server.do("ZRANGE", f"{tag}:delivered", 0, -1)
    assert set(marks) == {f"\0{copy.key}".encode() for copy in ALL if home(broker, copy) == tag}
