"""Arguments of a task are stored by parameter name, and calls that Python would reject are refused."""

from __future__ import annotations

import functools
from datetime import timedelta
from typing import Any

import pytest

from laneway import DeclarationError, EnqueueError

pytestmark = pytest.mark.unit


@pytest.fixture
def resize(app):
    @app.task
    def resize(path: str, width: int = 100, *, sharp: bool = False): ...

    return resize


@pytest.mark.parametrize(
    ("args", "kwargs", "params"),
    [
        (("a", 1), {}, '{"path":"a","width":1}'),
        (("a",), {"width": 1}, '{"path":"a","width":1}'),
        ((), {"width": 1, "path": "a"}, '{"path":"a","width":1}'),
        (("a",), {}, '{"path":"a"}'),
        (("a",), {"sharp": True}, '{"path":"a","sharp":true}'),
    ],
)
def test_arguments_are_stored_by_name_and_defaults_left_out(resize, bodies, args, kwargs, params):
    resize.enqueue(*args, **kwargs)
    assert bodies() == [f'{{"_job_class":"resize","_job_params":{params}}}']


@pytest.mark.parametrize(
    ("args", "kwargs", "sentence"),
    [
        ((), {}, "missing a required argument: 'path'"),
        ((), {"width": 1}, "missing a required argument: 'path'"),
        (("a", 1, True), {}, "too many positional arguments"),
        (("a",), {"path": "b"}, "multiple values for argument 'path'"),
        (("a",), {"height": 1}, "got an unexpected keyword argument 'height'"),
    ],
)
def test_what_a_call_would_refuse_is_refused(resize, refused, args, kwargs, sentence):
    with refused("Task resize: ", sentence):
        resize.enqueue(*args, **kwargs)
    with pytest.raises(EnqueueError, match=sentence):
        resize.call(*args, **kwargs)


def test_a_required_keyword_only_argument_is_missed(app, refused):
    @app.task
    def task(a=1, *, b): ...

    with refused("missing a required", "argument: 'b'"):
        task.enqueue(1)


def test_further_keywords_are_kept(app, bodies):
    @app.task
    def task(a: int, **more: Any): ...

    task.enqueue(1, c="x", b=[2])
    assert bodies() == ['{"_job_class":"task","_job_params":{"a":1,"b":[2],"c":"x"}}']
    assert app.serializer.loads(bodies()[0]).params == {"a": 1, "b": [2], "c": "x"}


def test_the_context_is_not_an_argument(app, bodies, refused):
    @app.task(context=True)
    def tidy(context, path): ...

    with refused("too many positional arguments"):
        tidy.enqueue("context", "a.png")
    tidy.enqueue("a.png")
    assert bodies() == ['{"_job_class":"tidy","_job_params":{"path":"a.png"}}']


def positional_only(a, /): ...


def any_number(*args): ...


def generator():
    yield


async def async_generator():
    yield


class Yielding:
    def run(self):
        yield


class RunTakesMore:
    def run(self, context, more): ...


class RunTakesAKeyword:
    def run(self, context, *, more): ...


class NoRun: ...


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        (positional_only, "the parameter a cannot be positional-only"),
        (any_number, r"the parameter args cannot be positional-only or \*args"),
        (generator, "a task must not yield"),
        (async_generator, "a task must not yield"),
        (Yielding, "a task must not yield"),
        (RunTakesMore, r"run\(\) may take the context and nothing else"),
        (RunTakesAKeyword, r"run\(\) may take the context and nothing else"),
        (NoRun, r"NoRun has no run\(\) method"),
        (lambda: None, "A lambda has no name"),
        (functools.partial(print), "must be 1 to 200 printable characters, not None"),
        (17, r"A task is a function or a class with run\(\), not int"),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(app, target, sentence):
    with pytest.raises(DeclarationError, match=sentence):
        app.task(target)
    assert len(app.registry) == 0


@pytest.mark.parametrize("target", [lambda: None, lambda *, context: None], ids=["none", "keyword-only"])
def test_a_task_with_context_needs_a_parameter_for_it(app, target):
    with pytest.raises(DeclarationError, match="its first parameter must be for the context"):
        app.task(context=True, name="task")(target)


def test_a_class_is_not_declared_with_context(app):
    with pytest.raises(DeclarationError, match="drop context=True"):
        app.task(context=True)(RunTakesMore)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"queue": "no spaces"}, "queue must be 1 to 80 letters, digits, '_' or '-'"),
        ({"time_limit": 0}, "time_limit must be more than 0 seconds or a timedelta, 100 years at most, not 0."),
        ({"time_limit": -1.5}, "time_limit must be more than 0 seconds"),
        ({"time_limit": timedelta(0)}, "time_limit must be more than 0 seconds"),
        ({"time_limit": float("nan")}, "time_limit must be more than 0 seconds"),
        ({"time_limit": True}, "time_limit must be more than 0 seconds"),
        ({"time_limit": "5"}, "time_limit must be more than 0 seconds"),
        ({"isolation": "thread"}, "isolation must be 'process', 'fresh' or None, not 'thread'."),
        ({"isolation": True}, "isolation must be 'process', 'fresh' or None, not True."),
        ({"max_retry_count": -1}, "max_retry_count must be a whole number from 0 on, not -1"),
        ({"max_retry_count": 1.5}, "max_retry_count must be a whole number"),
        ({"max_retry_count": True}, "max_retry_count must be a whole number"),
        ({"retry_in": 5}, "retry_in must be a function"),
        ({"bury_on": [BaseException]}, "bury_on must be a list of exception types"),
        ({"bury_on": ValueError}, "bury_on must be a list, even of one"),
        ({"aliases": "old"}, "aliases must be a list, even of one"),
        ({"retries_exhausted": 1}, "retries_exhausted must be a function"),
    ],
)
def test_options_that_cannot_be_are_refused(app, options, sentence):
    with pytest.raises(DeclarationError, match=sentence):
        app.task(**options)(positional_only)


def test_every_problem_is_named_at_once(app):
    with pytest.raises(DeclarationError, match=r"queue must be .* max_retry_count must be"):
        app.task(queue="", max_retry_count=-1)(NoRun.__init__)


def test_a_plain_call_just_runs(app, stored):
    @app.task
    def double(n: int) -> int:
        """Twice."""
        return 2 * n

    assert double(4) == 8
    assert (double.__name__, double.__doc__) == ("double", "Twice.")
    assert stored() == []


def test_a_callable_object_may_be_async(app):
    class Sender:
        async def __call__(self, to: str) -> None: ...

    assert app.task(name="send")(Sender()).is_async
