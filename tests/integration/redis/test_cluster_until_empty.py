"""Tests of `until_empty` on a Cluster, where a job that a run has sent may be in no queue for a while."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from laneway import Context, Laneway, QueueStats, Worker, failpoints
from laneway.brokers.redis import RedisBroker, outbox
from laneway.brokers.redis.outbox import ClusterOutbox
from laneway.config import WorkerOptions
from laneway.jobs.settlement import done
from laneway.testing.conformance.fixtures import ScriptedWorker, job, numbers, put
from tests.support.node_checks import (
    check_others_jobs_do_not_keep_a_worker,
    check_what_runs_keeps_those_who_serve_its_shard,
)
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisCluster

pytestmark = pytest.mark.integration


@pytest.fixture
def app(redis_cluster: RedisCluster) -> Iterator[Laneway]:
    app = Laneway(redis_cluster.url)
    yield app
    app.close()


@pytest.fixture
def broker(redis_cluster: RedisCluster, open_url: Opener) -> RedisBroker:
    broker = RedisBroker(open_url(redis_cluster.url))
    for queue in ("q", "far", "other"):
        broker.declare(queue, 2)
    return broker


def test_it_ends_though_something_is_due_for_another_node(app: Laneway) -> None:
    check_others_jobs_do_not_keep_a_worker(app)


def test_it_does_not_end_while_a_job_of_its_shards_runs(app: Laneway) -> None:
    check_what_runs_keeps_those_who_serve_its_shard(app)


@pytest.mark.parametrize("queue", ["default", "far"])
def test_it_goes_on_until_all_that_runs_have_sent_is_stored(
    app: Laneway, monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    """The server that it goes to is away when the run is settled, and the next sweep delivers it."""
    ran: list[str] = []

    @app.task(context=True)
    def parent(context: Context) -> None:
        ran.append("parent")
        context.enqueue(child)

    @app.task(queue=queue)
    def child() -> None:
        ran.append("child")

    deliver, delivered = ClusterOutbox.deliver, list[int]()

    def away_at_first(self: ClusterOutbox, entries: list[outbox.OutboxEntry]) -> None:
        delivered.append(len(entries))
        if sum(delivered) > 1:
            deliver(self, entries)

    monkeypatch.setattr(ClusterOutbox, "deliver", away_at_first)
    monkeypatch.setattr(outbox, "LEFT_BEHIND_S", 0.3)
    parent.enqueue()
    assert Worker(app, WorkerOptions(until_empty=True)).run() == 0
    assert ran == ["parent", "child"]


def test_it_goes_on_until_an_event_is_stored_whose_publisher_has_died(
    redis_cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    app = Laneway(redis_cluster.url, name="shop")
    for name in ("mail", "stock"):
        app.listener("sold", source="shop", destination=name, name=name)(
            lambda value, name=name: ran.append(f"{name}: {value}")
        )
    for listener in app.listeners():
        app.broker.events.subscribe(listener.subscription)
    monkeypatch.setattr(outbox, "LEFT_BEHIND_S", 0.3)

    def die() -> None:
        raise InterruptedError

    with monkeypatch.context() as dying:
        dying.setitem(failpoints.armed, "after post", die)
        with pytest.raises(InterruptedError):
            app.publish("sold", "a book")
    assert Worker(app, WorkerOptions(until_empty=True)).run() == 0
    assert sorted(ran) == ["mail: a book", "stock: a book"]
    app.close()


def test_what_is_on_its_way_counts_in_the_queue_that_it_is_for(broker: RedisBroker) -> None:
    put(broker, "a")
    hand = ScriptedWorker(broker)
    claim = hand.one()
    with pytest.MonkeyPatch.context() as away:
        away.setattr(ClusterOutbox, "deliver", lambda *_: None)
        hand.settle(done(claim, [job("child", queue="far"), job("other child", queue="far")]))
    assert [numbers(broker, queue).length for queue in ("q", "far", "other")] == [0, 2, 0]
    with pytest.MonkeyPatch.context() as sweeping:
        sweeping.setattr(outbox, "LEFT_BEHIND_S", -1.0)
        broker.reclaim()
    assert [numbers(broker, queue).length for queue in ("q", "far", "other")] == [0, 2, 0]
    assert len(broker.inspect.listing("far", "queued").jobs) == 2


@pytest.mark.parametrize(
    ("looks", "is_empty"),
    [
        ([{}, {}], True),
        ([{"length": 1}], False),
        ([{"busy": 1}], False),
        ([{"length": 1, "delayed": 1}, {"length": 1, "delayed": 1}], True),
        ([{}, {"length": 1}], False),  # sent by a run while the queues were looked at
        ([{}, {"processed": 1}], False),  # and finished since
        ([{}, {"failed": 1}], False),
    ],
)
def test_what_gets_from_one_queue_into_another_while_it_looks_is_not_missed(
    looks: list[dict[str, int]], is_empty: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Laneway("memory:")

    @app.task
    def task() -> None: ...

    worker = Worker(app)
    worker.start()
    try:
        seen = iter(looks)
        nothing = QueueStats(queue="default", shards=5)
        monkeypatch.setattr(app.broker.inspect, "stats", lambda: [msgspec.structs.replace(nothing, **next(seen))])
        assert worker.is_empty() == is_empty
        assert next(seen, None) is None
    finally:
        worker.stop()
        app.close()
