"""cancel, reschedule, run, revive and delete, and the confirmation before data is destroyed."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from laneway.cli import output
from tests.support.shop import Shop, answer

pytestmark = pytest.mark.acceptance


def test_jobs_are_cancelled(shop: Shop) -> None:
    first, second = shop.put("resize", 2)
    assert shop.ok("jobs", "cancel", first) == "Cancelled 1 job.\n"
    assert shop.status("default", first) == "cancelled"
    done = shop.run("jobs", "cancel", first, second)
    assert done.returncode == 2
    assert done.stdout == "Cancelled 1 job.\n"
    assert done.stderr == f"There is no job {first!r} that is queued; it may be done by now.\n"


def test_dead_job_is_not_cancelled(shop: Shop) -> None:
    (key,) = shop.kill_jobs()
    assert shop.wrong("jobs", "cancel", key) == f"The job {key!r} is dead, not queued."


def test_database_that_is_locked_is_given_up_on(shop: Shop) -> None:
    (key,) = shop.put("resize")
    with closing(sqlite3.connect(shop.database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        said = shop.wrong("jobs", "cancel", key, "--url", "sqlite:///laneway.db?timeout=0.01", code=1)
    assert said.startswith("The database laneway.db was locked by ")
    assert said.endswith(" for 0.01 s; nothing was written.")


def test_long_work_shows_a_bar(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(output, "PATIENCE_S", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")  # which is how rich is told that this is a terminal
    with output.ProgressBar("Revived", 2) as bar:
        bar.advance(1)
        bar.advance(1)
    said = capsys.readouterr()
    assert "Revived" in said.err
    assert "2/2" in said.err
    assert said.out == ""


def test_bar_says_what_it_waits_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(output, "PATIENCE_S", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with output.ProgressBar("Moving", 0) as bar:
        bar.update(7, 9, "Moving")
        bar.update(9, 9, "Waiting for 1 running job")
    said = capsys.readouterr().err
    assert "Waiting for 1 running job" in said
    assert "9/9" in said


def test_jobs_are_rescheduled(shop: Shop) -> None:
    (key,) = shop.put("resize")
    assert shop.ok("jobs", "reschedule", key, "--delay", "2h") == "Rescheduled 1 job.\n"
    assert shop.status("default", key) == "delayed"
    shop.ok("delayed", "reschedule", key, "--at", "2100-01-01T00:00:00+01:00", "--app", "shop")
    assert shop.json("jobs")["jobs"][0]["perform_at"] == 4102441200.0
    shop.ok("jobs", "reschedule", key, "--at", "4102444800.5", "--queue", "default")
    assert shop.json("jobs")["jobs"][0]["perform_at"] == 4102444800.5


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "Say when, with --delay or --at."),
        (["--delay", "1", "--at", "1"], "Give --delay or --at, not both."),
        (["--delay", "soon"], "is not a duration"),
        (["--delay", "9000w"], "over 100 years"),
        (["--at", "tomorrow"], "is not a time"),
        (["--at", "2030-01-01T00:00:00"], "has no time zone"),
        (["--at", "nan"], "finite"),
        (["--at", "1893456000000"], "milliseconds"),
    ],
)
def test_wrong_times_are_refused(shop: Shop, args: list[str], said: str) -> None:
    (key,) = shop.put("resize")
    done = shop.run("jobs", "reschedule", key, *args)
    assert done.returncode == 2
    assert said in done.stderr
    assert shop.status("default", key) == "queued"


def test_delayed_jobs_are_run_now(shop: Shop) -> None:
    first, second, third = shop.put("resize", 3, delay=1000)
    assert shop.ok("delayed", "run", first) == "Moved to now: 1 job.\n"
    assert [shop.status("default", key) for key in (first, second)] == ["queued", "delayed"]
    assert shop.ok("delayed", "run", "--all") == "Moved to now: 2 jobs.\n"
    assert shop.status("default", third) == "queued"
    assert shop.ok("delayed") == "There are no delayed jobs.\n"


def test_delayed_jobs_are_cancelled(shop: Shop) -> None:
    (key,) = shop.put("resize", delay=1000)
    shop.ok("delayed", "cancel", key)
    assert shop.status("default", key) == "cancelled"


def test_dead_jobs_are_revived(shop: Shop) -> None:
    first, second = shop.kill_jobs(2)
    assert shop.ok("morgue", "revive", first) == "Revived 1 job.\n"
    assert shop.status("mail", first) == "queued"
    assert shop.ok("morgue", "revive", "--all", "--app", "shop") == "Revived 1 job.\n"
    assert shop.status("mail", second) == "queued"
    assert shop.wrong("morgue", "revive", first) == f"The job {first!r} is queued, not in the morgue."
    assert shop.ok("morgue", "revive", "--all") == "Revived 0 jobs.\n"


def test_many_dead_jobs_are_revived_page_by_page(shop: Shop) -> None:
    shop.kill_jobs(1201)
    assert shop.ok("morgue", "revive", "--all", "--queue", "mail") == "Revived 1,201 jobs.\n"
    (mail,) = shop.json("stats")["queues"]
    assert (mail["dead"], mail["length"]) == (0, 1201)


def test_keys_or_all(shop: Shop) -> None:
    (key,) = shop.kill_jobs()
    for command in (["morgue", "revive"], ["morgue", "delete"], ["delayed", "run"]):
        assert shop.wrong(*command) == "Give the keys of jobs, or --all."
        assert shop.wrong(*command, key, "--all") == "Give keys or --all, not both."


def test_nothing_is_deleted_without_being_asked_or_told(shop: Shop) -> None:
    (key,) = shop.kill_jobs()
    for args in ([key], ["--all"]):
        assert "say --yes if you mean it" in shop.wrong("morgue", "delete", *args)
    assert shop.status("mail", key) == "dead"


def test_dead_jobs_are_deleted_when_told(shop: Shop) -> None:
    first, second = shop.kill_jobs(2)
    assert shop.ok("morgue", "delete", first, "--yes") == "Deleted 1 job.\n"
    assert shop.ok("morgue", "delete", "--all", "-y") == "Deleted 1 job.\n"
    assert [shop.status("mail", key) for key in (first, second)] == ["gone", "gone"]
    assert shop.ok("morgue", "delete", "--all", "--yes") == "There are no dead jobs.\n"


def test_dead_jobs_are_deleted_when_the_answer_is_yes(shop: Shop) -> None:
    (key,) = shop.kill_jobs()
    code, said = answer(shop, "n", "morgue", "delete", key)
    assert code == 1
    assert "Nothing was done." in said
    assert shop.status("mail", key) == "dead"
    code, said = answer(shop, "y", "morgue", "delete", "--all")
    assert code == 0
    assert "Delete 1 dead job of mail for good?" in said
    assert "Deleted 1 job." in said
    assert shop.status("mail", key) == "gone"
