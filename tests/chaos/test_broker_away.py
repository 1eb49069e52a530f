"""Another process locks the database again and again: the worker waits, and then runs as fast as before.

`make chaos` locks it 30 times for up to a minute, within a few minutes in all; `make test` three times.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from random import Random

import pytest

from tests.support.worker_processes import LARGE, Site, wait_until

pytestmark = pytest.mark.chaos

#: Seconds for each outage.
OUTAGES = [*(0.5 + n * 0.15 for n in range(26)), 8.0, 15.0, 30.0, 60.0] if LARGE else [0.5, 3.5]
LEASE_S = 5.0 if LARGE else 3.0
TAKES_S = 0.02


def speeds(site: Site, since: float) -> list[int]:
    """Runs that have ended in each second that begins a tenth later than the one before, for ten seconds from then on;
    only in those that are over."""
    ends = [event.t - since for event in site.events("E") if event.t >= since]
    over = int((time.monotonic() - since) * 10) - 10
    return [sum(tenth <= at * 10 < tenth + 10 for at in ends) for tenth in range(min(over, 100))]


def test_a_database_that_is_locked_does_not_harm_a_worker(site: Site) -> None:
    chance = Random(8)
    outages = chance.sample(OUTAGES, len(OUTAGES))
    pause = threading.Event()
    lock = sqlite3.connect(site.database, isolation_level=None, timeout=30)
    server = site.start("-w", "2", "-c", "2", "--lease", str(LEASE_S), LANEWAY_URL=f"{site.url}?timeout=0.5").serving(2)
    children = server.children()
    slow: list[float] = []
    for outage_s in outages:
        if site.left() < 3_000:
            site.put("work", 3_000, takes_s=TAKES_S)
        began = time.monotonic()
        pause.wait(2.0)
        usual = sum(event.t >= began + 1.0 for event in site.events("E"))
        lock.execute("BEGIN IMMEDIATE")
        pause.wait(outage_s)
        lock.execute("ROLLBACK")
        back = time.monotonic()
        needs = usual * 0.9
        wait_until(lambda back=back, needs=needs: max(speeds(site, back), default=0) >= needs, site.logs)
        slow.append(next(tenth for tenth, speed in enumerate(speeds(site, back)) if speed >= needs) / 10)
    assert server.process.poll() is None
    assert server.children() == children, "neither has any of its processes ended"
    log = server.log()
    lines = [line for line in log.splitlines() if "the broker is" in line]
    print(f"{len(outages)} outages of {min(outages)} to {max(outages):.1f} s: at 90 % of its speed after {max(slow)} s")
    print(f"at most, {len(lines)} lines in the log")
    assert max(slow) <= 5
    seconds = [line[:8] for line in lines]
    assert lines, "it was noticed"
    assert len(lines) <= 2 * len(outages), "whichever of its processes notice"
    assert max(map(seconds.count, seconds)) <= 2, "that it is away, and that it is back"
    assert "taken for dead" not in log
    assert "took back" not in log
    for stats in site.broker.inspect.stats():
        site.broker.operate.pause(stats.queue)
    assert server.stop() == 0, server.log()
    assert (site.repeats(), site.attempts()) == (0, {1})
