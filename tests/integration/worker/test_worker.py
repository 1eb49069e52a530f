"""The whole worker: no job waits behind a slow one, no limit is exceeded, and no job is lost."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest

from laneway import ConfigError, Worker, WorkerOptions
from laneway.clock import ManualClock
from laneway.errors import BrokerAwayError, BrokerRefusedError, NoQueueError
from laneway.telemetry import WorkerStopped
from tests.support.worker_fixtures import PATIENCE_S, Running


def test_a_long_job_holds_up_nothing_that_was_fetched_behind_it(app):
    release, others = threading.Event(), threading.Semaphore(0)

    @app.task
    def long() -> None:
        release.wait(PATIENCE_S)

    @app.task
    def quick(number: int) -> None:
        others.release()

    # Enough quick ones first that the worker fetches far ahead, then the long one in their midst.
    quick.enqueue_many([(number,) for number in range(500)])
    long.enqueue()
    quick.enqueue_many([(number,) for number in range(1500)])
    with Running(app, concurrency=2):
        try:
            for _ in range(2000):
                assert others.acquire(timeout=PATIENCE_S)
        finally:
            release.set()


def test_jobs_stuck_behind_slow_ones_are_given_back_for_others(app):
    """All runners are busy: what was fetched ahead goes back, and another worker runs it."""
    release, ran = threading.Event(), threading.Semaphore(0)
    slow_started = threading.Semaphore(0)

    @app.task
    def slow() -> None:
        slow_started.release()
        release.wait(PATIENCE_S)

    @app.task
    def quick(number: int) -> None:
        ran.release()

    quick.enqueue_many([(number,) for number in range(300)])
    slow.enqueue_many([(), ()])
    quick.enqueue_many([(number,) for number in range(300)])
    with Running(app, concurrency=2):
        try:
            for _ in range(2):
                assert slow_started.acquire(timeout=PATIENCE_S)
            with Running(app, concurrency=1):
                for _ in range(600):
                    assert ran.acquire(timeout=PATIENCE_S)
        finally:
            release.set()


@pytest.mark.parametrize("concurrency", [1, 3])
def test_sync_and_async_jobs_together_never_exceed_the_concurrency(app, drain, concurrency):
    lock = threading.Lock()
    now_running = most = 0

    def enter() -> None:
        nonlocal now_running, most
        with lock:
            now_running += 1
            most = max(most, now_running)

    def leave() -> None:
        nonlocal now_running
        with lock:
            now_running -= 1

    pause = threading.Event()

    @app.task
    def blocking(number: int) -> None:
        enter()
        pause.wait(0.002)
        leave()

    @app.task
    async def awaiting(number: int) -> None:
        enter()
        await asyncio.sleep(0.002)
        leave()

    for number in range(60):
        (blocking if number % 3 else awaiting).enqueue(number)
    drain(app, concurrency=concurrency)
    assert most == concurrency
    assert app.broker.inspect.stats()[0].processed == 60


def test_many_async_jobs_wait_together(app, drain):
    """All of them are running at once, or the barrier would never fall."""
    together = 40
    arrived = 0
    everyone: asyncio.Event | None = None

    @app.task
    async def meet(number: int) -> None:
        nonlocal arrived, everyone
        everyone = everyone or asyncio.Event()
        arrived += 1
        if arrived == together:
            everyone.set()
        await asyncio.wait_for(everyone.wait(), PATIENCE_S)

    meet.enqueue_many([(number,) for number in range(together)])
    drain(app, concurrency=together)
    assert app.broker.inspect.stats()[0].failed == 0


def test_a_busy_queue_does_not_starve_another(app):
    """The one job of the quiet queue runs long before the busy queue is done."""
    done_before = []
    busy_done = Counter()
    quiet_done = threading.Event()

    @app.task(queue="busy")
    def busy(number: int) -> None:
        busy_done["n"] += 1

    @app.task(queue="quiet")
    def quiet() -> None:
        done_before.append(busy_done["n"])
        quiet_done.set()

    busy.enqueue_many([(number,) for number in range(20_000)])
    quiet.enqueue()
    with Running(app, concurrency=1, queues=["busy", "quiet"]):
        assert quiet_done.wait(PATIENCE_S)
    assert done_before[0] < 10_000


def test_only_the_queues_asked_for_are_served(app, drain):
    ran = []

    @app.task(queue="one")
    def first() -> None:
        ran.append("one")

    @app.task(queue="two")
    def second() -> None:
        ran.append("two")

    first.enqueue()
    waiting = second.enqueue()
    drain(app, queues=["one"])
    assert ran == ["one"]
    assert waiting.status() == "queued"


def test_an_idle_worker_is_woken_by_an_enqueue(app):
    ran = threading.Semaphore(0)

    @app.task
    def ping() -> None:
        ran.release()

    with Running(app):
        for _ in range(5):
            ping.enqueue()
            assert ran.acquire(timeout=PATIENCE_S)


def test_a_delayed_job_runs_when_it_is_due_and_not_before(app):
    ran = threading.Event()
    seen = []

    @app.task
    def later() -> None:
        seen.append(app.broker._clock.now())
        ran.set()

    due = app.broker._clock.now() + 0.2
    later.using(perform_at=due).enqueue()
    with Running(app):
        assert ran.wait(PATIENCE_S)
    assert seen[0] >= due


def test_a_worker_cannot_be_started_twice_and_may_be_stopped_before_it_was_started(app):
    @app.task
    def ping() -> None: ...

    worker = Worker(app)
    assert worker.stop()
    worker.start()
    with pytest.raises(ConfigError, match="running already"):
        worker.start()
    assert worker.stop()
    assert worker.stop()


def test_many_async_jobs_do_not_need_many_threads(app, drain):
    threads = []

    @app.task
    async def count(number: int) -> None:
        threads.append(threading.active_count())
        await asyncio.sleep(0.001)

    count.enqueue_many([(number,) for number in range(300)])
    drain(app, concurrency=200)
    assert max(threads) < 60


def test_an_embedded_worker_that_dies_stops_itself_and_gives_back_the_job(app):
    stopped = threading.Event()
    app.telemetry.subscribe(WorkerStopped, lambda event: stopped.set())

    @app.task
    def leave() -> None:
        raise SystemExit(3)

    handle = leave.enqueue()
    worker = Worker(app)
    worker.start()
    assert stopped.wait(PATIENCE_S)
    assert handle.status() == "queued"


def test_a_worker_may_have_a_clock_of_its_own(app):
    @app.task
    def ping() -> None: ...

    handle = ping.enqueue()
    worker = Worker(app, WorkerOptions(until_empty=True), clock=ManualClock())
    assert worker.run() == 0
    assert handle.status() == "gone"


def test_a_broker_that_refuses_its_numbers_ends_a_worker_until_empty(app, monkeypatch):
    @app.task
    def ping() -> None: ...

    def refuse():
        raise next(errors, BrokerRefusedError("This user may not count jobs."))

    # The first two pass: a broker that is away comes back, and a missing queue may be made.
    errors = iter([BrokerAwayError("Lost."), NoQueueError("No queue.")])
    monkeypatch.setattr(app.broker.inspect, "stats", refuse)
    worker = Worker(app, WorkerOptions(until_empty=True))
    watchdog = threading.Timer(10, worker._stopping.give_up)
    watchdog.start()
    with pytest.raises(BrokerRefusedError, match="may not count jobs"):
        worker.run()
    watchdog.cancel()
    assert next(errors, None) is None
    assert app.broker.leases() == {}, "it has left"
