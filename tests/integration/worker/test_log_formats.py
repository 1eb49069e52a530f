"""The three log formats: what each one shows, and what none of them shows."""

from __future__ import annotations

import json
import logging
import os
import re
from datetime import datetime

import pytest

from laneway import Batch, Context
from laneway.logs import FORMATS
from laneway.telemetry import BrokerAway
from tests.integration.worker.test_logs import Log

SECRET = "canary-4711"
#: What a remote server may say: it clears the screen, forges a line, and ends lines in every way there is.
NASTY = "boom\x1b[2J\x07\x9b31m\x85\u2028\x00 12:00:00.000 ERROR   forged\r\n12:00:00.000 ERROR   forged \ud800"
STAMP = re.compile(r"\d\d:\d\d:\d\d\.\d{3} [A-Z]+ ")


@pytest.fixture
def failing(app):
    @app.task(max_retry_count=0)
    def bad(secret: str) -> None:
        local = secret * 2
        raise ValueError("boom") from OSError(len(local))

    return app, bad


def documents(log: Log) -> list[dict]:
    return [json.loads(line) for line in log.text.splitlines()]


def test_json_is_a_document_a_line_with_the_fields_of_the_event(failing, drain):
    app, bad = failing
    with Log(app, "json") as log:
        handle = bad.enqueue(SECRET)
        drain(app)
    (found,) = [each for each in documents(log) if each.get("event") == "RunEnded"]
    assert found["time"].endswith("Z")
    assert datetime.fromisoformat(found["time"]).utcoffset().total_seconds() == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found["time"])
    assert (found["level"], found["logger"], found["pid"]) == ("ERROR", "laneway", os.getpid())
    assert found["message"] == f"default/bad {handle.id} buried after attempt 1: ValueError: boom"
    assert (found["queue"], found["task"], found["key"]) == ("default", "bad", handle.id)
    assert (found["attempt"], found["verdict"], found["error"]) == (1, "bury", "ValueError: boom")
    assert found["duration_s"] >= 0
    assert "process" not in found
    assert "exception" not in found
    assert "ValueError: boom" in found["traceback"]
    assert "local = secret * 2" not in found["traceback"]
    assert "raise ValueError" in found["traceback"]
    assert "runner.py" not in found["traceback"]  # it begins in the user's code


def test_json_has_what_records_were_given(app, drain):
    @app.task(context=True)
    def work(context: Context) -> None:
        context.logger.warning("look: %d", 7, extra={"tenant": "acme", "when": datetime(2030, 1, 1), "time": "mine"})

    class Wordless:
        def __str__(self) -> str:
            raise RuntimeError

    cycle: list = [1.5, float("nan")]
    cycle.append(cycle)
    with Log(app, "json") as log:
        handle = work.enqueue()
        drain(app)
        app.logger.error("odd", extra={"odd": {("a", 1): cycle, "b": {2}}, "wordless": Wordless()})
        try:
            raise KeyError("there")
        except KeyError:
            app.logger.exception("caught")
    found = {each["message"]: each for each in documents(log)}
    line = found[f"[work {handle.id}] look: 7"]
    assert (line["task"], line["job"], line["tenant"]) == ("work", handle.id, "acme")
    assert (line["when"], line["extra_time"]) == ("2030-01-01 00:00:00", "mine")
    assert found["odd"]["odd"]["('a', 1)"][:2] == [1.5, "nan"]
    assert "cannot be shown" in found["odd"]["wordless"]
    assert found["caught"]["traceback"].startswith("Traceback")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("terminal", [False, True])
def test_nothing_that_a_remote_error_says_breaks_a_line(make_app, drain, format, terminal):
    app = make_app()

    @app.task(max_retry_count=0)
    def bad(secret: str) -> None:
        raise ValueError(NASTY)

    @app.collect(max_retry_count=0)
    def gather(batch: Batch[str]) -> None:
        raise ValueError("no")

    with Log(app, format, terminal=terminal) as log:
        bad.enqueue(SECRET)
        gather.enqueue("key\nof two lines\x1b[2J", SECRET)
        drain(app)
        log_events(app, BrokerAway(NASTY))
        app.logger.warning("from elsewhere: %s", NASTY.replace("\ud800", ""))
        app.logger.warning("with a traceback", exc_info=ValueError(NASTY))
    text = re.sub(r"\x1b\[[\d;]*m", "", log.text) if format == "rich" and terminal else log.text
    assert "forged" in text
    assert SECRET not in text
    assert not set(text) & set("\x1b\x07\x9b\x85\u2028\x00\r\ud800")
    forged = [line for line in text.split("\n") if STAMP.match(line) and "forged" in line]
    assert all(not line.startswith("12:00:00.000") for line in forged)
    if format == "json":
        assert all(json.loads(line) for line in text.rstrip("\n").split("\n"))


def log_events(app, *events) -> None:
    from laneway.logs import EventLog

    log = EventLog(app)
    log.start()
    for event in events:
        app.telemetry.emit(event)
    log.stop()


@pytest.mark.parametrize("format", FORMATS)
def test_no_format_shows_an_argument_or_a_local_variable(failing, drain, format):
    app, bad = failing
    with Log(app, format, terminal=True) as log:
        handle = bad.enqueue(SECRET)
        drain(app, verbose=True)
    assert handle.id in log.text
    assert SECRET not in log.text


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("raised", [RuntimeError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_error_that_raises_when_it_is_shown_silences_nothing(app, drain, monkeypatch, format, raised):
    monkeypatch.setattr(app.logger, "propagate", False)  # the handlers of pytest are not ours

    class Unprintable(Exception):
        def __str__(self) -> str:
            raise raised

        __repr__ = __str__

    class Unlisted:
        def __dir__(self) -> list[str]:  # Python asks for names like the one that is missing
            raise raised

    @app.task(max_retry_count=0)
    def bad() -> None:
        raise Unprintable from Unprintable()

    @app.task(max_retry_count=0)
    def misses() -> None:
        vars(Unlisted().name)  # type: ignore[attr-defined]

    with Log(app, format) as log:
        handles = [bad.enqueue(), misses.enqueue()]
        assert drain(app) == 0
        app.logger.error("it says %s and %r", Unprintable(), Unprintable())
        app.logger.error(Unprintable())
        app.logger.error("odd", exc_info=Unprintable(), extra={"odd": Unprintable()})
        app.logger.error("still here")
    assert all(f"{handle.id} buried" in log.text for handle in handles)
    assert log.text.count("cannot be shown") >= 3
    assert "odd" in log.text
    assert "still here" in log.text


@pytest.mark.parametrize("format", FORMATS)
def test_of_a_field_2000_characters_at_most_reach_a_line(app, drain, monkeypatch, format):
    monkeypatch.setattr(app.logger, "propagate", False)  # the handlers of pytest are not ours
    own, records = logging.Handler(), list[logging.LogRecord]()
    monkeypatch.setattr(own, "emit", records.append)
    monkeypatch.setattr(app.logger, "handlers", [own])
    long, name = "B" * 3_000_000, "N" * 100_000

    @app.task(max_retry_count=0)
    def bad() -> None:
        error = ValueError(long)
        error.add_note(long)
        raise error from ExceptionGroup(long, [KeyError(long)])

    @app.task(context=True)
    def says(context: Context) -> None:
        context.logger.warning("it says %s", long)
        context.logger.warning("\x00" * 2_000)

    with Log(app, format) as log:
        handles = [bad.enqueue(), app.enqueue_body(f'{{"_job_class":"{name}","_job_params":null}}'), says.enqueue()]
        drain(app)
        app.logger.error("odd", extra={"odd": long, "many": [long] * 5, "names": ["n"] * 5_000, "more": {long: long}})
        app.logger.error("%d", long)
        try:
            raise OSError(long)
        except OSError:
            app.logger.exception("caught")
    assert all(handle.id in log.text for handle in handles)
    assert "… (3,000," in log.text
    assert "There is no task named 'NNN" in log.text
    assert len(log.text) < 120_000
    if format == "json":
        for found in documents(log):
            assert len(found.pop("traceback", "")) <= 16_000
            texts = [each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in found.values()]
            assert max(map(len, texts)) <= 2_000
        assert found["message"] == "caught"
    else:
        assert max(map(len, log.text.splitlines())) < 2_100
    told = [record for record in records if hasattr(record, "event")]
    assert max(len(record.getMessage()) for record in told) <= 2_000
    assert max(len(getattr(record, "error", None) or "") for record in told) == 2_000
    assert log.text.count("raise OSError(long)") == 1, "frames are shown, however long the text is"
    assert log.text.count("raise error from ExceptionGroup(") == (format != "plain")


def test_of_a_long_traceback_the_end_is_shown(app):
    def deeper(left: int) -> None:
        deepest(left - 1) if left else 1 / 0

    def deepest(left: int) -> None:
        deeper(left)

    with Log(app, "json") as log:
        try:
            deeper(300)
        except ZeroDivisionError:
            app.logger.exception("caught")
    (found,) = documents(log)
    assert len(found["traceback"]) <= 16_000
    assert found["traceback"].endswith("ZeroDivisionError: division by zero")
    assert found["traceback"].startswith("… (")


def test_a_number_and_the_name_of_a_logger_are_cut_in_json(app):
    with Log(app, "json") as log:
        app.logger.getChild("x" * 5_000).error("long", extra={"number": 10**3_000, "small": 10**300})
    document = json.loads(log.text)
    assert (len(document["logger"]), len(document["number"]), document["small"]) == (2_000, 2_000, 10**300)


def test_rich_shows_the_traceback_in_colour(failing, drain):
    app, bad = failing
    with Log(app, "rich", terminal=True) as log:
        bad.enqueue(SECRET)
        drain(app)
    assert "\x1b[" in log.text
    text = re.sub(r"\x1b\[[\d;]*m", "", log.text)
    assert "raise ValueError" in text
    assert "test_log_formats.py" in text
    assert "runner.py" not in text


def test_rich_without_a_terminal_has_no_colours(failing, drain):
    app, bad = failing
    with Log(app, "rich") as log:
        bad.enqueue(SECRET)
        drain(app)
    assert "raise ValueError" in log.text
    assert "\x1b" not in log.text


def test_rich_leaves_a_record_as_others_need_it(app, caplog):
    with Log(app, "rich") as log:
        try:
            raise KeyError("there")
        except KeyError:
            app.logger.exception("caught")
    assert "KeyError" in log.text
    assert caplog.records[-1].exc_info is not None


def test_plain_has_one_line_for_a_failure(failing, drain):
    app, bad = failing
    with Log(app) as log:
        bad.enqueue(SECRET)
        drain(app)
    assert all(STAMP.match(line) for line in log.text.splitlines())
    assert "Traceback" not in log.text


@pytest.mark.parametrize("format", FORMATS)
def test_every_line_says_which_process_it_is_from(app, format):
    with Log(app, format, process="2") as log:
        app.logger.info("hello")
    if format == "json":
        (found,) = documents(log)
        assert found["process"] == "2"
    else:
        assert "[2] hello" in log.text


def test_handlers_of_ones_own_get_the_fields_of_events(failing, drain, caplog):
    app, bad = failing
    with caplog.at_level(logging.INFO, "laneway"):
        handle = bad.enqueue(SECRET)
        drain(app)
    (record,) = [each for each in caplog.records if getattr(each, "event", "") == "RunEnded"]
    assert (record.queue, record.task, record.key, record.verdict) == ("default", "bad", handle.id, "bury")
    assert record.exc_info is None  # a line, as ever, unless the handler wants more
