"""Publishing: a copy for every subscription that wants it, one value at a time or many, all checked before any."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pytest
from pydantic import BaseModel

from laneway import ConfigError, Context, EnqueueError, Laneway, Middleware
from laneway.brokers.memory import MemoryBroker
from laneway.events import Subscription
from laneway.job import Claim, JobView, Kind, NewJob, Payload
from laneway.outcome import OUTBOX_LIMIT
from laneway.telemetry import Enqueueing, EventsPublished, JobsEnqueued

pytestmark = pytest.mark.unit

TOPIC = "eventboss-shop-placed-test"
GENERIC = "eventboss-placed-test"


class Recording(MemoryBroker):
    """Keeps what it is handed."""

    def __init__(self) -> None:
        super().__init__()
        self.handed: list[list[NewJob]] = []

    def enqueue(self, jobs):
        self.handed.append([*jobs])
        super().enqueue(jobs)


class Relaying(Recording):
    """Makes the copies itself, as SNS does; it only keeps what it is handed."""

    relays = True
    derives_ids = True

    def enqueue(self, jobs):
        self.handed.append([*jobs])

    def subscriptions(self, topic=None):
        raise AssertionError("nobody needs to know")


@dataclass
class Order:
    id: str
    at: datetime
    cents: Decimal


class Shape(msgspec.Struct):
    id: str
    tags: set[str]


class Model(BaseModel):
    id: str
    at: datetime


class Pair(NamedTuple):
    one: int
    two: str


def app_on(broker: MemoryBroker, **options: Any) -> Laneway:
    return Laneway(broker=broker, name="shop", env="test", **options)


@pytest.fixture
def broker() -> Recording:
    return Recording()


@pytest.fixture
def app(broker: Recording) -> Iterator[Laneway]:
    app = app_on(broker)
    for queue in ("a", "b"):
        broker.subscribe(Subscription(TOPIC, queue))
    yield app
    app.close()


def copies(app: Laneway) -> list[JobView]:
    queues = sorted(app.broker.queues())
    return [job for queue in queues for job in app.broker.listing(queue, "queued").jobs]


def context_of(app: Laneway, kind: Kind = Kind.PLAIN) -> Context:
    claim = Claim("default", 1, "run", 7, 0.0, -1, 1, 0, [Payload("x", 0.0, "call")], kind=kind)
    return Context(app, claim, app.task(name="t")(lambda: None))


# -- who gets it ---------------------------------------------------------------------------------------


def test_each_subscription_gets_a_copy(app, broker):
    id = app.publish("placed", {"b": 1, "a": "ä"})
    assert [(job.queue, job.key, job.payloads[0].body) for job in copies(app)] == [
        ("a", f"{id}@a", '{"a":"ä","b":1}'),
        ("b", f"{id}@b", '{"a":"ä","b":1}'),
    ]
    [jobs] = broker.handed
    assert [(job.event, job.topic, job.to_topic, job.kind, job.headers) for job in jobs] == [
        (id, TOPIC, False, Kind.PLAIN, None)
    ] * 2


def test_it_counts_from_the_moment_that_it_exists(app):
    app.publish("placed", 1)
    app.broker.subscribe(Subscription(TOPIC, "c"))
    app.publish("placed", 2)
    app.broker.unsubscribe(TOPIC, "a")
    app.publish("placed", 3)
    found = {queue: [job.payloads[0].body for job in copies(app) if job.queue == queue] for queue in "abc"}
    assert found == {"a": ["1", "2"], "b": ["1", "2", "3"], "c": ["2", "3"]}


def test_a_generic_event_is_another_one(app):
    app.broker.subscribe(Subscription(GENERIC, "c"))
    app.publish("placed", 1, generic=True)
    assert [job.queue for job in copies(app)] == ["c"]


def test_filters_go_by_attributes(app, broker):
    broker.subscribe(Subscription(TOPIC, "b", {"country": ["DE"]}))
    broker.subscribe(Subscription(TOPIC, "c", {"cents": [{"numeric": [">", 4]}], "country": [{"exists": True}]}))
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
        broker.subscribe(Subscription(TOPIC, queue, {"country": ["DE"]}))
    with caplog.at_level(logging.WARNING, "laneway"):
        app.publish("placed", 1)
    assert (caplog.records, broker.handed) == ([], [])


# -- values --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "body"),
    [
        ("text", '"text"'),
        ("", '""'),
        (None, "null"),
        (5, "5"),
        (1.5, "1.5"),
        (True, "true"),
        ([1, {"b": 2, "a": 1}], '[1,{"a":1,"b":2}]'),
        (
            Order("a", datetime(2026, 1, 2, tzinfo=UTC), Decimal("1.10")),
            '{"at":"2026-01-02T00:00:00Z","cents":"1.10","id":"a"}',
        ),
        (Shape("a", {"x"}), '{"id":"a","tags":["x"]}'),
        (Model(id="a", at=datetime(2026, 1, 2, tzinfo=UTC)), '{"at":"2026-01-02T00:00:00Z","id":"a"}'),
        (Pair(1, "b"), '[1,"b"]'),
    ],
)
def test_values_are_canonical_json(app, value, body):
    app.publish("placed", value)
    assert copies(app)[0].payloads[0].body == body


class Backwards:
    """A serializer that would write something else."""

    def __init__(self, registry: Any) -> None: ...

    def dumps(self, task: Any, params: Any) -> str:
        return "other"

    def loads(self, body: str) -> None: ...


def test_whatever_the_serializer_is():
    app = app_on(MemoryBroker(), serializer=Backwards)
    app.broker.subscribe(Subscription(TOPIC, "a"))
    app.publish("placed", "text")
    assert copies(app)[0].payloads[0].body == '"text"'


LONG = "x" * 1_048_577


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (float("nan"), "the value would come back with null instead of float"),
        ({1, 2}, "the value would come back with list instead of set; give plain JSON values, or a dataclass"),
        ((1, 2), "list instead of tuple"),
        ({"at": datetime(2026, 1, 2)}, "str instead of datetime"),
        ([Shape("a", set())], "dict instead of Shape"),
        ({1: 2}, "a dict has keys that are not text"),
        (object(), "object cannot be stored as JSON"),
        (Order, "type cannot be stored as JSON"),
        ("\ud800", "half of a surrogate pair"),
        (LONG, "Event placed: its value is 1048579 bytes, and this broker takes 1048576 at most"),
        (Order("a", datetime(2026, 1, 2), float("inf")), "Event placed: "),  # type: ignore[arg-type]  # it is wrong
    ],
)
def test_what_would_not_survive_is_refused(app, broker, value, sentence):
    with pytest.raises(EnqueueError) as caught:
        app.publish("placed", value)
    assert str(caught.value).startswith("Event placed: ")
    assert sentence in str(caught.value)
    assert str(caught.value).endswith(".")
    with pytest.raises(EnqueueError) as caught:
        app.publish_many("placed", ["good", value])
    assert str(caught.value).startswith("Item 1: Event placed: ")
    assert str(caught.value).endswith(". Nothing was stored.")
    with pytest.raises(EnqueueError):
        context_of(app).publish("placed", value)
    with pytest.raises(EnqueueError):
        app.sender("placed", "mail").send(value)
    assert (broker.handed, app.broker.stats()) == ([], [])


# -- many ----------------------------------------------------------------------------------------------


def test_many_are_stored_in_one_step_and_copies_of_one_stand_together(app, broker):
    ids = app.publish_many("placed", (value for value in (1, 1, 2)), attributes={"country": "DE"})
    assert len({*ids}) == 3
    [jobs] = broker.handed
    assert [(job.event, job.queue) for job in jobs] == [(id, queue) for id in ids for queue in "ab"]
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


# -- what cannot be ------------------------------------------------------------------------------------


@pytest.mark.parametrize("generic", [False, True])
def test_an_app_without_a_name_cannot_publish(generic):
    app = Laneway("memory:")
    for publish in (app.publish, app.publish_many, context_of(app).publish, app.sender):
        with pytest.raises(ConfigError, match="Publishing needs the app's name, which is the source of its events"):
            publish("placed", "value", generic=generic)


@pytest.mark.parametrize("event", ["", "a b", "a.b", 5, None, "x" * 81])
def test_events_that_cannot_be(app, event):
    for publish in (app.publish, app.publish_many, context_of(app).publish, app.sender):
        with pytest.raises(EnqueueError, match="An event must be 1 to 80 letters, digits, '_' or '-', not"):
            publish(event, "value")


def test_a_topic_that_is_too_long(app):
    longest = 80 - len("eventboss-shop--test")
    app.publish("x" * longest, 1)
    with pytest.raises(EnqueueError, match=r"the topic eventboss-shop-x+-test has 81 characters, and 80 are the most"):
        app.publish("x" * (longest + 1), 1)


def test_generic_is_yes_or_no(app):
    with pytest.raises(EnqueueError, match="Event placed: generic must be True or False, not 'shop'"):
        app.publish("placed", 1, generic="shop")


def test_attributes_that_cannot_be(app, broker):
    sender, wrong = app.sender("placed", "mail"), {"a": None}
    for publish in (
        lambda: app.publish("placed", 1, attributes=wrong),
        lambda: app.publish_many("placed", [1], attributes=wrong),
        lambda: context_of(app).publish("placed", 1, attributes=wrong),
        lambda: sender.send(1, attributes=wrong),
        lambda: sender.send_many([1], attributes=wrong),
    ):
        with pytest.raises(EnqueueError, match=r"^Event placed: the attribute a must be text, a number"):
            publish()
    assert broker.handed == []


# -- middleware and telemetry --------------------------------------------------------------------------


def test_middleware_sees_the_copies(broker):
    seen = []

    class Watching(Middleware):
        def around_enqueue(self, jobs):
            seen.append([(job.queue, job.topic) for job in jobs])
            for job in jobs:
                job.headers = {**(job.headers or {}), "tenant": "acme"}
            yield

    app = app_on(broker, middleware=[Watching()])
    queue = app.listener("placed", source="shop", name="on_placed")(lambda value: None).queue
    broker.subscribe(Subscription(TOPIC, queue))
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
    broker.subscribe(Subscription(TOPIC, "elsewhere"))
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
    assert [(job.queue, job.key, job.event, job.body, job.headers) for job in context.outbox] == [
        (queue, f"{id}@{queue}", id, '{"a":1}', {"country": "DE"}) for queue in "ab"
    ]
    assert broker.handed == []
    context.publish("unknown", 1)
    assert len(context.outbox) == 2


def test_copies_count_as_what_a_run_may_enqueue(app):
    context = context_of(app)
    context.outbox = [NewJob(queue="q", key=str(number), body="x") for number in range(OUTBOX_LIMIT - 1)]
    with pytest.raises(EnqueueError, match="A run may enqueue 10000 jobs at most, copies of events among them"):
        context.publish("placed", 1)
    assert len(context.outbox) == OUTBOX_LIMIT - 1
    app.broker.unsubscribe(TOPIC, "b")
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
                    event=id,
                    topic=TOPIC,
                    to_topic=True,
                    attributes={"country": "DE", "tags": ["a"]},
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

    first = published(1, 2, 2)
    assert sorted(published(2, 1, 2)) == sorted(first)
    assert len({id for _, id in first}) == 3
    assert published(1, kind=Kind.KEYED) != published(1)
    assert published(1, kind=Kind.COLLECTING) != published(1, kind=Kind.COLLECTING)


# -- to one listener alone -----------------------------------------------------------------------------


def test_a_sender_stores_plain_jobs_in_one_queue(app, broker):
    sender = app.sender("placed", "mail")
    handle = sender.send({"b": 1, "a": 2}, attributes={"country": "DE"})
    more = sender.send_many([1, "two"])
    assert sender.queue == handle.queue == f"mail-{TOPIC}"
    assert repr(sender) == f"<EventSender to mail-{TOPIC}>"
    assert [(job.queue, job.key, job.payloads[0].body) for job in copies(app)] == [
        (f"mail-{TOPIC}", each.id, body)
        for each, body in zip([handle, *more], ['{"a":2,"b":1}', "1", '"two"'], strict=True)
    ]
    first = broker.handed[0][0]
    assert (first.event, first.topic, first.headers, first.attributes) == ("", "", {"country": "DE"}, None)
    assert handle.status() == "queued"


def test_a_sender_of_a_generic_event(app):
    assert app.sender("placed", "mail", generic=True).queue == f"mail-{GENERIC}"


def test_a_sender_with_options(app, broker):
    app.sender("placed", "mail").using(delay=timedelta(minutes=1), group="acme").using(cancellable=True).send(1)
    app.sender("placed", "mail").using(perform_at=5.0).send(1)
    first, second = broker.handed[0][0], broker.handed[1][0]
    assert (first.delay_s, first.group, first.cancellable) == (60.0, "acme", True)
    assert (second.delay_s, second.perform_at) == (0.0, 5.0)


def test_a_sender_may_send_to_a_listener_of_its_own_app(app):
    queue = app.listener("placed", source="shop", name="on_placed")(lambda value: None).queue
    assert app.sender("placed", "shop").send(1).queue == queue


def test_a_sender_hands_attributes_to_a_broker_that_has_them_beside_messages():
    broker = Relaying()
    app_on(broker).sender("placed", "mail").send(1, attributes={"cents": 5})
    [[job]] = broker.handed
    assert (job.queue, job.to_topic, job.attributes, job.headers) == (
        f"mail-{TOPIC}",
        False,
        {"cents": 5},
        {"cents": "5"},
    )


@pytest.mark.parametrize("destination", ["", "a b", None, 5])
def test_a_destination_that_cannot_be(app, destination):
    with pytest.raises(EnqueueError, match="Event placed: destination must be 1 to 80 letters"):
        app.sender("placed", destination)


def test_a_queue_that_would_be_too_long(app):
    with pytest.raises(EnqueueError, match=r"Event placed: the queue x+-eventboss-shop-placed-test has \d+ characters"):
        app.sender("placed", "x" * 60)
