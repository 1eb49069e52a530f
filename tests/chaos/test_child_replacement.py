"""Children are replaced after a number of jobs, at an age, or at a size; no job is lost, repeated or abandoned.

`make chaos` replaces more of them.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.worker_processes import LARGE, Site, wait_until

pytestmark = pytest.mark.chaos

JOBS = 1_500 if LARGE else 160


@pytest.mark.parametrize(
    ("limit", "says", "task", "params"),
    [
        (["--max-jobs", "20"], "has run", "work", {"takes_s": 0.02}),
        (["--max-age", "1"], "s old", "work", {"takes_s": 0.1}),
        (["--max-memory", "60M"], "has grown to", "grow", {"mebibytes": 2}),
    ],
    ids=["jobs", "age", "memory"],
)
def test_children_are_replaced_without_harm(
    site: Site, limit: list[str], says: str, task: str, params: dict[str, Any]
) -> None:
    site.put(task, JOBS if task == "work" else JOBS // 4, **params)
    (long,) = site.put("work", takes_s=2.0)  # longer than the shutdown timeout
    site.put_calls(20, JOBS // 40, takes_s=0.01)
    server = site.start("-w", "2", "-c", "3", "--shutdown-timeout", "0.5", *limit)
    wait_until(lambda: site.left() == 0, site.logs, 180)
    server.stop()
    replaced = server.log().count("another takes its place")
    print(f"{' '.join(limit)}: {len(site.accepted)} jobs, {replaced} children replaced")
    assert replaced >= (2 if LARGE else 1)  # on a busy machine one of the two may get nearly all of the work
    assert says in server.log()
    assert site.findings() == []
    assert (site.repeats(), site.attempts(), site.dead()) == (0, {1}, [])
    assert "unfinished" not in server.log()
    assert "ERROR" not in server.log()
    assert long in {event.job for event in site.events("E")}


def test_told_to_stop_while_a_worn_child_still_runs_it_waits_for_that_too(site: Site) -> None:
    (long,) = site.put("work", takes_s=3.0)
    server = site.start("--max-age", "1")
    wait_until(lambda: "another takes its place" in server.log(), server.log)
    assert len(server.children()) == 2
    assert site.events("E") == []
    assert server.stop() == 0, server.log()
    assert [event.job for event in site.events("E")] == [long]
    assert (site.repeats(), site.attempts()) == (0, {1})


def test_told_to_stop_a_worn_child_gets_no_longer_than_the_others(site: Site) -> None:
    (key,) = site.put("stuck")
    server = site.start("--max-age", "1", "--shutdown-timeout", "0.5", "--lease", "120")
    wait_until(lambda: "another takes its place" in server.log(), server.log)
    server.serving(2)
    assert server.stop() == 1, server.log()
    assert "did not stop in time" not in server.log()
    assert site.processes() == []
    site.start()
    assert site.wait_for(2)[-1].job == key
