"""Claims that only their holder can renew: the supervisor relies on the renewals that the child reports."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.worker_processes import Server, Site, alive, kill, wait_until

pytestmark = pytest.mark.acceptance

LEASE_S = 2.0


def start(site: Site) -> Server:
    return site.start("-c", "2", "--lease", str(LEASE_S), KEPT=str(cut(site))).serving()


def cut(site: Site) -> Path:
    """While there is such a file, nothing can be renewed."""
    return site.folder / "cut"


def stuck(site: Site, server: Server) -> tuple[str, int]:
    """A job that does not end, and the process that runs it."""
    (key,) = site.put("stuck")
    site.wait_for(1)
    return key, server.child()


def deaths(site: Site, key: str) -> int:
    return site.broker.inspect.find("default", key)[0].deaths


def test_one_that_renews_is_let_run_and_one_that_is_stopped_is_ended(site: Site) -> None:
    server = start(site)
    key, child = stuck(site, server)
    site.wait_for(8, "C", "renewed")  # for longer than a lease
    assert {event.pid for event in site.events("C", "renewed")} == {child}, "nobody else renews for it"
    assert server.child() == child
    assert len(site.events("S")) == 1
    kill(child, signal.SIGSTOP)
    wait_until(lambda: not alive(child), site.logs)
    site.wait_for(2)
    assert deaths(site, key) == 1
    assert "is stopped" in server.log()


def test_one_that_holds_its_interpreter_is_ended_and_to_blame(site: Site) -> None:
    """Nobody else renews for it; with other brokers the supervisor would, until the hang limit."""
    server = start(site)
    (key,) = site.put("hold", takes_s=600)
    site.wait_for(1)
    child = server.child()
    wait_until(lambda: not alive(child), site.logs)
    site.wait_for(2)
    assert deaths(site, key) == 1
    assert "has been silent for" in server.log()


def test_one_whose_renewals_fail_is_ended_and_not_to_blame(site: Site) -> None:
    server = start(site)
    key, child = stuck(site, server)
    site.wait_for(2, "C", "renewed")
    cut(site).touch()
    wait_until(lambda: not alive(child), site.logs)
    cut(site).unlink()
    site.wait_for(2)
    assert deaths(site, key) == 0
    assert "has been cut off from the broker for" in server.log()
