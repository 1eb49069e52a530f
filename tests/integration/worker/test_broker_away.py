"""A failing broker and a lost lease: the worker goes on, and no job is lost or repeated."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from laneway import Context, Laneway, Middleware
from laneway.jobs.data import NewJob
from laneway.telemetry import BrokerAway, BrokerBack, RunEnded
from laneway.testing.faulty_broker import FaultyBroker
from laneway.urls import open_broker
from tests.support.worker_fixtures import PATIENCE_S, Running


@pytest.fixture
def faulty(url):
    app = Laneway(broker=FaultyBroker(open_broker(url)))
    yield app, app.broker
    app.close()


@pytest.mark.parametrize("fault", ["lose_request", "lose_answer"])
def test_no_lost_message_loses_or_repeats_a_job(faulty, fault):
    app, broker = faulty
    ran: Counter[int] = Counter()
    finished = threading.Event()

    @app.task
    def count(number: int) -> None:
        ran[number] += 1
        if number % 100 == 0:
            getattr(broker, fault)("turn")
        if len(ran) == 400:
            finished.set()

    count.enqueue_many([(number,) for number in range(400)])
    with Running(app, concurrency=3):
        assert finished.wait(PATIENCE_S)
    assert set(ran.values()) == {1}
    [stats] = app.broker.inspect.stats()
    assert (stats.length, stats.busy, stats.processed) == (0, 0, 400)


def test_a_broker_that_is_away_is_reported_once_and_waited_for(faulty):
    app, broker = faulty
    away, back, ran = threading.Semaphore(0), threading.Event(), threading.Semaphore(0)
    reports = []
    app.telemetry.subscribe(BrokerAway, lambda event: (reports.append(event), away.release()))
    app.telemetry.subscribe(BrokerBack, lambda event: back.set())

    @app.task
    def ping() -> None:
        ran.release()

    with Running(app):
        ping.enqueue()
        assert ran.acquire(timeout=PATIENCE_S)
        broker.away = True
        assert away.acquire(timeout=PATIENCE_S)
        turns = broker.calls["turn"]
        while broker.calls["turn"] < turns + 3:  # it keeps trying
            back.wait(0.01)
        assert len(reports) == 1
        broker.away = False
        assert back.wait(PATIENCE_S)
        ping.enqueue()
        assert ran.acquire(timeout=PATIENCE_S)


def test_a_job_that_fails_while_the_broker_is_away_is_retried(faulty):
    app, broker = faulty
    runs = []
    second = threading.Event()

    @app.task(retry_in=lambda n: 0)
    def bad() -> None:
        runs.append(1)
        if len(runs) == 2:
            second.set()
            return
        broker.away = True
        threading.Timer(0.2, lambda: setattr(broker, "away", False)).start()
        raise ValueError("boom")

    bad.enqueue()
    with Running(app):
        assert second.wait(PATIENCE_S)
    assert app.broker.inspect.stats()[0].length == 0


def test_a_worker_declared_dead_goes_on_under_a_new_id(app):
    first, release, ran = threading.Event(), threading.Event(), threading.Semaphore(0)

    @app.task
    def hold() -> None:
        first.set()
        release.wait(PATIENCE_S)

    @app.task
    def ping() -> None:
        ran.release()

    hold.enqueue()
    with Running(app, concurrency=1, lease_s=0.3) as worker:
        assert first.wait(PATIENCE_S)
        old = worker.id
        counter, _ = app.broker.leases()[old]
        while not app.broker.declare_dead(old, counter):
            counter, _ = app.broker.leases()[old]
        app.broker.reclaim()
        release.set()
        ping.enqueue()
        assert ran.acquire(timeout=PATIENCE_S)
        assert worker.id != old


def test_a_worker_started_while_the_broker_is_away_begins_when_it_is_back(faulty):
    app, broker = faulty
    reports, ran = [], threading.Semaphore(0)
    app.telemetry.subscribe(BrokerAway, reports.append)
    app.telemetry.subscribe(BrokerAway, lambda event: setattr(broker, "away", False))

    @app.task
    def ping() -> None:
        ran.release()

    ping.enqueue()
    broker.away = True
    with Running(app):
        assert ran.acquire(timeout=PATIENCE_S)
    assert len(reports) == 1


@pytest.mark.parametrize("verb", ["join", "renew", "turn"])
def test_a_lease_lost_while_the_broker_fails_is_mended(faulty, verb):
    app, broker = faulty
    ran = threading.Semaphore(0)

    @app.task
    def ping() -> None:
        ran.release()

    with Running(app, lease_s=0.3) as worker:
        for _ in range(3):
            old = worker.id
            counter, _ = broker.leases()[old]
            broker.lose_request(verb)
            while not broker.declare_dead(old, counter):
                counter, _ = broker.leases()[old]
            while worker.id == old:
                ran.acquire(timeout=0.01)
            done = threading.Event()
            app.telemetry.subscribe(RunEnded, lambda event, done=done: done.set())
            ping.enqueue()
            assert done.wait(PATIENCE_S)


def test_what_a_run_enqueued_and_no_broker_can_store_fails_that_run_alone(make_app, drain):
    class Refusing(Middleware):
        def around_enqueue(self, jobs):
            yield

    app = make_app(middleware=[Refusing()])
    ran = []

    @app.task(context=True, max_retry_count=0)
    def parent(context: Context) -> None:
        context.enqueue(child)
        context.outbox[0].headers = {"trace": "\ud800"}

    @app.task
    def child() -> None:
        ran.append(1)

    handle = parent.enqueue()
    child.enqueue()
    assert drain(app) == 0
    assert ran == [1]
    [job] = app.broker.inspect.find("default", handle.id)
    assert job.status == "dead"
    assert "What the run sent was refused" in job.error


def test_a_broker_away_is_one_report_however_many_queues_there_are(faulty):
    app, broker = faulty
    reports, back = [], threading.Event()
    app.telemetry.subscribe(BrokerAway, reports.append)
    app.telemetry.subscribe(BrokerBack, lambda event: back.set())

    @app.task
    def ping() -> None: ...

    with Running(app, queues=[f"q{number}" for number in range(10)], lease_s=0.3):
        broker.away = True
        for number in range(10):
            broker.inner.enqueue([NewJob(queue=f"q{number}", key=f"k{number}", body="")])
        turns = broker.calls["turn"]
        while broker.calls["turn"] < turns + 30:
            back.wait(0.01)
        broker.away = False
        assert back.wait(PATIENCE_S)
    assert len(reports) == 1
