"""Keyed calls: two equal calls are two payloads of one key, and a caller may give any task a key."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated

import pytest

from laneway import Context, Item, Key, Laneway, Middleware, Serializer
from laneway.broker import Turn
from laneway.brokers.sqlite import MemoryBroker
from laneway.jobs.data import Claim, Kind, Payload, WorkerView

pytestmark = pytest.mark.unit


@dataclass
class Ship:
    order: Annotated[str, Key]

    def run(self) -> None: ...


@dataclass
class Note:
    text: str

    def run(self) -> None: ...


@pytest.fixture
def charge(app):
    @app.task(queue="money")
    def charge(order: Annotated[str, Key], cents: int = 1) -> None: ...

    app.task(Ship)
    app.task(Note)
    return charge


@pytest.fixture
def noop(app):
    @app.task
    def noop(n: int = 0) -> None: ...

    return noop


def test_two_equal_calls_are_two_payloads_of_one_key(app, charge):
    first, second = charge.enqueue("a", 5), charge.enqueue("a", 5)
    [job] = app.broker.inspect.find("money", "a")
    assert (job.kind, job.size, job.key) == (Kind.KEYED, 2, "a")
    assert [payload.identity for payload in job.payloads] == [first.id, second.id]
    assert first.id != second.id
    assert (first.key, first.queue) == ("a", "money")


def test_the_ticket_ends_with_the_calls_id(app, charge):
    job = app.outgoing(charge, ("a",), {"cents": 5})
    head = '{"_job_class":"charge","_job_params":{"cents":5,"order":"a"},"_job_id":"'
    assert job.body == f'{head}{job.identity}"}}'
    assert app.serializer.loads(job.body).params == {"order": "a", "cents": 5}


def test_a_plain_ticket_has_no_id(app, noop):
    job = app.outgoing(noop, (), {})
    assert (job.kind, job.identity, job.body) == (Kind.PLAIN, "", '{"_job_class":"noop","_job_params":null}')


@pytest.mark.parametrize(
    "send",
    [
        lambda charge: charge.using(queue="other"),
        lambda charge: charge.using(queue="money"),
        lambda charge: charge.using(key="b", queue="other"),
        lambda charge: charge.app.using(queue="other").enqueue(Ship("a")),
        lambda charge: charge.app.using(queue="other").enqueue_many([Ship("a")]),
        lambda charge: _context(charge).enqueue(charge.using(queue="other"), "a"),
        lambda charge: _context(charge).using(queue="other").enqueue(Ship("a")),
    ],
)
def test_a_task_with_a_key_parameter_stays_in_its_queue(charge, refused, send):
    with refused("it has a Key parameter, and keys are exclusive within a queue; leave queue out"):
        send(charge)


def test_an_ad_hoc_key_may_name_its_queue(noop):
    handle = noop.using(key="a", queue="other").enqueue()
    assert (handle.queue, handle.key) == ("other", "a")


def _context(task):
    claim = Claim("other", 1, "job-1", 7, 0.0, 2, 4, 0, [Payload("{}")], None, {})
    return Context(task.app, claim, task)


def test_a_handle_is_about_its_call(app, charge):
    first, second = charge.enqueue("a"), charge.using(delay=60).enqueue("a")
    assert (first.status(), second.status()) == ("queued", "delayed")
    assert first.cancel()
    assert not first.cancel()
    assert (first.status(), second.status()) == ("cancelled", "delayed")
    assert second.reschedule(perform_at=5)
    assert second.status() == "queued"
    view = WorkerView(id="w", host="h", pid=1, queues=["money"], concurrency=1, lease_s=30, started_at=0, seen_at=0)
    app.broker.join(view)
    assert app.broker.turn(Turn("w", "money", 1, (), 1)).claims[0].payloads[0].identity == second.id
    assert second.status() == "running"
    assert not second.cancel()


@pytest.mark.parametrize(
    "send",
    [
        lambda app, noop, context: noop.using(key="k").enqueue(1),
        lambda app, noop, context: noop.using(key="k").using(delay=5).enqueue(1),
        lambda app, noop, context: noop.enqueue_many([Item(1, key="k")])[0],
        lambda app, noop, context: noop.using(key="other").enqueue_many([Item(1, key="k")])[0],
        lambda app, noop, context: app.using(key="k").enqueue(Note("a")),
        lambda app, noop, context: app.using(key="k").enqueue_many([Note("a")])[0],
        lambda app, noop, context: app.using(key="k").enqueue(Ship("a")),
        lambda app, noop, context: context.using(key="k").enqueue(Note("a")),
        lambda app, noop, context: context.enqueue(noop.using(key="k"), 1),
    ],
)
def test_any_task_may_be_given_a_key(app, charge, noop, send):
    context = Context(app, Claim("default", 1, "j", 1, 0.0, -1, 1, 0, [Payload("{}")]), noop)
    handle = send(app, noop, context)
    jobs = context.outbox or app.broker.inspect.find("default", "k")
    assert [(job.kind, job.key) for job in jobs] == [(Kind.KEYED, "k")]
    assert handle.key == "k"
    assert len(handle.id) == 32


def test_a_given_key_comes_before_the_marked_one(app, charge):
    assert charge.using(key="other").enqueue("a").key == "other"
    assert [handle.key for handle in charge.enqueue_many([("a",), Item("b", key="c"), Item("d")])] == ["a", "c", "d"]


@pytest.mark.parametrize("key", ["", None, b"a", object(), "x" * 513, "\ud800", "\0"], ids=range(7))
def test_a_bad_key_is_refused(app, charge, noop, refused, key):
    for send in (
        lambda: charge.enqueue(key),
        lambda: charge.enqueue_many([("a",), (key,)]),
        lambda: app.enqueue(Ship(key)),
        lambda: app.enqueue_many([Ship("a"), Ship(key)]),
        lambda: noop.using(key=key).enqueue(),
        lambda: noop.enqueue_many([(1,), Item(1, key=key)]),
        lambda: app.using(key=key).enqueue(Note("a")),
    ):
        with refused("key "):
            send()


def test_the_sentence_names_the_task_and_the_item(charge, refused):
    with refused("Task charge: key must not be empty."):
        charge.enqueue("")
    with refused("Item 1: Task charge: key must not be empty. Nothing was stored."):
        charge.enqueue_many([("a",), ("",)])


def test_the_joined_key_has_the_same_limit(app, refused):
    @app.task
    def two(a: Annotated[str, Key], b: Annotated[str, Key]) -> None: ...

    with refused("Task two: key is 513 bytes"):
        two.enqueue("x" * 256, "x" * 256)
    assert two.enqueue("x" * 256, "x" * 255).key == "x" * 256 + ":" + "x" * 255


@pytest.mark.parametrize(
    ("declared", "plain", "keyed"), [({}, 25, 5), ({"max_retry_count": 0}, 0, 0), ({"max_retry_count": 25}, 25, 25)]
)
def test_a_call_with_a_key_is_retried_5_times_unless_the_task_says_more(app, declared, plain, keyed):
    options = app.task(name="x", **declared)(lambda: None).options
    assert options.retries(Kind.PLAIN) == plain
    assert options.retries(Kind.KEYED) == keyed


def test_a_serializer_that_takes_no_id_still_keeps_equal_calls_apart():
    class Old(Serializer):
        def dumps(self, task, params):
            return super().dumps(task, params)

    class Open(Serializer):
        def dumps(self, task, params, **more):
            return json.dumps({**json.loads(super().dumps(task, params, **more)), "tenant": 7})

    for kind, has_id in ((Old, False), (Open, True), (Serializer, True)):
        app = Laneway(broker=MemoryBroker(), serializer=kind)

        @app.task
        def charge(order: Annotated[str, Key]) -> None: ...

        handles = charge.enqueue_many([("a",), ("a",)])
        [job] = app.broker.inspect.find("default", "a")
        assert [payload.identity for payload in job.payloads] == [handle.id for handle in handles]
        assert ["_job_id" in json.loads(payload.body) for payload in job.payloads] == [has_id] * 2
        assert app.serializer.loads(job.payloads[0].body).params == {"order": "a"}


def test_a_middleware_may_change_a_key_and_not_to_a_bad_one():
    class Tenant(Middleware):
        prefix = "t7:"

        def around_enqueue(self, jobs):
            for job in jobs:
                job.key = self.prefix + job.key
            yield

    middleware = Tenant()
    app = Laneway(broker=MemoryBroker(), middleware=[middleware])

    @app.task
    def charge(order: Annotated[str, Key]) -> None: ...

    handle = charge.enqueue("a")
    assert (handle.key, handle.status()) == ("t7:a", "queued")
    middleware.prefix = "x" * 512
    with pytest.raises(Exception, match="The key of a job in default is 513 bytes"):
        charge.enqueue("a")


@pytest.mark.parametrize("call", [0, 1])
def test_the_context_is_that_of_one_call(app, noop, call):
    payloads = [Payload("{}", 1.0, "first", 3, {"n": "1"}), Payload("{}", 2.0, "second", 1)]
    claim = Claim("default", 1, "order-17", 9, 0.0, 2, 7, 0, payloads, None, None, Kind.KEYED)
    context = Context(app, claim, noop, call)
    found = (context.id, context.key, context.attempt, context.retry_count, context.headers, context.fence)
    assert found == [("first", "order-17", 3, 2, {"n": "1"}, 9), ("second", "order-17", 1, -1, {}, 9)][call]
