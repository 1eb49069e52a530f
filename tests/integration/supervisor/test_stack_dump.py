"""Stack dumps of all processes, and workers in memory, which need no supervisor."""

from __future__ import annotations

import pytest

from tests.support.worker_processes import Site, wait_until

pytestmark = pytest.mark.acceptance


def test_the_stacks_of_all_processes_are_shown(site: Site) -> None:
    site.put("stuck", 2)
    server = site.start("-w", "2", "-c", "1", "--shutdown-timeout", "0").serving(2)
    site.wait_for(2)
    for times, name in enumerate(("SIGUSR2", "SIGTTIN"), 1):
        server.signal(name)
        for text, count in (("in stuck", 2 * times), ("WARNING stacks of all threads of the supervisor", times)):
            wait_until(lambda text=text, count=count: server.log().count(text) == count, server.log)
    assert "[1]" in server.log()
    assert "[2]" in server.log()
    assert len(server.children()) == 2, "they go on"
    assert server.stop() == 1


def test_a_broker_in_memory_needs_no_supervisor(site: Site) -> None:
    server = site.start("-v", "--until-empty", LANEWAY_URL="memory:")
    assert server.ends() == 0, server.log()
    assert "process 1 started" not in server.log()
    server = site.start(LANEWAY_URL="memory:").serving()
    assert server.children() == []
    assert server.stop() == 0


def test_a_broker_in_memory_cannot_have_two_processes(site: Site) -> None:
    server = site.start("-w", "2", LANEWAY_URL="memory:")
    assert server.ends() == 2
    assert server.log().count("\n") == 1, server.log()
    assert "memory" in server.log()
