"""kill -9 of a child, of a whole worker, and of the supervisor alone: when the interrupted jobs run again.

They run again soon enough, and not before the killed process has ended. `make chaos` kills 20 times each, `make
test` once or twice.
"""

from __future__ import annotations

import signal
import time
from statistics import median

import pytest

from tests.support.history import HistoryEvent
from tests.support.worker_processes import LARGE, Site, alive, kill, stop, wait_until

pytestmark = pytest.mark.chaos

KILLS = 20 if LARGE else 1
LEASE_S = 2.0 if LARGE else 1.0


def again(site: Site, before: list[HistoryEvent], since: float) -> float:
    """Wait until each of these runs has begun once more; seconds since then until the last of them has."""
    later = lambda: [event for event in site.events("S") if event.t > since]  # noqa: E731 - it is asked twice
    jobs = {event.job for event in before}
    wait_until(lambda: jobs <= {event.job for event in later()}, site.logs)
    return max(event.t for event in later() if event.job in jobs) - since


def running(site: Site, pids: list[int]) -> list[HistoryEvent]:
    """What has begun in these processes and not ended."""
    ended = {(event.job, event.token) for event in site.events("E")}
    return [each for each in site.events("S") if each.pid in pids and (each.job, each.token) not in ended]


@pytest.mark.parametrize("processes", [1, 2])
def test_what_a_killed_child_ran_runs_again_at_once(site: Site, processes: int) -> None:
    took: list[float] = []
    server = site.start("-w", str(processes), "-c", "3", "--lease", "120").serving(processes)
    for number in range(KILLS):
        keys = site.put("work", 3, takes_s=2.0 if processes == 1 else 1.0)
        wait_until(lambda keys=keys: set(keys) <= site.starts().keys(), site.logs)
        pid = site.events("S")[-1].pid
        before = running(site, [pid])
        assert before, "something runs in it"
        stop(pid)  # nothing may begin between the note and the kill
        site.history.note("K", pid=pid)
        kill(pid, signal.SIGKILL)
        took.append(again(site, before, site.events("K")[-1].t))
        for event in before:
            assert [job.deaths for job in site.broker.inspect.find("default", event.key)] in ([1], []), (
                "it has one, or is done"
            )
        wait_until(lambda number=number: site.left() == 0, site.logs)
        wait_until(lambda: len(server.children()) == processes, site.logs)
        if number < KILLS - 1:
            server.serving(processes + number + 1)
    assert server.stop() == 0, server.log()
    print(f"-w {processes}: {KILLS} kills; begun again after {median(took):.2f} s, at most {max(took):.2f} s")
    assert site.findings() == []
    assert max(site.attempts()) == 2
    assert "deaths counted for" in server.log()
    if LARGE:
        assert median(took) < 2


def test_what_a_killed_worker_ran_is_taken_over_after_its_lease(site: Site) -> None:
    took: list[float] = []
    args = ("-w", "2", "-c", "3", "--lease", str(LEASE_S))
    server = site.start(*args).serving(2)
    for _ in range(KILLS):
        keys = site.put("work", 6, takes_s=1.0)
        wait_until(lambda keys=keys: set(keys) <= site.starts().keys(), site.logs)
        tree = [server.pid, *server.children()]
        for pid in tree:
            stop(pid)
        before = running(site, tree)
        for pid in tree:
            site.history.note("K", pid=pid)
            kill(pid, signal.SIGKILL)
        server.ends()
        killed = site.events("K")[-1].t
        server = site.start(*args).serving()
        served_s = time.monotonic() - killed  # on a busy machine it may have begun again by then
        took.append(again(site, before, killed) - served_s if before else 0.0)
        assert not any(job.deaths for event in before for job in site.broker.inspect.find("default", event.key))
        wait_until(lambda: site.left() == 0, site.logs)
    assert server.stop() == 0
    print(f"{KILLS} worker trees killed, lease {LEASE_S} s: begun again {median(took):.2f} s after the next worker was")
    print(f"there, at most {max(took):.2f} s")
    assert site.findings() == []
    assert max(took) < LEASE_S + (2 if LARGE else 10)


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_children_end_with_their_supervisor(site: Site, stopped: bool) -> None:
    took: list[float] = []
    other = site.start("-w", "1", "-c", "4", "--lease", str(LEASE_S)).serving()
    for _ in range(KILLS):
        server = site.start("-w", "2", "-c", "2", "--lease", str(LEASE_S)).serving(2)
        site.put_calls(8, 3 if LARGE else 2, prefix=f"n{server.pid}-", takes_s=0.3)
        children = server.children()
        wait_until(lambda children=children: len(running(site, children)) > 2, site.logs)
        for pid in children if stopped else ():
            stop(pid)
        server.process.kill()
        site.history.note("K", pid=0)  # when it was
        took.append(wait_until(lambda children=children: not any(map(alive, children)), site.logs))
        for pid in children:
            site.history.note("K", pid=pid)
        wait_until(lambda: site.left() == 0, site.logs)
    assert other.stop() == 0
    print(
        f"{KILLS} supervisors killed, children {'stopped' if stopped else 'running'}: all gone after "
        f"{median(took):.3f} s, at most {max(took):.3f} s"
    )
    assert site.findings() == []
    assert site.processes() == []
    assert max(took) < (1 if LARGE else 10)
    assert not any(event.attempt > 2 for event in site.events("S"))
