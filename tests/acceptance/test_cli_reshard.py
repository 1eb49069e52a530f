"""reshard: the count changes, every job moves, running jobs are undisturbed, and it can be interrupted."""

from __future__ import annotations

import signal
import subprocess
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import pytest

from laneway.jobs.shards import shard_of
from tests.acceptance.keyed_shop import Orders

pytestmark = pytest.mark.acceptance


@pytest.fixture
def shop(tmp_path: Path) -> Orders:
    return Orders(tmp_path)


def shards(shop: Orders, queue: str) -> int:
    counts = {each["queue"]: each["shards"] for each in shop.json("stats")["queues"]}
    return int(counts[queue])


def read_until(process: subprocess.Popen[str], what: str) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if what in line:
            return line
    raise AssertionError(f"it never said {what!r}")


def test_queue_is_resharded_with_its_morgue(shop: Orders) -> None:
    for number in range(4):
        shop.tell(f"dead-{number}", "bad")
    shop.work()
    shop.ok("jobs", "bury", "--all-failed")
    for number in range(20):
        shop.tell(f"order-{number}", "paid", "packed")
    assert shop.ok("reshard", "orders", "24") == "The queue orders had 5 shards and has 24 now; 24 jobs moved.\n"
    assert shards(shop, "orders") == 24
    for listing, expected in (("jobs", 20), ("morgue", 4)):
        jobs = shop.json(listing, "--queue", "orders")["jobs"]
        assert [job["shard"] for job in jobs] == [shard_of(job["key"], 24) for job in jobs]
        assert len(jobs) == expected
    shop.work()
    assert len(shop.ran()) == 40
    assert shop.ok("reshard", "orders", "24") == "The queue orders has 24 shards already.\n"
    assert shop.ok("reshard", "orders", "1", "--app", "orders").startswith("The queue orders had 24 shards and has 1 ")


def test_reshard_as_json(shop: Orders) -> None:
    shop.gather("a", "b", "c")
    document = shop.json("reshard", "stock", "2")
    assert document == {"queue": "stock", "old_shards": 4, "new_shards": 2, "moved": 3}


def test_wrong_counts_and_queues_are_sentences(shop: Orders) -> None:
    shop.gather("a")
    for number in ("0", "-3"):
        assert f"so {number} cannot be" in shop.wrong("reshard", "stock", number)
    assert shop.wrong("reshard", "stokc", "2") == "There is no queue 'stokc'; there is stock."
    done = shop.run("reshard", "stock", "many")
    assert done.returncode == 2
    assert "'many' is not a valid integer" in done.stderr
    assert shards(shop, "stock") == 4


def test_reshard_waits_for_what_runs_and_is_resumed(shop: Orders) -> None:
    shop.tell("order-1", "gate")
    with shop.held():
        shop.tell("order-1", "packed")
        shop.tell("order-2", "paid")
        resharding = shop.start("reshard", "orders", "7")
        assert "waiting for 1 running job" in read_until(resharding, "All jobs have moved")
        assert "is being resharded to 7" in shop.wrong("reshard", "orders", "9")
        notes = [each["text"] for each in shop.json("check", "orders")["findings"] if each["level"] == "note"]
        assert any("The queue orders is being resharded" in note for note in notes)
        resharding.send_signal(signal.SIGINT)
        out, err = resharding.communicate(timeout=30)
        assert (resharding.returncode, out) == (1, "")
        assert err.splitlines()[-1] == (
            "The queue orders is still being resharded to 7, and nothing of it begins until that is done: workers go "
            "on with it, and so does laneway reshard orders 7."
        )
        assert shards(shop, "orders") == 5
        shop.tell("order-3", "paid")
        again = shop.start("reshard", "orders", "7")
        read_until(again, "All jobs have moved")
    out, err = again.communicate(timeout=30)
    assert again.returncode == 0, err
    assert out.startswith("The queue orders had 5 shards and has 7 now")
    shop.work()
    ran = shop.ran()
    assert sorted(ran) == ["order-1 gate", "order-1 packed", "order-2 paid", "order-3 paid"]
    assert ran.index("order-1 gate") < ran.index("order-1 packed")


def test_reshard_says_when_nobody_is_there_to_take_jobs_back(shop: Orders) -> None:
    shop.tell("order-1", "gate")
    gate = shop.make_gate()
    worker = shop.start("worker", "orders", "--lease", "0.3")
    with gate.open("w"):  # it runs now
        worker.kill()
        worker.communicate()
    resharding = shop.start("reshard", "orders", "7")
    said = read_until(resharding, "belong to workers that are gone")
    assert "start one with laneway worker TARGET" in said
    gate.unlink()
    gate.write_text("")  # so that the run, taken back, goes through it
    other = shop.start("worker", "orders", "--lease", "0.3")
    out, err = resharding.communicate(timeout=60)
    assert resharding.returncode == 0, err
    assert "has 7 now" in out
    other.terminate()
    other.communicate(timeout=30)
    shop.work()
    assert shop.ran() == ["order-1 gate"]


def test_reshard_under_load_keeps_every_call_and_its_order(shop: Orders) -> None:
    worker = shop.start("worker", "orders", "-c", "3")
    statuses = [f"{number:02}" for number in range(10)]
    with closing(shop.app()) as app:
        task = app.registry.find("tell")
        assert task is not None
        for count in ("11", "3", "8"):
            resharding = shop.start("reshard", "orders", count)
            while resharding.poll() is None:  # customers do not wait for it
                task.enqueue_many([(f"order-{count}-{number}", status) for number in range(20) for status in statuses])
            out, err = resharding.communicate()
            assert resharding.returncode == 0, err
            assert f"has {count} now" in out
        sent = app.broker.inspect.stats()
        assert {each.queue: each.shards for each in sent}["orders"] == 8
    worker.terminate()
    worker.communicate(timeout=60)
    assert worker.returncode == 0
    shop.work()
    runs = defaultdict(list)
    for line in shop.ran():
        order, status = line.split()
        runs[order].append(status)
    assert set(runs) == {f"order-{count}-{number}" for count in ("11", "3", "8") for number in range(20)}
    for told in runs.values():
        assert told == statuses * (len(told) // len(statuses))
    assert shop.json("stats")["queues"][0]["length"] == 0
