"""Payloads of collecting tasks: typed by the handler's annotation, canonical, refused if a type would change."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from laneway import Batch, ConfigError, DeclarationError, EnqueueError, Laneway, TicketError
from laneway.brokers.sqlite import MemoryBroker
from laneway.jobs.merge import identity_of
from tests.support.argument_types import Classy, Colour, Model, Movie, Nameless, Packed, Pair, Picky, Point

if TYPE_CHECKING:
    from nowhere import Unknown

pytestmark = pytest.mark.unit

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def collecting(app: Laneway, kind: Any) -> Any:
    def sync(batch): ...

    sync.__annotations__["batch"] = Batch[kind]
    return app.collect(sync)


def body(task: Any, *args: Any) -> str:
    return task.outgoing(("a", *args), {}).body


@pytest.mark.parametrize(
    ("kind", "payload", "stored"),
    [
        (Point, Point(1, NOON), '{"at":"2026-01-01T12:00:00Z","x":1}'),
        (Packed, Packed(1, {"b", "a"}), '{"tags":["a","b"],"x":1}'),
        (Model, Model(x=1, Name="n"), '{"Name":"n","at":null,"x":1}'),
        (Movie, {"year": 1927, "title": "Metropolis"}, '{"title":"Metropolis","year":1927}'),
        (Pair, Pair(1, "y"), '[1,"y"]'),
        (Classy, Classy(1), '{"x":1}'),
        (Nameless, Nameless(1), '{"x":1}'),
        (Any, {"b": [1, None], "a": {"d": 1, "c": 2.5}}, '{"a":{"c":2.5,"d":1},"b":[1,null]}'),
        (dict[str, int], {"b": 1, "a": 2}, '{"a":2,"b":1}'),
        (dict, {"b": 1, "a": 2}, '{"a":2,"b":1}'),
        (str, "Ärger ☃", '"Ärger ☃"'),
        (int, 5, "5"),
        (float, 1.5, "1.5"),
        (float, 1, "1.0"),
        (datetime, NOON, '"2026-01-01T12:00:00Z"'),
        (UUID, UUID(int=7), '"00000000-0000-0000-0000-000000000007"'),
        (Colour, Colour.RED, '"red"'),
        (set[str], {"b", "a"}, '["a","b"]'),
        (bytes, b"x", '"eA=="'),
        (list[Point], [Point(1), Point(2)], '[{"at":null,"x":1},{"at":null,"x":2}]'),
        (Point | None, None, "null"),
        (Point | None, Point(1), '{"at":null,"x":1}'),
    ],
    ids=range(22),
)
def test_a_payload_comes_back_as_it_went(app, kind, payload, stored):
    task = collecting(app, kind)
    job = task.outgoing(("a", payload), {})
    assert (job.body, job.identity) == (stored, identity_of(stored))
    back = task.load(job.body)
    assert type(back) is type(payload) or kind is float
    if kind is not Nameless:
        assert back == payload


def test_equal_values_are_equal_bytes(app):
    assert body(collecting(app, Any), {"a": 1, "b": 2}) == body(app.registry.collector_of("sync"), {"b": 2, "a": 1})


def test_annotations_may_be_texts(app):
    @app.collect
    def sync(batch: Batch[Point]) -> None: ...

    assert sync.load(body(sync, Point(1))) == Point(1)


@pytest.mark.parametrize("annotation", [Batch, Any, None, "Batch"], ids=str)
def test_an_annotation_that_says_nothing_leaves_plain_json(app, annotation):
    def sync(batch): ...

    if annotation is not None:
        sync.__annotations__["batch"] = annotation
    task = app.collect(sync)
    assert task.load(body(task, {"v": 1})) == {"v": 1}
    with pytest.raises(EnqueueError, match="the payload would come back with dict instead of Point"):
        task.enqueue("a", Point(1))


def test_a_type_that_is_not_found_is_refused(app):
    """It would silently be plain JSON."""
    with pytest.raises(DeclarationError, match=r"Batch\[Unknown\] of batch cannot be evaluated"):

        @app.collect
        def sync(batch: Batch[Unknown]) -> None: ...


@pytest.mark.parametrize(
    ("kind", "payload", "sentence"),
    [
        (Point, {"x": 1}, "the payload would come back with Point instead of dict"),
        (Point, {"y": 1}, "Object missing required field `x`"),
        (Point, Point("1"), "Expected `int`, got `str` - at `$.x`"),
        (Movie, {"title": "M"}, "Object missing required field `year`"),
        (Movie, {"title": "M", "year": 1931, "secret": 1}, "the payload would come back with other keys"),
        (Model, Model.model_construct(x="secret"), "was raised by "),
        (int, True, "Expected `int`, got `bool`"),
        (int, "secret", "Expected `int`, got `str`"),
        (str, 5, "Expected `str`, got `int`"),
        (Any, (1, 2), "the payload would come back with list instead of tuple"),
        (Any, Point(1), "the payload would come back with dict instead of Point"),
        (Any, {1: 2}, "a dict has keys that are not text"),
        (Picky, Picky.__new__(Picky), "cannot be stored"),
    ],
    ids=range(13),
)
def test_a_payload_that_would_be_bent_is_refused(app, refused, kind, payload, sentence):
    task = collecting(app, kind)
    if kind is Picky:
        payload.x = -1
        sentence = "KeyError was raised by its type"
    with refused("Task sync: ", sentence) as caught:
        task.enqueue("a", payload)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("kind", [Any, str, str | None, object])
def test_where_text_fits_the_payload_may_be_left_out(app, kind):
    assert body(collecting(app, kind)) == '""'


@pytest.mark.parametrize("kind", [Point, Packed, Model, Movie, int, dict, bytes, datetime, Colour])
def test_a_typed_payload_must_be_given(app, refused, kind):
    with refused("Task sync: its payloads have a type, so there is none by default; give a payload."):
        collecting(app, kind).enqueue("a")


@pytest.mark.parametrize("stored", ['{"y":"secret"}', "not json", "", '{"x":"secret"}', "\ud800", "[" * 5_000])
def test_a_stored_payload_that_does_not_fit_is_a_ticket_error(app, stored):
    task = collecting(app, Point)
    with pytest.raises(TicketError) as caught:
        task.load(stored)
    assert str(caught.value).startswith("A payload does not fit the task sync: ")
    assert "secret" not in str(caught.value)
    assert caught.value.task is task


# -- the app's own encoding ----------------------------------------------------------------------------


def app_of(dump: Any, load: Any) -> tuple[Laneway, Any]:
    app = Laneway(broker=MemoryBroker(), dump_payload=dump, load_payload=load)
    return app, collecting(app, Point)


def test_an_app_may_encode_payloads_its_own_way():
    app, task = app_of(lambda point: f"{point.x}", lambda text: Point(int(text)))
    task.enqueue("a", Point(5))
    task.enqueue("a", Point(5, NOON))  # equal texts are one payload
    [job] = app.broker.inspect.find("sync", "a")
    assert [payload.body for payload in job.payloads] == ["5"]
    assert job.payloads[0].identity == identity_of("5")
    assert task.load("5") == Point(5)


def test_then_the_default_payload_is_its_own_matter():
    _, task = app_of(str, str)
    assert body(task) == ""
    assert task.load("") == ""


def test_tickets_are_not_touched_by_it():
    app, _ = app_of(lambda value: "no", lambda text: "no")
    plain = app.task(name="plain")(lambda n: None)
    assert app.serializer.loads(app.outgoing(plain, (5,), {}).body).params == {"n": 5}


@pytest.mark.parametrize(
    ("dump", "sentence"),
    [
        (lambda value: b"bytes", "Task sync: its payload must be text, not bytes."),
        (lambda value: None, "Task sync: its payload must be text, not NoneType."),
        (lambda value: "\ud800", "Task sync: its payload holds half of a surrogate pair"),
        (lambda value: "x" * 1_048_577, "Task sync: its payload is 1048577 bytes"),
        (lambda value: value["secret"], "Task sync: TypeError was raised by dump_payload."),
    ],
    ids=range(5),
)
def test_what_it_encodes_wrongly_is_refused(dump, sentence):
    app, task = app_of(dump, str)
    with pytest.raises(EnqueueError) as caught:
        task.enqueue("a", Point(1))
    assert sentence in str(caught.value)
    assert "secret" not in str(caught.value)
    assert app.broker.inspect.stats() == []


def test_what_it_cannot_read_is_a_ticket_error():
    _, task = app_of(str, int)
    with pytest.raises(TicketError, match=r"^load_payload raised ValueError for the task sync\.$") as caught:
        task.load("secret")
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("given", [{"dump_payload": str}, {"load_payload": str}])
def test_one_half_of_an_encoding_is_refused(given):
    with pytest.raises(ConfigError, match="Give dump_payload and load_payload together"):
        Laneway("memory:", **given)


HOOKS = [
    "dump_payload",
    "load_payload",
    "format_error",
    "dump_error",
    "load_error",
    "on_start",
    "last_words",
    "scheduler",
    "splitter",
]


def test_hooks_that_are_no_functions_are_refused_all_at_once():
    with pytest.raises(ConfigError) as caught:
        Laneway("memory:", **dict.fromkeys(HOOKS, "no"))
    assert str(caught.value) == " ".join(f"{hook} must be a function, not 'no'." for hook in HOOKS)


def test_hooks_are_kept_for_the_worker():
    app = Laneway("memory:", **dict.fromkeys(HOOKS, str))
    assert [getattr(app, hook) for hook in HOOKS] == [str] * len(HOOKS)
    bare = Laneway("memory:")
    assert [getattr(bare, hook) for hook in HOOKS if hook not in ("dump_error", "load_error")] == [None] * 7
    assert bare.dump_error("text") == bare.load_error("text") == "text"
