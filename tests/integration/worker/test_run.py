"""What a run receives: its arguments, its context, and the call that a serializer reads from a body."""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
import types
from dataclasses import dataclass

import pytest

from laneway import ConfigError, Context, Serializer
from laneway.telemetry import RunEnded, RunStarted
from tests.support.scenarios import a_ticket_waits_for_its_time
from tests.support.worker_fixtures import dead, stats


def test_a_function_gets_its_arguments(app, drain):
    seen = []

    @app.task
    def resize(path: str, width: int = 100) -> None:
        seen.append((path, width))

    resize.enqueue("a.png", width=200)
    resize.enqueue("b.png")
    assert drain(app) == 0
    assert sorted(seen) == [("a.png", 200), ("b.png", 100)]
    assert stats(app).processed == 2
    assert stats(app).length == 0


def test_an_async_function_is_awaited(app, drain):
    seen = []

    @app.task
    async def ping(number: int) -> None:
        await asyncio.sleep(0)
        seen.append(number)

    ping.enqueue_many([(number,) for number in range(20)])
    assert drain(app) == 0
    assert sorted(seen) == list(range(20))


def test_a_class_is_built_and_its_run_called(app, drain):
    seen = []

    @app.task(queue="mail")
    @dataclass
    class SendMail:
        to: str
        body: str

        def run(self, context: Context) -> None:
            seen.append((self.to, self.body, context.queue, context.task))

    @app.task
    class Tidy:
        async def run(self) -> None:
            seen.append("tidied")

    app.enqueue(SendMail(to="a@example.org", body="hi"))
    app.enqueue(Tidy())
    assert drain(app) == 0
    assert set(seen) == {("a@example.org", "hi", "mail", "SendMail"), "tidied"}


def test_the_context_knows_the_job(app, drain):
    seen = []

    @app.task(context=True, retry_in=lambda n: 0)
    def look(context: Context, number: int) -> None:
        seen.append((context.id, context.attempt, context.retry_count, context.queue, context.fence))
        if context.attempt < 3:
            raise ValueError("again")

    handle = look.enqueue(7)
    assert drain(app) == 0
    assert [entry[:4] for entry in seen] == [
        (handle.id, 1, -1, "default"),
        (handle.id, 2, 0, "default"),
        (handle.id, 3, 1, "default"),
    ]
    fences = [entry[4] for entry in seen]
    assert fences == sorted(set(fences)), "the fence grows with every claim"


def test_every_line_of_the_context_logger_names_the_job(app, drain, caplog):
    @app.task(context=True)
    def speak(context: Context) -> None:
        context.logger.info("half way through %d", 2)

    handle = speak.enqueue()
    with caplog.at_level(logging.INFO, "laneway"):
        drain(app)
    assert f"[speak {handle.id}] half way through 2" in caplog.messages


def test_an_empty_body_is_deleted(app, drain):
    @app.task
    def something() -> None: ...

    handle = app.enqueue_body("")
    drain(app)
    assert handle.status() == "gone"


def test_a_serializer_reads_what_others_have_written(make_app, drain):
    seen = []

    class S3Serializer(Serializer):
        def loads(self, body: str):
            if "s3:TestEvent" in body:
                return None
            if body.startswith('{"Records"'):
                return handle_upload.call(count=body.count('"s3"'))
            if body == "sweep":
                return Sweep()
            return super().loads(body)

    app = make_app(serializer=S3Serializer)

    @app.task
    def handle_upload(count: int) -> None:
        seen.append(count)

    @app.task
    class Sweep:
        def run(self) -> None:
            seen.append("swept")

    test_event = app.enqueue_body('{"Service":"Amazon S3","Event":"s3:TestEvent"}')
    app.enqueue_body('{"Records":[{"s3":{}},{"s3":{}}]}')
    app.enqueue_body("sweep")
    handle_upload.enqueue(5)
    drain(app)
    assert sorted(map(str, seen)) == ["2", "5", "swept"]
    assert test_event.status() == "gone"


def test_events_say_what_happened_without_arguments(app, drain):
    events = []
    for kind in (RunStarted, RunEnded):
        app.telemetry.subscribe(kind, events.append)

    @app.task(max_retry_count=0)
    def bad(secret: str) -> None:
        raise ValueError("boom")

    bad.enqueue("canary")
    drain(app)
    started, ended = events
    assert (started.task, started.attempt) == ("bad", 1)
    assert (ended.verdict, ended.error) == ("bury", "ValueError: boom")
    assert "canary" not in repr(started) + str(ended.error)


def test_imports_are_loaded_before_fetching(make_app, drain, tmp_path, monkeypatch):
    (tmp_path / "declared_elsewhere.py").write_text("import shop\nshop.app.task(shop.late)\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    shop = types.ModuleType("shop")
    shop.app = make_app(imports=["declared_elsewhere"])

    def late(number: int) -> None:
        seen.append(number)

    shop.late = late
    monkeypatch.setitem(sys.modules, "shop", shop)
    monkeypatch.delitem(sys.modules, "declared_elsewhere", raising=False)
    shop.app.enqueue_body('{"_job_class":"late","_job_params":{"number":3}}')
    assert drain(shop.app) == 0
    assert seen == [3]


def test_an_app_without_tasks_is_an_error(app, drain):
    with pytest.raises(ConfigError, match="has no tasks"):
        drain(app)


def test_a_decorator_that_hides_that_a_task_is_async_changes_nothing(app, drain):
    seen = []

    def logged(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs)

        return wrapper

    @app.task(max_retry_count=0)
    @logged
    async def ping(number: int) -> None:
        await asyncio.sleep(0)
        seen.append(number)
        if number == 2:
            raise ValueError("boom")

    ping.enqueue(1)
    ping.enqueue(2)
    drain(app)
    assert sorted(seen) == [1, 2]
    assert len(dead(app)) == 1


def test_a_ticket_of_the_ruby_original_waits_for_its_time(app):
    a_ticket_waits_for_its_time(app)
