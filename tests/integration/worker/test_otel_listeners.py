"""An event is one span however many listeners it has, and their runs belong to its trace."""

from __future__ import annotations

import pytest
from opentelemetry.trace import SpanKind

from laneway import Context, otel
from tests.integration.worker.test_otel import Sdk, child_of
from tests.support.worker_fixtures import drain

TOPIC = "eventboss-shop-placed"


@pytest.fixture
def app(make_app):
    """An app with two listeners, `one` and `two`, to what it publishes itself."""
    app = make_app(name="shop")
    for name in ("one", "two"):
        listener = app.listener("placed", source="shop", destination=name, name=name)(lambda value: None)
        app.broker.events.subscribe(listener.subscription)
    return app


@pytest.fixture
def sdk(app):
    made = Sdk()
    otel.instrument(app, made.tracers, made.meters)
    yield made
    otel.uninstrument(app)
    made.tracers.shutdown()
    made.meters.shutdown()


def test_both_listeners_go_on_with_the_trace_that_published(app, sdk):
    with sdk.tracers.get_tracer("test").start_as_current_span("request"):
        id = app.publish("placed", 1)
    drain(app)
    request, sent = sdk.one("request"), sdk.one(f"publish {TOPIC}")
    runs = [sdk.one("process one"), sdk.one("process two")]
    assert child_of(sent, request)
    assert all(child_of(run, sent) and run.kind is SpanKind.CONSUMER for run in runs)
    assert {span.context.trace_id for span in (request, sent, *runs)} == {request.context.trace_id}
    assert sent.kind is SpanKind.PRODUCER
    assert dict(sent.attributes) == {
        "messaging.system": "laneway",
        "messaging.destination.name": TOPIC,
        "messaging.operation.type": "send",
        "messaging.operation.name": "publish",
    }
    queues = {run.attributes["messaging.destination.name"]: run.attributes["messaging.message.id"] for run in runs}
    assert queues == {f"{name}-{TOPIC}": f"{id}@{name}-{TOPIC}" for name in ("one", "two")}


def test_many_events_are_one_span_that_counts_them_and_not_their_copies(app, sdk):
    app.publish_many("placed", [1, 2, 3])
    drain(app)
    sent = sdk.one(f"publish {TOPIC}")
    assert sent.attributes["messaging.batch.message_count"] == 3
    assert sum(child_of(run, sent) for name in ("one", "two") for run in sdk.named(f"process {name}")) == 6
    (published,) = sdk.points("laneway.events.published")
    assert (published.value, dict(published.attributes)) == (3, {"topic": TOPIC})


def test_what_a_listener_publishes_hangs_below_its_run(app, sdk):
    @app.listener("asked", source="shop", context=True)
    def answer(context: Context, value: int) -> None:
        context.publish("placed", value)

    app.broker.events.subscribe(answer.subscription)
    app.publish("asked", 1)
    drain(app)
    run, sent = sdk.one("process answer"), sdk.one(f"publish {TOPIC}")
    assert child_of(sent, run)
    assert all(child_of(sdk.one(f"process {name}"), sent) for name in ("one", "two"))


def test_what_is_sent_to_one_listener_alone_is_enqueued(app, sdk):
    app.sender("placed", "one").send(1)
    drain(app)
    assert child_of(sdk.one("process one"), sdk.one(f"enqueue one-{TOPIC}"))
    assert sdk.named("process two") == []
