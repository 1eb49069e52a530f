"""Keys and scores: which parameters make up a key, and which values are valid."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from laneway import DeclarationError, EnqueueError, Key
from laneway.brokers.shared import check_jobs
from laneway.jobs.data import Debounce, Kind, NewJob
from laneway.jobs.keys import key_text, score_number
from laneway.tasks.signature import UnstorableValueError
from tests.support.argument_types import Colour, Shape

if TYPE_CHECKING:
    from nowhere import Unknown

pytestmark = pytest.mark.unit

Order = Annotated[str, Key]


class Mute:
    def __str__(self) -> str:
        raise LookupError("secret")


class Plain: ...


@dataclass
class Holder:
    inner: Any


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("order-17", "order-17"),
        (17, "17"),
        (1.5, "1.5"),
        (True, "True"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (date(2026, 1, 2), "2026-01-02"),
        (Shape.ROUND, "round"),
        (Colour.RED, "Colour.RED"),
        (("a", 1), "('a', 1)"),
        (" ", " "),
        ("☃", "☃"),
        ("x at 0x7f>", "x at 0x7f>"),
        ("x" * 512, "x" * 512),
        ("ü" * 256, "ü" * 256),
        ("😀" * 128, "😀" * 128),
    ],
)
def test_a_key_is_the_text_of_a_value(value, text):
    assert key_text(value) == text
    assert type(key_text(value)) is str


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("", "key must not be empty"),
        (None, "key must be text or something with a text of its own, not NoneType"),
        (b"order", "key must be text or something with a text of its own, not bytes"),
        (bytearray(b"order"), "not bytearray"),
        (memoryview(b"order"), "not memoryview"),
        ({"a", "b"}, "not set"),
        ({"a": 1}, "not dict"),
        (frozenset(), "not frozenset"),
        (Mute(), "key must have a text, and LookupError was raised by str() of Mute"),
        (object(), "key must have a text of its own, and object has only its address in memory; give it a __str__()"),
        (Plain(), "Plain has only its address"),
        (lambda: 1, "function has only its address"),
        (Holder(Plain()), "Holder has only its address"),
        ("x" * 513, "key is 513 bytes, and may be 512 at most; give a digest of it"),
        ("ü" * 257, "key is 514 bytes"),
        (10**600, "key is 601 bytes"),
        ("a\0b", "key must not hold a NUL character"),
        ("a\ud800", "key holds half of a surrogate pair; give valid Unicode"),
        ("\ud800" * 600, "key holds half of a surrogate pair"),
    ],
    ids=range(19),
)
def test_what_has_no_text_for_a_key_is_refused(value, sentence):
    with pytest.raises(UnstorableValueError) as caught:
        key_text(value)
    assert sentence in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("score", [0, -1, 1.5, int(1e290), -1e290, 5e-324])
def test_a_score_is_a_number(score):
    assert score_number(score) == score
    assert type(score_number(score)) is float


@pytest.mark.parametrize(
    ("score", "sentence"),
    [
        (float("nan"), "score must be a finite number, not nan"),
        (float("inf"), "score must be a finite number, not inf"),
        (1e291, "score must be within ±1e+290"),
        (-1e300, "score must be within ±1e+290"),
        (10**400, "score must be within ±1e+290"),
        (True, "score must be a number, not bool"),
        ("1", "score must be a number, not str"),
        (None, "score must be a number, not NoneType"),
        (1j, "score must be a number, not complex"),
    ],
    ids=range(9),
)
def test_other_scores_are_refused(score, sentence):
    with pytest.raises(UnstorableValueError) as caught:
        score_number(score)
    assert str(caught.value) == sentence


# -- which parameters ----------------------------------------------------------------------------------


def keys_of(app, target) -> tuple[str, ...]:
    task = app.task(target)
    return (app.registry.of(task) if isinstance(task, type) else task).keys


def alias(order: Order, cents: int) -> None: ...
def instance(order: Annotated[str, Key()], cents: int) -> None: ...
def several(b: Order, cents: int, a: Annotated[int, "note", Key]) -> None: ...
def by_name(cents: int, *, order: Annotated[int, Key] = 5) -> None: ...
def no_key(order: Annotated[str, "Key"], cents: int, *, key: str = "") -> None: ...
def text(order: "Annotated[str, Key]") -> None: ...  # noqa: UP037 - twice a text


@dataclass
class Data:
    order: Annotated[str, Key]
    cents: int = 0

    def run(self) -> None: ...


class Child(Data):
    pass


class Struct(msgspec.Struct):
    order: Annotated[str, Key]
    cents: int = 0

    def run(self) -> None: ...


class Tuple(NamedTuple):
    order: Annotated[str, Key]
    cents: int = 0

    def run(self) -> None: ...


@attrs.define
class Attrs:
    order: Annotated[str, Key]
    cents: int = 0

    def run(self) -> None: ...


class Pydantic(pydantic.BaseModel):
    order: Annotated[str, Key]
    cents: int = 0

    def run(self) -> None: ...


class Written:
    def __init__(self, order: Annotated[str, Key], cents: int = 0) -> None:
        self.order, self.cents = order, cents

    def to_dict(self) -> dict[str, Any]:
        return {"order": self.order, "cents": self.cents}

    def run(self) -> None: ...


CLASSES = [Data, Child, Struct, Tuple, Attrs, Pydantic, Written]


@pytest.mark.parametrize(
    ("target", "names"),
    [
        (alias, ("order",)),
        (instance, ("order",)),
        (several, ("b", "a")),
        (by_name, ("order",)),
        (no_key, ()),
        (text, ("order",)),
        *((kind, ("order",)) for kind in CLASSES),
    ],
)
def test_marked_parameters_make_the_key_in_the_order_of_their_declaration(app, target, names):
    assert keys_of(app, target) == names


@pytest.mark.parametrize("kind", CLASSES)
def test_an_instance_has_the_key_of_its_field(app, kind):
    app.task(kind)
    job = app.outgoing(kind(order="order-17", cents=5), (), {})
    assert (job.kind, job.key) == (Kind.KEYED, "order-17")


def test_a_pydantic_alias_is_marked_too(app):
    class Aliased(pydantic.BaseModel):
        order: Annotated[str, Key] = pydantic.Field(alias="Order")

        def run(self) -> None: ...

    app.task(Aliased)
    assert app.outgoing(Aliased(Order="a"), (), {}).key == "a"


def inner(orders: list[Annotated[str, Key]]) -> None: ...
def optional(order: Annotated[str, Key] | None) -> None: ...
def bare(order: Key) -> None: ...
def in_metadata(order: Annotated[str, Annotated[int, Key]]) -> None: ...


@pytest.mark.parametrize("target", [inner, optional, bare, in_metadata])
def test_a_mark_that_would_mean_nothing_is_refused(app, target):
    name = next(iter(target.__annotations__))
    sentence = rf"Task {target.__name__}: the Key of {name} must be the outermost .*, as in Annotated\[str, Key\]\.$"
    with pytest.raises(DeclarationError, match=sentence):
        app.task(target)
    assert len(app.registry) == 0


def not_found(order: Annotated[Unknown, Key]) -> None: ...
def not_found_unmarked(order: Unknown, key: list[Unknown]) -> None: ...


class NotFound(NamedTuple):
    order: Annotated[Unknown, Key]

    def run(self) -> None: ...


@pytest.mark.parametrize("target", [not_found, NotFound])
def test_a_mark_that_cannot_be_evaluated_is_refused_rather_than_lost(app, target):
    with pytest.raises(
        DeclarationError, match=r"the annotation Annotated\[Unknown, Key\] of order cannot be evaluated"
    ):
        app.task(target)
    assert len(app.registry) == 0


def test_an_annotation_without_a_mark_may_be_unknown(app):
    assert keys_of(app, not_found_unmarked) == ()


class Callable:
    def __call__(self, order: Order, cents: int = 0) -> None: ...


@pytest.mark.parametrize("target", [functools.partial(alias, cents=5), Callable()])
def test_what_can_be_called_is_marked_too(app, target):
    assert app.task(name="x")(target).keys == ("order",)


# -- the key of a call ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "key"),
    [
        (lambda app: app.outgoing(app.task(alias), ("a", 5), {}), "a"),
        (lambda app: app.outgoing(app.task(alias), (), {"cents": 5, "order": "a"}), "a"),
        (lambda app: app.outgoing(app.task(several), ("x", 1, 7), {}), "x:7"),
        (lambda app: app.outgoing(app.task(several), (), {"a": 7, "b": "x", "cents": 1}), "x:7"),
        (lambda app: app.outgoing(app.task(by_name), (1,), {}), "5"),
        (lambda app: app.outgoing(app.task(by_name), (1,), {"order": 6}), "6"),
        (lambda app: app.outgoing(app.task(by_name).using(key="k"), (1,), {}), "k"),
        (lambda app: app.outgoing(app.task(no_key).using(key=17), ("a", 1), {}), "17"),
    ],
)
def test_a_call_has_the_key_of_its_arguments_unless_one_is_given(app, call, key):
    job = call(app)
    assert (job.kind, job.key) == (Kind.KEYED, key)


def test_what_to_dict_leaves_out_is_the_instances_own(app):
    class Brief(Written):
        def to_dict(self) -> dict[str, Any]:
            return {"cents": self.cents}

        def __init__(self, cents: int = 0, order: Annotated[str, Key] = "default") -> None:
            super().__init__(order, cents)

    app.task(Brief)
    assert app.outgoing(Brief(5, order="a"), (), {}).key == "a"


def test_a_default_that_is_made_is_the_instances_own(app):
    @app.task
    @dataclass
    class Made:
        order: Annotated[str, Key] = field(default_factory=lambda: "made")

        def run(self) -> None: ...

    assert app.outgoing(Made(), (), {}).key == "made"


# -- what a broker is given ----------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"key": ""}, "The key of a job in q must not be empty."),
    ({"key": "x" * 513}, "The key of a job in q is 513 bytes, and may be 512 at most"),
    ({"key": "a\0"}, "The key of a job in q must not hold a NUL character."),
    ({"identity": ""}, "The job 'k' has no identity"),
    ({"score": float("nan")}, "The score of a payload of 'k' must be a finite number"),
    ({"score": -1e300}, "The score of a payload of 'k' must be within"),
    ({"kind": Kind.KEYED, "score": 1.0}, "The job 'k' has a score, and only payloads of collecting tasks"),
    ({"quiet": Debounce(-1.0)}, "The job 'k' must wait for quiet from 0 seconds to 100 years."),
    ({"quiet": Debounce(1.0, float("nan"))}, "The job 'k' must wait for quiet from 0 seconds"),
    ({"quiet": Debounce(1.0), "delay_s": 1.0}, "The job 'k' cannot wait for quiet"),
    ({"quiet": Debounce(1.0), "perform_at": 1.0}, "The job 'k' cannot wait for quiet"),
    ({"quiet": Debounce(1.0), "kind": Kind.KEYED}, "The job 'k' cannot wait for quiet"),
]


def job(**changes: Any) -> NewJob:
    return NewJob(**{"queue": "q", "key": "k", "body": "1", "kind": Kind.COLLECTING, "identity": "i", **changes})


@pytest.mark.parametrize(("changes", "sentence"), WRONG, ids=range(len(WRONG)))
def test_a_broker_refuses_what_is_wrong(changes, sentence):
    with pytest.raises(EnqueueError) as caught:
        check_jobs([job(), job(**changes)])
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "good",
    [
        job(),
        job(score=-5.0),
        job(quiet=Debounce(0.0, 5.0, 3)),
        job(kind=Kind.KEYED, perform_at=5.0),
        job(key="ü" * 256),
    ],
)
def test_a_broker_takes_what_is_right(good: NewJob):
    check_jobs([good])
