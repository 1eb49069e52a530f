"""The Redis server is killed with -9 under load and restarted: no job is lost, and workers recover by themselves.

The server runs with appendfsync always, as the promise requires. `make chaos` kills it 20 times, `make test` a few
times.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from random import Random

import pytest

from tests.chaos.load import load
from tests.support.servers import DURABLE, RedisServer, servers
from tests.support.worker_processes import LARGE

pytestmark = pytest.mark.chaos

KILLS = 20 if LARGE else 3


@pytest.mark.parametrize("name", servers() if LARGE else ["valkey"])
def test_a_server_that_is_killed_and_started_again_loses_nothing(name: str, tmp_path: Path) -> None:
    chance, pause = Random(5), threading.Event()
    away: list[float] = []
    server = RedisServer.start(servers()[name], tmp_path, *DURABLE)
    try:
        with load(tmp_path, server.url) as running:
            for _ in range(KILLS):
                pause.wait(chance.uniform(0.0, 0.5))
                began = time.monotonic()
                server.kill()
                pause.wait(chance.choice((0.0, 0.2, 1.5)))  # less, and more, than a call waits for an answer
                server.restart()
                away.append(time.monotonic() - began)
                assert running.missing() == []
                running.goes_on()
            findings = running.finish()
            print(
                f"{name}: {KILLS} kills, away for {min(away):.1f} to {max(away):.1f} s: {len(running.accepted)} calls, "
                f"{running.unanswered} times not answered, {running.repeats()} repeats"
            )
            assert findings == []
    finally:
        server.end()
