"""Tickets: their exact bytes, which tickets are accepted, and that a bad one raises only TicketError."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laneway import Laneway, TicketError
from laneway.brokers.sqlite import MemoryBroker

pytestmark = pytest.mark.unit

RESIZE = '{"_job_class":"resize","_job_params":{"path":"a.png","width":200}}'


def make_app() -> Laneway:
    app = Laneway(broker=MemoryBroker())

    @app.task
    def resize(path: str, width: int = 1): ...

    @app.task(name="MyJob", aliases=["OldJob"])
    def my_job(): ...

    return app


@pytest.fixture
def app():
    return make_app()


def test_a_ticket_has_its_keys_in_this_order_and_no_spaces(app, bodies):
    app.registry.find("resize").enqueue(width=200, path="a.png")
    assert bodies() == [RESIZE]


def test_no_arguments_are_null(app, bodies):
    app.registry.find("MyJob").enqueue()
    assert bodies() == ['{"_job_class":"MyJob","_job_params":null}']


def test_text_stays_readable(app, bodies):
    app.registry.find("resize").enqueue("Ärger/☃.png")
    assert bodies() == ['{"_job_class":"resize","_job_params":{"path":"Ärger/☃.png"}}']


@pytest.mark.parametrize(
    "body",
    [
        '{"_job_class":"MyJob","_job_params":null}',
        '{"_job_class":"MyJob","_job_params":{}}',
        '{"_job_class":"MyJob"}',
        '{"_job_class": "MyJob", "_job_params": null}',
        ' {"_job_params" : { } ,\n "_job_class" : "MyJob"} ',
        '{"_job_class":"OldJob","_job_params":null}',
        '{"_job_class":"MyJob","_job_params":null,"_execute_after":5,"more":{"a":[1]}}',
    ],
)
def test_what_others_and_older_versions_wrote_is_read(app, body):
    call = app.serializer.loads(body)
    assert (call.task.name, call.params) == ("MyJob", {})


def test_params_become_arguments(app):
    call = app.serializer.loads('{"_job_class": "resize", "_job_params": {"width": 5, "path": "a"}}')
    assert call.params == {"path": "a", "width": 5}
    assert repr(call) == "<Call of resize>"  # no arguments in it: it may be logged


def test_an_empty_body_is_no_ticket_and_no_error(app):
    assert app.serializer.loads("") is None


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("hello", "The body is not a ticket: "),
        ("\ud800", "The body is not a ticket: "),
        ("[" * 100_000, "The body is not a ticket: "),
        ("null", "The body is not a ticket: Expected `object`, got `null`"),
        ('{"_job_params":null}', "missing required field `_job_class`"),
        ('{"_job_class":5}', "Expected `str`, got `int`"),
        ('{"_job_class":"Nobody"}', "There is no task named 'Nobody' in this app; declare it, give its successor"),
        ('{"_job_class":"os.system","_job_params":{"command":"ls"}}', "There is no task named 'os.system'"),
        ('{"_job_class":"resize"}', "do not fit the task resize: Object missing required field `path`"),
        ('{"_job_class":"resize","_job_params":["a"]}', "Expected `object`, got `array`"),
        ('{"_job_class":"resize","_job_params":{"path":1}}', "Expected `str`, got `int` - at `$.path`"),
        ('{"_job_class":"resize","_job_params":{"path":"a","depth":1}}', "unknown field `depth`"),
        ('{"_job_class":"MyJob","_job_params":{"a":1}}', "do not fit the task MyJob: "),
    ],
    ids=range(13),
)
def test_what_describes_no_task_is_refused_in_a_sentence(app, body, sentence):
    with pytest.raises(TicketError) as caught:
        app.serializer.loads(body)
    assert sentence in str(caught.value)
    assert str(caught.value).endswith(".")


names = st.sampled_from(["resize", "MyJob", "OldJob", "os.system", "__import__", "subprocess:run"]) | st.text(
    max_size=5
)
keys = st.sampled_from(["path", "width", "__class__", ""])
params = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
tickets = st.builds(
    lambda name, params, more: json.dumps({"_job_class": name, "_job_params": params, **more}),
    names,
    params,
    st.dictionaries(keys, st.integers(), max_size=1),
)


@st.composite
def mutated(draw):
    body = draw(tickets | st.just(RESIZE))
    at = draw(st.integers(0, len(body)))
    return body[:at] + draw(st.text(max_size=3)) + body[at + draw(st.integers(0, 3)) :]


THE_APP = make_app()


@pytest.mark.property
@settings(max_examples=1_000, deadline=None)
@given(tickets | mutated() | st.text(st.characters(exclude_categories=())))
def test_no_ticket_raises_anything_else_or_imports_a_module(body):
    app = THE_APP
    before = set(sys.modules)
    try:
        call = app.serializer.loads(body)
    except TicketError:
        pass
    else:
        assert call is None or call.task in list(app.registry)
    assert set(sys.modules) - before == set()
