"""Declaring collecting tasks: allowed handlers, options, and the queue that no other task may share."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from laneway import Batch, Collecting, Context, DeclarationError
from laneway.jobs.data import Claim, Debounce, Kind, Payload
from laneway.jobs.shards import DEFAULT_SHARDS

pytestmark = pytest.mark.unit


def test_a_bare_declaration_has_the_defaults(app):
    @app.collect
    def sync_orders(batch: Batch[Any]) -> None:
        """What it does."""

    assert isinstance(sync_orders, Collecting)
    options = sync_orders.options
    assert (options.queue, options.shards, options.batch_size, options.max_payloads) == ("sync_orders", 5, 1, 1_000)
    assert options.retries(Kind.COLLECTING) == 25
    assert options.quiet is None
    assert (sync_orders.name, sync_orders.is_async, sync_orders.takes_context) == ("sync_orders", False, False)
    assert sync_orders.__doc__ == "What it does."
    assert repr(sync_orders) == "<Collecting sync_orders>"


def test_options_are_kept(app):
    def own(payload: Any) -> Any:
        return payload

    sync = app.collect(
        name="any name",
        queue="orders",
        shards=24,
        batch_size=10,
        max_retry_count=3,
        retry_in=own,
        bury_on=[ValueError],
        retries_exhausted=own,
        grace=timedelta(minutes=1),
        max_wait=300,
        max_size=50,
        max_payloads=100_000,
        key=own,
        score=own,
    )(lambda batch: None)
    options = sync.options
    assert (sync.name, options.queue, options.shards, options.batch_size) == ("any name", "orders", 24, 10)
    assert (options.retries(Kind.COLLECTING), options.max_payloads, options.bury_on) == (3, 100_000, (ValueError,))
    assert options.quiet == Debounce(60.0, 300.0, 50)
    assert [options.retry_in, options.retries_exhausted, options.key, options.score] == [own] * 4


def test_a_plain_call_just_runs_it(app):
    @app.collect
    def sync(batch: Batch[int]) -> dict[str, list[int]]:
        return dict(batch)

    @app.collect(context=True)
    async def later(context: Context, batch: Batch[int]) -> tuple[str, list[str]]:
        return context.key, list(batch)

    claim = Claim("later", 1, "a", 1, 0.0, -1, 1, 0, [Payload("1")], None, None, Kind.COLLECTING)
    context = Context(app, claim, later)
    batch = Batch({"a": [1, 2]})
    assert sync(batch) == sync(batch=batch) == {"a": [1, 2]}
    assert asyncio.run(later(context, batch)) == ("a", ["a"])
    assert sync.invoke({"batch": batch}, context) == {"a": [1, 2]}
    assert asyncio.run(later.invoke({"batch": batch}, context)) == ("a", ["a"])
    assert (later.is_async, later.takes_context) == (True, True)


def test_it_is_one_of_the_apps_tasks(app):
    plain = app.task(name="plain")(lambda: None)
    sync = app.collect(name="sync", queue="orders", shards=24)(lambda batch: None)
    assert list(app.registry) == [plain, sync]
    assert len(app.registry) == 2
    assert app.queues() == ["default", "orders"]
    assert app.registry.collector_of("orders") is sync
    assert app.registry.collector_of("default") is None
    assert (app.shards_of("orders"), app.shards_of("default")) == (24, DEFAULT_SHARDS)


def test_a_ticket_does_not_run_it(app):
    app.collect(name="sync")(lambda batch: None)
    assert app.registry.find("sync") is None
    with pytest.raises(Exception, match="'sync' is a collecting task, and is not run by tickets; delete the job"):
        app.serializer.loads('{"_job_class":"sync","_job_params":null}')


def none() -> None: ...
def two(batch: Batch[Any], other: int) -> None: ...
def by_name(*, batch: Batch[Any]) -> None: ...
def number(orders: int) -> None: ...
def a_dict(orders: dict[str, list[int]]) -> None: ...
def only_context(context: Context) -> None: ...


def generator(batch: Batch[Any]) -> Any:
    yield batch


async def async_generator(batch: Batch[Any]) -> Any:
    yield batch


class WithRun:
    def run(self) -> None: ...


class Owner:
    def method(self, batch: Batch[Any]) -> None: ...


HANDED = "a collecting task is handed a batch"


@pytest.mark.parametrize(
    ("target", "options", "sentence"),
    [
        (none, {}, f"Task none: {HANDED} and nothing else; declare it as def none(batch: Batch)."),
        (two, {}, f"Task two: {HANDED} and nothing else"),
        (by_name, {}, f"Task by_name: {HANDED} and nothing else"),
        (only_context, {"context": True}, "declare it as def only_context(context, batch: Batch)."),
        (number, {}, f"Task number: {HANDED}, and its parameter orders is for int; annotate it as Batch[…]."),
        (a_dict, {}, "its parameter orders is for dict"),
        (only_context, {}, "its parameter context is for Context"),
        (generator, {}, "Task generator: a generator does nothing when it is called"),
        (async_generator, {}, "Task async_generator: a generator does nothing"),
        (WithRun, {}, "A collecting task is a function of a batch, not the class WithRun."),
        (Owner.method, {}, "Task method: a method cannot be a task"),
        (lambda batch: None, {}, "A lambda has no name to be found by"),
        (5, {}, "A collecting task is a function of a batch, not int."),
        (none, {"name": ""}, "A task's name must be 1 to 200 printable characters"),
        (none, {"name": "two words"}, "Task two words: its name cannot be that of its queue, which must be 1 to 80"),
        (none, {"name": "two words", "queue": "a b"}, "Task two words: queue must be 1 to 80 letters"),
    ],
    ids=range(16),
)
def test_what_takes_no_batch_is_refused(app, target, options, sentence):
    with pytest.raises(DeclarationError) as caught:
        app.collect(**options)(target)
    assert sentence in str(caught.value)
    assert str(caught.value).endswith(".")
    assert len(app.registry) == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"shards": 0}, "shards must be a whole number from 1 to 1000, not 0."),
        ({"shards": 1.5}, "shards must be a whole number from 1 to 1000, not 1.5."),
        ({"shards": True}, "shards must be a whole number from 1 to 1000, not True."),
        ({"shards": 1_001}, "shards must be a whole number from 1 to 1000, not 1001."),
        ({"batch_size": 0}, "batch_size must be a whole number from 1 on, not 0."),
        ({"max_payloads": 0}, "max_payloads must be a whole number from 1 to 100000, not 0."),
        ({"max_payloads": 100_001}, "max_payloads must be a whole number from 1 to 100000, not 100001."),
        ({"max_payloads": None}, "max_payloads must be a whole number from 1 to 100000, not None."),
        ({"time_limit": 0}, "time_limit must be more than 0 seconds or a timedelta, 100 years at most, not 0."),
        ({"time_limit": -1.5}, "time_limit must be more than 0 seconds"),
        ({"time_limit": timedelta(0)}, "time_limit must be more than 0 seconds"),
        ({"time_limit": float("nan")}, "time_limit must be more than 0 seconds"),
        ({"time_limit": True}, "time_limit must be more than 0 seconds"),
        ({"time_limit": "5"}, "time_limit must be more than 0 seconds"),
        ({"isolation": "thread"}, "isolation must be 'process', 'fresh' or None, not 'thread'."),
        ({"isolation": True}, "isolation must be 'process', 'fresh' or None, not True."),
        ({"max_retry_count": -1}, "max_retry_count must be a whole number from 0 on, not -1."),
        ({"grace": -1}, "grace must be 0 or more seconds or a timedelta, 100 years at most, not -1."),
        ({"grace": timedelta(-1)}, "grace must be 0 or more seconds"),
        ({"grace": float("nan")}, "grace must be 0 or more seconds"),
        ({"grace": "5"}, "grace must be 0 or more seconds"),
        ({"grace": 1e12}, "grace must be 0 or more seconds or a timedelta, 100 years at most"),
        ({"grace": 1, "max_wait": -1}, "max_wait must be 0 or more seconds"),
        ({"grace": 1, "max_size": 0}, "max_size must be a whole number from 1 on, not 0."),
        ({"max_wait": 5}, "max_wait ends a wait for quiet, and there is none without grace; give grace too."),
        ({"max_size": 5}, "max_size ends a wait for quiet, and there is none without grace; give grace too."),
        ({"key": "id"}, "key must be a function of a payload, not 'id'."),
        ({"score": 5}, "score must be a function of a payload, not 5."),
        ({"queue": "a b"}, "queue must be 1 to 80 letters"),
        ({"bury_on": [int]}, "bury_on must be a list of exception types"),
        ({"bury_on": ValueError}, "bury_on must be a list, even of one"),
    ],
    ids=range(31),
)
def test_a_wrong_option_is_refused(app, options, sentence):
    with pytest.raises(DeclarationError) as caught:
        app.collect(name="sync", **options)(lambda batch: None)
    assert sentence in str(caught.value)
    assert len(app.registry) == 0


def test_all_wrong_options_are_told_at_once(app):
    with pytest.raises(DeclarationError) as caught:
        app.collect(name="a b", shards=0, batch_size=-1, max_size=3)(lambda: None)
    for part in ("its name cannot be", "shards must be", "batch_size must be", "max_size ends a wait"):
        assert part in str(caught.value)


@pytest.mark.parametrize("max_payloads", [0, 100_001, 1.5, True, "5"])
def test_a_plain_task_has_a_sensible_max_payloads_too(app, max_payloads):
    with pytest.raises(DeclarationError, match="max_payloads must be a whole number from 1 to 100000"):
        app.task(name="x", max_payloads=max_payloads)(lambda: None)
    assert app.task(name="x", max_payloads=50)(lambda: None).options.max_payloads == 50


def test_handlers_may_be_looser_than_they_must(app):
    for number, handler in enumerate(
        (lambda *args: None, lambda batch, more=1: None, lambda b, /: None, dict.fromkeys)
    ):
        assert app.collect(name=f"sync{number}")(handler).takes_context is False


# -- its queue is its alone ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        (
            ("collect", "a", "q"),
            ("collect", "b", "q"),
            "Task b: a collecting task has its queue alone, and the queue q",
        ),
        (("collect", "a", None), ("collect", "b", "a"), "and the queue a is that of a too; give one of them another"),
        (("task", "a", "q"), ("collect", "b", "q"), "and the queue q is that of a too; give one of them another"),
        (("task", "a", "b"), ("collect", "b", None), "and the queue b is that of a too"),
        (("task", "a", None), ("collect", "b", "default"), "and the queue default is that of a too"),
        (("collect", "a", "q"), ("task", "b", "q"), "Task b: the queue q belongs to the collecting task a alone"),
        (("collect", "a", None), ("task", "b", "a"), "Task b: the queue a belongs to the collecting task a alone"),
        (("collect", "a", "default"), ("task", "b", None), "Task b: the queue default belongs to the collecting task"),
        (("collect", "a", "q"), ("task", "a", "r"), "Two tasks are named 'a'"),
        (("task", "a", "q"), ("collect", "a", "r"), "Two tasks are named 'a'"),
    ],
    ids=range(10),
)
def test_a_queue_is_shared_with_nobody(app, first, second, sentence):
    def declare(how: str, name: str, queue: str | None) -> Any:
        return getattr(app, how)(name=name, queue=queue)(lambda batch: None)

    task = declare(*first)
    with pytest.raises(DeclarationError) as caught:
        declare(*second)
    assert sentence in str(caught.value)
    assert list(app.registry) == [task]


def test_it_is_declared_once(app):
    sync = app.collect(name="sync")(lambda batch: None)
    for again in (app.collect, app.task):
        with pytest.raises(DeclarationError, match="sync is a task already; declare it once"):
            again(sync)
    with pytest.raises(DeclarationError, match="x is a task already; declare it once"):
        app.collect(app.task(name="x")(lambda batch: None))
