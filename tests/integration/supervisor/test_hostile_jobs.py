"""Jobs that damage their own process: the supervisor survives and blames the right job."""

from __future__ import annotations

import signal

import pytest

from tests.support.worker_processes import Site, alive, kill, wait_until

pytestmark = pytest.mark.acceptance


def test_a_job_that_writes_to_the_link_harms_nobody(site: Site) -> None:
    site.put("meddle", queue="poison", how="garbage")
    server = site.start().serving()
    site.wait_for(1, "E")
    site.put("work")
    site.wait_for(2, "E")
    assert server.stop() == 0, server.log()


@pytest.mark.parametrize(
    ("how", "lease"),
    [
        ("exec", "30"),
        ("stop", "2"),
        ("close 3-255", "30"),
        ("close 0-4095", "30"),
        ("close 3-8", "30"),
        ("close 10-255", "30"),
        ("close 3-255, then wait", "30"),
        ("error", "30"),
    ],
)
def test_a_job_that_turns_its_process_into_something_else_ends_in_the_morgue(site: Site, how: str, lease: str) -> None:
    (bad,) = site.put("meddle", queue="poison", how=how)
    good = site.put("work", 20)
    server = site.start("--lease", lease, "--hang-limit", "3").serving()
    wait_until(lambda: [job.key for job in site.dead()] == [bad], site.logs)
    wait_until(lambda: {event.job for event in site.events("E")} == set(good), site.logs)
    assert site.starts()[bad] == 3
    assert server.stop() == 0, server.log()
    assert (site.processes(), site.broker.health.check()) == ([], [])
    assert ("ended because a job had closed its file descriptors" in server.log()) == ("close" in how)


def test_a_job_that_closes_descriptors_in_a_process_of_its_own_does_not_damage_the_database(site: Site) -> None:
    (bad,) = site.put("meddle_apart", queue="poison")
    server = site.start().serving()
    wait_until(lambda: [job.key for job in site.dead()] == [bad], site.logs)
    assert site.starts()[bad] == 3
    assert server.stop() == 0, server.log()
    assert site.broker.health.check() == []


def test_what_a_job_forks_ends_when_it_is_told_to(site: Site) -> None:
    site.put("meddle", queue="poison", how="fork")
    site.until_empty()
    assert len(site.events("E")) == 1, site.logs()


def test_a_forked_process_whose_job_returns_runs_nothing_else(site: Site) -> None:
    site.put("meddle", queue="poison", how="fork and return")
    good = site.put("work", 50)
    site.until_empty("-c", "1", "-Q", "poison,default")
    assert sorted(event.job for event in site.events("E") if event.job in good) == sorted(good)


def test_a_job_that_ends_its_process_while_it_is_read_is_to_blame(site: Site) -> None:
    (bad,) = site.put("spoils", queue="poison")
    good = site.put("work", 20)
    server = site.start(SPOILT="1").serving()
    wait_until(lambda: [job.key for job in site.dead()] == [bad], site.logs)
    wait_until(lambda: {event.job for event in site.events("E")} == set(good), site.logs)
    assert server.stop() == 0, server.log()


def test_a_crash_does_not_end_what_a_neighbour_has_started(site: Site) -> None:
    site.put("family", own_session=True)
    server = site.start("-w", "2", "-c", "1").serving(2)
    started = site.wait_for(1, "C")[0]
    (busy,) = [event.pid for event in site.events("S")]
    (other,) = [pid for pid in server.children() if pid != busy]
    kill(other, signal.SIGKILL)
    server.serving(3)
    assert alive(started.pid)
    assert alive(busy)


def test_children_that_are_worn_do_not_pile_up(site: Site) -> None:
    """Each runs a long job when it is worn, and one place has one that retires at most."""
    site.put("work", 6, takes_s=3)
    server = site.start("-c", "1", "--max-jobs", "1").serving()
    site.wait_for(3, "S")
    assert len(server.children()) <= 2
    server.process.kill()


def test_a_limit_below_what_a_process_needs_does_not_have_it_replaced_all_the_time(site: Site) -> None:
    server = site.start("--max-memory", "1M").serving()
    site.put("work", 50)
    site.wait_for(50, "E")
    assert server.log().count(" started: ") <= 2
    assert server.stop() == 0
