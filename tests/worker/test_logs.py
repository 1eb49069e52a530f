"""The log: what is in it, what is not, and when it is written."""

from __future__ import annotations

import io
import re

import pytest

from laneway.logs import LogWriter


class Log:
    def __init__(self, app, **options) -> None:
        self.stream = io.StringIO()
        self._writer = LogWriter(app, stream=self.stream, **options)

    def __enter__(self) -> Log:
        self._writer.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._writer.stop()

    @property
    def text(self) -> str:
        return self.stream.getvalue()


@pytest.fixture
def noisy(app):
    @app.task
    def good(secret: str) -> None: ...

    @app.task(max_retry_count=1, retry_in=lambda n: 0)
    def bad(secret: str) -> None:
        raise ValueError("boom")

    @app.task(context=True)
    def rests(context) -> None:
        context.postpone(7200)

    return app, good, bad, rests


def test_failures_are_there_by_default_and_successes_are_not(noisy, drain):
    app, good, bad, _ = noisy
    with Log(app) as log:
        fine = good.enqueue("canary")
        broken = bad.enqueue("canary")
        drain(app)
    assert f"default/bad {broken.id} failed in attempt 1, again in 0.0 ms: ValueError: boom" in log.text
    assert f"default/bad {broken.id} buried after attempt 2: ValueError: boom" in log.text
    assert fine.id not in log.text
    assert "canary" not in log.text


def test_verbose_shows_every_job_without_its_arguments(noisy, drain):
    app, good, _, rests = noisy
    with Log(app, verbose=True) as log:
        fine = good.enqueue("canary")
        resting = rests.enqueue()
        drain(app)
    assert re.search(rf"default/good {fine.id} done in [\d.]+ ms", log.text)
    assert f"default/rests {resting.id} postponed for 2.0 h" in log.text
    assert "canary" not in log.text


def test_slow_jobs_are_there_by_default(noisy, drain):
    app, good, _, _ = noisy
    with Log(app, slow_s=0.0) as log:
        handle = good.enqueue("canary")
        drain(app)
    assert f"default/good {handle.id} done, slow: took" in log.text


def test_start_and_stop_are_there(noisy, drain):
    app, *_ = noisy
    with Log(app) as log:
        drain(app, concurrency=3)
    assert re.search(r"worker \w{32} started: 3 tasks, queues default, 3 jobs at once", log.text)
    assert "stopped (0 done, 0 failed)" in log.text


def test_the_apps_own_logger_writes_into_the_same_log(noisy, drain):
    app, *_ = noisy
    with Log(app) as log:
        app.logger.warning("the disk is %d %% full", 90)
    assert re.search(r"\d\d:\d\d:\d\d\.\d{3} WARNING the disk is 90 % full\n", log.text)


def test_every_line_has_a_time_and_a_level(noisy, drain):
    app, good, bad, _ = noisy
    with Log(app, verbose=True) as log:
        good.enqueue("x")
        bad.enqueue("x")
        drain(app)
    assert all(re.match(r"\d\d:\d\d:\d\d\.\d{3} [A-Z]+ +\S", line) for line in log.text.splitlines())


def test_rich_style_is_coloured_and_plain_is_not(noisy, drain):
    app, *_ = noisy
    with Log(app, style="rich") as rich:
        drain(app)
    with Log(app) as plain:
        drain(app)
    assert "\x1b[" in rich.text
    assert "\x1b[" not in plain.text


def test_an_error_cannot_move_the_cursor_of_the_terminal(app, drain):
    @app.task(max_retry_count=0)
    def bad() -> None:
        raise ValueError("boom\x1b[2J\x07")

    with Log(app) as log:
        bad.enqueue()
        drain(app)
    assert "ValueError: boom\\x1b[2J\\x07" in log.text
    assert "\x1b" not in log.text
