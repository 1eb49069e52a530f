"""Jobs that fail while the broker is away: the failure is recorded later, and they are retried or buried.

The test kills the Redis server with -9 while they run, and restarts it. `make chaos` does it 200 times.
"""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from laneway import Context, Laneway
from laneway.telemetry import BrokerAway
from tests.support.servers import DURABLE, RedisServer, servers
from tests.support.worker_fixtures import PATIENCE_S, Running
from tests.support.worker_processes import LARGE, wait_until

pytestmark = pytest.mark.chaos

TRIALS = 200 if LARGE else 4
#: Of each kind.
JOBS = 4


def test_what_fails_while_the_broker_is_away_is_not_lost(tmp_path: Path) -> None:
    chance, pause = Random(10), threading.Event()
    begun, away = threading.Semaphore(0), threading.Event()
    runs, outages = Counter[str](), list[BrokerAway]()
    server = RedisServer.start(servers()["valkey"], tmp_path, *DURABLE)
    app = Laneway(server.url)
    app.telemetry.subscribe(BrokerAway, outages.append)

    def fail(context: Context) -> None:
        runs[context.id] += 1
        if context.attempt == 1:
            begun.release()
            assert away.wait(PATIENCE_S)
            raise ValueError("not now")

    @app.task(context=True, retry_in=lambda n: 0)
    def again(context: Context) -> None:
        fail(context)

    @app.task(context=True, max_retry_count=0)
    def once(context: Context) -> None:
        fail(context)

    try:
        with Running(app, concurrency=2 * JOBS, lease_s=60.0):
            for trial in range(TRIALS):
                away.clear()
                retried = [again.enqueue().id for _ in range(JOBS)]
                buried = [once.enqueue().id for _ in range(JOBS)]
                for _ in range(2 * JOBS):
                    assert begun.acquire(timeout=PATIENCE_S)
                server.kill()
                away.set()
                pause.wait(chance.choice((0.0, 0.1, 0.3, 1.2)))  # less, and more, than a call waits for an answer
                server.restart()
                wait_until(lambda trial=trial: app.broker.inspect.stats()[0].processed >= JOBS * (trial + 1))
                wait_until(lambda trial=trial: app.broker.inspect.stats()[0].dead >= JOBS * (trial + 1))
                assert {runs[job] for job in retried} == {2}
                assert {runs[job] for job in buried} == {1}
        (stats,) = app.broker.inspect.stats()
        print(f"{TRIALS} trials with {2 * JOBS} jobs each, {len(outages)} of them noticed: {stats}")
        assert (stats.length, stats.busy, stats.dead, stats.processed) == (0, 0, JOBS * TRIALS, JOBS * TRIALS)
        errors = [view.error or "" for view in app.broker.inspect.listing("default", "dead", limit=1_000).jobs]
        assert len(errors) == JOBS * TRIALS
        assert all("not now" in error for error in errors)
    finally:
        app.close()
        server.end()
