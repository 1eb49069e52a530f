"""Children that end are replaced, with growing pauses if they keep ending."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.support.worker_processes import LARGE, Server, Site, kill, parent_of, state_of, wait_until

pytestmark = pytest.mark.acceptance

RESTARTS = 50 if LARGE else 5


def test_a_child_that_dies_at_once_is_started_more_and_more_slowly(site: Site) -> None:
    starts = site.folder / "starts"
    server = site.start("-w", "2", STARTS=str(starts), CRASH_FROM="3", CRASH_TO="5").serving(2)
    kill(server.children()[0], signal.SIGKILL)
    site.put("work", 200, takes_s=0.02)
    server.serving(3)
    waits = [float(wait) for wait in re.findall(r"another is started in ([\d.]+) (?:ms|s)", server.log())]
    units = re.findall(r"another is started in [\d.]+ (ms|s)", server.log())
    seconds = [wait / 1000 if unit == "ms" else wait for wait, unit in zip(waits, units, strict=True)]
    # The first is started at once; each drawn from three quarters to five quarters of 0.25, 0.5 and 1 second.
    assert len(seconds) == 3
    assert all(0.75 * wait <= given <= 1.25 * wait for wait, given in zip((0.25, 0.5, 1), seconds, strict=True))
    wait_until(lambda: site.left() == 0, site.logs)
    assert server.stop() == 0
    assert site.findings() == [], "the other has gone on"


def test_a_first_start_that_fails_ends_with_its_code_and_one_sentence(site: Site) -> None:
    server = site.start(STARTS=str(site.folder / "starts"), FAIL_AT="1")
    assert server.ends() == 1
    assert "on_start failed, so the worker does not start" in server.log()
    assert site.processes() == []


def test_what_cannot_be_imported_ends_with_2_and_one_sentence(site: Site) -> None:
    server = site.start(HISTORY="/no/such/folder/history")
    assert server.ends() == 2
    assert server.log().count("\n") == 1, server.log()


def test_restarts_leave_no_descriptors_and_no_zombies(site: Site) -> None:
    server = site.start("-c", "2").serving()
    before = 0
    for number in range(RESTARTS):
        site.put("work", 5, takes_s=0.05)
        # Every tenth is a crash; after several within seconds the supervisor would take its time.
        kill(server.child(), signal.SIGKILL if number % 10 == 9 else signal.SIGTERM)
        server.serving(number + 2)
        before = before or descriptors(server)  # after the first, when it has opened all that it needs
    wait_until(lambda: site.left() == 0, site.logs)
    print(f"{RESTARTS} children replaced: {before} descriptors before, {descriptors(server)} after")
    wait_until(lambda: descriptors(server) == before, lambda: str(descriptors(server)))
    assert zombies(server) == []
    assert server.stop() == 0
    assert site.attempts() <= {1, 2}


def descriptors(server: Server) -> int:
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))


def zombies(server: Server) -> list[int]:
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if parent_of(pid) == server.pid and state_of(pid) == "Z"]
