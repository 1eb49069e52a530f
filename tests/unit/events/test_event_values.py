"""Event values: which values may be published; the rest is refused in a sentence before anything is stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pytest
from pydantic import BaseModel

from laneway import ConfigError, EnqueueError, Laneway
from laneway.brokers.sqlite import MemoryBroker
from laneway.events.event import Subscription
from tests.support.publish_app import TOPIC, Recording, app_on, context_of, copies, heard

pytestmark = pytest.mark.unit


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


@pytest.fixture
def broker() -> Recording:
    return Recording()


@pytest.fixture
def app(broker: Recording) -> Iterator[Laneway]:
    with closing(heard(broker)) as app:
        yield app


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
    app.broker.events.subscribe(Subscription(TOPIC, "a"))
    app.publish("placed", "text")
    assert copies(app)[0].payloads[0].body == '"text"'


@dataclass
class Open:
    """Its type does not say what is in it."""

    id: str
    inside: Any


class OpenShape(msgspec.Struct):
    inside: Any


class OpenModel(BaseModel):
    inside: Any


WITHIN = "; give plain JSON values, or annotate that field with its type."
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
        (Open("a", {1}), "with list instead of set in its field inside" + WITHIN),
        (Open("a", float("nan")), "with null instead of float in its field inside" + WITHIN),
        (Open("a", b"secret"), "with str instead of bytes in its field inside" + WITHIN),
        (Open("a", (1, 2)), "with list instead of tuple in its field inside" + WITHIN),
        (Open("a", Open("b", 1)), "with dict instead of Open in its field inside" + WITHIN),
        (Open("a", {"b": [Shape("c", set())]}), "with dict instead of Shape in its field inside" + WITHIN),
        (OpenShape({1}), "with list instead of set in its field inside" + WITHIN),
        (OpenModel(inside=(1,)), "with list instead of tuple in its field inside" + WITHIN),
        (Order("a", datetime(2026, 1, 2), float("inf")), "Event placed: "),  # type: ignore[arg-type]  # it is wrong
    ],
)
def test_what_would_not_survive_is_refused(app, broker, value, sentence):
    with pytest.raises(EnqueueError) as caught:
        app.publish("placed", value)
    assert str(caught.value).startswith("Event placed: ")
    assert sentence in str(caught.value)
    assert str(caught.value).endswith(".")
    assert "secret" not in str(caught.value)
    with pytest.raises(EnqueueError) as caught:
        app.publish_many("placed", ["good", value])
    assert str(caught.value).startswith("Item 1: Event placed: ")
    assert str(caught.value).endswith(". Nothing was stored.")
    with pytest.raises(EnqueueError):
        context_of(app).publish("placed", value)
    with pytest.raises(EnqueueError):
        app.sender("placed", "mail").send(value)
    assert (broker.handed, app.broker.inspect.stats()) == ([], [])


def test_attributes_are_within_what_the_broker_takes(app, broker):
    most = broker.capabilities.max_body
    attributes = {"n": "ü" * 1_000, "number": 17, "tags": ["a", "b"]}
    room = most - (1 + 2_000) - (6 + 2) - (4 + len('["a","b"]'))
    sentence = f"Event placed: its value, with its attributes, is {most + 1} bytes, and this broker takes {most} at"
    publishers = (app.publish, context_of(app).publish, app.sender("placed", "mail").send)
    for value in ("x" * (room - 1), "x" * (room - 3) + "ü"):  # two bytes are the quotes
        for publish in publishers:
            arguments = (value,) if publish.__name__ == "send" else ("placed", value)
            with pytest.raises(EnqueueError, match=sentence):
                publish(*arguments, attributes=attributes)
    with pytest.raises(EnqueueError, match="Event placed: its value, with its attributes, is 20000002 bytes"):
        app.publish("placed", 1, attributes={"n": "x" * 20_000_000})
    with pytest.raises(EnqueueError, match=r"^Item 1: .* its value, with its attributes, .*Nothing was"):
        app.publish_many("placed", ["x", "x" * room], attributes=attributes)
    assert broker.handed == []
    app.publish("placed", "x" * (room - 2), attributes=attributes)


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
