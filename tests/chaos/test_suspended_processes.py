"""Processes are stopped (SIGSTOP) while they run keyed calls, beside another worker that takes over.

`make chaos` stops 30 times for one and a half leases, `make test` once or twice.
"""

from __future__ import annotations

import signal
import threading

import pytest

from tests.support.history import HistoryEvent
from tests.support.worker_processes import LARGE, Server, Site, alive, kill, stop, wait_until

pytestmark = pytest.mark.chaos

PAUSES = 30 if LARGE else 1
LEASE_S = 2.0 if LARGE else 1.5
CONCURRENCY = 3
ARGS = ("-c", str(CONCURRENCY), "--lease", str(LEASE_S))


def begin(site: Site) -> tuple[Server, Server]:
    """A worker to be stopped, and another beside it."""
    first, second = site.start(*ARGS, SETTLED="1"), site.start(*ARGS, SETTLED="1")
    return first.serving(), second.serving()


def running(site: Site, pid: int) -> list[HistoryEvent]:
    ended = {(event.job, event.token) for event in site.events("E")}
    return [each for each in site.events("S") if each.pid == pid and (each.job, each.token) not in ended]


def test_a_child_that_is_stopped_too_long_is_ended_before_others_take_over(site: Site) -> None:
    first, second = begin(site)
    pause = threading.Event()
    for number in range(PAUSES):
        site.put_calls(12, 6, prefix=f"p{number}-", takes_s=0.1)
        wait_until(lambda: len(first.children()) == 1, site.logs)
        child = first.child()
        wait_until(lambda child=child: running(site, child), site.logs)
        stop(child)
        site.history.note("K", pid=child)  # it does nothing any more, if it is never continued
        pause.wait(LEASE_S * 1.5)
        assert not alive(child), "its supervisor has ended it"
        kill(child, signal.SIGCONT)
        wait_until(lambda: site.left() == 0, site.logs)
        first.serving(number + 2)
    deaths = first.log().count("deaths counted for")
    assert (first.stop(), second.stop()) == (0, 0)
    print(f"{PAUSES} children stopped for {LEASE_S * 1.5} s: {len(site.accepted)} calls, {site.repeats()} repeats")
    assert first.log().count("is stopped: it is ended") == PAUSES
    assert site.findings() == []
    assert deaths, "a job may have stopped its own process"
    assert site.dead() == [], "but one that has not is never buried for it"
    assert site.repeats() <= PAUSES * CONCURRENCY
    assert "taken for dead" not in site.logs()
    assert not site.events("R")


def test_a_child_that_is_stopped_for_a_moment_goes_on(site: Site) -> None:
    first, second = begin(site)
    pause = threading.Event()
    children = first.children() + second.children()
    site.put_calls(12, 20, takes_s=0.05)
    for number in range(PAUSES):
        for child in children:
            stop(child)
            pause.wait(LEASE_S / 5)
            kill(child, signal.SIGCONT)
        pause.wait(0.1 * number)
    wait_until(lambda: site.left() == 0, site.logs)
    assert first.children() + second.children() == children
    assert (first.stop(), second.stop()) == (0, 0)
    assert site.findings() == []
    assert (site.repeats(), site.attempts()) == (0, {1})
    assert "ended" not in site.logs().replace("ended\n", "")


def test_a_worker_that_is_stopped_as_a_whole_loses_nothing(site: Site) -> None:
    """Nobody is there to end the child: what it ran runs again beside it, once, until it goes on and notices."""
    first, second = begin(site)
    pause = threading.Event()
    stale = 0
    for number in range(PAUSES):
        site.put_calls(12, 6, prefix=f"p{number}-", takes_s=0.2)
        wait_until(lambda: len(first.children()) == 1, site.logs)
        child = first.child()
        wait_until(lambda child=child: running(site, child), site.logs)
        stop(first.pid)
        stop(child)
        site.history.note("P", pid=child)
        begun = {(event.job, event.token) for event in running(site, child)}
        pause.wait(LEASE_S * 1.5)
        kill(child, signal.SIGCONT)
        kill(first.pid, signal.SIGCONT)
        wait_until(lambda: site.left() == 0, site.logs)
        wait_until(lambda: len(first.children()) == 1, site.logs)
        late = {(event.job, event.token) for event in site.events("E")} & begun
        stale += len(late)
        assert len(late) <= CONCURRENCY, "what ran went on, and nothing else was begun"
    assert (first.stop(), second.stop()) == (0, 0)
    print(f"{PAUSES} workers stopped as a whole: {stale} runs went on beside others, {site.repeats()} repeats")
    assert site.findings() == []
    assert site.dead() == []


def test_a_child_that_has_lost_its_lease_while_it_ran_is_ended(site: Site) -> None:
    (key,) = site.put("stuck")
    first = site.start(*ARGS).serving()
    site.wait_for(1)
    child = first.child()
    second = site.start(*ARGS).serving()
    stop(first.pid)
    stop(child)
    site.wait_for(2)
    assert site.events("S")[-1].pid == second.child(), "it was taken over"
    kill(child, signal.SIGCONT)
    wait_until(lambda: not alive(child), site.logs)
    kill(first.pid, signal.SIGCONT)
    wait_until(lambda: first.log().count(" started: ") == 2, site.logs)
    assert site.broker.inspect.find("default", key)[0].deaths == 0
    assert site.starts() == {key: 2}
    assert first.stop() == 0
