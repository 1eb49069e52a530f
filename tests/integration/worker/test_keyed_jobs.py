"""Calls of one key: in order, one at a time, settled together, and each a run of its own."""

from __future__ import annotations

import asyncio
import threading
from typing import Annotated

import pytest

from laneway import Bury, Context, Key, Middleware, Retry
from laneway.jobs.data import Kind
from laneway.telemetry import RunEnded, RunStarted
from tests.support.scenarios import a_key_runs_once_at_a_time
from tests.support.worker_fixtures import PATIENCE_S, Running, dead, stats


def test_calls_of_a_key_run_in_order_across_tasks(app, drain):
    seen = {"a": [], "b": []}

    @app.task
    def first(key: Annotated[str, Key], number: int) -> None:
        seen[key].append(number)

    @app.task
    def second(key: Annotated[str, Key], number: int) -> None:
        seen[key].append(number)

    for number in range(100):
        (first if number % 3 else second).enqueue("ab"[number % 2], number)
    assert drain(app) == 0
    assert seen == {"a": list(range(0, 100, 2)), "b": list(range(1, 100, 2))}
    assert stats(app).length == 0


def test_calls_due_earlier_run_earlier(app, drain):
    seen = []

    @app.task
    def note(key: Annotated[str, Key], number: int) -> None:
        seen.append(number)

    for number, at in ((1, 300.0), (2, 100.0), (3, 200.0)):
        note.using(perform_at=at).enqueue("a", number)
    assert drain(app) == 0
    assert seen == [2, 3, 1]


def test_a_key_that_two_queues_enqueue_runs_once_at_a_time(app):
    a_key_runs_once_at_a_time(app)


@pytest.mark.parametrize(("threads", "keys"), [(2, 50), (5, 99)])
def test_a_slow_key_holds_up_no_other(app, threads, keys):
    begun, go, quick = threading.Event(), threading.Event(), threading.Semaphore(0)
    seen = []

    @app.task
    def work(key: Annotated[str, Key], number: int) -> None:
        if key == "slow":
            seen.append(("begin", number))
            begun.set()
            assert go.wait(PATIENCE_S)
            seen.append(("end", number))
        else:
            quick.release()

    work.enqueue_many([("slow", 1), ("slow", 2)])
    work.enqueue_many([(f"quick-{number}", number) for number in range(keys)])
    with Running(app, concurrency=threads):
        for _ in range(keys):
            assert quick.acquire(timeout=PATIENCE_S)
        assert begun.wait(PATIENCE_S)
        assert seen == [("begin", 1)], "the slow key is still at its first call, and none of it runs beside that"
        go.set()
    assert seen[:2] == [("begin", 1), ("end", 1)]


@pytest.mark.parametrize("threads", [1, 5])
def test_a_key_with_very_many_calls_and_one_that_always_fails_hold_up_no_other(app, threads):
    """All others have ended long before the calls of the large key have."""
    large, others, all_others = [], [], threading.Event()
    large_when_all_had_ended = []

    @app.task
    def work(key: Annotated[str, Key], number: int) -> None:
        if key == "large":
            large.append(number)
        else:
            others.append(key)
            if len(others) == 100:
                large_when_all_had_ended.append(len(large))
                all_others.set()

    @app.task(max_retry_count=1_000_000, retry_in=lambda count: 0)
    def fail(key: Annotated[str, Key]) -> None:
        raise ValueError("always")

    work.enqueue_many([("large", number) for number in range(5_000)])
    fail.enqueue("bad")
    work.enqueue_many([(f"key-{number}", number) for number in range(100)])
    with Running(app, concurrency=threads):
        assert all_others.wait(PATIENCE_S)
    assert large_when_all_had_ended[0] < 4_000
    assert large == list(range(len(large))), "in order all the same"


def test_a_key_is_never_run_twice_at_once(app, drain):
    inside: dict[str, int] = {}
    worst = []

    @app.task(context=True)
    def work(context: Context, key: Annotated[str, Key], number: int) -> None:
        inside[key] = inside.get(key, 0) + 1
        worst.append(inside[key])
        if number < 5:
            work.enqueue(key, number + 5)  # set aside while the key is being run
        inside[key] -= 1

    work.enqueue_many([(key, number) for number in range(5) for key in "abcdef"])
    assert drain(app, concurrency=5) == 0
    assert len(worst) == 60
    assert max(worst) == 1


def test_a_failing_head_blocks_its_key_and_only_that(app, drain):
    seen = []

    @app.task(retry_in=lambda n: 3600)
    def work(key: Annotated[str, Key], number: int) -> None:
        seen.append((key, number))
        if (key, number) == ("a", 2):
            raise ValueError("not now")

    work.enqueue_many([(key, number) for number in (1, 2, 3) for key in "ab"])
    assert drain(app) == 0
    assert [number for key, number in seen if key == "a"] == [1, 2]
    assert [number for key, number in seen if key == "b"] == [1, 2, 3]
    [queued] = app.broker.inspect.find("default", "a")
    assert (queued.retry_count, queued.size, queued.status) == (0, 2, "delayed")
    assert queued.error.startswith("ValueError: not now")
    assert app.broker.inspect.find("default", "b") == []
    assert (stats(app).processed, stats(app).failed) == (2, 1)


def test_a_failed_call_is_tried_again_before_the_others_and_a_success_resets(app, drain):
    seen = []

    @app.task(context=True, max_retry_count=1, retry_in=lambda n: 0)
    def work(context: Context, key: Annotated[str, Key], number: int) -> None:
        seen.append((number, context.attempt, context.retry_count))
        if context.attempt == 1:
            raise ValueError("the first time never works")

    work.enqueue_many([("a", 1), ("a", 2)])
    assert drain(app) == 0
    assert seen == [(1, 1, -1), (1, 2, 0), (2, 1, -1), (2, 2, 0)]
    assert dead(app) == []


def test_a_call_whose_retries_are_used_up_is_buried_alone(app, drain):
    seen = []

    @app.task(max_retry_count=1, retry_in=lambda n: 0)
    def work(key: Annotated[str, Key], number: int) -> None:
        seen.append(number)
        if number == 2:
            raise ValueError("never")

    handles = work.enqueue_many([("a", number) for number in (1, 2, 3)])
    assert drain(app) == 0
    assert seen == [1, 2, 2, 3]
    [job] = dead(app)
    assert (job.key, job.kind, job.size, job.payloads[0].identity) == ("a", Kind.KEYED, 1, handles[1].id)
    assert job.error.startswith("ValueError: never")


@pytest.mark.parametrize("error", [Bury("no use"), KeyError("x")])
def test_a_buried_call_lets_the_next_one_run(app, drain, error):
    seen = []

    @app.task(bury_on=[KeyError])
    def work(key: Annotated[str, Key], number: int) -> None:
        seen.append(number)
        if number == 1:
            raise error

    work.enqueue_many([("a", 1), ("a", 2)])
    assert drain(app) == 0
    assert seen == [1, 2]
    assert [job.size for job in dead(app)] == [1]


def test_a_keyed_call_is_retried_five_times_unless_its_task_says_otherwise(app, drain):
    seen = []

    @app.task(retry_in=lambda n: 0)
    def usual(key: Annotated[str, Key]) -> None:
        seen.append("usual")
        raise ValueError

    @app.task(retry_in=lambda n: 0, max_retry_count=2)
    def fewer(key: Annotated[str, Key]) -> None:
        seen.append("fewer")
        raise ValueError

    usual.enqueue("a")
    fewer.enqueue("a")
    assert drain(app) == 0
    assert seen == ["usual"] * 6 + ["fewer"] * 3


def test_a_postponed_call_rests_its_key_without_counting(app, drain):
    seen = []

    @app.task(context=True)
    def work(context: Context, key: Annotated[str, Key], number: int) -> None:
        seen.append((key, number))
        if number == 2:
            context.postpone(3600)

    work.enqueue_many([("a", number) for number in (1, 2, 3)])
    assert drain(app) == 0
    assert seen == [("a", 1), ("a", 2)]
    [queued] = app.broker.inspect.find("default", "a")
    assert (queued.retry_count, queued.size, queued.status) == (-1, 2, "delayed")
    assert stats(app).failed == 0


def test_retry_after_says_when(app, drain):
    @app.task
    def work(key: Annotated[str, Key]) -> None:
        raise Retry(after=1000)

    work.enqueue("a")
    assert drain(app) == 0
    [queued] = app.broker.inspect.find("default", "a")
    assert queued.retry_count == 0
    assert queued.status == "delayed"


def test_sync_and_async_calls_of_a_key_take_turns(app, drain):
    seen, threads = [], set()

    @app.task
    def sync(key: Annotated[str, Key], number: int) -> None:
        threads.add(threading.current_thread().name == "laneway-async")
        seen.append((key, number))

    @app.task
    async def unsync(key: Annotated[str, Key], number: int) -> None:
        await asyncio.sleep(0)
        assert threading.current_thread().name == "laneway-async"
        seen.append((key, number))

    for number in range(20):
        for key in "abc":
            (unsync if number % 2 else sync).enqueue(key, number)
    assert drain(app, concurrency=2) == 0
    assert threads == {False}, "a sync call never runs on the event loop"
    for key in "abc":
        assert [number for each, number in seen if each == key] == list(range(20))
    assert stats(app).length == 0


def test_the_context_is_the_calls_own(app, drain):
    seen = []

    class Mark(Middleware):
        def around_enqueue(self, jobs):
            for job in jobs:
                job.headers = {"id": job.identity}
            yield

    app = type(app)(broker=app.broker, middleware=[Mark()])

    @app.task(context=True)
    def work(context: Context, key: Annotated[str, Key], number: int) -> None:
        seen.append((context.id, context.key, context.attempt, context.retry_count, context.headers))

    handles = work.enqueue_many([("a", 1), ("a", 2)])
    assert drain(app) == 0
    assert seen == [(handle.id, "a", 1, -1, {"id": handle.id}) for handle in handles]


def test_each_call_has_middleware_and_events_of_its_own(make_app, drain):
    seen = []

    class Watch(Middleware):
        def around_deserialization(self, body, claim):
            seen.append("read")
            yield

        def around_execution(self, call, context):
            seen.append(("enter", call.params["number"]))
            yield
            seen.append(("leave", call.params["number"]))

    app = make_app(middleware=[Watch()])

    @app.task
    def work(key: Annotated[str, Key], number: int) -> None:
        pass

    events = []
    app.telemetry.subscribe(RunStarted, events.append)
    app.telemetry.subscribe(RunEnded, events.append)
    handles = work.enqueue_many([("a", 1), ("a", 2)])
    assert drain(app) == 0
    assert seen == ["read", ("enter", 1), ("leave", 1), "read", ("enter", 2), ("leave", 2)]
    expected = [(kind, "a", handle.id, 1, 1) for handle in handles for kind in (RunStarted, RunEnded)]
    assert [(type(e), e.key, e.id, e.attempt, e.keys) for e in events] == expected


def test_only_calls_that_succeed_send_what_they_enqueued(app, drain):
    sent = []

    @app.task
    def child(number: int) -> None:
        sent.append(number)

    @app.task(context=True, max_retry_count=0)
    def work(context: Context, key: Annotated[str, Key], number: int) -> None:
        context.enqueue(child, number)
        if number == 2:
            raise ValueError("sends nothing")
        if number == 4:
            context.postpone(3600)

    work.enqueue_many([("a", number) for number in (1, 2, 3, 4, 5)])
    assert drain(app) == 0
    assert sorted(sent) == [1, 3]


def test_a_call_that_cannot_be_read_fails_like_any_other(app, drain):
    ran = []

    @app.task(max_retry_count=0)
    def work(key: Annotated[str, Key], number: int) -> None:
        ran.append(number)

    [first, second, third] = [app.outgoing(work, ("a", number), {}) for number in (1, 2, 3)]
    second.body = second.body.replace('"work"', '"gone"')
    app.broker.enqueue([first, second, third])
    errors = []
    app.telemetry.subscribe(RunEnded, lambda event: errors.append(event.error) if event.error else None)
    assert drain(app) == 0
    assert ran == [1]
    [error] = errors
    assert "There is no task named 'gone'" in error
    [queued] = app.broker.inspect.find("default", "a")
    assert (queued.retry_count, queued.size) == (0, 2), "an unknown task has the usual retries, and blocks its key"


def test_an_empty_body_counts_as_done(app, drain):
    ran = []

    @app.task
    def work(key: Annotated[str, Key], number: int) -> None:
        ran.append(number)

    jobs = [app.outgoing(work, ("a", number), {}) for number in (1, 2, 3)]
    jobs[1].body = ""
    app.broker.enqueue(jobs)
    assert drain(app) == 0
    assert ran == [1, 3]
    assert app.broker.inspect.find("default", "a") == []


def test_max_payloads_bounds_a_claim(app, drain):
    fences = []

    @app.task(context=True, max_payloads=3)
    def work(context: Context, key: Annotated[str, Key]) -> None:
        fences.append(context.fence)

    work.enqueue_many([("a",)] * 7)
    assert drain(app, concurrency=1) == 0
    assert [fences.count(fence) for fence in sorted(set(fences))] == [3, 3, 1]
