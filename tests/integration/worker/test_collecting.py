"""Collecting tasks: a batch holds the payloads of several keys of one shard, and each key is settled by itself."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

import pytest

from laneway import Batch, Bury, Context, Middleware, Retry
from laneway.jobs.data import Kind
from laneway.jobs.shards import shard_of
from laneway.telemetry import RunEnded, RunStarted, WorkerStopping
from tests.support.worker_fixtures import PATIENCE_S, Running, dead, stats


def test_a_key_gets_all_its_payloads_smallest_score_first(app, drain):
    seen = []

    @app.collect
    def sync(batch: Batch[str]) -> None:
        seen.extend((key, values, batch.scores(key)) for key, values in batch.items())

    sync.using(score=2).enqueue("a", "second")
    sync.using(score=1).enqueue("a", "first")
    sync.using(score=2).enqueue("a", "first")  # the same payload: it keeps the smaller score
    sync.using(score=5).enqueue("b", "other")
    assert drain(app) == 0
    assert sorted(seen) == [("a", ["first", "second"], [1.0, 2.0]), ("b", ["other"], [5.0])]
    assert stats(app, "sync").processed == 2


def test_a_batch_has_keys_of_one_shard_and_no_more_than_its_size(app, drain):
    batches = []

    @app.collect(shards=3, batch_size=4)
    def sync(batch: Batch[int]) -> None:
        batches.append(list(batch))

    keys = [f"key-{number}" for number in range(50)]
    sync.enqueue_many([(key, 1) for key in keys])
    assert drain(app, concurrency=2) == 0
    assert sorted(key for batch in batches for key in batch) == sorted(keys)
    assert all(len({shard_of(key, 3) for key in batch}) == 1 for batch in batches)
    assert max(map(len, batches)) == 4
    assert app.broker.inspect.queues()["sync"] == 3, "the first payload makes the queue as its task is declared"


@dataclass
class Order:
    status: str


@pytest.mark.parametrize("threads", [1, 5])
def test_a_key_with_very_many_payloads_and_one_that_always_fails_hold_up_no_other(app, threads):
    """All others have ended though the large key has not, because it is fed for as long as they have not."""
    others, all_others, large = set(), threading.Event(), set()

    @app.collect(max_payloads=100, max_retry_count=1_000_000, retry_in=lambda count: 0, shards=3)
    def gather(batch: Batch[int]) -> None:
        for key, payloads in batch.items():
            if key == "bad":
                raise ValueError("always")
            if key == "large":
                large.update(payloads)
                if not all_others.is_set():
                    gather.enqueue_many([("large", -number) for number in payloads])
            else:
                others.add(key)
                if len(others) == 100:
                    all_others.set()

    gather.enqueue_many([("large", number) for number in range(1, 5_001)])
    gather.enqueue("bad", 1)
    gather.enqueue_many([(f"key-{number}", number) for number in range(100)])
    with Running(app, concurrency=threads):
        assert all_others.wait(PATIENCE_S)
    assert large, "it was not left out"


def test_payloads_are_of_their_type(app, drain):
    seen = []

    @app.collect
    def sync(batch: Batch[Order]) -> None:
        seen.extend(batch["a"])

    sync.enqueue("a", Order("paid"))
    assert drain(app) == 0
    assert seen == [Order("paid")]


def test_async_batches_are_awaited(app, drain):
    seen = []

    @app.collect(batch_size=10, shards=1)
    async def sync(batch: Batch[int]) -> None:
        assert threading.current_thread().name == "laneway-async"
        seen.extend(batch)

    sync.enqueue_many([(number, 1) for number in range(25)])
    assert drain(app) == 0
    assert len(seen) == 25


def test_what_comes_while_a_key_is_run_waits_for_its_next_run(app, drain):
    seen = []

    @app.collect
    def sync(batch: Batch[int]) -> None:
        seen.append(batch["a"])
        if len(seen) == 1:
            sync.enqueue("a", 2)

    sync.enqueue("a", 1)
    assert drain(app) == 0
    assert seen == [[1], [2]]


def test_an_exception_fails_every_key_by_its_own_count(app, drain):
    runs = []

    @app.collect(batch_size=2, shards=1, max_retry_count=1, retry_in=lambda n: 0)
    def sync(batch: Batch[int]) -> None:
        runs.append(sorted(batch))
        raise ValueError("never")

    sync.enqueue_many([("a", 1), ("b", 1)])
    assert drain(app) == 0
    assert sum(map(len, runs)) == 4, "each key ran twice"
    assert [(job.key, job.size, job.kind) for job in sorted(dead(app, "sync"), key=lambda job: job.key)] == [
        ("a", 1, Kind.COLLECTING),
        ("b", 1, Kind.COLLECTING),
    ]


def test_only_the_keys_that_it_names_fail(app, drain):
    sent, told = [], []
    app = type(app)(broker=app.broker, error_handlers=[lambda error, context: told.append((str(error), context.key))])

    @app.task
    def child(number: int) -> None:
        sent.append(number)

    @app.collect(batch_size=3, shards=1, context=True, retry_in=lambda n: 3600)
    def sync(context: Context, batch: Batch[int]) -> None:
        context.enqueue(child, 7)
        batch.fail("a", "said in words")
        batch.fail("b", KeyError("x"))

    events = []
    app.telemetry.subscribe(RunEnded, events.append)
    sync.enqueue_many([("a", 1), ("b", 1), ("c", 1)])
    assert drain(app) == 0
    assert sent == [7]
    found = {key: app.broker.inspect.find("sync", key) for key in "abc"}
    assert found["c"] == []
    assert (found["a"][0].retry_count, found["a"][0].error) == (0, "said in words")
    assert found["b"][0].error.startswith("KeyError: 'x'")
    assert sorted(told) == [("'x'", "b"), ("said in words", "a")]
    ended = {event.key: (event.keys, event.verdict, event.error) for event in events if event.task == "sync"}
    assert ended == {
        "a": (1, "retry", "LanewayError: said in words"),
        "b": (1, "retry", "KeyError: 'x'"),
        "c": (1, "done", None),
    }
    assert (stats(app, "sync").processed, stats(app, "sync").failed) == (1, 2)


def test_a_key_that_a_batch_has_buried_is_named_in_the_log(app, drain, caplog):
    @app.collect(batch_size=3, shards=1, max_retry_count=0)
    def sync(batch: Batch[int]) -> None:
        batch.fail("b", "no such order")

    sync.enqueue_many([("a", 1), ("b", 1), ("c", 1)])
    with caplog.at_level(logging.WARNING):
        assert drain(app) == 0
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert lines == [("ERROR", "sync/sync b buried after attempt 1: LanewayError: no such order")]


@pytest.mark.parametrize("error", [Bury("no use"), KeyError("x")])
def test_burying_a_batch_buries_all_payloads_of_its_keys(app, drain, error):
    @app.collect(batch_size=2, shards=1, bury_on=[KeyError])
    def sync(batch: Batch[int]) -> None:
        raise error

    sync.enqueue_many([("a", 1), ("a", 2), ("b", 3)])
    assert drain(app) == 0
    assert sorted((job.key, job.size) for job in dead(app, "sync")) == [("a", 2), ("b", 1)]
    assert stats(app, "sync").length == 0


def test_used_up_retries_bury_the_first_payload_and_the_rest_goes_on(app, drain):
    runs, told = [], []

    @app.collect(max_retry_count=0, retries_exhausted=lambda jobs: told.extend(jobs))
    def sync(batch: Batch[int]) -> None:
        runs.append(batch["a"])
        if 1 in batch["a"]:
            raise ValueError("one is too few")

    sync.using(score=1).enqueue("a", 1)
    sync.using(score=2).enqueue("a", 2)
    assert drain(app) == 0
    assert runs == [[1, 2], [2]]
    [job] = dead(app, "sync")
    assert [payload.body for payload in job.payloads] == ["1"]
    [view] = told
    assert ([payload.body for payload in view.payloads], view.size, view.key) == (["1"], 1, "a")


def test_retry_after_says_when_for_all_keys(app, drain):
    @app.collect(batch_size=2, shards=1)
    def sync(batch: Batch[int]) -> None:
        raise Retry(after=1000)

    sync.enqueue_many([("a", 1), ("b", 1)])
    assert drain(app) == 0
    assert stats(app, "sync").delayed == stats(app, "sync").retries == 2


def test_postponing_postpones_all_and_sends_nothing(app, drain):
    sent, told = [], []
    app = type(app)(broker=app.broker, error_handlers=[lambda error, context: told.append(error)])

    @app.task
    def child() -> None:
        sent.append(1)

    @app.collect(batch_size=2, shards=1, context=True)
    def sync(context: Context, batch: Batch[int]) -> None:
        context.enqueue(child)
        context.postpone(3600)
        raise ValueError("is told, but does not count")

    sync.enqueue_many([("a", 1), ("b", 1)])
    assert drain(app) == 0
    assert sent == []
    assert len(told) == 1
    numbers = stats(app, "sync")
    assert (numbers.delayed, numbers.retries, numbers.failed) == (2, 0, 0)


def test_a_key_that_cannot_be_read_fails_alone(app, drain):
    seen = []

    @app.collect(batch_size=3, shards=1, max_retry_count=0)
    def sync(batch: Batch[int]) -> None:
        seen.extend(batch.items())

    jobs = [app.outgoing(sync, (key, number), {}) for number, key in enumerate("abc")]
    jobs[1].body = '"not a number"'
    app.broker.enqueue(jobs)
    assert drain(app) == 0
    assert sorted(seen) == [("a", [0]), ("c", [2])]
    [job] = dead(app, "sync")
    assert job.key == "b"
    assert "does not fit the task sync" in job.error


def test_a_queue_without_a_collecting_task_fails_readably(app, drain):
    other = type(app)(broker=app.broker)

    @other.collect(queue="theirs")
    def sync(batch: Batch[int]) -> None: ...

    @app.task(queue="theirs")
    def mine() -> None: ...

    sync.enqueue("a", 1)
    assert drain(app) == 0
    [job] = app.broker.inspect.find("theirs", "a")
    assert job.retry_count == 0
    assert "no collecting task for the queue theirs" in job.error


def test_a_batch_is_one_run_for_middleware_and_events(make_app, drain):
    seen = []

    class Watch(Middleware):
        def around_deserialization(self, body, claim):
            seen.append(("read", claim.key, body))
            yield

        def around_execution(self, call, context):
            seen.append(("run", sorted(call.params["batch"]), context.key))
            yield

    app = make_app(middleware=[Watch()])

    @app.collect(batch_size=5, shards=1)
    def sync(batch: Batch[int]) -> None: ...

    events = []
    app.telemetry.subscribe(RunStarted, events.append)
    app.telemetry.subscribe(RunEnded, events.append)
    sync.using(score=1).enqueue("a", 1)
    sync.using(score=2).enqueue("a", 2)
    sync.using(score=3).enqueue("b", 3)
    assert drain(app) == 0
    assert sorted(seen[:3]) == [("read", "a", "1"), ("read", "a", "2"), ("read", "b", "3")]
    [(_, keys, first)] = seen[3:]
    assert keys == ["a", "b"]
    assert [(type(event), event.key, event.keys) for event in events] == [(RunStarted, first, 2), (RunEnded, first, 2)]


def test_what_a_middleware_keeps_back_counts_as_done(make_app, drain):
    class Skip(Middleware):
        def around_deserialization(self, body, claim):
            if body != "1":
                yield

    app = make_app(middleware=[Skip()])
    seen = []

    @app.collect(batch_size=5, shards=1)
    def sync(batch: Batch[int]) -> None:
        seen.append(dict(batch))

    sync.enqueue_many([("a", 1), ("a", 2), ("b", 1)])
    assert drain(app) == 0
    assert seen == [{"a": [2]}]
    sync.enqueue("c", 1)
    assert drain(app) == 0
    assert len(seen) == 1
    assert stats(app, "sync").length == 0


def test_stopping_gives_back_batches_that_have_not_begun(app):
    begun, go = threading.Event(), threading.Event()

    @app.collect(batch_size=2, shards=1)
    def sync(batch: Batch[int]) -> None:
        begun.set()
        assert go.wait(PATIENCE_S)

    sync.enqueue_many([(number, 1) for number in range(10)])
    running = Running(app, concurrency=1)
    running.worker.start()
    assert begun.wait(PATIENCE_S)
    stopping = threading.Event()
    app.telemetry.subscribe(WorkerStopping, lambda event: stopping.set())
    stopper = threading.Thread(target=running.worker.stop, args=(PATIENCE_S,))
    stopper.start()
    assert stopping.wait(PATIENCE_S)
    go.set()
    stopper.join(PATIENCE_S)
    numbers = stats(app, "sync")
    assert (numbers.processed, numbers.length, numbers.busy) == (2, 8, 0)
