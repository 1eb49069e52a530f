"""run, bury, delete, cancel and revive for keyed and collecting jobs, and the confirmations."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.keyed_shop import Orders
from tests.support.shop import answer

pytestmark = pytest.mark.acceptance


@pytest.fixture
def shop(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


def test_failed_jobs_are_run_now_and_the_delayed_stay(shop: Orders) -> None:
    shop.tell("order-1", "bad")
    shop.gather("apple", what="bad")
    shop.work()
    shop.tell("order-2", "paid", delay=9_000)
    assert shop.ok("jobs", "run", "--all-failed", "--queue", "stock") == "Moved to now: 1 job.\n"
    assert shop.ok("jobs", "run", "--all-failed") == "Moved to now: 2 jobs.\n"
    assert set(shop.find("orders", "order-1")) == {"queued"}
    assert set(shop.find("orders", "order-2")) == {"delayed"}
    assert shop.ok("jobs", "run", "--all") == "Moved to now: 1 job.\n"
    assert set(shop.find("orders", "order-2")) == {"queued"}


def test_call_that_failed_is_buried_and_those_behind_it_run(shop: Orders) -> None:
    shop.tell("order-1", "bad", "packed", "sent")
    shop.work()
    assert shop.ran() == []
    assert shop.ok("jobs", "bury", "order-1") == "Buried 1 job.\n"
    views = shop.find("orders", "order-1")
    assert (views["queued"].size, views["dead"].size, views["queued"].retry_count) == (2, 1, -1)
    shop.work()
    assert shop.ran() == ["order-1 packed", "order-1 sent"]


def test_all_payloads_of_a_collecting_job_are_buried(shop: Orders) -> None:
    shop.gather("apple", payloads=3, what="bad")
    shop.work()
    assert shop.ok("jobs", "bury", "--all-failed") == "Buried 1 job.\n"
    views = shop.find("stock", "apple")
    assert (set(views), views["dead"].size) == ({"dead"}, 3)
    assert shop.ok("morgue", "revive", "apple") == "Revived 1 job with 3 payloads.\n"
    assert shop.find("stock", "apple")["queued"].size == 3


def test_call_that_failed_is_deleted_for_good(shop: Orders) -> None:
    shop.tell("order-1", "bad", "packed")
    shop.work()
    assert shop.ok("jobs", "delete", "order-1", "--yes") == "Deleted 1 job.\n"
    views = shop.find("orders", "order-1")
    assert (set(views), views["queued"].size) == ({"queued"}, 1)


def test_keys_that_have_not_failed_are_named(shop: Orders) -> None:
    shop.tell("order-1", "bad")
    shop.work()
    shop.tell("order-2", "paid")
    for command in (["jobs", "bury"], ["jobs", "delete", "--yes"]):
        assert shop.wrong(*command, "order-2") == "The job 'order-2' is queued, not failed."
        assert shop.wrong(*command, "nobody") == "There is no job 'nobody' that has failed; it may be done by now."
    done = shop.run("jobs", "bury", "order-1", "order-2")
    assert (done.returncode, done.stdout) == (2, "Buried 1 job.\n")
    assert done.stderr == "The job 'order-2' is queued, not failed.\n"
    assert shop.wrong("jobs", "bury", "order-1") == "The job 'order-1' is dead, not failed."


def test_keys_or_all_failed(shop: Orders) -> None:
    shop.tell("order-1", "paid")
    for command in (["jobs", "bury"], ["jobs", "delete"]):
        assert shop.wrong(*command) == "Give the keys of jobs, or --all-failed."
        assert shop.wrong(*command, "order-1", "--all-failed") == "Give keys or --all-failed, not both."
    assert shop.wrong("jobs", "run", "order-1", "--all-failed") == "Give keys or --all-failed, not both."
    assert shop.wrong("jobs", "run", "--all", "--all-failed") == "Give --all or --all-failed, not both."
    assert shop.ok("jobs", "bury", "--all-failed") == "Buried 0 jobs.\n"
    assert shop.ok("jobs", "delete", "--all-failed") == "There are no failed jobs.\n"


def test_many_failed_jobs_are_handled_page_by_page(shop: Orders) -> None:
    shop.gather(*(f"key-{number}" for number in range(1_201)), what="bad")
    shop.work()
    assert shop.ok("jobs", "run", "--all-failed") == "Moved to now: 1,201 jobs.\n"
    assert shop.ok("jobs", "bury", "--all-failed") == "Buried 1,201 jobs.\n"
    (stock,) = (each for each in shop.json("stats")["queues"] if each["queue"] == "stock")
    assert (stock["dead"], stock["length"]) == (1_201, 0)
    assert shop.ok("morgue", "delete", "--all", "--yes") == "Deleted 1,201 jobs.\n"


def test_nothing_failed_is_deleted_without_being_asked_or_told(shop: Orders) -> None:
    shop.tell("order-1", "bad")
    shop.work()
    for args in (["order-1"], ["--all-failed"]):
        assert "say --yes if you mean it" in shop.wrong("jobs", "delete", *args)
    code, said = answer(shop, "n", "jobs", "delete", "order-1")
    assert code == 1
    assert "Delete 1 failed job for good?" in said
    assert "Nothing was done." in said
    assert shop.find("orders", "order-1")["delayed"].size == 1
    code, said = answer(shop, "y", "jobs", "delete", "--all-failed")
    assert code == 0
    assert "Delete 1 failed job of orders for good?" in said
    assert "Deleted 1 job." in said
    assert shop.find("orders", "order-1") == {}


def test_one_payload_is_cancelled_without_a_question_and_several_with_one(shop: Orders) -> None:
    shop.tell("order-1", "paid")
    assert shop.ok("jobs", "cancel", "order-1") == "Cancelled 1 job.\n"
    shop.tell("order-2", "paid", "packed")
    shop.gather("apple", payloads=3)
    assert "say --yes if you mean it" in shop.wrong("jobs", "cancel", "order-2", "apple")
    code, said = answer(shop, "n", "jobs", "cancel", "order-2", "apple")
    assert code == 1
    assert "Cancel 2 jobs with 5 payloads?" in said
    assert shop.find("orders", "order-2")["queued"].size == 2
    assert shop.ok("jobs", "cancel", "order-2", "apple", "--yes") == "Cancelled 2 jobs with 5 payloads.\n"
    assert shop.find("orders", "order-2") == shop.find("stock", "apple") == {}


def test_what_is_set_aside_is_cancelled_and_what_runs_is_not(shop: Orders) -> None:
    shop.tell("order-1", "gate")
    with shop.held():
        assert shop.wrong("jobs", "cancel", "order-1") == "The job 'order-1' is running, not queued."
        shop.tell("order-1", "packed", "sent")
        for command in (["run", "order-1"], ["reschedule", "order-1", "--delay", "1h"]):
            assert shop.wrong("jobs", *command) == "The job 'order-1' is running, not queued."
        assert shop.ok("jobs", "cancel", "order-1", "--yes") == "Cancelled 1 job with 2 payloads.\n"
        assert set(shop.find("orders", "order-1")) == {"running"}
    assert shop.ran() == ["order-1 gate"]


def test_dead_payloads_are_deleted_after_a_question(shop: Orders) -> None:
    shop.gather("apple", payloads=3, what="bad")
    shop.work()
    shop.ok("jobs", "bury", "apple")
    code, said = answer(shop, "y", "morgue", "delete", "apple")
    assert code == 0
    assert "Delete 1 dead job with 3 payloads for good?" in said
    assert shop.find("stock", "apple") == {}
