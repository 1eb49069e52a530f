"""check for keyed and collecting queues, and --repair of a damaged database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from laneway.jobs.data import WorkerView
from laneway.jobs.shards import shard_of
from tests.acceptance.keyed_shop import Orders

pytestmark = pytest.mark.acceptance


@pytest.fixture
def shop(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


def damage(shop: Orders, *statements: str) -> None:
    with closing(sqlite3.connect(shop.database)) as db, db:
        for statement in statements:
            assert db.execute(statement).rowcount == 1, statement


def problems(shop: Orders) -> list[str]:
    done = shop.run("check", "orders", "--json")
    document = msgspec.json.decode(done.stdout)
    assert document["well"] is (done.returncode == 0)
    return [each["text"] for each in document["findings"] if each["level"] == "problem"]


def repaired(shop: Orders) -> list[str]:
    """Repair, see that all is well afterwards, and return what was mended."""
    document = shop.json("check", "orders", "--repair")
    assert (document["well"], document["left"]) == (True, [])
    assert problems(shop) == []
    mended: list[str] = document["mended"]
    return mended


def test_nothing_to_repair(shop: Orders) -> None:
    assert "There is no database" in shop.ok("check", "orders", "--repair")
    shop.tell("order-1", "paid")
    assert "Nothing was mended." in shop.ok("check", "orders", "--repair")
    assert repaired(shop) == []


def test_job_in_the_wrong_shard_is_moved(shop: Orders) -> None:
    shop.tell("order-1", "paid", "packed")
    damage(shop, "UPDATE jobs SET shard = (shard + 1) % 5 WHERE key = 'order-1'")
    assert len(problems(shop)) == 1
    assert len(repaired(shop)) == 1
    assert shop.find("orders", "order-1")["queued"].shard == shard_of("order-1", 5)
    shop.work()
    assert shop.ran() == ["order-1 paid", "order-1 packed"]


def test_claim_of_nobody_is_given_back(shop: Orders) -> None:
    shop.gather("apple", payloads=1)
    damage(
        shop,
        "UPDATE jobs SET worker = 4711, token = 1 WHERE key = 'apple'",
        "UPDATE payloads SET place = 1",
    )
    assert set(shop.find("stock", "apple")) == {"running"}
    assert any("does not exist" in problem for problem in problems(shop))
    assert len(repaired(shop)) == 1
    assert shop.find("stock", "apple")["queued"].size == 1
    shop.work()
    assert shop.ran() == ["apple sold 0"]


def test_orphan_payload_is_kept_where_it_can_be_found(shop: Orders) -> None:
    shop.gather("apple")
    damage(
        shop,
        "INSERT INTO payloads (job, place, score, identity, payload, perform_at) VALUES (4711, 0, 1, 'x', '\"y\"', 1)",
    )
    assert len(problems(shop)) == 1
    assert len(repaired(shop)) == 1
    assert sum(queue["dead"] for queue in shop.json("stats")["queues"]) == 1
    shop.work()
    assert shop.ran() == ["apple sold 0"]


def test_repair_says_what_it_found_and_what_it_did(shop: Orders) -> None:
    shop.tell("order-1", "paid")
    damage(shop, "UPDATE jobs SET shard = (shard + 1) % 5")
    lines = shop.ok("check", "orders", "--repair").splitlines()
    assert sum(line.startswith("problem ") for line in lines) == 1
    assert sum(line.startswith("mended ") for line in lines) == 1
    assert lines[-1] == "ok       Nothing is wrong now."


def test_repair_leaves_running_jobs_alone(shop: Orders) -> None:
    shop.tell("order-1", "gate")
    with shop.held():
        shop.tell("order-2", "paid")
        damage(shop, "UPDATE jobs SET shard = (shard + 1) % 5 WHERE key = 'order-1'")
        assert len(repaired(shop)) == 1
        assert set(shop.find("orders", "order-1")) == {"running"}
    shop.work()
    assert sorted(shop.ran()) == ["order-1 gate", "order-2 paid"]


def test_what_cannot_be_mended_stays_a_problem(shop: Orders) -> None:
    with closing(shop.app()) as app:
        app.enqueue_body('{"_job_class":"long_gone","_job_params":null}', queue="orders")
    damage(shop, "UPDATE jobs SET shard = (shard + 1) % 5")
    done = shop.run("check", "orders", "--repair")
    assert done.returncode == 3
    left = [line for line in done.stdout.splitlines() if line.startswith("left ")]
    assert len(left) == 1
    assert "jobs for a task 'long_gone'" in left[0]


def test_shards_that_nobody_serves_are_named(shop: Orders) -> None:
    shop.gather("apple")
    with closing(shop.app()) as app:
        for number, served in (("one", [0]), ("two", [0, 2])):
            app.broker.join(
                WorkerView(
                    id=number,
                    host="here",
                    pid=1,
                    queues=["stock"],
                    concurrency=1,
                    lease_s=30,
                    started_at=0,
                    seen_at=0,
                    shards={"stock": served},
                )
            )
    assert [text for text in problems(shop) if text.startswith("No worker serves shards 1, 3 of the queue stock")]
    assert "stock[0,2]" in shop.ok("workers")
    assert shop.json("workers")["workers"][0]["shards"] == {"stock": [0]}
    with closing(shop.app()) as app:
        everything = WorkerView(
            id="three", host="here", pid=1, queues=["stock"], concurrency=1, lease_s=30, started_at=0, seen_at=0
        )
        app.broker.join(everything)
    assert problems(shop) == []


def test_worker_for_one_node_of_two_leaves_shards_out(shop: Orders) -> None:
    shop.gather("apple")
    worker = shop.serving("worker", "orders", env=shop.environ | {"LANEWAY_NODES": "2", "LANEWAY_NODE": "1"})
    assert any(text.startswith("No worker serves shards 0, 2 of the queue stock") for text in problems(shop))
    assert "stock[1,3]" in shop.ok("workers")
    worker.terminate()
    worker.communicate(timeout=30)


def test_declared_shards_that_differ_are_a_note(shop: Orders) -> None:
    with closing(shop.app()) as app:
        app.broker.declare("stock", 7)
    notes = [each["text"] for each in shop.json("check", "orders")["findings"] if each["level"] == "note"]
    assert notes == [
        "The task gather declares 4 shards and its queue stock has 7, which is what counts; change it with laneway "
        "reshard stock 4, or declare what it has."
    ]


def test_collecting_jobs_without_their_task_are_unwell(shop: Orders) -> None:
    shop.gather("apple")
    shop.write(
        "other.py",
        "from laneway import Laneway\napp = Laneway()\n@app.task(queue='stock')\ndef count(what: str) -> None: ...\n",
    )
    done = shop.run("check", "other")
    assert done.returncode == 3
    assert "The queue stock holds collecting jobs, and this app has no collecting task for it" in done.stdout
