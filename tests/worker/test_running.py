"""What a run gets, and what becomes of a job by how its run ended."""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
import types
from dataclasses import dataclass

import pytest

from laneway import Bury, Context, JobView, Laneway, Retry, Serializer
from laneway.telemetry import RunEnded, RunStarted


def stats(app: Laneway, queue: str = "default"):
    return next(each for each in app.broker.stats() if each.queue == queue)


def dead(app: Laneway, queue: str = "default") -> list[JobView]:
    return app.broker.listing(queue, "dead").jobs


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


def test_a_failure_is_retried_until_the_morgue(app, drain):
    runs = []

    @app.task(max_retry_count=2, retry_in=lambda n: runs.append(f"retry {n}") or 0)
    def bad() -> None:
        runs.append("run")
        raise ValueError("boom")

    handle = bad.enqueue()
    drain(app)
    assert runs == ["run", "retry 0", "run", "retry 1", "run"]
    assert handle.status() == "dead"
    [job] = dead(app)
    assert job.error is not None
    assert job.error.startswith("ValueError: boom\n")
    assert "test_running.py" in job.error
    assert (stats(app).failed, stats(app).dead) == (3, 1)


def test_max_retry_count_0_is_one_run(app, drain):
    runs = []

    @app.task(max_retry_count=0)
    def bad() -> None:
        runs.append(1)
        raise ValueError

    bad.enqueue()
    drain(app)
    assert runs == [1]
    assert len(dead(app)) == 1


def test_a_revived_job_has_all_its_retries_again(app, drain):
    runs = []

    @app.task(max_retry_count=1, retry_in=lambda n: 0)
    def bad() -> None:
        runs.append(1)
        raise ValueError

    handle = bad.enqueue()
    drain(app)
    assert app.broker.revive("default", [handle.id]) == 1
    assert handle.status() == "queued"
    drain(app)
    assert len(runs) == 4


def test_retry_says_when(app, drain):
    @app.task
    def later() -> None:
        raise Retry(after=3600)

    handle = later.enqueue()
    drain(app)
    [job] = app.broker.find("default", handle.id)
    assert (job.status, job.retry_count) == ("delayed", 0)
    assert job.error is not None


def test_bury_goes_straight_to_the_morgue(app, drain):
    @app.task
    def never() -> None:
        raise Bury("the order does not exist")

    never.enqueue()
    drain(app)
    assert dead(app)[0].error.startswith("Bury: the order does not exist")


def test_named_exceptions_are_never_retried(app, drain):
    @app.task(bury_on=[LookupError])
    def find() -> None:
        raise KeyError("nobody")

    find.enqueue()
    drain(app)
    assert len(dead(app)) == 1


@pytest.mark.parametrize("then_raises", [False, True])
def test_postponing_counts_no_failure_and_sends_nothing(make_app, drain, then_raises):
    errors = []
    app = make_app(error_handlers=[lambda error, context: errors.append(str(error))])

    @app.task(context=True)
    def wait(context: Context) -> None:
        context.enqueue(wait)
        context.postpone(3600)
        if then_raises:
            raise ValueError("too early")

    handle = wait.enqueue()
    drain(app)
    [job] = app.broker.find("default", handle.id)
    assert (job.status, job.retry_count, job.error) == ("delayed", -1, None)
    assert stats(app).length == 1
    assert errors == (["too early"] if then_raises else [])


def test_postponing_by_0_is_a_postponement(app, drain):
    runs = []

    @app.task(context=True)
    def twice(context: Context) -> None:
        runs.append(context.retry_count)
        if len(runs) == 1:
            context.postpone(0)

    twice.enqueue()
    drain(app)
    assert runs == [-1, -1]


def test_a_cancelled_error_in_a_handler_is_a_failure(app, drain):
    @app.task(max_retry_count=0)
    async def cancelled() -> None:
        raise asyncio.CancelledError

    @app.task(max_retry_count=0)
    def cancelled_in_a_thread() -> None:
        raise asyncio.CancelledError

    cancelled.enqueue()
    cancelled_in_a_thread.enqueue()
    assert drain(app) == 0
    assert len(dead(app)) == 2


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("no json", "TicketError: The body is not a ticket"),
        ('{"_job_class":"os.system","_job_params":{"command":"true"}}', "There is no task named 'os.system'"),
        ('{"_job_class":"add","_job_params":{"a":"x"}}', "The params do not fit the task add"),
        ('{"_job_class":"add","_job_params":{"a":1,"b":2}}', "The params do not fit the task add"),
        ("[1,2]", "The body is not a ticket"),
    ],
)
def test_what_cannot_be_run_fails_like_any_other_job(app, drain, body, sentence):
    ran = []

    @app.task
    def add(a: int) -> None:
        ran.append(a)

    handle = app.enqueue_body(body)
    add.enqueue(1)
    assert drain(app) == 0
    assert ran == [1], "the worker lives"
    [job] = app.broker.find("default", handle.id)
    assert (job.status, job.retry_count) == ("delayed", 0)
    assert sentence in job.error


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


def test_exhausted_retries_are_told_after_they_are_settled(app, drain):
    told = []

    @app.task(max_retry_count=0, retries_exhausted=lambda jobs: told.append((jobs, handle.status())))
    def bad() -> None:
        raise ValueError("boom")

    handle = bad.enqueue()
    drain(app)
    [([job], status)] = told
    assert (job.key, status) == (handle.id, "dead")
    assert job.error.startswith("ValueError: boom")


def test_failing_hooks_harm_nothing(make_app, drain, caplog):
    def broken(*args: object) -> float:
        raise RuntimeError("the hook itself is broken")

    app = make_app(error_handlers=[broken])

    @app.task(max_retry_count=1, retry_in=broken, retries_exhausted=broken)
    def bad() -> None:
        raise ValueError("boom")

    handle = bad.enqueue()
    assert drain(app) == 0
    [job] = app.broker.find("default", handle.id)
    assert (job.status, job.retry_count) == ("delayed", 0)
    app.broker.reschedule("default", handle.id)
    assert drain(app) == 0
    assert handle.status() == "dead"


def test_what_ends_the_process_leaves_the_job_to_be_taken_back(app, drain):
    @app.task
    def leave() -> None:
        raise SystemExit(3)

    handle = leave.enqueue()
    assert drain(app) == 1
    [job] = app.broker.find("default", handle.id)
    assert (job.status, job.retry_count, job.attempt) == ("queued", -1, 1)


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
    with pytest.raises(Exception, match="has no tasks"):
        drain(app)


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_error_that_cannot_be_printed_is_a_failure_like_any_other(app, drain, kind):
    ran = []

    @app.task(max_retry_count=0)
    def bad() -> None:
        raise Unprintable

    @app.task(max_retry_count=0)
    async def bad_too() -> None:
        raise Unprintable

    @app.task
    def good() -> None:
        ran.append(1)

    (bad if kind == "sync" else bad_too).enqueue_many([()] * 7)
    good.enqueue()
    assert drain(app) == 0
    assert ran == [1]
    assert {job.error.partition("\n")[0] for job in dead(app)} == {
        "Unprintable: (its text cannot be shown: RuntimeError)"
    }


def test_a_task_whose_params_do_not_fit_fails_by_its_own_options(app, drain):
    @app.task(max_retry_count=0)
    def once(number: int) -> None: ...

    handle = app.enqueue_body('{"_job_class":"once","_job_params":{"number":"x"}}')
    drain(app)
    assert handle.status() == "dead"


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


def test_a_serializer_that_exits_ends_the_worker_and_loses_nothing(make_app, drain):
    class Exiting(Serializer):
        def loads(self, body: str):
            raise SystemExit(4)

    app = make_app(serializer=Exiting)

    @app.task
    def ping() -> None: ...

    handle = ping.enqueue()
    assert drain(app) == 1
    assert handle.status() == "queued"


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_error_handler_that_exits_ends_the_worker_and_loses_nothing(make_app, drain, kind):
    def leave(error: BaseException, context: Context) -> None:
        raise SystemExit(4)

    app = make_app(error_handlers=[leave])

    @app.task
    def bad() -> None:
        raise ValueError("boom")

    @app.task
    async def bad_too() -> None:
        raise ValueError("boom")

    handle = (bad if kind == "sync" else bad_too).enqueue()
    assert drain(app) == 1
    assert handle.status() == "queued"
