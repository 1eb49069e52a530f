"""Traces and metrics for OpenTelemetry, with the SDK's in-memory exporters and real workers."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from typing import Annotated

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from laneway import Batch, Context, Key, Middleware, Worker, WorkerOptions, otel
from laneway.telemetry import Enqueueing, RunEnded, RunStarted
from tests.support.worker_fixtures import PATIENCE_S, Running, drain


class Sdk:
    """What was exported."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)

    def named(self, name: str) -> list:
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def one(self, name: str):
        (span,) = self.named(name)
        return span

    @property
    def names(self) -> list[str]:
        return [span.name for span in self._spans.get_finished_spans()]

    def points(self, name: str) -> list:
        data = self._reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def sdk(app):
    made = Sdk()
    otel.instrument(app, made.tracers, made.meters)
    yield made
    otel.uninstrument(app)
    made.tracers.shutdown()
    made.meters.shutdown()


def child_of(span, parent) -> bool:
    return span.parent is not None and span.parent.span_id == parent.context.span_id


def test_a_run_goes_on_with_the_trace_that_enqueued_it(app, sdk):
    @app.task
    def work() -> None: ...

    with sdk.tracers.get_tracer("test").start_as_current_span("request"):
        handle = work.enqueue()
    drain(app)
    request, sent, run = sdk.one("request"), sdk.one("enqueue default"), sdk.one("process work")
    assert child_of(sent, request)
    assert child_of(run, sent)
    assert run.parent.is_remote
    assert {span.context.trace_id for span in (request, sent, run)} == {request.context.trace_id}
    assert (sent.kind, run.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert dict(run.attributes) == {
        "messaging.system": "laneway",
        "messaging.destination.name": "default",
        "messaging.operation.type": "process",
        "messaging.operation.name": "process",
        "messaging.message.id": handle.id,
        "laneway.queue": "default",
        "laneway.task": "work",
        "laneway.key": handle.id,
        "laneway.attempt": 1,
        "laneway.verdict": "done",
    }
    assert run.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("kind", ["sync", "async", "hidden"])
def test_the_span_is_current_while_the_handler_runs(app, sdk, kind):
    tracer = sdk.tracers.get_tracer("test")

    def plain(number: int) -> None:
        with tracer.start_as_current_span(f"inside {number}"):
            pass

    async def asynchronous(number: int) -> None:
        with tracer.start_as_current_span(f"inside {number}"):
            pass

    @functools.wraps(asynchronous)
    def hidden(number: int):
        return asynchronous(number)

    del hidden.__wrapped__
    work = app.task({"sync": plain, "async": asynchronous, "hidden": hidden}[kind], name="work")
    work.enqueue_many([(number,) for number in range(5)])
    drain(app, concurrency=2)
    runs = {span.context.span_id for span in sdk.named("process work")}
    assert len(runs) == 5
    assert {sdk.one(f"inside {number}").parent.span_id for number in range(5)} == runs


def test_spans_of_a_middleware_hang_below_the_run(make_app):
    sdk = Sdk()

    class Spans(Middleware):
        def around_execution(self, call, context):
            with sdk.tracers.get_tracer("test").start_as_current_span("around"):
                yield

    app = make_app(middleware=[Spans()])
    otel.instrument(app, sdk.tracers, sdk.meters)

    @app.task
    def work() -> None: ...

    work.enqueue()
    drain(app)
    assert child_of(sdk.one("around"), sdk.one("process work"))


def test_nothing_is_left_current_after_a_run(app, sdk):
    found = []
    app.telemetry.subscribe(RunStarted, lambda event: None)

    @app.task(max_retry_count=0)
    def work(well: bool) -> None:
        if not well:
            raise ValueError("no")

    @app.task
    async def later() -> None: ...

    # After the instrument: what is current in a runner's thread, or an async run's task, when the run has ended.
    app.telemetry.subscribe(RunEnded, lambda event: found.append(trace.get_current_span()))
    work.enqueue_many([(True,), (False,), (True,)])
    later.enqueue_many([(), ()])
    drain(app, concurrency=1)
    assert len(found) == 5
    assert all(span is trace.INVALID_SPAN for span in found)
    assert all(span.parent is not None and span.parent.is_remote for span in sdk.named("process work"))


def test_a_failure_is_an_error_with_its_exception_and_every_attempt_a_span(app, sdk):
    @app.task(max_retry_count=1, retry_in=lambda n: 0)
    def bad(secret: str) -> None:
        raise ValueError("boom")

    bad.enqueue("canary")
    drain(app)
    first, second = sdk.named("process bad")
    assert (first.attributes["laneway.verdict"], second.attributes["laneway.verdict"]) == ("retry", "bury")
    assert (first.attributes["laneway.attempt"], second.attributes["laneway.attempt"]) == (1, 2)
    assert first.context.trace_id == second.context.trace_id
    for span in (first, second):
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "ValueError: boom")
        (event,) = span.events
        assert event.attributes["exception.type"] == "ValueError"
        assert "canary" not in span.to_json()


def test_a_postponed_run_is_no_error(app, sdk):
    @app.task(context=True)
    def rests(context: Context) -> None:
        context.postpone(60)
        raise ValueError("no matter")

    rests.enqueue()
    drain(app)
    span = sdk.one("process rests")
    assert (span.attributes["laneway.verdict"], span.status.status_code) == ("postpone", StatusCode.UNSET)
    assert [event.name for event in span.events] == ["exception"]


def test_calls_of_a_key_have_each_their_own_span_and_trace(app, sdk):
    @app.task
    def work(key: Annotated[str, Key]) -> None: ...

    handles = [work.enqueue("a") for _ in range(3)]
    drain(app)
    spans = sdk.named("process work")
    assert [span.attributes["messaging.message.id"] for span in spans] == [handle.id for handle in handles]
    assert {span.attributes["laneway.key"] for span in spans} == {"a"}
    assert [span.parent.span_id for span in spans] == [span.context.span_id for span in sdk.named("enqueue default")]


def test_a_batch_is_one_span_that_tells_which_keys_failed(app, sdk):
    @app.collect(shards=1, batch_size=4, max_retry_count=0)
    def gather(batch: Batch[str]) -> None:
        batch.fail("b", "no such order")

    gather.enqueue_many([(key, "x") for key in "abcd"])
    drain(app)
    span = sdk.one("process gather")
    assert span.parent is None
    assert span.attributes["messaging.batch.message_count"] == 4
    assert (span.attributes["laneway.verdict"], span.status.status_code) == ("bury", StatusCode.ERROR)
    (event,) = span.events
    assert event.attributes["laneway.key"] == "b"
    verdicts = {point.attributes["verdict"]: point.value for point in sdk.points("laneway.jobs")}
    assert verdicts == {"done": 3, "bury": 1}
    (duration,) = sdk.points("laneway.run.duration")
    assert duration.count == 1


def test_what_a_run_enqueues_hangs_below_it(app, sdk):
    @app.task
    def second() -> None: ...

    @app.task(context=True)
    def first(context: Context) -> None:
        context.enqueue(second)
        second.enqueue()

    first.enqueue()
    drain(app)
    run = sdk.one("process first")
    below = [span for span in sdk.named("enqueue default") if child_of(span, run)]
    assert len(below) == 2
    assert {span.parent.span_id for span in sdk.named("process second")} == {span.context.span_id for span in below}


def test_a_job_that_cannot_be_read_is_a_span_too(app, sdk):
    @app.task
    def work() -> None: ...

    app.enqueue_body("nonsense")
    drain(app)
    span = sdk.one("process ?")
    assert span.status.status_code is StatusCode.ERROR
    assert span.end_time >= span.start_time


def test_a_run_that_ends_the_worker_ends_its_span(app, sdk):
    @app.task
    def fatal() -> None:
        raise SystemExit("enough")

    fatal.enqueue()
    assert Worker(app, WorkerOptions(until_empty=True)).run() == 1
    span = sdk.one("process fatal")
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "SystemExit: enough")


@pytest.mark.parametrize("raised", [RuntimeError, SystemExit])
def test_an_error_that_cannot_be_printed_is_recorded_all_the_same(app, sdk, raised):
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise raised

    @app.task(max_retry_count=0)
    def bad() -> None:
        raise Unprintable

    bad.enqueue()
    drain(app)
    span = sdk.one("process bad")
    said = f"Unprintable: (its text cannot be shown: {raised.__name__})"
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, said)
    [event] = span.events
    assert (event.name, event.attributes["exception.type"]) == ("exception", "Unprintable")
    assert event.attributes["exception.message"] == said


def test_runs_and_waits_are_measured(app, sdk):
    @app.task(max_retry_count=0)
    def work(well: bool) -> None:
        if not well:
            raise ValueError("no")

    work.enqueue_many([(True,), (True,), (False,)])
    drain(app)
    jobs = {tuple(sorted(point.attributes.items())): point.value for point in sdk.points("laneway.jobs")}
    assert jobs == {
        (("queue", "default"), ("task", "work"), ("verdict", "done")): 2,
        (("queue", "default"), ("task", "work"), ("verdict", "bury")): 1,
    }
    for name in ("laneway.run.duration", "laneway.run.wait"):
        (point,) = sdk.points(name)
        assert (point.count, dict(point.attributes)) == (3, {"queue": "default", "task": "work"})
        assert point.explicit_bounds[0] == 0.001
    (enqueued,) = sdk.points("laneway.jobs.enqueued")
    assert (enqueued.value, dict(enqueued.attributes)) == (3, {"queue": "default"})


def test_a_run_may_begin_a_trace_of_its_own_with_a_link(app):
    sdk = Sdk()
    otel.instrument(app, sdk.tracers, sdk.meters, links=True)

    @app.task
    def work() -> None: ...

    work.enqueue()
    drain(app)
    sent, run = sdk.one("enqueue default"), sdk.one("process work")
    assert run.parent is None
    assert run.context.trace_id != sent.context.trace_id
    assert [link.context.span_id for link in run.links] == [sent.context.span_id]


def test_undone_it_leaves_nothing_behind_and_ends_what_runs(app):
    sdk = Sdk()
    otel.instrument(app, sdk.tracers, sdk.meters)
    otel.instrument(app, sdk.tracers, sdk.meters)  # twice is once
    begun, go_on = threading.Event(), threading.Event()

    @app.task
    def work() -> None:
        begun.set()
        assert go_on.wait(PATIENCE_S)

    work.enqueue()
    with Running(app):
        assert begun.wait(PATIENCE_S)
        otel.uninstrument(app)
        otel.uninstrument(app)
        work.enqueue()
        go_on.set()
    assert sdk.names.count("process work") == 1
    assert sdk.names.count("enqueue default") == 1
    for kind in (Enqueueing, RunStarted, RunEnded):
        assert not app.telemetry.of(kind)


def test_without_an_sdk_it_does_no_harm(app):
    otel.instrument(app)
    ran = []

    @app.task
    def work() -> None:
        ran.append(1)

    work.enqueue()
    assert drain(app) == 0
    assert ran == [1]
    otel.uninstrument(app)


def test_without_the_extra_it_is_a_sentence():
    code = "import sys; sys.modules['opentelemetry'] = None\nimport laneway.otel"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'laneway[otel]'." in done.stderr.splitlines()[-1]


def test_it_is_not_loaded_unasked():
    code = "import sys, laneway, laneway.worker.worker; print([m for m in sys.modules if m.startswith('opentel')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n"
