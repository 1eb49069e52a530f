"""Tests of events on AWS with workers: publishing, listening and tracing, also together with other programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from laneway import Context, Laneway, otel
from laneway.brokers.aws import AWSBroker
from laneway.brokers.aws.clients import Clients
from laneway.brokers.aws.errors import MissingError
from tests.integration.aws.event_topic import note_in, theirs
from tests.support.aws.endpoints import Place
from tests.support.aws.fake.server import FakeServer
from tests.support.aws.workers import Tally, running, wait_until


@contextmanager
def shop_on(place: Place, **options: Any) -> Iterator[Laneway]:
    """The app `shop`, without subscriptions and without what they need."""
    settings = place.settings()
    broker = AWSBroker(settings, clients=Clients.of(settings, **place.clients))
    app = Laneway(broker=broker, name="shop", env="test", **options)
    try:
        yield app
    finally:
        app.close()


def provide(place: Place, app: Laneway) -> None:
    """Make what the app's listeners need, and subscribe them."""
    for listener in app.listeners():
        place.create_with_dead_letters(listener.queue, MessageRetentionPeriod=1_209_600)
        place.create_topic(listener.topic)
        app.broker.events.subscribe(listener.subscription)


def test_an_event_is_heard_by_each_listener_and_one_that_fails_retries_alone(aws: Place) -> None:
    with shop_on(aws) as app:
        heard, shipped = Tally(), Tally()

        @app.listener("order_placed", source="shop", destination="mailer", context=True, retry_in=lambda count: 0)
        def mail(context: Context, order: dict[str, Any]) -> None:
            heard.note((context.id, order, context.headers, context.attempt))
            if context.attempt == 1:
                raise ValueError("no")
            context.publish("mail_sent", order["id"], generic=True, attributes={"n": 1})

        @app.listener("order_placed", source="shop", destination="stock")
        def ship(order: dict[str, Any]) -> None:
            shipped.note(order)

        @app.listener("mail_sent", destination="audit", context=True)
        def audit(context: Context, number: int) -> None:
            shipped.note((number, context.headers, context.id.partition("@")[2]))

        provide(aws, app)
        with running(app):
            id = app.publish("order_placed", {"id": 7}, attributes={"country": "DE"})
            heard.wait_for(2)
            shipped.wait_for(2)
            queues = [listener.queue for listener in app.listeners()]
            wait_until(lambda: all(aws.counts(queue) == (0, 0, 0) for queue in queues))
        mailer = f"{id}@mailer-eventboss-shop-order_placed-test"
        assert heard.ran == [(mailer, {"id": 7}, {"country": "DE"}, n) for n in (1, 2)]
        assert {"id": 7} in shipped.ran
        assert (7, {"n": "1"}, "audit-eventboss-mail_sent-test") in shipped.ran
        assert len(shipped.ran) == 2


def test_what_the_original_publishes_is_heard_and_what_is_published_here_it_can_read(aws: Place) -> None:
    """Its publisher and its sender write JSON and no attribute of ours; its listener reads the same."""
    with shop_on(aws) as app:
        tally = Tally()

        @app.listener("order_placed", source="shop", destination="mailer", context=True)
        def mail(context: Context, order: Any) -> None:
            tally.note((order, context.headers.get("sentry-trace")))

        provide(aws, app)
        topic, queue = "eventboss-shop-order_placed-test", "mailer-eventboss-shop-order_placed-test"
        trace = {"sentry-trace": {"DataType": "String", "StringValue": "0af7-b7ad-1"}}
        with running(app):
            arn = f"arn:aws:sns:us-east-1:123456789012:{topic}"
            aws.sns_client.publish(TopicArn=arn, Message='{"id": 1}', MessageAttributes=trace)
            entries = [{"Id": "a", "MessageBody": '{"id":2}'}, {"Id": "b", "MessageBody": '"three"'}]
            aws.sqs_client.send_message_batch(QueueUrl=aws.queue_url(queue), Entries=entries)
            tally.wait_for(3)
            wait_until(lambda: aws.counts(queue) == (0, 0, 0))
        ran = sorted(tally.ran, key=str)
        assert ran == [("three", None), ({"id": 1}, "0af7-b7ad-1"), ({"id": 2}, None)]
        app.publish("order_placed", "a string")
        app.publish_many("order_placed", [{"id": 1, "ü": [None]}, 2.5])
        app.sender("order_placed", "mailer").send({"id": 2})
        app.sender("order_placed", "mailer").send_many([3, 4], attributes={"n": 5})
        # A long poll that was open when the worker stopped may hide one for a while.
        wait_until(lambda: aws.counts(queue) == (6, 0, 0))
        messages = aws.receive_all(queue)
        assert sorted(message["Body"] for message in messages) == sorted(
            ['"a string"', '{"id":1,"ü":[null]}', "2.5", '{"id":2}', "3", "4"]
        )
        assert [theirs(message) for message in messages if message["Body"] in "34"] == [{"n": ("Number", "5")}] * 2
        # What is sent straight into a queue is known for a value, too, whatever it looks like.
        assert {message["Body"] for message in messages if note_in(message).get("value")} == {'{"id":2}', "3", "4"}


def test_what_is_sent_to_one_listener_keeps_its_id_and_runs_no_task_without_it(aws: Place) -> None:
    with shop_on(aws) as app:
        heard = Tally()

        @app.listener("placed", source="shop", context=True, retry_in=lambda count: 0)
        def on_placed(context: Context, value: Any) -> None:
            heard.note((context.id, value))
            if context.attempt == 1:
                raise ValueError("no")

        provide(aws, app)
        ticket = {"_job_class": "tk", "_job_params": None}
        handle = app.sender("placed", "shop").send(ticket)
        with running(app):
            heard.wait_for(2)
            wait_until(lambda: aws.counts(on_placed.queue) == (0, 0, 0))
        assert heard.ran == [(handle.id, ticket)] * 2
        assert handle.id.endswith(f"@{on_placed.queue}")

        other = Laneway(broker=app.broker, error_handlers=[lambda error, context: heard.note(str(error))])
        other.task(name="tk")(lambda: heard.note("tk"))
        app.sender("placed", "shop").send(ticket)
        app.publish("placed", ticket)
        with running(other, queues=[on_placed.queue]):
            heard.wait_for(4)
        assert [text.partition(" in this app")[0] for text in heard.ran[2:]] == [
            f"There is no listener for the queue {on_placed.queue}"
        ] * 2


def test_the_trace_of_a_stranger_goes_on_in_each_listener(fake: FakeServer) -> None:
    """It says where it stands in one attribute, and knows nothing of ours."""
    exported, tracers = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exported))
    with shop_on(fake) as app:
        for name in ("mailer", "stock"):
            app.listener("sold", source="legacy", destination=name, name=name)(lambda value: None)
        provide(fake, app)
        otel.instrument(app, tracer_provider=tracers)
        trace_id, span_id = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
        here = {"traceparent": {"DataType": "String", "StringValue": f"00-{trace_id}-{span_id}-01"}}
        arn = "arn:aws:sns:us-east-1:123456789012:eventboss-legacy-sold-test"
        fake.sns_client.publish(TopicArn=arn, Message="7", MessageAttributes=here)
        with running(app):
            wait_until(lambda: len(exported.get_finished_spans()) == 2)
        runs = exported.get_finished_spans()
        assert {run.name for run in runs} == {"process mailer", "process stock"}
        assert {f"{run.context.trace_id:032x}" for run in runs if run.context} == {trace_id}
        assert {f"{run.parent.span_id:016x}" for run in runs if run.parent} == {span_id}


def test_a_trace_goes_on_in_the_listener_and_others_can_read_it(fake: FakeServer) -> None:
    exported, tracers = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exported))
    with shop_on(fake) as app:
        tally = Tally()

        @app.listener("order_placed", source="shop", destination="mailer")
        def mail(order: int) -> None:
            tally.note(order)

        provide(fake, app)

        def runs() -> list[Any]:
            return [each for each in exported.get_finished_spans() if each.kind is SpanKind.CONSUMER]

        otel.instrument(app, tracer_provider=tracers)
        tracer = tracers.get_tracer("test")
        with tracer.start_as_current_span("checkout") as span:
            app.publish("order_placed", 7)
            app.sender("order_placed", "mailer").send(8)
        parents = {f"{span.get_span_context().trace_id:032x}"}
        for stored in fake.queues[mail.queue].messages:
            assert stored.attributes["traceparent"]["StringValue"].split("-")[1] in parents
        with running(app):
            tally.wait_for(2)
            wait_until(lambda: len(runs()) == 2)
        assert {f"{each.context.trace_id:032x}" for each in runs() if each.context} == parents


def test_a_missing_topic_is_made_by_whoever_publishes_in_development(fake: FakeServer) -> None:
    with shop_on(fake) as app:
        with pytest.raises(MissingError, match="create it with `laneway aws create TARGET --publishes EVENT`"):
            app.publish("order_placed", 7)
        app.development = True
        app.publish("order_placed", 7)
        app.development = False
        with pytest.raises(MissingError):
            app.publish("order_paid", 7)
    with shop_on(fake, development=True) as app:
        app.publish_many("order_paid", [1, 2])
