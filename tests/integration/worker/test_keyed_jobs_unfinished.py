"""Calls of one key that do not run: the worker stops or dies, or the key has used up its time slice."""

from __future__ import annotations

import threading
from typing import Annotated

from laneway import Batch, Context, Key
from laneway.telemetry import RunEnded, WorkerStopping
from tests.support.worker_fixtures import PATIENCE_S, Running, dead, stats


def test_stopping_gives_back_the_calls_that_have_not_begun(app):
    begun, go = threading.Event(), threading.Event()
    seen = []

    @app.task(context=True)
    def work(context: Context, key: Annotated[str, Key], number: int) -> None:
        seen.append((number, context.attempt))
        begun.set()
        assert go.wait(PATIENCE_S)

    work.enqueue_many([("a", number) for number in range(5)])
    running = Running(app)
    running.worker.start()
    assert begun.wait(PATIENCE_S)
    stopping = threading.Event()
    app.telemetry.subscribe(WorkerStopping, lambda event: stopping.set())
    stopper = threading.Thread(target=running.worker.stop, args=(PATIENCE_S,))
    stopper.start()
    assert stopping.wait(PATIENCE_S)
    go.set()
    stopper.join(PATIENCE_S)
    assert seen == [(0, 1)]
    [queued] = app.broker.inspect.find("default", "a")
    assert queued.size == 4
    assert [payload.attempt for payload in queued.payloads] == [0] * 4, "what never began is not counted"
    assert (queued.retry_count, queued.status) == (-1, "queued")


def test_a_key_with_many_calls_gives_back_its_runner_after_a_while(app, drain, monkeypatch):
    """With a slice of next to nothing each call is a claim of its own, and all are run all the same."""
    monkeypatch.setattr("laneway.worker.run.runner.SLICE_S", 1e-9)
    fences, seen = [], []

    @app.task(context=True)
    def work(context: Context, key: Annotated[str, Key], number: int) -> None:
        fences.append(context.fence)
        seen.append(number)

    work.enqueue_many([("a", number) for number in range(5)])
    assert drain(app, concurrency=1) == 0
    assert seen == list(range(5))
    assert len(set(fences)) == 5


def test_log_context_and_morgue_count_the_same_attempts(app, drain):
    """Of a keyed call that fails behind one that was tried twice; and of a plain and a collecting job."""
    seen, told = {}, {}
    app.telemetry.subscribe(RunEnded, lambda event: told.update({event.key: event.attempt}))

    @app.task(max_retry_count=3, retry_in=lambda n: 0, context=True)
    def shaky(context: Context, key: Annotated[str, Key]) -> None:
        if context.attempt == 1:
            raise ValueError("once")

    @app.task(max_retry_count=2, retry_in=lambda n: 0, context=True)
    def keyed(context: Context, key: Annotated[str, Key]) -> None:
        seen["k"] = context.attempt
        raise ValueError("boom")

    @app.task(max_retry_count=2, retry_in=lambda n: 0, context=True)
    def plain(context: Context) -> None:
        seen[context.key] = context.attempt
        raise ValueError("boom")

    @app.collect(queue="values", max_retry_count=2, retry_in=lambda n: 0, context=True)
    def collecting(context: Context, batch: Batch[int]) -> None:
        seen["c"] = context.attempt
        raise ValueError("boom")

    shaky.enqueue("k")
    keyed.enqueue("k")
    handle = plain.enqueue()
    collecting.enqueue("c", 1)
    drain(app)
    assert seen == told == {"k": 3, "c": 3, handle.id: 3}
    assert {job.key: job.attempt for job in dead(app) + dead(app, "values")} == seen


def test_what_is_not_an_exception_ends_the_worker_after_the_calls_that_succeeded_are_settled(app, drain):
    seen, sent = [], []

    @app.task(context=True)
    def work(context: Context, key: Annotated[str, Key], number: int) -> None:
        seen.append(number)
        context.enqueue(child, number)
        if number == 2 and seen.count(2) == 1:
            raise SystemExit(3)

    @app.task
    def child(number: int) -> None:
        sent.append(number)

    work.enqueue_many([("a", 1), ("a", 2), ("a", 3)])
    assert drain(app) == 1
    assert seen == [1, 2], "the key is not claimed again by a worker that is ending"
    [job] = app.broker.inspect.find("default", "a")
    assert (job.status, job.size, job.retry_count) == ("queued", 2, -1)
    assert drain(app) == 0
    assert seen == [1, 2, 2, 3]
    assert sorted(sent) == [1, 2, 3]
    assert stats(app).length == 0


def test_what_is_not_an_exception_in_the_first_call_leaves_the_claim_to_others(app, drain):
    seen = []

    @app.task(context=True)
    def work(context: Context, key: Annotated[str, Key], number: int) -> None:
        seen.append((number, context.attempt))
        if len(seen) == 1:
            raise SystemExit(3)

    work.enqueue_many([("a", 1), ("a", 2)])
    assert drain(app) == 1
    assert seen == [(1, 1)]
    assert app.broker.inspect.find("default", "a")[0].retry_count == -1
    assert drain(app) == 0
    assert [number for number, _ in seen] == [1, 1, 2]


def test_a_worker_that_is_ending_claims_nothing_more(app, drain):
    """All keys are one claim each: the others wait for the next worker, however long the ending takes."""
    seen = []

    @app.task
    def work(key: Annotated[str, Key], number: int) -> None:
        seen.append(key)
        if number == 1:
            work.enqueue("late", 2)
            raise SystemExit(3)

    work.enqueue_many([("a", 0), ("a", 1)])
    assert drain(app, concurrency=1) == 1
    assert seen == ["a", "a"]
    assert app.broker.inspect.find("default", "late")[0].status == "queued"
