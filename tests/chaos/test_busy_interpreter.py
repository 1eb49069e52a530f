"""Jobs that hold the interpreter lock: their process keeps its lease, and they run once.

`make chaos` lets them spin for 30 s, `make test` for a few leases.
"""

from __future__ import annotations

import pytest

from tests.support.worker_processes import LARGE, Site, wait_until

pytestmark = pytest.mark.chaos

LEASE_S = 2.0 if LARGE else 0.8
SPIN_S = 30.0 if LARGE else 2.5


@pytest.mark.parametrize("task", ["spin", "hold"])
def test_a_job_that_hogs_the_interpreter_keeps_its_lease(site: Site, task: str) -> None:
    site.put(task, 5 if task == "spin" else 1, takes_s=SPIN_S)
    server = site.start("-c", "5", "--lease", str(LEASE_S))
    site.wait_for(5 if task == "spin" else 1)
    other = site.start("-Q", "orders", "--lease", str(LEASE_S)).serving()  # it would take them over
    wait_until(lambda: site.left() == 0, site.logs, 4 * SPIN_S + 60)
    assert (server.stop(), other.stop()) == (0, 0)
    ran = [end.t - begin.t for begin, end in zip(site.events("S"), site.events("E"), strict=True)]
    print(f"{task}: ran for {min(ran):.1f} to {max(ran):.1f} s with a lease of {LEASE_S} s")
    assert min(ran) > 2 * LEASE_S
    assert site.findings() == []
    assert (site.repeats(), site.attempts()) == (0, {1})
    assert "took back" not in site.logs()
    assert "taken for dead" not in site.logs()


def test_a_process_that_is_silent_past_the_hang_limit_is_ended_and_its_job_buried(site: Site) -> None:
    (key,) = site.put("hold", takes_s=600)
    others = site.put("work", 5, takes_s=0.1)
    server = site.start("-w", "2", "-c", "2", "--lease", "1", "--hang-limit", "1")
    wait_until(lambda: site.left() == 0, site.logs)
    assert server.stop() == 0, server.log()
    (dead,) = site.dead()
    assert (dead.key, site.starts()[key]) == (key, 3)
    assert "has been silent for" in server.log()
    assert others == [other for other in others if other in {event.job for event in site.events("E")}]
