"""Middleware around real runs, for sync and async tasks."""

from __future__ import annotations

import pytest

from laneway import Context, Middleware


class Recorder(Middleware):
    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    def around_execution(self, call, context):
        self.log.append(f"{self.name} before {call.task.name}")
        try:
            result = yield
        except Exception as error:
            self.log.append(f"{self.name} saw {error}")
            raise
        self.log.append(f"{self.name} after {result}")


@pytest.fixture(params=["sync", "async"])
def kind(request):
    return request.param


def declare(app, kind, handler, **options):
    """The same handler as a sync and as an async task."""
    if kind == "sync":
        return app.task(name="handler", **options)(handler)

    async def asynchronous() -> object:
        return handler()

    return app.task(name="handler", **options)(asynchronous)


def test_the_first_added_is_the_outermost(make_app, drain, kind):
    log = []
    app = make_app(middleware=[Recorder("outer", log), Recorder("inner", log)])
    declare(app, kind, lambda: "result").enqueue()
    drain(app)
    assert log == ["outer before handler", "inner before handler", "inner after result", "outer after result"]


def test_it_sees_what_the_handler_raised(make_app, drain, kind):
    log = []
    app = make_app(middleware=[Recorder("outer", log), Recorder("inner", log)])

    def bad() -> None:
        raise ValueError("boom")

    declare(app, kind, bad, max_retry_count=0).enqueue()
    drain(app)
    assert log == ["outer before handler", "inner before handler", "inner saw boom", "outer saw boom"]


def test_one_that_does_not_call_on_ends_the_run_as_done(make_app, drain, kind, caplog):
    ran = []

    class Closed(Middleware):
        def around_execution(self, call, context):
            return
            yield

    app = make_app(middleware=[Closed()])
    handle = declare(app, kind, lambda: ran.append(1)).enqueue()
    drain(app)
    assert ran == []
    assert handle.status() == "gone"
    assert "did not call on" in caplog.text


def test_one_that_swallows_the_error_makes_it_a_success(make_app, drain, kind):
    class Calm(Middleware):
        def around_execution(self, call, context):
            try:
                yield
            except ValueError:
                pass

    app = make_app(middleware=[Calm()])

    def bad() -> None:
        raise ValueError("boom")

    handle = declare(app, kind, bad).enqueue()
    drain(app)
    assert handle.status() == "gone"


def test_one_that_raises_before_fails_the_run_and_the_outer_ones_see_it(make_app, drain, kind):
    log = []
    ran = []

    class Broken(Middleware):
        def around_execution(self, call, context):
            raise RuntimeError("no connection")
            yield

    app = make_app(middleware=[Recorder("outer", log), Broken()])
    handle = declare(app, kind, lambda: ran.append(1), max_retry_count=0).enqueue()
    drain(app)
    assert handle.status() == "dead"
    assert ran == []
    assert log == ["outer before handler", "outer saw no connection"]


def test_around_deserialization_sees_the_body_and_the_call(make_app, drain):
    log = []

    class Spy(Middleware):
        def around_deserialization(self, body, claim):
            call = yield
            log.append((body, claim.key, call.task.name))

    app = make_app(middleware=[Spy()])

    @app.task
    def ping(number: int) -> None: ...

    handle = ping.enqueue(1)
    drain(app)
    assert log == [('{"_job_class":"ping","_job_params":{"number":1}}', handle.id, "ping")]


def test_an_error_around_deserialization_fails_the_run(make_app, drain):
    class Broken(Middleware):
        def around_deserialization(self, body, claim):
            yield
            raise RuntimeError("the signature does not match")

    app = make_app(middleware=[Broken()])

    @app.task
    def ping() -> None: ...

    handle = ping.enqueue()
    drain(app)
    [job] = app.broker.inspect.find("default", handle.id)
    assert "the signature does not match" in job.error


def test_headers_travel_from_enqueueing_to_the_run(make_app, drain):
    seen = []

    class Trace(Middleware):
        def around_enqueue(self, jobs):
            for job in jobs:
                job.headers = {**(job.headers or {}), "trace": "00-abc"}
            yield

    app = make_app(middleware=[Trace()])

    @app.task(context=True)
    def child(context: Context) -> None:
        seen.append(context.headers)

    @app.task(context=True)
    def parent(context: Context) -> None:
        seen.append(context.headers)
        context.enqueue(child)

    parent.enqueue()
    drain(app)
    assert seen == [{"trace": "00-abc"}, {"trace": "00-abc"}]
