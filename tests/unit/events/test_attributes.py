"""Event attributes: which names and values are allowed, and how a listener reads them."""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Any

import pytest

from laneway import EnqueueError
from laneway.events.attributes import attribute_name_problem, checked, texts_of

pytestmark = pytest.mark.unit


class Country(StrEnum):
    GERMANY = "DE"


class Level(IntEnum):
    HIGH = 3


def test_they_are_texts_in_the_headers():
    given = {"country": "DE", "cents": 5, "rate": 0.5, "large": 10**30, "tags": ["b", "ä"]}
    assert texts_of(checked(given, "Event e")) == {
        "country": "DE",
        "cents": "5",
        "rate": "0.5",
        "large": "1" + "0" * 30,
        "tags": '["b","ä"]',
    }


def test_they_are_copied_and_plain():
    tags = ["a"]
    found = checked({"tags": tags, "country": Country.GERMANY, "level": Level.HIGH}, "Event e")
    tags.append("b")
    assert found == {"tags": ["a"], "country": "DE", "level": 3}
    assert [type(value) for value in found.values()] == [list, str, int]
    assert texts_of(found)["level"] == "3"


def test_there_may_be_none():
    assert checked(None, "Event e") == checked({}, "Event e") == {}


@pytest.mark.parametrize("name", ["a", "A-b_c.1", "x" * 256, "trace", "awsome", "AWS"])
def test_names_that_can_be(name):
    assert attribute_name_problem(name) is None


@pytest.mark.parametrize(
    "name", ["", 5, None, "a b", "ä", ".a", "a.", "a..b", "x" * 257, "laneway", "Laneway", "AWS.a", "amazon.a", "a\n"]
)
def test_names_that_cannot_be(name):
    with pytest.raises(EnqueueError) as caught:
        checked({name: "x"}, "Event e")
    assert str(caught.value).startswith("Event e: the name of an attribute must be 1 to 256 letters")


@pytest.mark.parametrize("name", ["traceparent", "tracestate", "baggage", "sentry-trace", "Traceparent"])
def test_names_that_tracing_uses(name):
    with pytest.raises(EnqueueError, match=f"^Event e: an attribute cannot be called {name}, which is what tracing"):
        checked({name: "x"}, "Event e")


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("", "must not be empty"),
        ([], "must not be empty"),
        ([5], "a list must hold texts"),
        (["a", None], "a list must hold texts"),
        ("a\x00", "control or lone surrogates"),
        ("\ud800", "control or lone surrogates"),
        (["a\x1f"], "control or lone surrogates"),
        (True, "not bool"),
        (None, "not NoneType"),
        (b"a", "not bytes"),
        (("a",), "not tuple"),
        (float("nan"), "not a number that is none"),
        (float("inf"), "not a number that is none"),
        (10**40, "a number of 38 digits at most or a list of texts, not a larger one"),
        (10**400, "not a larger one"),
        (-1e300, "not a larger one"),
    ],
)
def test_values_that_cannot_be(value, sentence):
    with pytest.raises(EnqueueError) as caught:
        checked({"good": "x", "bad": value}, "Event e")
    assert str(caught.value).startswith("Event e: the attribute bad ")
    assert sentence in str(caught.value)
    assert str(caught.value).endswith(".")


@pytest.mark.parametrize("value", ["\t\n ü", " ", ["", "a"], 0, -1, 1.5, 10**37])
def test_values_that_can_be(value):
    assert checked({"a": value}, "Event e") == {"a": value}


def test_there_are_five_at_most():
    with pytest.raises(EnqueueError, match="Event e: it may have 5 attributes, not 6; put the others into the value"):
        checked(dict.fromkeys("abcdef", "x"), "Event e")


@pytest.mark.parametrize("given", [["a"], "a", 5])
def test_they_are_a_dict(given: Any):
    with pytest.raises(EnqueueError, match="Event e: attributes must be a dict, not "):
        checked(given, "Event e")
