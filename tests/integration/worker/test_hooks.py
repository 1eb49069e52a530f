"""Hooks of a worker: `on_start`, `last_words`, and how an app writes the text of an error."""

from __future__ import annotations

from typing import Annotated

import pytest

from laneway import Batch, Key, LanewayError, Worker
from tests.support.worker_fixtures import dead, stats


def test_on_start_is_called_before_anything_runs(make_app, drain):
    seen = []
    app = make_app(on_start=lambda: seen.append("start"))

    @app.task
    def work() -> None:
        seen.append("work")

    work.enqueue()
    assert drain(app) == 0
    assert seen == ["start", "work"]


def test_an_on_start_that_fails_ends_the_start_and_is_told(make_app):
    told = []

    def fail() -> None:
        raise RuntimeError("no database")

    app = make_app(on_start=fail, last_words=told.append)

    @app.task
    def work() -> None: ...

    work.enqueue()
    worker = Worker(app)
    with pytest.raises(RuntimeError, match="no database"):
        worker.start()
    assert [str(error) for error in told] == ["no database"]
    assert app.broker.inspect.workers() == []
    assert worker.stop()


def test_last_words_are_said_when_a_job_ends_the_worker(make_app, drain):
    told = []
    app = make_app(last_words=told.append)

    @app.task
    def work() -> None:
        raise SystemExit(3)

    work.enqueue()
    assert drain(app) == 1
    [error] = told
    assert isinstance(error, SystemExit)


def test_no_last_words_without_an_exception(make_app, drain):
    told = []
    app = make_app(last_words=told.append)

    @app.task(max_retry_count=0)
    def work() -> None:
        raise ValueError("is a failure, not an end")

    work.enqueue()
    assert drain(app) == 0
    assert told == []


def test_an_app_without_tasks_has_last_words_too(make_app):
    told = []
    app = make_app(last_words=told.append)
    with pytest.raises(LanewayError, match="no tasks"):
        Worker(app).start()
    assert len(told) == 1


def test_last_words_that_fail_are_logged(make_app, drain, caplog):
    def fail(error: BaseException) -> None:
        raise ValueError("speechless")

    app = make_app(last_words=fail)

    @app.task
    def work() -> None:
        raise SystemExit(3)

    work.enqueue()
    assert drain(app) == 1
    assert "last_words failed" in caplog.text


def test_an_errors_text_is_the_apps_own(make_app, drain):
    told = []
    app = make_app(
        format_error=lambda error: f"<{error}>",
        dump_error=lambda text: text[::-1],
        load_error=lambda text: text[::-1],
    )

    @app.task(max_retry_count=0, retries_exhausted=lambda jobs: told.extend(job.error for job in jobs))
    def work(key: Annotated[str, Key]) -> None:
        raise ValueError("abc")

    @app.collect(max_retry_count=0)
    def sync(batch: Batch[int]) -> None:
        batch.fail("a", "xyz")

    work.enqueue("a")
    sync.enqueue("a", 1)
    assert drain(app) == 0
    assert [job.error for job in dead(app)] == [">cba<"]
    assert [job.error for job in dead(app, "sync")] == ["zyx"], "words are not formatted, but dumped"
    assert told == ["<abc>"]


@pytest.mark.parametrize("hook", ["format_error", "dump_error", "load_error"])
@pytest.mark.parametrize("how", ["raises", "exits", "returns no text"])
def test_a_broken_error_hook_harms_nothing(make_app, drain, caplog, hook, how):
    def broken(given):
        if how == "raises":
            raise KeyError("hook")
        if how == "exits":
            raise SystemExit(3)
        return 17

    told = []
    app = make_app(**{hook: broken})

    @app.task(max_retry_count=0, retries_exhausted=lambda jobs: told.extend(job.error for job in jobs))
    def work() -> None:
        raise ValueError("abc")

    work.enqueue()
    assert drain(app) == 0
    [job] = dead(app)
    assert job.error.startswith("ValueError: abc")
    assert told == [job.error]
    assert "failed; the error is" in caplog.text
    assert stats(app).dead == 1


def test_the_jobs_of_a_turn_are_told_together_and_each_task_of_its_own(app, drain):
    told = []

    @app.task(max_retry_count=0, retries_exhausted=lambda jobs: told.extend(("one", job.key, job.size) for job in jobs))
    def one(key: Annotated[str, Key]) -> None:
        raise ValueError

    @app.task(max_retry_count=0, retries_exhausted=lambda jobs: told.extend(("two", job.key, job.size) for job in jobs))
    def two(key: Annotated[str, Key]) -> None:
        raise ValueError

    one.enqueue("a")
    two.enqueue("a")
    one.enqueue("b")
    assert drain(app) == 0
    assert sorted(told) == [("one", "a", 1), ("one", "b", 1), ("two", "a", 1)]
