"""Poison jobs: deaths of their process are counted, they run alone, then are buried; no other job is blamed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from laneway import Laneway
from laneway.broker import Turn
from laneway.ids import new_id
from laneway.jobs.data import Claim, Kind, Payload, StartedRun, WorkerView
from laneway.jobs.settlement import Settlement, too_many
from laneway.telemetry import RunEnded
from laneway.worker.fetch.shards import ShardAssignment, default_splitter, lag
from tests.integration.worker.isolated_app import isolated_app, wait_for
from tests.integration.worker.isolated_tasks import (
    JOURNAL,
    Noted,
    dies,
    dies_apart,
    dies_apart_async,
    gather,
    gather_here,
    here,
    keyed,
    keyed_here,
    noted,
    reads,
    reads_keyed,
)
from tests.support.worker_fixtures import Bench, Running, dead, stats


@pytest.fixture
def apart(tmp_path, monkeypatch):
    with isolated_app(tmp_path, monkeypatch) as app:
        yield app


def ran() -> list[str]:
    return [line for line in noted() if line.startswith("ran")]


def crash(app: Laneway, queue: str) -> None:
    """Claim a job of a queue and die with it, as a supervisor sees it."""
    name = new_id()
    view = WorkerView(
        id=name, host="here", pid=1, queues=[queue], concurrency=1, lease_s=600, started_at=0.0, seen_at=0.0
    )
    app.broker.join(view)
    [claim] = app.broker.turn(Turn(name, queue, 1, limit=1)).claims
    identity = claim.payloads[0].identity if claim.kind is Kind.KEYED else ""
    app.broker.leave(name, [StartedRun(queue, claim.key, claim.token, identity)])


# -- in an isolated process ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "how"),
    [
        ("SIGKILL", "was killed by SIGKILL (signal 9)"),
        ("SIGSEGV", "was killed by SIGSEGV (signal 11)"),
        ("abort", "was killed by SIGABRT (signal 6)"),
        ("os._exit", "ended by itself with exit code 0"),
        ("sys.exit", "ended by itself with exit code 7"),
        ("KeyboardInterrupt", "ended by itself with exit code 1"),
        ("GeneratorExit", "ended by itself with exit code 1"),
        ("descriptors", "ended because a job had closed its file descriptors"),
    ],
)
@pytest.mark.parametrize("task", [dies_apart, dies_apart_async], ids=["sync", "async"])
def test_a_job_that_kills_its_process_is_buried_at_the_third_death_with_the_reason(apart, drain, task, ending, how):
    ends = []
    apart.telemetry.subscribe(RunEnded, ends.append)
    task.enqueue(ending)
    here.enqueue_many([(number,) for number in range(20)])
    assert drain(apart) == 0, "the worker lives"
    apart.telemetry.unsubscribe(RunEnded, ends.append)
    assert len(ran()) == 3
    assert len(set(ran())) == 3
    [job] = dead(apart)
    assert job.error == too_many(3, how)
    assert how in job.error
    assert (job.attempt, stats(apart).processed) == (3, 20)
    told = [(event.verdict, event.error) for event in ends if event.task == task.name]
    assert told == [(verdict, f"the process that ran it {how}") for verdict in ("postpone", "postpone", "bury")]


@pytest.mark.parametrize("task", [dies_apart, dies_apart_async], ids=["sync", "async"])
def test_an_error_that_exits_when_it_is_shown_is_a_failure_and_no_death(apart, drain, task):
    task.enqueue("unprintable")
    assert drain(apart) == 0
    [job] = dead(apart)
    assert job.error.startswith("Unprintable: (its text cannot be shown: SystemExit)")
    assert len(ran()) == 1


def test_a_death_is_said_in_one_line(apart, drain, caplog):
    dies_apart.enqueue("SIGKILL")
    assert drain(apart) == 0
    lines = [record.getMessage() for record in caplog.records if "was killed by SIGKILL" in record.getMessage()]
    assert len(lines) == 3
    assert all(line.count("\n") == 0 for line in lines)


def test_a_call_of_a_key_dies_alone_and_the_others_run_in_order(apart, drain):
    keyed.enqueue("a", 1)
    keyed.enqueue("a", 2, "SIGKILL")
    keyed.enqueue("a", 3)
    assert drain(apart) == 0
    assert noted() == ["ran a 1", "ran a 2", "ran a 2", "ran a 2", "ran a 3"]
    [job] = dead(apart)
    assert (job.key, job.size) == ("a", 1)
    assert "was killed by SIGKILL" in job.error
    assert stats(apart).length == 0


def test_of_a_batch_that_dies_each_key_runs_by_itself_and_only_one_is_buried(apart, drain):
    gather.enqueue_many([("a", 1), ("b", 2), ("dies", 3)])
    assert drain(apart) == 0
    batches = [line.split()[2:] for line in noted()]
    assert batches[0] == ["a", "b", "dies"]
    assert sorted(batches[1:]) == [["a"], ["b"], ["dies"], ["dies"]]
    [job] = dead(apart, "gather")
    assert job.key == "dies"


# -- in the worker's own process -----------------------------------------------------------------------


def test_after_the_second_death_a_job_runs_in_a_process_of_its_own(apart, drain):
    """`dies` is no isolated task: the first two times it takes the worker along."""
    dies.enqueue("sys.exit")
    assert drain(apart) == 1
    assert drain(apart) == 1
    assert [int(line.split()[1]) for line in ran()] == [os.getpid()] * 2
    assert drain(apart) == 0
    [job] = dead(apart)
    assert job.error == too_many(3, "ended by itself with exit code 7")
    assert len(ran()) == 3
    assert ran()[2] not in ran()[:2]


@pytest.mark.parametrize("kind", ["plain", "keyed"])
def test_after_the_second_death_a_job_is_not_even_read_beside_others(apart, drain, kind):
    """A neighbour that ends the process meanwhile would be a third death that it has not died alone."""
    reads.enqueue(Noted(1)) if kind == "plain" else reads_keyed.enqueue("a", Noted(1))
    for _ in range(2):
        crash(apart, "default")
    Path(os.environ[JOURNAL]).unlink()
    assert drain(apart) == 0
    assert {line.split()[0] for line in noted()} == {"read", "ran"}
    (pid,) = {int(line.split()[1]) for line in noted()}
    assert pid != os.getpid()


def test_where_there_is_no_other_process_it_is_buried_when_it_is_claimed_again(app, drain):
    ends, seen = [], []
    app.telemetry.subscribe(RunEnded, ends.append)

    @app.task
    def leave() -> None:
        seen.append(1)
        raise SystemExit(3)

    @app.task
    def stay() -> None: ...

    leave.enqueue()
    for _ in range(3):
        assert drain(app) == 1
    stay.enqueue()
    assert drain(app) == 0
    assert len(seen) == 3
    [job] = dead(app)
    text = too_many(3, "took its worker along")
    assert job.error == text
    assert [(event.task, event.verdict, event.error) for event in ends if event.verdict == "bury"] == [
        ("leave", "bury", text)
    ]


def test_a_keyed_call_that_ends_the_worker_counts_its_own_death_only(apart, drain):
    keyed_here.enqueue("a", 1)
    keyed_here.enqueue("a", 2, "sys.exit")
    keyed_here.enqueue("a", 3)
    for code in (1, 1, 0):
        assert drain(apart, concurrency=1) == code
    assert [line.split()[2] for line in noted()] == ["1", "2", "2", "2", "3"]
    [job] = dead(apart)
    assert job.payloads[0].body.count('"number":2') == 1
    assert stats(apart).length == 0


def test_a_call_that_has_died_is_the_only_one_of_its_claim(app):
    """Those before it are settled first, those behind it are given back."""
    bench = Bench()
    order = []

    @bench.app.task
    def work(key: str, number: int) -> None:
        order.append(number)

    def claim(*deaths: int) -> Claim:
        payloads = [
            Payload(bench.app.outgoing(work, ("a", number), {}).body, 0.0, str(number), 1, None, count)
            for number, count in enumerate(deaths)
        ]
        return Claim("default", 1, "a", 1, 0.0, -1, 1, 0, payloads, kind=Kind.KEYED, worker="me")

    def settled(*deaths: int) -> Settlement:
        run = bench.runner.read(bench.lane, claim(*deaths))
        while run is not None:
            run = bench.runner.execute(run)
        ((settlement, _),) = bench.lane.finished
        bench.lane.finished.clear()
        return settlement

    first = settled(0, 0, 1, 0)
    assert (order, first.verdict, first.done) == ([0, 1], "release", 2)
    second = settled(1, 0)
    assert (order, second.verdict, second.done) == ([0, 1, 0], "release", 1)
    third = settled(3, 0)
    assert (order, third.verdict, third.done, third.buried) == ([0, 1, 0], "bury", 0, 1)
    fourth = settled(0, 0)
    assert (fourth.verdict, fourth.done) == ("done", 2)


def test_a_key_that_has_died_is_not_batched_with_others(app):
    @app.collect(batch_size=3)
    def gather(batch) -> None: ...

    share = ShardAssignment(app, "gather", default_splitter, lag)

    def claim(key: str, deaths: int) -> Claim:
        return Claim("gather", 1, key, 1, 0.0, -1, 1, deaths, [], kind=Kind.COLLECTING)

    units = share.units([claim("a", 0), claim("b", 0), claim("c", 1), claim("d", 0), claim("e", 2), claim("f", 1)])
    assert [[each.key for each in unit] for unit in units] == [["a", "b"], ["c"], ["d"], ["e"], ["f"]]


def test_a_collecting_key_is_buried_when_it_has_died_too_often(apart, drain):
    gather_here.enqueue_many([("a", 1), ("a", 2)])
    for _ in range(3):
        crash(apart, "gather_here")
    gather_here.enqueue("b", 1)
    assert drain(apart) == 0
    assert noted() == ["batch b"]
    [job] = dead(apart, "gather_here")
    assert (job.key, job.size) == ("a", 2)
    assert "died 3 times" in job.error


def test_a_collecting_key_with_two_deaths_runs_in_a_process_of_its_own(apart, drain):
    gather_here.enqueue("a", 1)
    for _ in range(2):
        crash(apart, "gather_here")
    with Running(apart, verbose=True):
        wait_for(lambda: stats(apart, "gather_here").processed)
    assert noted() == ["batch a"]


def test_deaths_of_neighbours_are_not_blamed_in_the_end(apart, drain):
    """Those that were beside the culprit run alone once, and are done."""
    dies_apart.enqueue("SIGKILL")
    here.enqueue_many([(number,) for number in range(50)])
    assert drain(apart) == 0
    wait_for(lambda: stats(apart).processed == 50)
    assert len(dead(apart)) == 1
