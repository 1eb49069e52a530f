"""Processes that a job has started end with the process that ran the job."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from laneway.worker.process.tree import descendants
from tests.support.worker_processes import Site, alive, kill, wait_until

pytestmark = pytest.mark.acceptance


@pytest.mark.parametrize("own_session", [False, True])
def test_what_a_job_has_started_ends_with_a_killed_child(site: Site, own_session: bool) -> None:
    site.put("family", own_session=own_session)
    server = site.start().serving()
    started = site.wait_for(1, "C")[0].pid
    kill(server.child(), signal.SIGKILL)
    site.wait_for(2, "S")
    assert not alive(started), "before the job runs again"


def test_what_a_job_has_started_ends_when_its_child_is_given_up(site: Site) -> None:
    site.put("family")
    server = site.start("--shutdown-timeout", "0").serving()
    started = site.wait_for(1, "C")[0].pid
    assert server.stop() == 1
    wait_until(lambda: not alive(started))
    assert site.processes() == []


def test_what_a_job_has_started_ends_with_the_supervisor(site: Site) -> None:
    site.put("family")
    server = site.start().serving()
    started = site.wait_for(1, "C")[0].pid
    server.process.kill()
    wait_until(lambda: not alive(started), timeout_s=5)
    assert site.processes() == []


def test_an_isolated_process_ends_with_the_supervisor(site: Site) -> None:
    site.put("stuck_apart")
    server = site.start().serving()
    (run,) = site.wait_for(1)
    assert run.pid not in [server.pid, *server.children()], "it runs in a process of its own"
    server.process.kill()
    wait_until(lambda: not alive(run.pid), timeout_s=10)
    wait_until(lambda: site.processes() == [], timeout_s=10)


def test_an_isolated_process_ends_with_a_child_that_is_killed(site: Site) -> None:
    site.put("stuck_apart")
    server = site.start().serving()
    (run,) = site.wait_for(1)
    kill(server.child(), signal.SIGKILL)
    site.wait_for(2)
    assert not alive(run.pid), "before the job runs again"
    assert site.broker.inspect.find("default", run.key)[0].deaths == 0, "it was not its fault"


def test_processes_are_found_whatever_the_names_of_others(tmp_path: Path) -> None:
    """The kernel cuts names after 15 bytes, also in the middle of a character."""
    program = tmp_path / ("ä" * 8)
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "600"]) as process:
        wait_until(lambda: b"\xc3)" in Path(f"/proc/{process.pid}/stat").read_bytes())
        found = descendants(os.getpid())
        process.kill()
    assert process.pid in found
