"""What jobs have started themselves ends with the process that ran them."""

from __future__ import annotations

import signal

import pytest

from tests.supervisor.site import Site, alive, kill, wait_until

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
