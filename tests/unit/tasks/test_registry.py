"""Registry: valid task names, each used once; only registered names and aliases are found."""

from __future__ import annotations

import pytest

from laneway import DeclarationError
from laneway.jobs.data import Kind

pytestmark = pytest.mark.unit


def named(name):
    def task(): ...

    task.__name__ = name
    return task


def test_a_task_is_found_by_its_name_and_its_aliases_only(app):
    task = app.task(name="new", aliases=["old", "older"])(named("function"))
    assert [app.registry.find(name) for name in ("new", "old", "older")] == [task] * 3
    assert app.registry.find("function") is None
    assert list(app.registry) == [task]
    assert len(app.registry) == 1


def test_tasks_are_listed_as_declared(app):
    tasks = [app.task(named(name)) for name in "cab"]
    assert list(app.registry) == tasks
    assert repr(tasks[0]) == "<Task c>"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"name": "a"}, {"name": "a"}),
        ({"name": "a"}, {"name": "b", "aliases": ["a"]}),
        ({"name": "a", "aliases": ["b"]}, {"name": "b"}),
        ({"name": "a", "aliases": ["c"]}, {"name": "b", "aliases": ["c"]}),
    ],
)
def test_a_name_is_taken_once(app, first, second):
    task = app.task(**first)(named("x"))
    with pytest.raises(DeclarationError, match=r"Two tasks are named '.'; give one of them another name"):
        app.task(**second)(named("y"))
    assert list(app.registry) == [task]


@pytest.mark.parametrize("name", ["a", "x" * 200, "Übung ☃", "a.b:c/d", "100%", "two words"])
def test_any_printable_name_will_do(app, name):
    assert app.task(name=name)(named("x")).name == name
    assert app.registry.find(name)


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "\x00", "\ud800", "\u2028", 5])
def test_other_names_are_refused(app, name):
    with pytest.raises(DeclarationError, match="must be 1 to 200 printable characters"):
        app.task(name=name)(named("x"))
    with pytest.raises(DeclarationError, match="must be 1 to 200 printable characters"):
        app.task(aliases=[name])(named("x"))
    assert len(app.registry) == 0


def test_a_lambda_may_be_given_a_name(app):
    assert app.task(name="add")(lambda a, b: a + b)(1, 2) == 3


def test_a_task_is_declared_once(app):
    task = app.task(named("x"))
    with pytest.raises(DeclarationError, match="x is a task already"):
        app.task(task)


def test_a_class_is_one_task(app):
    class Job:
        def run(self): ...

    assert app.task(Job) is Job
    with pytest.raises(DeclarationError, match="The class Job is the task 'Job' already; give that one aliases"):
        app.task(name="other")(Job)
    assert app.registry.find("other") is None


def test_queues_are_those_of_the_tasks(app):
    for name, queue in (("a", None), ("b", "mail"), ("c", None), ("d", "mail"), ("e", "slow")):
        app.task(name=name, queue=queue)(named("x"))
    assert app.queues() == ["default", "mail", "slow"]


def test_a_functions_own_attributes_do_not_get_in_the_way(app):
    function = named("x")
    function.name, function.app, function.options = "y", None, None
    task = app.task(function)
    assert (task.name, task.app) == ("x", app)
    assert task.options.retries(Kind.PLAIN) == 25
