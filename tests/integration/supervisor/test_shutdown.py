"""Shutdown: at any moment, with one or two signals, with and without running jobs."""

from __future__ import annotations

import os
import pty
import signal
from pathlib import Path

import pytest

from tests.support.history import read_history
from tests.support.worker_processes import PATIENCE_S, Site, kill, state_of, wait_until

pytestmark = pytest.mark.acceptance


def imported(site: Site) -> int:
    """How many processes have begun to import the program."""
    return sum(event.key == "imported" for event in read_history(site.history.path))


@pytest.mark.parametrize("processes", [1, 2], ids=["supervisor", "child"])
def test_told_to_stop_while_it_imports_it_ends_with_0(site: Site, processes: int) -> None:
    server = site.start(IMPORT_S="1")
    wait_until(lambda: imported(site) >= processes, server.log)
    assert server.stop() == 0, server.log()
    assert site.broker.inspect.workers() == []


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR1"])
def test_told_to_stop_while_idle_it_ends_with_0(site: Site, name: str) -> None:
    server = site.start("-w", "2").serving(2)
    server.signal(name)
    assert server.ends() == 0, server.log()
    assert site.broker.inspect.workers() == []
    assert site.processes() == []


def test_told_to_stop_it_finishes_what_runs_and_gives_back_the_rest(site: Site) -> None:
    site.put("work", 40, takes_s=0.2)
    server = site.start("-w", "2", "-c", "3")
    site.wait_for(6)
    server.signal("SIGTERM")
    server.signal("SIGTERM")
    assert server.ends() == 0, server.log()
    starts = site.starts()
    assert starts.keys() == {event.job for event in site.events("E")}, "whatever was begun has ended"
    assert site.left() == 40 - len(starts)
    site.until_empty()
    assert site.findings() == []
    assert (site.repeats(), site.attempts()) == (0, {1})


def test_a_second_interrupt_gives_up_and_the_next_worker_need_not_wait(site: Site) -> None:
    (key,) = site.put("stuck")
    server = site.start("--lease", "120")
    site.wait_for(1)
    server.signal("SIGINT")
    wait_until(lambda: "waiting for stuck" in server.log(), server.log)
    server.signal("SIGINT")
    assert server.ends() == 1
    assert "1 jobs unfinished" in server.log()
    assert "Traceback" not in server.log()
    assert site.processes() == []
    site.start()
    again = site.wait_for(2)[-1]
    assert (again.job, again.attempt) == (key, 2)
    assert site.broker.inspect.find("default", key)[0].deaths == 0


def test_a_second_interrupt_does_not_wait_for_a_child_that_cannot_hear(site: Site) -> None:
    (key,) = site.put("stuck")
    server = site.start("--lease", "120", "--shutdown-timeout", "300")
    site.wait_for(1)
    child = server.child()
    kill(child, signal.SIGSTOP)
    # Not before it has stopped: what reaches it until then it hears.
    wait_until(lambda: state_of(child) == "T", server.log)
    server.signal("SIGINT")
    # It must have been heard, and passed on: two that come at once are one to Python.
    wait_until(lambda: pending(child) >> (signal.SIGTERM - 1) & 1, server.log)
    server.signal("SIGINT")
    assert server.ends() == 1
    site.start()
    again = site.wait_for(2)[-1]
    assert (again.job, again.attempt) == (key, 2)
    assert site.broker.inspect.find("default", key)[0].deaths == 0


def pending(pid: int) -> int:
    """The signals that a process has been sent and has not received, as bits."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("ShdPnd:")[2].split()[0], 16)


def test_a_process_that_does_not_answer_is_spoken_for_and_not_waited_for_longer_than_said(site: Site) -> None:
    (key,) = site.put("hold", takes_s=60)
    server = site.start("--lease", "120", "--shutdown-timeout", "9")
    site.wait_for(1)
    assert server.stop() == 1
    assert f"does not answer; it runs default {key}" in server.log()
    assert f"did not stop in time; it runs default {key}: it is ended" in server.log()


def test_the_shutdown_timeout_gives_up_and_says_what_it_waited_for(site: Site) -> None:
    site.put("stuck")
    server = site.start("--lease", "120", "--shutdown-timeout", "6")
    site.wait_for(1)
    assert server.stop() == 1
    assert "still waiting for stuck" in server.log()
    assert "giving up in" in server.log()
    assert "1 jobs unfinished" in server.log()
    site.start()
    site.wait_for(2)


def test_ctrl_c_at_a_terminal_is_one_clean_stop(site: Site) -> None:
    site.put("work", 100, takes_s=0.1)
    ours, theirs = pty.openpty()

    def own_terminal() -> None:
        os.setsid()
        os.close(os.open(os.ttyname(theirs), os.O_RDWR))  # the first that a session's leader opens is its own

    server = site.start(
        "-w", "2", options={"stdin": theirs, "stdout": theirs, "stderr": theirs, "preexec_fn": own_terminal}
    )
    os.close(theirs)
    said = b""
    while said.count(b" started: ") < 2:
        said += os.read(ours, 4096)
    site.wait_for(4)
    os.write(ours, b"\x03")
    while True:
        try:
            said += os.read(ours, 4096)
        except OSError:  # the other side is closed
            break
    os.close(ours)
    assert server.process.wait(timeout=PATIENCE_S) == 0, said
    assert said.count(b"stopped (") == 2, said
    assert b"Traceback" not in said
    assert b"unfinished" not in said
    assert site.processes() == []
    site.until_empty()
    assert site.findings() == []
    assert (site.repeats(), site.attempts()) == (0, {1})
