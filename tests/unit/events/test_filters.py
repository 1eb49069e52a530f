"""Filters on event attributes, in the syntax of SNS: what passes, what does not, and which filters are invalid."""

from __future__ import annotations

from typing import Any

import pytest

from laneway.events.event import Attribute
from laneway.events.filters import filter_problem, passes

pytestmark = pytest.mark.unit

#: Conditions on the attribute `a`, its values that pass, and those that do not; None: it is not there.
CASES: list[tuple[list[Any], list[Attribute | None], list[Attribute | None]]] = [
    (["x"], ["x", ["y", "x"]], ["y", "X", 5, ["y"], None]),
    (["x", "y"], ["x", "y"], ["z", None]),
    (["5"], ["5"], [5, 5.0]),
    ([5], [5, 5.0], ["5", 6, ["5"], None]),
    ([0.5, "x"], [0.5, "x"], [0.25, "0.5"]),
    ([{"prefix": "ab"}], ["ab", "abc", ["z", "abc"]], ["a", "AB", 5, None]),
    ([{"suffix": "yz"}], ["yz", "xyz", ["z", "xyz"]], ["y", "YZ", 5, None]),
    ([{"equals-ignore-case": "Straße"}], ["straße", "STRASSE", ["x", "Straße"]], ["strass", 5, None]),
    ([{"exists": True}], ["x", 0, ["x"]], [None]),
    ([{"exists": False}], [None], ["x", 0, ["x"]]),
    ([{"exists": False}, "x"], [None, "x"], ["y"]),
    ([{"anything-but": "x"}], ["y", 5, ["y", "z"], ["y", "x"]], ["x", ["x"], None]),
    ([{"anything-but": ["x", "y"]}], ["z", ["z"], ["z", "y"]], ["x", "y", ["x", "y"], None]),
    ([{"anything-but": 5}], [6, "5"], [5, 5.0, None]),
    ([{"anything-but": [5, 7]}], [6, "5", "y"], [5, 7.0, None]),
    ([{"anything-but": {"prefix": "ab"}}], ["b", 5, ["b"], ["b", "abc"]], ["ab", "abc", ["abc"], None]),
    ([{"numeric": ["=", 5]}], [5, 5.0], [6, "5", None]),
    ([{"numeric": ["<", 5]}], [4, -1.5], [5, 6, "4", None]),
    ([{"numeric": ["<=", 5]}], [4, 5], [5.5, None]),
    ([{"numeric": [">", 5]}], [5.5], [5, 4, None]),
    ([{"numeric": [">=", 5]}], [5, 6], [4.5, None]),
    ([{"numeric": [">", 0, "<=", 5]}], [0.5, 5], [0, 5.5, -1, None]),
    ([{"numeric": [">", 100]}, {"numeric": ["<", 0]}, "unknown"], [101, -1, "unknown"], [0, 100, "5"]),
]
RIGHT = [(conditions, value) for conditions, values, _ in CASES for value in values]
WRONG = [(conditions, value) for conditions, _, values in CASES for value in values]


def attributes(value: Attribute | None) -> dict[str, Attribute]:
    return {"b": "x"} if value is None else {"a": value, "b": "x"}


@pytest.mark.parametrize(("conditions", "value"), RIGHT)
def test_what_fits_passes(conditions, value):
    assert passes({"a": conditions}, attributes(value))


@pytest.mark.parametrize(("conditions", "value"), WRONG)
def test_what_does_not_fit_is_kept_back(conditions, value):
    assert not passes({"a": conditions}, attributes(value))


def test_all_attributes_must_fit():
    policy: dict[str, list[Any]] = {"a": ["x", "y"], "b": [{"numeric": [">", 1]}]}
    assert passes(policy, {"a": "y", "b": 2, "c": "other"})
    assert not passes(policy, {"a": "y", "b": 1})
    assert not passes(policy, {"b": 2})
    assert not passes(policy, {})


def test_without_a_filter_everything_passes():
    assert passes(None, {})
    assert passes(None, {"a": "x"})


LATER: list[Any] = [
    {"a": [{"cidr": "10.0.0.0/24"}]},
    {"a": [{"anything-but": {"suffix": "x"}}]},
    {"a": [{"anything-but": {"prefix": ["x", "y"]}}]},
    {"a": [{"anything-but": None}]},
    {"a": [{"prefix": {"equals-ignore-case": "x"}}]},
    {"a": [{"prefix": "x", "suffix": "y"}]},
    {"a": [{"exists": True, "prefix": "y"}]},
    {"a": [{"exists": "yes"}]},
    {"a": [{"numeric": ["!=", 5]}]},
    {"a": [{"numeric": [">", 5, "<"]}]},
    {"a": [{"numeric": [">", "5"]}]},
    {"a": [{"suffix": 5}]},
    {"a": [{}]},
    {"a": [None]},
    {"a": ["x", ["y"]]},
    {"a": []},
    {"a": "x"},
    {"a": {"b": ["x"]}},
    {"$or": [{"a": ["x"]}, {"b": [5]}]},
    {"$or": ["x"]},
]


@pytest.mark.parametrize("policy", LATER)
@pytest.mark.parametrize("value", ["z", 5, ["z"], None])
def test_what_a_later_version_has_stored_loses_nothing(policy, value):
    assert passes(policy, attributes(value))
    assert not passes({**policy, "b": ["y"]}, attributes(value)), "what is understood counts all the same"


@pytest.mark.parametrize("conditions", [*(conditions for conditions, _, _ in CASES), [10**9, -1e9, 0.00001, 999.99999]])
def test_conditions_that_can_be_are_taken(conditions):
    assert filter_problem({"a": conditions}) is None


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        ("country", "must be a dict of attributes and lists of conditions"),
        ({}, "leave it out to get every event"),
        ({"a": "x"}, "must have a list of conditions for a, even of one; write {'a': […]}"),
        ({"a": []}, "must have a list of conditions for a"),
        ({"a": ("x",)}, "must have a list of conditions for a"),
        ({5: ["x"]}, "the name of an attribute must be"),
        ({"a..b": ["x"]}, "the name of an attribute must be"),
        ({"a": [True]}, "a condition is a text, a number, or a dict of one word, not True"),
        ({"a": [None]}, "not None"),
        ({"a": [["x"]]}, "a condition is a text"),
        ({"a": [float("nan")]}, "a condition is a text"),
        ({"a": [{}]}, "a dict of one word"),
        ({"a": [{"prefix": "a", "suffix": "b"}]}, "a dict of one word"),
        ({"a": [{"begins": "a"}]}, "there is no 'begins'; there are exists, anything-but, prefix, suffix"),
        ({"a": [{"prefix": 5}]}, "prefix is given a text, not 5"),
        ({"a": [{"suffix": ""}]}, "suffix is given a text, not ''"),
        ({"a": [{"equals-ignore-case": ["a"]}]}, "equals-ignore-case is given a text"),
        ({"a": [{"exists": "yes"}]}, "exists is given True or False, not 'yes'"),
        ({"a": [{"anything-but": []}]}, "anything-but is given a text, a number, a list of either"),
        ({"a": [{"anything-but": [5, "x"]}]}, "anything-but is given"),
        ({"a": [{"anything-but": True}]}, "anything-but is given"),
        ({"a": [{"anything-but": {"suffix": "a"}}]}, "anything-but is given"),
        ({"a": [{"numeric": 5}]}, "numeric is given a comparison such as ['>=', 5], or a range"),
        ({"a": [{"numeric": []}]}, "numeric is given"),
        ({"a": [{"numeric": [">"]}]}, "numeric is given"),
        ({"a": [{"numeric": ["!=", 5]}]}, "numeric is given"),
        ({"a": [{"numeric": [["<"], 5]}]}, "numeric is given"),
        ({"a": [{"numeric": [">", "5"]}]}, "numeric is given"),
        ({"a": [{"numeric": ["<", 5, ">", 0]}]}, "numeric is given"),
        ({"a": [{"numeric": [">", 5, "<", 5]}]}, "numeric is given"),
        ({"a": [{"numeric": [">", 0, "<", 5, "=", 2]}]}, "numeric is given"),
        ({"a": [10**9 + 1]}, "its numbers must be from -10^9 to 10^9, as those of SNS"),
        ({"a": [10**400]}, "from -10^9 to 10^9"),
        ({"a": [float("inf")]}, "from -10^9 to 10^9"),
        ({"a": [{"numeric": ["<", -(10**400)]}]}, "from -10^9 to 10^9"),
        ({"a": [{"anything-but": 1e300}]}, "from -10^9 to 10^9"),
        ({"a": [{"anything-but": [5, 10**5000]}]}, "from -10^9 to 10^9"),
        ({"a": [{"prefix": 10**5000}]}, "from -10^9 to 10^9"),
        ({"a": [0.000001]}, "its numbers may have 5 digits after the decimal point"),
        ({"a": [{"numeric": [">", 0, "<", 1.234567]}]}, "5 digits after the decimal point"),
        ({"a": [{"numeric": [">", float("nan")]}]}, "numeric is given"),
        ({"traceparent": ["x"]}, "an attribute cannot be called traceparent"),
        ({name: ["x"] for name in "abcdef"}, "may name 5 attributes, not 6"),
        ({"a": [*map(str, range(16))], "b": [*range(10)]}, "160 combinations of conditions, and 150 are the most"),
        ({"a": [{"anything-but": [*range(151)]}]}, "151 combinations"),
    ],
)
def test_what_cannot_be_a_filter_is_said_in_a_sentence(policy, sentence):
    problem = filter_problem(policy)
    assert problem is not None
    assert sentence in problem
    assert problem.startswith("its filter")
    assert problem.endswith(".")


@pytest.mark.parametrize("condition", ["\ud800", {"prefix": "a\udfff"}, {"anything-but": {"prefix": "\ud800"}}])
def test_half_characters_are_refused(condition):
    problem = filter_problem({"a": ["x", condition]})
    assert problem == "its filter for a cannot be: it holds half of a surrogate pair; give valid Unicode."
