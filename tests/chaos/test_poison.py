"""Jobs that end their process, among good and beside long ones: only these jobs are buried.

`make chaos` has 5,000 good ones, `make test` some hundreds.
"""

from __future__ import annotations

import signal

import pytest

from tests.support.checkers import overlap
from tests.support.worker_processes import LARGE, Site, kill, wait_until

pytestmark = pytest.mark.chaos

GOOD = 5_000 if LARGE else 300
LONG_S = 10.0 if LARGE else 1.5


def test_a_job_that_kills_its_process_alone_is_buried(site: Site) -> None:
    long = site.put("work", 4, takes_s=LONG_S)
    server = site.start("-c", "5", "--lease", "60")
    site.wait_for(4)
    site.put("work", GOOD // 2, takes_s=0.002)
    (poison,) = site.put("die", queue="poison", how="SIGSEGV")
    site.put("work", GOOD // 2, takes_s=0.002)
    wait_until(lambda: site.left() == 0, site.logs, 300)
    assert server.stop() == 0, server.log()
    (dead,) = site.dead()
    starts = site.starts()
    print(f"{GOOD} good jobs and four of {LONG_S} s: {starts[poison]} starts of the poison, {site.repeats()} repeats")
    print(f"in all, starts of the long ones {[starts[key] for key in long]}; {dead.error}")
    assert dead.key == poison
    assert "SIGSEGV" in (dead.error or "")
    assert starts[poison] == 3
    assert all(starts[key] > 1 for key in long), "they were beside it"
    assert site.findings() == []


def test_however_a_process_is_ended_the_job_is_buried_after_three(site: Site) -> None:
    said = {"SIGKILL": "SIGKILL (signal 9)", "exit": "exit code 0", "SystemExit": "exit code 7"}
    keys = {}
    server = site.start("-c", "1", "--lease", "60")
    # One after the other: if one ends the worker before the last death of another is recorded, that one runs again.
    for how in said:
        keys[site.put("die", queue="poison", how=how)[0]] = how
        site.put("work", 10, takes_s=0.01)
        wait_until(lambda: site.left() == 0, site.logs)
    assert server.stop() == 0, server.log()
    assert {job.key for job in site.dead()} == keys.keys()
    for job in site.dead():
        assert said[keys[job.key]] in (job.error or "")
        assert site.starts()[job.key] == 3
    assert site.findings() == []


def test_of_a_key_the_call_and_of_a_batch_the_keys_that_are_poison_are_buried(site: Site) -> None:
    site.put_calls(3, 2, takes_s=0.01)
    site.put_calls(1, 1, first=2, task="die_keyed", how="SIGKILL")
    site.put_calls(3, 2, first=3, takes_s=0.01)
    for key in range(3):
        site.put_payload(f"g{key}", "SIGKILL" if key == 1 else "")
    server = site.start("-c", "3", "--lease", "60")
    wait_until(lambda: site.left() == 0, site.logs)
    assert server.stop() == 0, server.log()
    dead = {(job.key, *(payload.identity for payload in job.payloads)): job.error or "" for job in site.dead()}
    assert dead.keys() == {("k0", "k0.2"), ("g1", "SIGKILL")}
    assert all("died 3 times" in error and "SIGKILL" in error for error in dead.values())
    starts = site.starts()
    # One that runs alone is not to blame when the other ends the worker that has started its process.
    assert min(starts["k0.2"], starts["g1"]) >= 3
    assert max(starts["k0.2"], starts["g1"]) <= 5
    behind = [event.t for event in site.events("S", "k0") if event.seq == 3]
    assert min(behind) > max(event.t for event in site.events("S", "k0") if event.seq == 2), "nothing overtakes it"
    assert {event.job for event in site.events("E")} >= {each.job for each in site.accepted} - {"k0.2"}
    assert overlap(site.events()) == []


def test_killing_a_whole_worker_counts_no_deaths(site: Site) -> None:
    (key,) = site.put("work", takes_s=1.0)
    for number in range(2):
        server = site.start("--lease", "1")
        site.wait_for(number + 1)
        for pid in [server.pid, *server.children()]:
            kill(pid, signal.SIGKILL)
            site.history.note("K", pid=pid)
        server.ends()
    assert site.broker.inspect.find("default", key)[0].deaths == 0
    site.until_empty("--lease", "1")
    assert site.findings() == []
    assert site.starts()[key] == 3
