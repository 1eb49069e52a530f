"""Publishing: one copy for each matching subscription, for one value or many, all checked before any is stored."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import msgspec
import pytest

from laneway import EnqueueError, Laneway, Middleware
from laneway.events.event import Subscription
from laneway.jobs.data import EventCopy, Kind, NewJob
from laneway.jobs.settlement import OUTBOX_LIMIT
from laneway.telemetry import Enqueueing, EventsPublished, JobsEnqueued
from tests.support.publish_app import GENERIC, TOPIC, Recording, Relaying, app_on, context_of, copies, heard

pytestmark = pytest.mark.unit


@pytest.fixture
def broker() -> Recording:
    return Recording()


@pytest.fixture
def app(broker: Recording) -> Iterator[Laneway]:
    with closing(heard(broker)) as app:
        yield app


# -- who gets it ---------------------------------------------------------------------------------------


def test_each_subscription_gets_a_copy(app, broker):
    id = app.publish("placed", {"b": 1, "a": "ä"})
    assert [(job.queue, job.key, job.payloads[0].body) for job in copies(app)] == [
        ("a", f"{id}@a", '{"a":"ä","b":1}'),
        ("b", f"{id}@b", '{"a":"ä","b":1}'),
    ]
    [jobs] = broker.handed
    assert [(job.event, job.kind, job.headers) for job in jobs] == [(EventCopy(id, TOPIC), Kind.PLAIN, None)] * 2


def test_it_counts_from_the_moment_that_it_exists(app):
    app.publish("placed", 1)
    app.broker.events.subscribe(Subscription(TOPIC, "c"))
    app.publish("placed", 2)
    app.broker.events.unsubscribe(TOPIC, "a")
    app.publish("placed", 3)
    found = {queue: [job.payloads[0].body for job in copies(app) if job.queue == queue] for queue in "abc"}
    assert found == {"a": ["1", "2"], "b": ["1", "2", "3"], "c": ["2", "3"]}


def test_a_generic_event_is_another_one(app):
    app.broker.events.subscribe(Subscription(GENERIC, "c"))
    app.publish("placed", 1, generic=True)
    assert [job.queue for job in copies(app)] == ["c"]


def test_filters_go_by_attributes(app, broker):
    broker.events.subscribe(Subscription(TOPIC, "b", {"country": ["DE"]}))
    broker.events.subscribe(Subscription(TOPIC, "c", {"cents": [{"numeric": [">", 4]}], "country": [{"exists": True}]}))
    app.publish("placed", 1, attributes={"country": "DE", "cents": 5, "tags": ["x"]})
    app.publish("placed", 2, attributes={"country": "FR", "cents": 5})
    app.publish("placed", 3)
    found = {queue: [job.payloads[0].body for job in copies(app) if job.queue == queue] for queue in "abc"}
    assert found == {"a": ["1", "2", "3"], "b": ["1"], "c": ["1", "2"]}
    assert [job.headers for job in broker.handed[0]] == [{"country": "DE", "cents": "5", "tags": '["x"]'}] * 3
    assert broker.handed[0][0].headers is not broker.handed[0][1].headers


def test_nobody_is_no_error_and_is_said_once(app, broker, caplog):
    with caplog.at_level(logging.WARNING, "laneway"):
        ids = {app.publish("unknown", 1), app.publish("unknown", 2), *app.publish_many("other", [1, 2])}
    assert len(ids) == 4
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "nobody has subscribed to eventboss-shop-unknown-test",
        "nobody has subscribed to eventboss-shop-other-test",
    ]
    assert broker.handed == []


def test_a_filter_that_lets_nothing_through_is_nothing_to_be_said(app, broker, caplog):
    for queue in "ab":
        broker.events.subscribe(Subscription(TOPIC, queue, {"country": ["DE"]}))
    with caplog.at_level(logging.WARNING, "laneway"):
        app.publish("placed", 1)
    assert (caplog.records, broker.handed) == ([], [])


# -- many ----------------------------------------------------------------------------------------------


def test_many_are_stored_in_one_step_and_copies_of_one_stand_together(app, broker):
    ids = app.publish_many("placed", (value for value in (1, 1, 2)), attributes={"country": "DE"})
    assert len({*ids}) == 3
    [jobs] = broker.handed
    assert [(job.event_id, job.queue) for job in jobs] == [(id, queue) for id in ids for queue in "ab"]
    assert {job.headers["country"] for job in jobs if job.headers} == {"DE"}


def test_none_are_none(app, broker):
    assert app.publish_many("placed", []) == []
    assert broker.handed == []


@pytest.mark.parametrize("values", ["text", b"text", {"a": 1}, 5])
def test_many_are_a_list(app, values):
    with pytest.raises(EnqueueError, match="Event placed: publish_many takes a list of values, not "):
        app.publish_many("placed", values)
    with pytest.raises(EnqueueError, match="Event placed: send_many takes a list of values, not "):
        app.sender("placed", "mail").send_many(values)


# -- middleware and telemetry --------------------------------------------------------------------------


def test_middleware_sees_the_copies(broker):
    seen = []

    class Watching(Middleware):
        def around_enqueue(self, jobs):
            seen.append([(job.queue, job.event.topic) for job in jobs])
            for job in jobs:
                job.headers = {**(job.headers or {}), "tenant": "acme"}
            yield

    app = app_on(broker, middleware=[Watching()])
    queue = app.listener("placed", source="shop", name="on_placed")(lambda value: None).queue
    broker.events.subscribe(Subscription(TOPIC, queue))
    app.publish("placed", 1, attributes={"a": "x"})
    app.sender("placed", "shop").send(2)
    assert seen == [[(queue, TOPIC)], [(queue, "")]]
    assert [job.headers for jobs in broker.handed for job in jobs] == [{"a": "x", "tenant": "acme"}, {"tenant": "acme"}]


@pytest.mark.parametrize("where", ["a listener", "a collecting task"])
def test_middleware_moves_nothing_to_a_queue_that_belongs_to_another(broker, where):
    class Moving(Middleware):
        def around_enqueue(self, jobs):
            for job in jobs:
                job.queue = moved_to
            yield

    app = app_on(broker, middleware=[Moving()])
    listener = app.listener("placed", name="on_placed")(lambda value: None)
    gather = app.collect(name="gather")(lambda batch: None)
    moved_to = listener.queue if where == "a listener" else gather.queue
    task = app.task(name="t")(lambda: None)
    with pytest.raises(EnqueueError, match=r"After the middleware the job .* cannot go to the queue"):
        task.enqueue()
    broker.events.subscribe(Subscription(TOPIC, "elsewhere"))
    with pytest.raises(EnqueueError, match=r"After the middleware the job .* cannot go to the queue"):
        app.publish("placed", 1)
    assert broker.handed == []


def test_headers_are_asked_for_once_an_event_under_its_topic(app, broker):
    asked = []

    def give(event: Enqueueing) -> None:
        asked.append((event.queue, event.count))
        event.headers["traceparent"] = str(len(asked))

    app.telemetry.subscribe(Enqueueing, give)
    app.publish("placed", 1, attributes={"country": "DE"})
    app.publish_many("placed", [1, 2, 3])
    assert asked == [(TOPIC, 1), (TOPIC, 3)]
    assert [job.headers for job in broker.handed[0]] == [{"traceparent": "1", "country": "DE"}] * 2
    assert [job.headers for job in broker.handed[1]] == [{"traceparent": "2"}] * 6


def test_what_is_published_is_told(app):
    seen: list[Any] = []
    for kind in (JobsEnqueued, EventsPublished):
        app.telemetry.subscribe(kind, seen.append)
    app.publish_many("placed", [1, 2, 3])
    app.publish("unknown", 1)
    assert seen == [
        JobsEnqueued("a", 3),
        JobsEnqueued("b", 3),
        EventsPublished(TOPIC, 3, 6),
        EventsPublished("eventboss-shop-unknown-test", 1, 0),
    ]


# -- from within a run ---------------------------------------------------------------------------------


def test_a_run_holds_back_what_it_publishes(app, broker):
    context = context_of(app)
    id = context.publish("placed", {"a": 1}, attributes={"country": "DE"})
    assert [(job.queue, job.key, job.event_id, job.body, job.headers) for job in context.outbox] == [
        (queue, f"{id}@{queue}", id, '{"a":1}', {"country": "DE"}) for queue in "ab"
    ]
    assert broker.handed == []
    context.publish("unknown", 1)
    assert len(context.outbox) == 2


def test_a_run_holds_back_many_and_asks_once_who_has_subscribed(app, broker, monkeypatch):
    asked: list[str | None] = []
    subscriptions = broker.events.subscriptions
    monkeypatch.setattr(
        broker.events, "subscriptions", lambda topic=None: (asked.append(topic), subscriptions(topic))[1]
    )
    context = context_of(app)
    one, two = context.publish_many("placed", iter([1, "two"]), attributes={"country": "DE"})
    assert [(job.key, job.event_id, job.body, job.headers) for job in context.outbox] == [
        (f"{id}@{queue}", id, body, {"country": "DE"}) for id, body in ((one, "1"), (two, '"two"')) for queue in "ab"
    ]
    assert asked == [TOPIC]
    assert broker.handed == []
    assert context.publish_many("placed", []) == []
    with pytest.raises(EnqueueError, match=r"^Item 1: Event placed: .* Nothing was stored\."):
        context.publish_many("placed", [1, {2}])
    with pytest.raises(EnqueueError, match="Event placed: publish_many takes a list of values, not str"):
        context.publish_many("placed", "text")
    told: list[EventsPublished] = []
    app.telemetry.subscribe(EventsPublished, told.append)
    assert len(context.publish_many("placed", [3], generic=True)) == 1
    assert told == [EventsPublished(GENERIC, 1, 0)], "at once, for there is nothing to hold back"
    assert len(context.outbox) == 4, "nobody has subscribed to the generic one"


def test_copies_count_as_what_a_run_may_enqueue(app):
    context = context_of(app)
    context.outbox = [NewJob(queue="q", key=str(number), body="x") for number in range(OUTBOX_LIMIT - 1)]
    with pytest.raises(EnqueueError, match="A run may enqueue 10000 jobs at most, copies of events among them"):
        context.publish("placed", 1)
    assert len(context.outbox) == OUTBOX_LIMIT - 1
    app.broker.events.unsubscribe(TOPIC, "b")
    context.publish("placed", 1)
    assert len(context.outbox) == OUTBOX_LIMIT


# -- a broker that makes the copies --------------------------------------------------------------------


def test_a_broker_that_makes_the_copies_is_handed_one_job_for_its_topic():
    broker = Relaying()
    app = app_on(broker)
    seen: list[Any] = []
    for kind in (JobsEnqueued, EventsPublished):
        app.telemetry.subscribe(kind, seen.append)
    app.telemetry.subscribe(Enqueueing, lambda event: event.headers.update(traceparent=f"{event.queue} {event.count}"))
    one, two = app.publish_many("placed", [1, 2], attributes={"country": "DE", "tags": ["a"]})
    assert [[msgspec.structs.asdict(job) for job in jobs] for jobs in broker.handed] == [
        [
            msgspec.structs.asdict(
                NewJob(
                    queue=TOPIC,
                    key=id,
                    body=body,
                    event=EventCopy(id, TOPIC, to_topic=True, attributes={"country": "DE", "tags": ["a"]}),
                    headers={"traceparent": f"{TOPIC} 2"},
                )
            )
            for id, body in ((one, "1"), (two, "2"))
        ]
    ]
    assert seen == [EventsPublished(TOPIC, 2, None)]


def test_a_repeated_run_publishes_under_the_same_ids():
    def published(*values: int, kind: Kind = Kind.PLAIN) -> list[tuple[str, str]]:
        context = context_of(app_on(Relaying()), kind)
        for value in values:
            context.publish("placed", value)
        return [(job.body, job.key) for job in context.outbox]

    def with_attributes(*countries: str) -> dict[str, dict[str, Any]]:
        context = context_of(app_on(Relaying()))
        for country in countries:
            context.publish("placed", 1, attributes={"country": country})
        return {job.key: {**(job.event.attributes or {})} for job in context.outbox}

    def together(*values: int) -> list[tuple[str, str]]:
        context = context_of(app_on(Relaying()))
        context.publish_many("placed", values)
        return [(job.body, job.key) for job in context.outbox]

    assert together(1, 2, 2) == published(1, 2, 2)
    assert with_attributes("DE", "FR", "FR") == with_attributes("FR", "DE", "FR")
    first = published(1, 2, 2)
    assert sorted(published(2, 1, 2)) == sorted(first)
    assert len({id for _, id in first}) == 3
    assert published(1, kind=Kind.KEYED) != published(1)
    assert published(1, kind=Kind.COLLECTING) != published(1, kind=Kind.COLLECTING)
