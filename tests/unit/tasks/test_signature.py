"""Signature: how arguments are stored, and that they come back with the same types and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laneway.tasks.signature import Signature
from tests.support.argument_types import Classy, Colour, Level, Model, Movie, Nameless, Packed, Pair, Point, Shape

if TYPE_CHECKING:
    from laneway.nowhere import Missing  # type: ignore[import-not-found]  # a name that only checkers would see

pytestmark = pytest.mark.unit

WHEN = datetime(2024, 2, 29, 12, 30, tzinfo=timezone(timedelta(hours=2)))


def open_to_all(**anything: Any) -> None: ...


def as_(kind: Any) -> Signature:
    def task(value): ...

    task.__annotations__ = {"value": kind}
    return Signature("task", task)


def test_keys_are_sorted_and_no_spaces_written():
    params = {"b": {"y": 1, "x": [1, 2.5, None, True]}, "a": "ü"}
    assert Signature("task", open_to_all).pack(params) == '{"a":"ü","b":{"x":[1,2.5,null,true],"y":1}}'.encode()


def test_the_same_mapping_in_another_order_is_the_same_bytes():
    pack = Signature("task", open_to_all).pack
    assert pack({"a": 1, "b": 2}) == pack({"b": 2, "a": 1})


def test_no_params_are_null():
    assert Signature("task", open_to_all).pack({}) == b"null"
    assert Signature("task", open_to_all).unpack(b"null") == Signature("task", open_to_all).unpack(b"{}") == {}


@pytest.mark.parametrize(
    ("kind", "value", "written"),
    [
        (datetime, WHEN, b'"2024-02-29T12:30:00+02:00"'),
        (datetime, datetime(2024, 1, 1, tzinfo=UTC), b'"2024-01-01T00:00:00Z"'),
        (date, date(2024, 2, 29), b'"2024-02-29"'),
        (timedelta, timedelta(seconds=90), b'"PT90S"'),
        (UUID, UUID(int=7), b'"00000000-0000-0000-0000-000000000007"'),
        (Decimal, Decimal("1.10"), b'"1.10"'),
        (bytes, b"\x00\xff", b'"AP8="'),
        (Colour, Colour.RED, b'"red"'),
        (Level, Level.LOW, b"1"),
        (Shape, Shape.ROUND, b'"round"'),
        (Point, Point(1, WHEN), b'{"at":"2024-02-29T12:30:00+02:00","x":1}'),
        (Packed, Packed(1, {"a"}), b'{"tags":["a"],"x":1}'),
        (Classy, Classy(1), b'{"x":1}'),
        (Model, Model(x=1, Name="n"), b'{"Name":"n","at":null,"x":1}'),
        (Pair, Pair(1, "a"), b'[1,"a"]'),
        (Movie, Movie(title="M", year=1931), b'{"title":"M","year":1931}'),
        (set[int], {1}, b"[1]"),
        (frozenset[str], frozenset({"a"}), b'["a"]'),
        (tuple[int, str], (1, "a"), b'[1,"a"]'),
        (tuple[int, ...], (1, 2, 3), b"[1,2,3]"),
        (list[Point], [Point(1)], b'[{"at":null,"x":1}]'),
        (list[Model], [Model(x=1)], b'[{"Name":"","at":null,"x":1}]'),
        (dict[str, Point], {"a": Point(1)}, b'{"a":{"at":null,"x":1}}'),
        (Mapping[str, int], {"a": 1}, b'{"a":1}'),
        (Sequence[int], [1], b"[1]"),
        (datetime | None, None, b"null"),
        (datetime | None, WHEN, b'"2024-02-29T12:30:00+02:00"'),
        (int | str, "a", b'"a"'),
        (int | list[int], [1], b"[1]"),
        (float, 1, b"1"),
        (Any, 10**40, str(10**40).encode()),
    ],
)
def test_an_annotated_argument_comes_back_as_what_it_was(kind, value, written):
    signature = as_(kind)
    data = signature.pack({"value": value})
    assert data == b'{"value":' + written + b"}"
    back = signature.unpack(data)["value"]
    assert back == value
    assert type(back) is type(value) or kind is float


def test_a_pydantic_model_keeps_its_types():
    back = as_(Model).unpack(as_(Model).pack({"value": Model(x=1, at=WHEN)}))["value"]
    assert isinstance(back, Model)
    assert back.at == WHEN


def test_objects_that_never_compare_equal_count_by_what_is_written():
    back = as_(Nameless).unpack(as_(Nameless).pack({"value": Nameless(3)}))["value"]
    assert isinstance(back, Nameless)
    assert back.x == 3


def test_one_annotation_that_cannot_be_resolved_does_not_cost_the_others_their_types():
    def task(a: Missing, at: datetime) -> Missing: ...

    signature = Signature("task", task)
    assert signature.unpack(signature.pack({"a": [1], "at": WHEN})) == {"a": [1], "at": WHEN}


def test_a_type_that_cannot_be_read_leaves_the_value_as_it_is():
    class Own: ...

    assert as_(Own).unpack(b'{"value":{"a":1}}') == {"value": {"a": 1}}


def test_parameters_may_be_named_as_they_like():
    def task(f1: int, f0: str, from_: bool = True, self_: int = 0) -> None: ...

    signature = Signature("task", task)
    assert signature.unpack(signature.pack({"f1": 1, "f0": "a", "self_": 2})) == {"f1": 1, "f0": "a", "self_": 2}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.property
@given(st.dictionaries(st.text(min_size=1), json_values, max_size=5))
def test_plain_json_always_comes_back(params):
    signature = Signature("task", open_to_all)
    assert signature.unpack(signature.pack(params)) == params
