"""The log: which lines are in it, and when they are written."""

from __future__ import annotations

import io
import logging
import queue
import re

import pytest

from laneway.logs import Format, event_log, handler
from laneway.telemetry import BrokerAway
from tests.support.worker_fixtures import PATIENCE_S


class Terminal(io.StringIO):
    """What rich takes for a terminal."""

    def isatty(self) -> bool:
        return True


class Log:
    """What a worker's log says while a test is inside."""

    def __init__(self, app, format: Format = "plain", *, process: str | None = None, terminal: bool = False) -> None:
        self.stream = Terminal() if terminal else io.StringIO()
        self._logger = app.logger
        self._handler = handler(format, self.stream, process=process)

    def __enter__(self) -> Log:
        self._logger.addHandler(self._handler)
        self._level = self._logger.level
        self._logger.setLevel(logging.INFO)
        return self

    def __exit__(self, *exc: object) -> None:
        self._logger.removeHandler(self._handler)
        self._logger.setLevel(self._level)

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
    with Log(app) as log:
        fine = good.enqueue("canary")
        resting = rests.enqueue()
        drain(app, verbose=True)
    assert re.search(rf"default/good {fine.id} done in [\d.]+ ms", log.text)
    assert f"default/rests {resting.id} postponed for 2.0 h" in log.text
    assert "canary" not in log.text


def test_slow_jobs_are_there_by_default(noisy, drain):
    app, good, _, _ = noisy
    with Log(app) as log:
        handle = good.enqueue("canary")
        drain(app, slow_s=0.0)
    assert f"default/good {handle.id} done, slow: took" in log.text


def test_start_and_stop_are_there(noisy, drain):
    app, *_ = noisy
    with Log(app) as log:
        drain(app, concurrency=3)
    assert re.search(r"worker \w{32} started: 3 tasks and listeners, queues default, 3 jobs at once", log.text)
    assert "stopped (0 done, 0 failed)" in log.text


def test_the_apps_own_logger_writes_into_the_same_log(noisy):
    app, *_ = noisy
    with Log(app) as log:
        app.logger.warning("the disk is %d %% full", 90)
    assert re.search(r"\d\d:\d\d:\d\d\.\d{3} WARNING the disk is 90 % full\n", log.text)


def test_every_line_has_a_time_and_a_level(noisy, drain):
    app, good, bad, _ = noisy
    with Log(app) as log:
        good.enqueue("x")
        bad.enqueue("x")
        drain(app, verbose=True)
    assert all(re.match(r"\d\d:\d\d:\d\d\.\d{3} [A-Z]+ +\S", line) for line in log.text.splitlines())


def test_a_line_says_what_was_true_when_it_was_logged(app):
    state = {"step": 1}
    with Log(app) as log:
        app.logger.info("now %s", state)
        state["step"] = 2
    assert "now {'step': 1}" in log.text


def test_a_bad_log_call_of_a_job_silences_nothing(app, drain, monkeypatch):
    monkeypatch.setattr(logging, "raiseExceptions", False)

    @app.task(context=True, max_retry_count=0)
    def careless(context) -> None:
        context.logger.info("%d", "x")
        raise ValueError("boom")

    with Log(app) as log:
        handle = careless.enqueue()
        drain(app)
    assert f"default/careless {handle.id} buried" in log.text
    assert "stopped" in log.text


def test_whoever_has_set_up_logging_gets_the_lines_too(noisy, drain, caplog):
    app, _, bad, _ = noisy
    with caplog.at_level(logging.INFO, "laneway"):
        broken = bad.enqueue("canary")
        drain(app)
    assert f"default/bad {broken.id} buried after attempt 2: ValueError: boom" in caplog.messages
    assert any(message.startswith("worker ") for message in caplog.messages)
    assert "canary" not in caplog.text


def test_an_app_with_a_logger_of_its_own_writes_there(make_app, drain):
    logger = logging.Logger("mine")
    app = make_app(logger=logger)

    @app.task(max_retry_count=0)
    def bad() -> None:
        raise ValueError("boom")

    with Log(app) as log:
        bad.enqueue()
        drain(app)
    assert "ValueError: boom" in log.text


def test_a_handler_that_raises_does_not_silence_the_log(app, drain, capsys):
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("the log server is away")

    @app.task(max_retry_count=1, retry_in=lambda n: 0.3)
    def bad() -> None:
        raise ValueError("boom")

    broken = Broken()
    with Log(app) as log:
        app.logger.addHandler(broken)
        handle = bad.enqueue()
        drain(app)
        app.logger.removeHandler(broken)
        app.broker.reschedule("default", handle.id)
        drain(app)
    assert "the log server is away" in capsys.readouterr().err
    assert f"{handle.id} buried" in log.text


def test_many_lines_do_not_wait_for_more(app, monkeypatch):
    """What waits to be written of a failure is the error itself, and all that its run has used."""
    monkeypatch.setattr(event_log, "FLUSH_S", 3600.0)
    written = queue.SimpleQueue()
    noting = logging.Handler()
    noting.emit = written.put
    app.logger.addHandler(noting)
    log = event_log.EventLog(app)
    log.start()
    try:
        for _ in range(event_log.FLUSH_COUNT):
            app.telemetry.emit(BrokerAway("gone"))
        for _ in range(event_log.FLUSH_COUNT):
            written.get(timeout=PATIENCE_S)
    finally:
        log.stop()
        app.logger.removeHandler(noting)
