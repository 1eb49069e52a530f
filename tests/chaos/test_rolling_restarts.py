"""Workers are replaced under load, each stopped at any moment of its life: no job repeats or is lost.

`make chaos` restarts 50 times, `make test` a few times.
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from random import Random

import pytest

from tests.support.worker_processes import LARGE, Server, Site, wait_until

pytestmark = pytest.mark.chaos

RESTARTS = 50 if LARGE else 4


def handles_signals(server: Server) -> bool:
    """Whether it has got so far; before that a signal ends Python itself, and nothing has begun."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) & 1 << signal.SIGTERM - 1)


def test_restarting_with_term_under_load_repeats_nothing(site: Site) -> None:
    chance = Random(22)
    pause = threading.Event()
    busy = 0
    site.put("work", 200, takes_s=0.05)
    site.put_calls(20, 10, takes_s=0.02)
    steady = site.start("-w", "2").serving(2)
    for number in range(RESTARTS):
        site.put("work", 150, takes_s=chance.choice([0.01, 0.05, 0.3]))
        site.put_calls(20, 3, prefix=f"r{number}-", takes_s=0.02)
        new = site.start("-w", chance.choice("12"))
        wait_until(lambda new=new: handles_signals(new))
        if number % 3:  # the old one is replaced once the new one serves
            new.serving()
            steady, new = new, steady
        site.put("work", 100, takes_s=0.1)  # starting may have taken so long that nothing else is left to run
        pause.wait(chance.random() * 1.5)
        busy += any(stats.busy for stats in site.broker.inspect.stats())
        for _ in range(chance.choice([1, 1, 2])):
            new.signal(chance.choice(["SIGTERM", "SIGTERM", "SIGUSR1"]))
        assert new.ends() == 0, new.log()
    assert steady.stop() == 0
    site.until_empty()
    print(f"{RESTARTS} restarts, {busy} of them while jobs ran; {len(site.accepted)} jobs, {site.repeats()} repeats")
    assert busy >= RESTARTS // 2
    assert site.findings() == []
    assert (site.repeats(), site.attempts(), site.left(), site.dead()) == (0, {1}, 0, [])
    assert "unfinished" not in site.logs()
    assert site.processes() == []
