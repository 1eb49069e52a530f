"""Traces through isolated processes: their spans are below the single span of the run, which the worker makes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from laneway import Laneway, otel
from laneway.telemetry import RunEntered, RunLeft, RunSent
from tests.integration.worker import traced_tasks
from tests.integration.worker.traced_tasks import SPANS, apart, apart_async, gather, keyed, limited
from tests.support.worker_fixtures import drain


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(SPANS, str(tmp_path / "spans"))
    traced_tasks.app.use(f"sqlite:///{tmp_path / 'jobs.db'}")
    yield traced_tasks.app
    traced_tasks.app.close()


def spans(name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in Path(os.environ[SPANS]).read_text().splitlines()]
    return [span for span in found if span["name"] == name]


def below(parent: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [span for span in spans(name) if span["parent"] == parent["id"] and span["trace"] == parent["trace"]]


@pytest.mark.parametrize("task", [apart, apart_async], ids=["sync", "async"])
def test_what_an_isolated_run_does_hangs_below_it(app: Laneway, task: Any) -> None:
    token = context.attach(baggage.set_baggage("customer", "ada"))
    with traced_tasks.tracer.start_as_current_span("request"):
        task.enqueue()
    context.detach(token)
    assert drain(app) == 0
    (request,) = spans("request")
    (sent,) = below(request, "enqueue default")
    (run,) = below(sent, f"process {task.name}")
    assert spans(f"process {task.name}") == [run]
    assert run["pid"] == os.getpid()
    (inside,) = below(run, "inside ada")
    assert inside["pid"] != os.getpid()
    enqueued = below(inside, "enqueue default")  # with the run's end, and at once
    assert [span["pid"] for span in enqueued] == [inside["pid"]] * 2
    assert sorted(span["parent"] for span in spans("process following")) == sorted(span["id"] for span in enqueued)
    assert len(spans("enqueue default")) == 3  # no span for handing it over


def test_every_run_has_its_own_place_and_a_failed_one_leaves_nothing_behind(app: Laneway) -> None:
    apart.enqueue("badly")
    apart.enqueue("well")
    apart_async.enqueue()
    assert drain(app, concurrency=1) == 0
    runs = spans("process apart") + spans("process apart_async")
    assert len(runs) == len({run["trace"] for run in runs}) == 3
    inside = spans("inside None")
    assert [len(below(run, "inside None")) for run in runs] == [1, 1, 1]
    assert len({span["pid"] for span in inside}) == 1


def test_so_do_sync_tasks_with_a_time_limit_calls_of_a_key_and_batches(app: Laneway) -> None:
    limited.enqueue()
    keyed.enqueue("a")
    keyed.enqueue("a")
    gather.enqueue_many([("a", 1), ("b", 2)])
    assert drain(app) == 0
    runs = [run for name in ("limited", "keyed", "gather") for run in spans(f"process {name}")]
    assert len(runs) == 4
    assert [len(below(run, "inside")) for run in runs] == [1, 1, 1, 1]
    assert len(spans("inside")) == 4


def test_nothing_is_counted_twice(app: Laneway) -> None:
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    otel.instrument(app, traced_tasks.tracers, meters)
    apart.enqueue()
    before = app.on_start
    app.on_start = None  # here it would change the meters
    try:
        assert drain(app) == 0
    finally:
        app.on_start = before
        data = reader.get_metrics_data()
        otel.instrument(app, traced_tasks.tracers)
        meters.shutdown()
    assert data is not None
    counted = {
        (metric.name, point.attributes.get("task")): getattr(point, "value", None) or getattr(point, "count", None)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    assert counted[("laneway.jobs", "apart")] == counted[("laneway.run.duration", "apart")] == 1
    assert counted[("laneway.jobs", "following")] == 2
    assert counted[("laneway.jobs.enqueued", None)] == 2  # the third was stored by the other process


def test_one_that_is_undone_in_the_middle_makes_current_what_was(app: Laneway) -> None:
    before = context.get_current()
    app.telemetry.emit(sent := RunSent("default", "apart", {}))
    app.telemetry.emit(RunEntered("default", "apart", {**sent.headers, "baggage": "customer=ada"}))
    assert baggage.get_baggage("customer") == "ada"
    otel.uninstrument(app)
    try:
        app.telemetry.emit(RunLeft("default", "apart"))
        assert context.get_current() == before
        assert not app.telemetry.of(RunLeft)
    finally:
        otel.instrument(app, traced_tasks.tracers)
