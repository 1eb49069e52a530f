"""Listings by key, time and retries, in both directions and from a value; keyed and collecting jobs in full."""

from __future__ import annotations

import shlex
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from laneway.jobs.shards import shard_of
from tests.acceptance.keyed_shop import Orders
from tests.support.shop import CANARY

pytestmark = pytest.mark.acceptance


@pytest.fixture
def shop(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


def keys(document: Any) -> list[str]:
    return [job["key"] for job in document["jobs"]]


def test_jobs_by_key_in_both_directions_and_from_one(shop: Orders) -> None:
    shop.gather("b", "d", "a", "c")
    assert keys(shop.json("jobs", "--by", "key")) == ["a", "b", "c", "d"]
    assert keys(shop.json("jobs", "--by", "key", "--reverse")) == ["d", "c", "b", "a"]
    assert keys(shop.json("jobs", "--by", "key", "--from", "b")) == ["b", "c", "d"]
    assert keys(shop.json("jobs", "--by", "key", "--from", "bb", "--reverse")) == ["b", "a"]
    assert shop.ok("jobs", "--by", "key", "--from", "x") == "There are no queued jobs from there on.\n"


def test_jobs_by_time_from_a_time(shop: Orders) -> None:
    for key, at in (("late", 4102444800.5), ("later", 4102448400.0), ("soon", 4102441200.0)):
        shop.gather(key, perform_at=at)
    assert keys(shop.json("delayed")) == ["soon", "late", "later"]
    assert keys(shop.json("delayed", "--by", "perform_at", "--reverse")) == ["later", "late", "soon"]
    assert keys(shop.json("delayed", "--from", "4102444800.5")) == ["late", "later"]
    assert keys(shop.json("jobs", "--from", "2100-01-01T00:00:00Z", "--reverse")) == ["soon"]


def test_jobs_by_retries(shop: Orders) -> None:
    shop.tell("broken", "bad")
    shop.tell("worse", "bad")
    shop.work()
    assert shop.ok("jobs", "run", "worse") == "Moved to now: 1 job.\n"
    shop.work()
    shop.tell("fresh", "paid")
    assert keys(shop.json("jobs", "--by", "retry_count")) == ["fresh", "broken", "worse"]
    assert keys(shop.json("jobs", "--by", "retry_count", "--reverse")) == ["worse", "broken", "fresh"]
    assert keys(shop.json("jobs", "--by", "retry_count", "--from", "-1", "--reverse")) == ["fresh"]
    assert keys(shop.json("jobs", "--which", "retries", "--by", "retry_count", "--from", "1")) == ["worse"]


def test_morgue_by_burial_and_by_key(shop: Orders) -> None:
    for key in ("b", "c", "a"):
        shop.tell(key, "bad")
        shop.work()
        shop.ok("jobs", "bury", key)
    assert keys(shop.json("morgue")) == ["b", "c", "a"]
    assert keys(shop.json("morgue", "--by", "updated_at", "--reverse")) == ["a", "c", "b"]
    assert keys(shop.json("morgue", "--by", "key", "--from", "b")) == ["b", "c"]
    buried = shop.json("morgue")["jobs"][1]["updated_at"]
    assert keys(shop.json("morgue", "--from", repr(buried))) == ["c", "a"]
    done = shop.run("morgue", "--by", "retry_count")
    assert done.returncode == 2
    assert "'updated_at', 'key'" in done.stderr


@pytest.mark.parametrize("order", [["--by", "key"], ["--by", "key", "--reverse"], ["--by", "retry_count"]])
def test_pages_go_on_as_they_began(shop: Orders, order: list[str]) -> None:
    shop.gather(*(f"key {number:02}" for number in range(7)))
    expected = keys(shop.json("jobs", *order))
    seen: list[str] = []
    more: list[str] = ["jobs", *order]
    while more:
        done = shop.run(*more, "--limit", "3")
        seen += [line.split("  ")[1].strip() for line in done.stdout.splitlines() if line.startswith("stock")]
        words = shlex.split(done.stderr.partition("There may be more: laneway ")[2])
        assert not words or words[: 1 + len(order)] == ["jobs", *order]
        more = words
    assert seen == expected
    assert len(seen) == 7


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--queue", "stock", "--from", "1", "--after", "x"], "Give --from or --after, not both"),
        (["--which", "running", "--by", "retry_count"], "Jobs that are running cannot be sorted by retry_count; use"),
        (["--by", "retry_count", "--from", "many"], "'many' is not a retry_count"),
        (["--by", "retry_count", "--from", "nan"], "'nan' is not a retry_count"),
        (["--from", "tomorrow"], "'tomorrow' is not a time"),
        (["--from", "2030-01-01T00:00:00"], "has no time zone"),
        (["--from", "nan"], "finite"),
        (["--by", "key", "--queue", "stock", "--after", "x"], "is not a position"),
    ],
)
def test_wrong_combinations_are_sentences(shop: Orders, args: list[str], said: str) -> None:
    shop.gather("a")
    assert said in shop.wrong("jobs", *args)


def test_table_shows_key_task_and_payloads(shop: Orders) -> None:
    shop.tell("order-1", "paid", "packed")
    shop.gather("apple", payloads=1_500)
    text = shop.ok("jobs")
    head, _, collecting, keyed = (line.split() for line in sorted(shop.ok("jobs").splitlines(), key=_head_first))
    assert head == ["queue", "key", "task", "payloads", "status", "due", "attempt", "retry_count", "error"]
    assert keyed[:5] == ["orders", "order-1", "tell", "2", "queued"]
    assert collecting[:5] == ["stock", "apple", "-", "1,500", "queued"], text
    assert "gather" in shop.ok("jobs", "orders"), "the app knows who collects"


def _head_first(line: str) -> tuple[bool, bool, bool]:
    return (not line.startswith("queue"), line.startswith(("orders", "stock")), line.startswith("orders"))


def test_json_has_kind_and_size(shop: Orders) -> None:
    shop.tell("order-1", "paid", "packed")
    shop.gather("apple", payloads=3)
    orders, stock = shop.json("jobs", "orders")["jobs"]
    assert (orders["kind"], orders["size"], orders["task"]) == ("keyed", 2, "tell")
    assert orders["shard"] == shard_of("order-1", 5)
    assert (stock["kind"], stock["size"], stock["task"]) == ("collecting", 3, "gather")
    assert (stock["shard"], "payloads" in stock) == (shard_of("apple", 4), False)


def test_payloads_are_shown_with_scores_and_calls_with_ids(shop: Orders) -> None:
    first, second = shop.tell("order-1", "paid", "packed")
    shop.gather("apple", payloads=1, score=7.5)
    shop.gather("apple", payloads=1, what="returned", score=2)
    (job,) = shop.json("jobs", "show", "order-1", "--body")["jobs"]
    assert [call["id"] for call in job["payloads"]] == [first, second]
    assert CANARY in job["payloads"][1]["body"]
    text = shop.ok("jobs", "show", "order-1", "--body")
    assert text.index(first) < text.index(second)
    (job,) = shop.json("jobs", "show", "apple", "--body")["jobs"]
    assert [(payload["score"], payload["body"]) for payload in job["payloads"]] == [
        (2.0, f'"returned 0 {CANARY}"'),
        (7.5, f'"sold 0 {CANARY}"'),
    ]
    lines = shop.ok("jobs", "show", "apple", "--body").splitlines()
    assert [line.split()[0] for line in lines[-2:]] == ["2.0", "7.5"]


def test_first_thousand_payloads_are_shown(shop: Orders) -> None:
    shop.gather("apple", payloads=1_003)
    (job,) = shop.json("jobs", "show", "apple", "--body")["jobs"]
    assert (job["size"], len(job["payloads"])) == (1_003, 1_000)
    assert shop.ok("jobs", "show", "apple", "--body").endswith("… and 3 more\n")


def test_key_is_shown_running_set_aside_and_dead(shop: Orders) -> None:
    shop.tell("order-1", "bad")
    shop.work()
    shop.ok("jobs", "bury", "order-1")
    shop.tell("order-1", "gate")
    with shop.held():
        shop.tell("order-1", "packed", "sent")
        views = shop.json("jobs", "show", "order-1")["jobs"]
        assert [(view["status"], view["size"]) for view in views] == [("running", 1), ("queued", 2), ("dead", 1)]
        text = shop.ok("jobs", "show", "order-1", "--app", "orders")
        assert "running on " in text
        assert "queued, set aside until the run has ended" in text
        assert "OSError: the printer is on fire" in text
        assert keys(shop.json("jobs", "--which", "running")) == ["order-1"]
        assert keys(shop.json("jobs", "--which", "running", "--by", "key", "--reverse")) == ["order-1"]
        assert keys(shop.json("jobs")) == [], "what is set aside is not listed"
        (stats,) = (each for each in shop.json("stats")["queues"] if each["queue"] == "orders")
        assert (stats["length"], stats["busy"], stats["dead"]) == (1, 1, 1)
        (view,) = shop.json("morgue", "show", "order-1")["jobs"]
        assert view["status"] == "dead"


def test_errors_are_read_by_the_app(shop: Orders) -> None:
    shop.tell("order-1", "bad")
    shop.work()
    hook = "Laneway(name='orders', load_error=lambda text: text.upper())"
    shop.write("loud.py", f"from laneway import Laneway\napp = {hook}\n")
    shop.write("torn.py", f"from laneway import Laneway\napp = {hook.replace('text.upper()', '1 / 0')}\n")
    stored = "OSError: the printer is on fire"
    assert shop.json("jobs")["jobs"][0]["error"] == stored
    assert shop.json("jobs", "loud")["jobs"][0]["error"] == stored.upper()
    assert stored.upper() in shop.ok("jobs", "show", "order-1", "--app", "loud")
    assert stored in shop.ok("jobs", "torn"), "a hook that raises hides nothing"
    assert stored in shop.ok("jobs", "show", "order-1", "--app", "torn")


def test_collected_values_are_never_taken_for_tickets(shop: Orders) -> None:
    with closing(shop.app()) as app:
        task = app.registry.collector_of("stock")
        assert task is not None
        task.enqueue("apple", f'{{"_job_class":"{CANARY}"}}')
    assert shop.json("jobs")["jobs"][0]["task"] is None
    assert "problem" not in shop.ok("check", "orders")


def test_key_takes_one_line_whatever_it_holds(shop: Orders) -> None:
    shop.gather("two\nlines \x1b[31m[/]")
    text = shop.ok("jobs")
    assert len(text.splitlines()) == 3
    assert r"two\nlines \x1b[31m[/]" in text
    assert shop.ok("jobs", "cancel", "two\nlines \x1b[31m[/]") == "Cancelled 1 job.\n"
