"""Chaos tests of a worker that is cut off from Redis: it ends its runs before other workers take them over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.network_link import Wire
from tests.support.servers import RedisServer
from tests.support.worker_processes import Server, Site, alive, wait_until

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.parametrize("redis_server", ["valkey"], indirect=True),  # nothing here depends on which
]

LEASE_S = 3.0
SAID = "has been cut off from the broker for"


@pytest.fixture
def site(tmp_path: Path, redis_server: RedisServer) -> Iterator[Site]:
    site = Site(tmp_path, redis_server.url)
    yield site
    site.close()


@pytest.fixture
def wire(redis_server: RedisServer) -> Iterator[Wire]:
    wire = Wire(redis_server.port)
    yield wire
    wire.close()


def start(site: Site, wire: Wire | None = None, lease_s: float = LEASE_S) -> Server:
    """A worker on the wire, or one that nobody can cut off."""
    environ = {} if wire is None else {"LANEWAY_URL": f"redis://127.0.0.1:{wire.port}/0"}
    return site.start("-c", "3", "--lease", str(lease_s), SETTLED="1", **environ).serving()


def put_until(site: Site, keys: int) -> Path:
    """Calls that run until there is a file, which is for the test to make."""
    gate = site.folder / "gate"
    site.put_calls(keys, 1, task="call_until", path=str(gate))
    return gate


def renewed(site: Site) -> None:
    """Wait until the only worker has renewed its lease several times."""
    ((counter, _),) = site.broker.leases().values()
    wait_until(lambda: next(iter(site.broker.leases().values()))[0] >= counter + 4, site.logs)


def note_the_end_of(site: Site, pid: int) -> None:
    """Wait until a process is gone. It was before the note, which is on the safe side."""
    wait_until(lambda: not alive(pid), site.logs)
    site.history.note("K", pid=pid)


@pytest.mark.parametrize("refuse", [False, True], ids=["silent", "refused"])
def test_what_runs_is_ended_before_others_take_it_over(site: Site, wire: Wire, refuse: bool) -> None:
    first = start(site, wire)
    gate = put_until(site, 2)
    site.wait_for(2)
    child = first.child()
    second = start(site)
    wire.cut(refuse=refuse)
    note_the_end_of(site, child)
    site.wait_for(4)
    taken_over = site.events("S")[2:4]
    assert {event.pid for event in taken_over} == {second.child()}
    assert [job.deaths for key in ("k0", "k1") for job in site.broker.inspect.find("orders", key)] == [0, 0]
    assert first.process.poll() is None
    gate.touch()
    wait_until(lambda: site.left() == 0, site.logs)
    assert second.stop() == 0
    wire.mend()
    first.serving(2)
    site.put_calls(2, 1, first=1)
    wait_until(lambda: site.left() == 0, site.logs)
    assert first.stop() == 0, site.logs()
    assert first.log().count(SAID) == 1
    assert "deaths counted" not in site.logs()
    assert site.broken() == []
    assert site.repeats() == 2


@pytest.mark.parametrize("task", ["family", "stuck_apart"])
def test_so_is_what_jobs_have_started(site: Site, wire: Wire, task: str) -> None:
    start(site, wire)
    site.put(task, **({"own_session": True} if task == "family" else {}))
    (began,) = site.wait_for(1)
    started = site.wait_for(1, "C")[0].pid if task == "family" else began.pid
    second = start(site)
    wire.cut()
    note_the_end_of(site, started)
    note_the_end_of(site, began.pid)
    again = site.wait_for(2)[1]
    assert again.pid == second.child() or task == "stuck_apart"
    assert site.broken()[1:] == [], "but that it has not ended yet"


def test_without_anybody_else_it_begins_again_when_the_broker_is_back(site: Site, wire: Wire) -> None:
    """As in an outage for all, which looks the same."""
    first = start(site, wire)
    gate = put_until(site, 1)
    site.wait_for(1)
    wire.cut()
    note_the_end_of(site, first.child())
    wait_until(lambda: len(first.children()) == 1, site.logs)
    wire.mend()
    site.wait_for(2)
    assert [job.deaths for job in site.broker.inspect.find("orders", "k0")] == [0]
    gate.touch()
    wait_until(lambda: site.left() == 0, site.logs)
    assert first.stop() == 0
    assert site.broken() == []
    assert site.starts() == {"k0.0": 2}


@pytest.mark.parametrize("refuse", [False, True], ids=["silent", "refused"])
def test_a_moment_without_the_broker_ends_nothing(site: Site, wire: Wire, refuse: bool) -> None:
    lease_s = 9.0
    first = start(site, wire, lease_s)
    child = first.child()
    gate = put_until(site, 3)
    site.wait_for(3)
    wire.cut(refuse=refuse)
    threading.Event().wait(lease_s / 4)
    wire.mend()
    renewed(site)
    gate.touch()
    wait_until(lambda: site.left() == 0, site.logs)
    assert first.child() == child
    assert first.stop() == 0
    assert SAID not in site.logs()
    assert (site.broken(), site.repeats()) == ([], 0)


def test_a_process_that_runs_nothing_stays(site: Site, wire: Wire) -> None:
    first = start(site, wire)
    child = first.child()
    second = start(site)
    wire.cut()
    wait_until(lambda: "declared dead, with nothing to take back: " in second.log(), site.logs)
    assert second.stop() == 0
    wire.mend()
    site.put("work", 3)
    wait_until(lambda: site.left() == 0, site.logs)
    assert first.child() == child
    assert {event.pid for event in site.events("S")} == {child}
    assert first.stop() == 0
    assert SAID not in site.logs()
    assert (site.broken(), site.repeats()) == ([], 0)


@pytest.mark.parametrize("how", ["close 3-255", "close 0-4095"])
def test_a_job_that_closes_the_connections_of_its_process_ends_in_the_morgue(site: Site, how: str) -> None:
    (bad,) = site.put("meddle", queue="poison", how=how)
    good = site.put("work", 20)
    server = site.start().serving()
    wait_until(lambda: [job.key for job in site.dead()] == [bad], site.logs)
    wait_until(lambda: {event.job for event in site.events("E")} == set(good), site.logs)
    assert site.starts()[bad] == 3
    assert server.stop() == 0, server.log()
