"""Redis' script cache is flushed every 200 ms, without effect on jobs.

`make chaos` does it for a minute, `make test` for a few seconds.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.chaos.load import load
from tests.support.servers import LOGGED, RedisServer, servers
from tests.support.worker_processes import LARGE

pytestmark = pytest.mark.chaos

FLUSHES = 300 if LARGE else 10


@pytest.mark.parametrize("name", servers() if LARGE else ["valkey"])
def test_flushing_scripts_is_not_noticed(name: str, tmp_path: Path) -> None:
    pause = threading.Event()
    server = RedisServer.start(servers()[name], tmp_path, *LOGGED)
    try:
        with server.client() as client, load(tmp_path, server.url) as running:
            client.config_resetstat()
            for _ in range(FLUSHES):
                client.script_flush()
                pause.wait(0.2)
            unknown = client.info("errorstats").get("errorstat_NOSCRIPT", {"count": 0})["count"]
            running.goes_on()
            findings = running.finish()
            print(
                f"{name}: {FLUSHES} flushes, {unknown} calls of a script that Redis did not know: "
                f"{len(running.accepted)} calls, {running.unanswered} times not answered, {running.repeats()} repeats"
            )
            assert unknown >= FLUSHES
            assert (findings, running.unanswered, running.repeats()) == ([], 0, 0)
            assert not {"WARNING", "ERROR", "Traceback"} & set(running.log().split()), running.log()
    finally:
        server.end()
