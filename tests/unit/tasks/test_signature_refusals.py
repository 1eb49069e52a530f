"""Signature: arguments that cannot be stored are refused at enqueue, in a sentence that omits the value."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import pytest

from tests.support.argument_types import Classy, Colour, Level, Loose, Model, Pair, Picky, Point, Shape

pytestmark = pytest.mark.unit


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


cycle: list[Any] = []
cycle.append(cycle)


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (float("nan"), "null instead of float"),
        (float("inf"), "null instead of float"),
        (float("-inf"), "null instead of float"),
        ({1, 2}, "list instead of set"),
        (frozenset({1}), "list instead of frozenset"),
        ((1, 2), "list instead of tuple"),
        (b"secret", "str instead of bytes"),
        (bytearray(b"secret"), "str instead of bytearray"),
        (datetime(2024, 1, 1, tzinfo=UTC), "str instead of datetime"),
        (UUID(int=7), "str instead of UUID"),
        (Decimal("1.1"), "str instead of Decimal"),
        (Colour.RED, "str instead of Colour"),
        (Level.LOW, "int instead of Level"),
        (Shape.ROUND, "str instead of Shape"),
        (Point(1), "dict instead of Point"),
        (Model(x=1), "dict instead of Model"),
        (Pair(1, "secret"), "list instead of Pair"),
        ({1: "secret"}, "a dict has keys that are not text"),
        ({"a": [(1, 2)]}, "list instead of tuple"),
        ([{"a": Level.LOW}], "int instead of Level"),
        (lambda: 1, "function cannot be stored as JSON"),
        (object(), "object cannot be stored as JSON"),
        (int, "type cannot be stored as JSON"),
        (1j, "complex cannot be stored as JSON"),
        (nested(101), "nested more than 100 levels deep"),
        (nested(100_000), "nested too deeply"),
        (cycle, "nested too deeply, or holds itself"),
        ("secret \ud800", "half of a surrogate pair"),
        ({"secret \udfff": 1}, "half of a surrogate pair"),
    ],
)
def test_a_value_that_would_not_come_back_is_refused(app, refused, value, sentence):
    @app.task
    def keep(value): ...

    with refused("Task keep: ", sentence) as caught:
        keep.enqueue(value)
    assert "secret" not in str(caught.value)
    assert "\ud800" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "value", "sentence"),
    [
        (int, "secret", "Expected `int`, got `str` - at `$.value`"),
        (int, True, "Expected `int`, got `bool`"),
        (bool, 1, "Expected `bool`, got `int`"),
        (float, float("nan"), "Expected `float`, got `null`"),
        (float | None, float("nan"), "null instead of float"),
        (str, None, "Expected `str`, got `null`"),
        (Colour, "secret", "none of the values that the type allows - at `$.value`"),
        (Literal["a", "b"], "secret", "none of the values that the type allows"),
        (Point, {"x": "secret"}, "Expected `int`, got `str` - at `$.value.x`"),
        (Point, {"x": 1}, "Point instead of dict"),
        (
            Loose,
            Loose((1, 2)),
            "list instead of tuple in its field anything; give plain JSON",
        ),
        (Model, {"x": "secret"}, "ValidationError was raised by its type - at `$.value`"),
        (Picky, {"x": -4711}, "KeyError was raised by its type"),
        (list[int], (1, 2), "list instead of tuple"),
        (dict[int, str], {1: "secret"}, "a dict has keys that are not text"),
        (
            Classy,
            Classy(1, "secret"),
            "another str than it was in its field hidden",
        ),
        (tuple[int, ...], [1, 2], "tuple instead of list"),
        (list[object], [object()], "object cannot be stored as JSON"),
    ],
)
def test_a_value_that_its_annotation_does_not_allow_is_refused(app, refused, kind, value, sentence):
    def keep(value): ...

    keep.__annotations__ = {"value": kind}
    task = app.task(keep)
    with refused("Task keep: ", sentence) as caught:
        task.enqueue(value)
    assert "secret" not in str(caught.value)
    assert "4711" not in str(caught.value)


def test_the_sentence_says_which_argument_and_what_to_do(app, refused):
    @app.task
    def keep(first, second): ...

    with refused("the argument second", "give plain JSON values, or annotate the parameter with its type"):
        keep.enqueue(1, second={1})


def test_a_hundred_levels_are_deep_enough(app, stored):
    @app.task
    def keep(value): ...

    keep.enqueue(nested(98))
    assert len(stored()) == 1
