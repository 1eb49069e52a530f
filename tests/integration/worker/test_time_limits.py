"""Time limits: async tasks are cancelled, sync tasks are ended with their process."""

from __future__ import annotations

import asyncio
import time

import pytest

from laneway import Batch, Context, Middleware, TimeLimitError
from laneway.telemetry import RunEnded
from tests.integration.worker.isolated_app import is_there, isolated_app, wait_for
from tests.integration.worker.isolated_tasks import noted, quick, too_long, too_long_async
from tests.support.worker_fixtures import dead

UP = "TimeLimitError: Its time is up: the task's time_limit is {} s."


@pytest.fixture
def apart(tmp_path, monkeypatch):
    with isolated_app(tmp_path, monkeypatch) as app:
        yield app


# -- async ---------------------------------------------------------------------------------------------


def test_an_async_task_is_cancelled_when_its_time_is_up(app, drain):
    seen = []

    @app.task(time_limit=0.05, max_retry_count=0)
    async def nap() -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    nap.enqueue()
    assert drain(app) == 0
    assert seen == ["cancelled"]
    [job] = dead(app)
    assert job.error.splitlines()[0] == UP.format("0.05")


def test_it_is_retried_like_any_failure_and_everyone_sees_why(make_app, drain):
    seen = []

    class Watching(Middleware):
        def around_execution(self, call, context):
            try:
                yield
            except TimeLimitError as error:
                seen.append(("middleware", error.limit_s))
                raise

    app = make_app(
        middleware=[Watching()], error_handlers=[lambda error, context: seen.append(("handler", type(error).__name__))]
    )
    app.telemetry.subscribe(RunEnded, lambda event: seen.append((event.verdict, event.error)))

    @app.task(time_limit=0.05, max_retry_count=1)
    async def nap() -> None:
        await asyncio.sleep(600)

    handle = nap.enqueue()
    assert drain(app) == 0
    assert seen == [("middleware", 0.05), ("handler", "TimeLimitError"), ("retry", UP.format("0.05"))]
    [job] = app.broker.inspect.find("default", handle.id)
    assert (job.status, job.retry_count) == ("delayed", 0)


@pytest.mark.parametrize("how", ["swallows", "blocks", "raises"])
def test_a_handler_cannot_talk_its_way_out(app, drain, how):
    ran = []

    @app.task(time_limit=0.05, max_retry_count=0, context=True)
    async def nap(context: Context) -> None:
        context.enqueue(child)
        if how == "blocks":
            time.sleep(0.1)
            return
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            if how == "raises":
                raise KeyError("something else") from None

    @app.task
    def child() -> None:
        ran.append(1)

    nap.enqueue()
    assert drain(app) == 0
    [job] = dead(app)
    assert job.error.startswith(UP.format("0.05"))
    assert ran == []
    if how == "raises":
        assert "caused by KeyError" in job.error


@pytest.mark.parametrize("error", [TimeoutError, asyncio.CancelledError, ValueError])
def test_what_a_handler_raises_in_time_is_its_own(app, drain, error):
    @app.task(time_limit=600, max_retry_count=0)
    async def nap() -> None:
        raise error

    nap.enqueue()
    assert drain(app) == 0
    [job] = dead(app)
    assert job.error.splitlines()[0] == error.__name__


def test_a_run_that_is_in_time_is_done(app, drain):
    ran = []

    @app.task(time_limit=600)
    async def nap(number: int) -> None:
        await asyncio.sleep(0)
        ran.append(number)

    nap.enqueue_many([(number,) for number in range(20)])
    assert drain(app) == 0
    assert sorted(ran) == list(range(20))


def test_each_call_of_a_key_has_its_own_time(app, drain):
    ran = []

    @app.task(time_limit=5)
    async def nap(number: int) -> None:
        await asyncio.sleep(0)
        ran.append((number, asyncio.current_task()))

    nap.using(key="a").enqueue_many([(number,) for number in range(5)])
    assert drain(app) == 0
    assert [number for number, _ in ran] == list(range(5))


def test_an_async_collecting_task_may_have_one(app, drain):
    @app.collect(time_limit=0.05, max_retry_count=0)
    async def gather(batch: Batch[int]) -> None:
        await asyncio.sleep(600)

    gather.enqueue("a", 1)
    assert drain(app) == 0
    [job] = dead(app, "gather")
    assert job.error.startswith(UP.format("0.05"))


# -- sync ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["spins", "sleeps", "starts another", "starts one in a group of its own"])
def test_a_sync_task_is_ended_with_its_process_and_all_that_it_has_started(apart, drain, how, monkeypatch):
    monkeypatch.setenv("LANEWAY_TEST_SEES", "1")
    ends = []
    listen = ends.append
    apart.telemetry.subscribe(RunEnded, listen)
    too_long.enqueue(how)
    assert drain(apart) == 0
    apart.telemetry.unsubscribe(RunEnded, listen)
    [job] = dead(apart)
    assert job.error == UP.format("0.5")
    assert (job.attempt, job.deaths) == (1, 0), "it is a failure, and not a death"
    pids = [int(line.split()[1]) for line in noted() if line.startswith(("began", "child"))]
    assert len(pids) == (2 if how.startswith("starts") else 1)
    wait_for(lambda: not any(map(is_there, pids)))
    [event] = ends
    assert (event.verdict, event.error) == ("bury", UP.format("0.5"))
    assert isinstance(event.exception, TimeLimitError)
    assert [line.split()[:4] for line in noted() if "saw" in line] == [["handler", "saw", "TimeLimitError", "too_long"]]


def test_a_sync_task_that_is_in_time_is_done(apart, drain):
    quick.enqueue_many([()] * 3)
    assert drain(apart) == 0
    assert len(noted()) == 3


@pytest.mark.parametrize("how", ["waits", "blocks"])
def test_an_isolated_async_task_is_cancelled_and_one_that_does_not_let_go_is_ended(apart, drain, how):
    too_long_async.enqueue(how)
    assert drain(apart) == 0
    [job] = dead(apart)
    assert job.error.splitlines()[0] == UP.format("0.2")
    assert ("cancelled" in noted()) is (how == "waits")
