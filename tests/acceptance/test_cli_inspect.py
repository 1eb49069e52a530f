"""stats, jobs, delayed, workers and the morgue's list: what they show, and what they never show."""

from __future__ import annotations

from typing import get_args

import pytest

from laneway.broker import Listing
from laneway.cli.times import span
from laneway.jobs.data import JobView, QueueStats
from laneway.worker.process.tree import descendants
from tests.support.shop import CANARY, Shop

pytestmark = pytest.mark.acceptance

LOOKS = ("stats", "jobs", "delayed", "morgue", "workers")


@pytest.mark.parametrize("command", LOOKS)
def test_looking_never_makes_a_database(shop: Shop, command: str) -> None:
    assert shop.wrong(command) == "There is no database laneway.db yet; a worker or the first job makes it."
    assert shop.wrong(command, "shop", "--url", "sqlite:///other.db").startswith("There is no database other.db yet;")
    assert not list(shop.folder.glob("*.db*"))


@pytest.mark.parametrize("command", LOOKS)
def test_file_that_is_no_database(shop: Shop, command: str) -> None:
    shop.write("text.db", "this is no database, it only looks like one " * 50)
    assert "is not a database of Laneway's" in shop.wrong(command, "--url", "sqlite:///text.db")


def test_broker_that_cannot_be_opened(shop: Shop) -> None:
    assert "cannot be opened" in shop.wrong("stats", "--url", f"sqlite:///{shop.folder}")
    assert "is not a broker URL" in shop.wrong("stats", "--url", "laneway.db")
    assert "No broker for 'carrier' URLs" in shop.wrong("stats", "--url", "carrier://pigeon")
    assert "No broker for 'carrier' URLs is installed (LANEWAY_URL)" in shop.wrong("stats", LANEWAY_URL="carrier:")
    assert "needs a path" in shop.wrong("stats", "--url", "sqlite://")
    assert "has no option 'speed'" in shop.wrong("stats", "--url", "sqlite:///x.db?speed=9")
    assert "The jobs of memory: are inside the process" in shop.wrong("stats", "--url", "memory:")


def test_stats_of_every_queue(shop: Shop) -> None:
    shop.put("resize", 2)
    shop.put("resize", delay=1000)
    shop.kill_jobs()
    queues = {queue["queue"]: queue for queue in shop.json("stats")["queues"]}
    assert list(queues) == ["default", "mail"]
    assert list(queues["default"]) == list(QueueStats.__struct_fields__)
    assert (queues["default"]["length"], queues["default"]["delayed"], queues["mail"]["dead"]) == (3, 1, 1)
    text = shop.ok("stats", "shop")
    assert text.split("\n")[0].split() == list(QueueStats.__struct_fields__)
    assert "\x1b" not in text


def test_url_comes_from_the_option_then_the_target_then_the_environment(shop: Shop) -> None:
    shop.put("resize")
    shop.database.rename(shop.folder / "other.db")
    shop.write("pinned.py", "from laneway import Laneway\napp = Laneway('sqlite:///other.db')\n")
    assert shop.json("stats", LANEWAY_URL="sqlite:///other.db")["queues"][0]["length"] == 1
    assert shop.json("stats", "pinned", LANEWAY_URL="sqlite:///nope.db")["queues"][0]["length"] == 1
    assert shop.json("stats", "shop", "--url", "sqlite:///other.db")["queues"][0]["length"] == 1
    assert "nope.db" in shop.wrong("stats", "pinned", "--url", "sqlite:///nope.db")


def test_stats_cannot_be_watched_as_json(shop: Shop) -> None:
    assert "--json prints one document" in shop.wrong("stats", "--watch", "--json")


def test_jobs_are_listed_without_their_arguments(shop: Shop) -> None:
    (key,) = shop.put("resize")
    (later,) = shop.put("flaky", delay=9000)
    text = shop.ok("jobs")
    assert key in text
    assert "resize" in text
    assert "in 2 h" in text
    document = shop.json("jobs")
    assert document["which"] == "queued"
    assert document["after"] == {}
    assert [job["key"] for job in document["jobs"]] == [key, later]
    fields = set(JobView.__struct_fields__) - {"payloads"} | {"task"}
    assert set(document["jobs"][0]) == fields
    assert (document["jobs"][1]["task"], document["jobs"][1]["status"]) == ("flaky", "delayed")
    assert shop.json("jobs", "list", "shop") == document
    assert [job["key"] for job in shop.json("delayed")["jobs"]] == [later]


def test_jobs_are_listed_by_what_they_are(shop: Shop) -> None:
    (key,) = shop.put("flaky")
    shop.ok("worker", "shop", "--until-empty")
    assert [job["key"] for job in shop.json("jobs", "--which", "retries")["jobs"]] == [key]
    assert "OSError: not now" in shop.ok("jobs", "--which", "retries")
    assert shop.ok("jobs", "--which", "running") == "There are no running jobs.\n"
    assert shop.ok("morgue") == "There are no dead jobs.\n"
    done = shop.run("jobs", "--which", "nonsense")
    assert done.returncode == 2
    assert all(which in done.stderr for which in get_args(Listing) if which != "dead")


def test_jobs_come_in_pages(shop: Shop) -> None:
    keys = shop.put("resize", 5)
    seen: list[str] = []
    after: list[str] = []
    while True:
        page = shop.json("jobs", "--queue", "default", "--limit", "2", *after)
        seen += [job["key"] for job in page["jobs"]]
        if not page["after"]:
            break
        after = ["--after", page["after"]["default"]]
    assert sorted(seen) == sorted(keys)
    more = shop.run("jobs", "--limit", "2").stderr
    assert more.startswith("There may be more: laneway jobs --queue default --limit 2 --after ")
    assert "say which with --queue" in shop.wrong("jobs", "--after", "1:1")
    assert "is not a position" in shop.wrong("jobs", "--queue", "default", "--after", "x")


def test_job_is_shown_in_full_and_its_body_only_when_asked_for(shop: Shop) -> None:
    (key,) = shop.put("resize")
    assert "resize" in shop.ok("jobs", "show", key)
    assert "payloads" not in shop.json("jobs", "show", key)["jobs"][0]
    assert CANARY in shop.ok("jobs", "show", key, "--body")
    assert CANARY in shop.json("jobs", "show", key, "--body")["jobs"][0]["payloads"][0]["body"]
    assert shop.ok("jobs", "show", key, "--app", "shop", "--queue", "default") != ""


def test_dead_job_is_shown_with_its_whole_error(shop: Shop) -> None:
    (key,) = shop.kill_jobs()
    line = "ValueError: the server said no and gave no reason"
    listed = shop.ok("morgue")
    assert line in listed
    assert "shop.py:" not in listed
    assert shop.json("morgue")["jobs"][0]["error"] == line
    assert "shop.py:12 in send" in shop.ok("morgue", "show", key)
    assert "shop.py:12 in send" in shop.json("morgue", "show", key)["jobs"][0]["error"]


def test_unknown_queues_and_keys_are_named(shop: Shop) -> None:
    shop.put("resize")
    shop.put("send")
    for command in ("jobs", "delayed", "morgue"):
        assert shop.wrong(command, "--queue", "mial") == "There is no queue 'mial'; there is default, mail."
        assert shop.wrong(command, "show", "nobody").startswith("There is no job 'nobody' that is ")


def test_body_that_is_no_ticket_has_no_name(shop: Shop) -> None:
    app = shop.app()
    for body in (CANARY, "[]", '{"_job_class":7}', '{"Records":["' + CANARY + '"]}'):
        app.enqueue_body(body)
    app.close()
    assert [job["task"] for job in shop.json("jobs")["jobs"]] == [None] * 4
    assert CANARY not in shop.ok("jobs")


def test_what_was_stored_cannot_reach_the_terminal_as_control_codes(shop: Shop) -> None:
    app = shop.app()
    app.enqueue_body('{"_job_class":"\\u001b[31mred[/]"}')
    app.close()
    assert r"\x1b[31mred[/]" in shop.ok("jobs")


def test_workers_are_listed(shop: Shop) -> None:
    shop.put("resize")
    assert shop.ok("workers").startswith("There are no workers")
    process = shop.serving("worker", "shop", "-c", "3")
    (worker,) = shop.json("workers")["workers"]
    assert (worker["pid"], worker["concurrency"], worker["dead"]) == (descendants(process.pid)[0], 3, False)
    assert "alive" in shop.ok("workers", "shop")
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("duration_s", "text"),
    [(0.04, "0.0 s"), (9.9, "9.9 s"), (95, "95 s"), (150, "2 min"), (7_500, "2 h 5 min"), (3 * 86_400, "3 d")],
)
def test_durations_are_short(duration_s: float, text: str) -> None:
    assert span(duration_s) == text
