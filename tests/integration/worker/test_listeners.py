"""Listeners run by a worker: each by itself, with retries, postponing, middleware and hooks like any task."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from laneway import Bury, Context, Laneway, Middleware
from laneway.jobs.data import NewJob
from laneway.telemetry import EventsPublished, JobsEnqueued, RunEnded
from tests.integration.worker import listener_tasks
from tests.integration.worker.isolated_tasks import JOURNAL, noted
from tests.support.worker_fixtures import dead, stats


@dataclass
class Order:
    id: str
    cents: int = 0


@pytest.fixture
def app(make_app) -> Laneway:
    return make_app(name="shop", env="test")


def subscribe(app: Laneway) -> None:
    """What a worker does when it starts, or `laneway subscribe`; here it is to be so before the first event."""
    for listener in app.listeners():
        app.broker.events.subscribe(listener.subscription)


def test_each_gets_the_value_as_it_takes_it(app, drain):
    found: list[Any] = []

    @app.listener("placed", source="shop")
    def typed(order: Order) -> None:
        found.append(("typed", order))

    @app.listener("placed", source="shop", destination="mail", context=True)
    async def plain(context: Context, order: dict[str, Any]) -> None:
        found.append((context.task, order, context.key, context.headers, context.queue))

    @app.listener("placed")
    def generic(order: Any) -> None:
        found.append(("generic", order))

    subscribe(app)
    id = app.publish("placed", Order("a", 5), attributes={"cents": 5})
    drain(app)
    queue = "mail-eventboss-shop-placed-test"
    assert sorted(found, key=lambda each: each[0]) == [
        ("plain", {"cents": 5, "id": "a"}, f"{id}@{queue}", {"cents": "5"}, queue),
        ("typed", Order("a", 5)),
    ]
    app.publish("placed", "anything", generic=True)
    drain(app)
    assert found[-1] == ("generic", "anything")


def test_one_that_fails_retries_alone(app, drain):
    ran: list[tuple[str, int]] = []

    @app.listener("placed", source="shop", context=True)
    def well(context: Context, number: int) -> None:
        ran.append(("well", context.attempt))

    @app.listener("placed", source="shop", destination="mail", context=True, max_retry_count=2, retry_in=lambda n: 0)
    def ill(context: Context, number: int) -> None:
        ran.append(("ill", context.attempt))
        raise ValueError("no")

    subscribe(app)
    id = app.publish("placed", 1)
    drain(app)
    assert sorted(ran) == [("ill", 1), ("ill", 2), ("ill", 3), ("well", 1)]
    [job] = dead(app, ill.queue)
    assert (job.key, job.payloads[0].body, "ValueError: no" in (job.error or "")) == (f"{id}@{ill.queue}", "1", True)
    assert dead(app, well.queue) == []
    assert (stats(app, well.queue).processed, stats(app, well.queue).failed) == (1, 0)


def test_it_postpones_on_success_and_on_error(make_app, drain):
    seen: list[Any] = []
    app = make_app(name="shop", error_handlers=[lambda error, context: seen.append((str(error), context.task))])

    @app.listener("placed", context=True, max_retry_count=0)
    def waits(context: Context, fails: bool) -> None:
        seen.append((context.attempt, context.retry_count))
        if context.attempt == 1:
            context.publish("placed", False, generic=True)
            context.postpone(0)
            if fails:
                raise ValueError("boom")

    subscribe(app)
    app.publish("placed", False, generic=True)
    drain(app)
    assert seen == [(1, -1), (2, -1)]
    seen.clear()
    app.publish("placed", True, generic=True)
    drain(app)
    assert seen == [(1, -1), ("boom", "waits"), (2, -1)]
    assert dead(app, waits.queue) == []


def test_error_handlers_and_hooks_know_it(make_app, drain):
    seen: list[Any] = []
    app = make_app(
        name="shop",
        error_handlers=[
            lambda error, context: seen.append((type(error), context.task, context.queue)),
            lambda error, context: seen.append(context.headers),
        ],
    )

    @app.listener("placed", bury_on=[KeyError], retries_exhausted=lambda jobs: seen.append([job.queue for job in jobs]))
    def ill(value: int) -> None:
        raise (KeyError if value else Bury)("no")

    subscribe(app)
    app.publish_many("placed", [1, 0], generic=True, attributes={"a": "x"})
    drain(app, concurrency=1)
    assert [each for each in seen if isinstance(each, tuple)] == [
        (KeyError, "ill", ill.queue),
        (Bury, "ill", ill.queue),
    ]
    assert seen.count({"a": "x"}) == 2
    assert [queue for each in seen if isinstance(each, list) for queue in each] == [ill.queue] * 2
    assert len(dead(app, ill.queue)) == 2


def test_middleware_surrounds_it(make_app, drain):
    seen: list[Any] = []

    class Around(Middleware):
        def around_deserialization(self, body, claim):
            call = yield
            seen.append((body, call.task.name, call.params))

        def around_execution(self, call, context):
            seen.append((call.task.name, context.task))
            yield
            seen.append("done")

    app = make_app(name="shop", middleware=[Around()])

    @app.listener("placed")
    def on_placed(order: Order) -> None:
        seen.append(order)

    subscribe(app)
    app.publish("placed", {"id": "a"}, generic=True)
    drain(app)
    assert seen == [
        ('{"id":"a"}', "on_placed", {"value": Order("a")}),
        ("on_placed", "on_placed"),
        Order("a"),
        "done",
    ]


@pytest.mark.parametrize("surrounded", [False, True])
def test_a_value_that_does_not_fit_goes_to_the_morgue(make_app, drain, surrounded):
    class Reading(Middleware):
        def around_deserialization(self, body, claim):
            yield

    seen: list[Any] = []
    app = make_app(
        name="shop",
        middleware=[Reading()] if surrounded else [],
        error_handlers=[lambda error, context: seen.append(context.task)],
    )
    ended: list[RunEnded] = []
    app.telemetry.subscribe(RunEnded, ended.append)

    @app.listener("placed", max_retry_count=1, retry_in=lambda n: 0)
    def strict(order: Order) -> None: ...

    subscribe(app)
    app.publish_many("placed", [{"cents": 5}, {"id": "a"}], generic=True)
    drain(app)
    [job] = dead(app, strict.queue)
    assert job.payloads[0].body == '{"cents":5}'
    assert "The value does not fit the listener strict: Object missing required field `id`" in (job.error or "")
    assert seen == ["strict"] * 2
    assert sorted((event.task, event.verdict) for event in ended) == [
        ("strict", "bury"),
        ("strict", "done"),
        ("strict", "retry"),
    ]


def test_an_error_while_it_is_read_is_the_listeners(make_app, drain):
    class Broken(Middleware):
        def around_deserialization(self, body, claim):
            yield
            raise ValueError("no")

    app = make_app(name="shop", middleware=[Broken()])
    ended: list[RunEnded] = []
    app.telemetry.subscribe(RunEnded, ended.append)
    app.listener("placed", name="on_placed", max_retry_count=0)(lambda value: None)
    subscribe(app)
    app.publish("placed", 1, generic=True)
    drain(app)
    assert [(event.task, event.verdict) for event in ended] == [("on_placed", "bury")]


def test_a_value_that_looks_like_a_ticket_is_a_value(app, drain):
    found: list[Any] = []

    @app.task
    def other() -> None:
        raise AssertionError("nobody has asked for it")

    app.listener("placed", name="on_placed")(found.append)
    subscribe(app)
    ticket = {"_job_class": "other", "_job_params": None}
    app.publish("placed", ticket, generic=True)
    drain(app)
    assert found == [ticket]


@pytest.mark.parametrize("sent", [False, True])
@pytest.mark.parametrize("surrounded", [False, True])
def test_a_value_runs_no_task_where_its_listener_is_missing(make_app, drain, sent, surrounded):
    ran: list[str] = []
    seen: list[str] = []

    class Around(Middleware):
        def around_deserialization(self, body, claim) -> Iterator[None]:
            yield

    publisher = make_app(name="shop")
    queue = publisher.listener("placed", name="on_placed")(lambda value: None).queue
    app = Laneway(broker=publisher.broker, middleware=[Around()] if surrounded else [])
    app.telemetry.subscribe(RunEnded, lambda event: seen.append(event.verdict))
    app.task(name="tk")(lambda: ran.append("tk"))
    subscribe(publisher)
    values: list[Any] = [{"_job_class": "tk", "_job_params": None}, 5]
    for value in values:
        if sent:
            publisher.sender("placed", "shop", generic=True).send(value)
        else:
            publisher.publish("placed", value, generic=True)
    drain(app, queues=[queue])
    assert ran == []
    assert seen == ["retry", "retry"]
    waiting = app.broker.inspect.listing(queue, "retries").jobs
    assert len(waiting) == 2
    for job in waiting:
        assert f"There is no listener for the queue {queue} in this app; declare it with @app" in (job.error or "")


def test_a_keyed_call_may_have_a_key_that_looks_like_a_copys(app, drain):
    ran: list[str] = []
    task = app.task(name="keyed", queue="orders")(lambda: ran.append("keyed"))
    task.using(key="7@orders").enqueue()
    drain(app)
    assert ran == ["keyed"]


def test_an_empty_body_is_deleted(app, drain):
    listener = app.listener("placed", name="on_placed")(lambda value: None)
    app.broker.enqueue([NewJob(queue=listener.queue, key="empty", body="")])
    drain(app)
    assert (stats(app, listener.queue).processed, dead(app, listener.queue)) == (1, [])


def test_what_a_run_publishes_is_sent_if_it_succeeds(app, drain):
    found: list[int] = []
    seen: list[Any] = []
    for kind in (JobsEnqueued, EventsPublished):
        app.telemetry.subscribe(kind, seen.append)

    @app.task(context=True, max_retry_count=0)
    def work(context: Context, fails: bool) -> None:
        context.publish("placed", int(fails))
        context.publish("placed", int(fails))
        if fails:
            raise ValueError("no")

    for number in range(2):
        app.listener("placed", source="shop", destination=f"app{number}", name=f"on_{number}")(found.append)
    subscribe(app)
    work.enqueue_many([(False,), (True,)])
    seen.clear()
    drain(app)
    assert found == [0, 0, 0, 0]
    topic = "eventboss-shop-placed-test"
    assert sorted(seen, key=repr) == [
        EventsPublished(topic, 2, 4),
        JobsEnqueued(f"app0-{topic}", 2),
        JobsEnqueued(f"app1-{topic}", 2),
    ]


def test_what_its_run_enqueues_goes_to_the_default_queue(app, drain):
    found: list[str] = []

    @app.task(context=True)
    def child(context: Context) -> None:
        found.append(context.queue)

    @app.listener("placed", context=True)
    def parent(context: Context, value: Any) -> None:
        context.enqueue(child)

    subscribe(app)
    app.publish("placed", 1, generic=True)
    drain(app)
    assert found == ["default"]


def test_a_sender_reaches_one_alone(app, drain):
    found: list[Any] = []
    for name in ("one", "two"):
        app.listener("placed", source="shop", destination=name, name=name)(
            lambda value, name=name: found.append((name, value))
        )
    subscribe(app)
    app.sender("placed", "two").send_many([1, 2])
    drain(app)
    assert sorted(found) == [("two", 1), ("two", 2)]


# -- in other processes --------------------------------------------------------------------------------


@pytest.fixture
def isolated(tmp_path, monkeypatch) -> Iterator[Laneway]:
    app = listener_tasks.app
    monkeypatch.setenv(JOURNAL, str(tmp_path / "journal"))
    app.use(f"sqlite:///{tmp_path / 'jobs.db'}")
    subscribe(app)
    yield app
    app.close()


def test_isolated_listeners(isolated, drain):
    isolated.publish("placed", listener_tasks.Order("a", 5), generic=True, attributes={"country": "DE"})
    isolated.publish("placed", listener_tasks.Order("b", 6), generic=True)
    isolated.publish("stranger", {"id": "c"}, generic=True)
    isolated.publish("hung", 1, generic=True)
    assert drain(isolated) == 0
    lines = sorted(line.rpartition(" ") for line in noted())
    here = str(os.getpid())
    assert [(what, pid == here) for what, _, pid in lines] == [
        ("apart Order(id='a', cents=5) apart DE", False),
        ("limited a", False),
        ("limited b", False),
        ("shipped a", True),
    ]
    [job] = dead(isolated, listener_tasks.strict.queue)
    assert "The value does not fit the listener strict" in (job.error or "")
    [job] = dead(isolated, listener_tasks.hung.queue)
    assert "Its time is up" in (job.error or "")
