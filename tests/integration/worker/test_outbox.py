"""Jobs that a run enqueues are stored if and only if the run succeeds."""

from __future__ import annotations

import pytest

from laneway import Context, EnqueueError, Middleware
from laneway.jobs.settlement import OUTBOX_LIMIT


@pytest.fixture
def spawning(app):
    ran = []

    @app.task(queue="children")
    def child(number: int) -> None:
        ran.append(number)

    @app.task(context=True, max_retry_count=0)
    def parent(context: Context, numbers: list[int], fails: bool) -> None:
        for number in numbers:
            context.enqueue(child, number)
        if fails:
            raise ValueError("boom")

    return app, parent, child, ran


def test_a_run_that_succeeds_sends_all(spawning, drain):
    app, parent, _, ran = spawning
    parent.enqueue([1, 2, 3], fails=False)
    drain(app)
    assert sorted(ran) == [1, 2, 3]


def test_a_run_that_fails_sends_none(spawning, drain):
    app, parent, _, ran = spawning
    parent.enqueue([1, 2, 3], fails=True)
    drain(app)
    assert ran == []
    assert {each.queue: each.length for each in app.broker.inspect.stats()}["children"] == 0


def test_a_middleware_that_fails_afterwards_holds_everything_back(make_app, drain):
    class Strict(Middleware):
        def around_execution(self, call, context):
            yield
            raise RuntimeError("the transaction could not be committed")

    app = make_app(middleware=[Strict()])

    @app.task(context=True, max_retry_count=0)
    def parent(context: Context) -> None:
        context.enqueue(parent)

    parent.enqueue()
    drain(app)
    [stats] = app.broker.inspect.stats()
    assert (stats.length, stats.dead) == (0, 1)


def test_enqueueing_through_the_task_is_sent_at_once(app, drain):
    @app.task(max_retry_count=0)
    def parent(depth: int) -> None:
        if depth:
            parent.enqueue(depth - 1)
        raise ValueError("boom")

    parent.enqueue(2)
    drain(app)
    assert app.broker.inspect.stats()[0].dead == 3


def test_a_job_goes_to_the_queue_said_else_declared_and_never_to_the_running_one_by_itself(app, drain):
    seen = []

    @app.task(context=True)
    def loose(context: Context) -> None:
        seen.append(("loose", context.queue))

    @app.task(queue="own", context=True)
    def settled(context: Context) -> None:
        seen.append(("settled", context.queue))

    @app.task(context=True, queue="parents")
    def parent(context: Context) -> None:
        context.enqueue(loose)
        context.enqueue(settled)
        context.enqueue(loose.using(queue="said"))
        context.enqueue(loose.using(queue=context.queue))

    parent.enqueue()
    drain(app, queues=["parents", "own", "said", "default"])
    assert sorted(seen) == [("loose", "default"), ("loose", "parents"), ("loose", "said"), ("settled", "own")]


def test_delays_count_from_the_end_of_the_run(app, drain):
    handles = []

    @app.task(context=True)
    def parent(context: Context) -> None:
        handles.append(context.enqueue(parent.using(delay=3600)))
        handles.append(context.enqueue(parent.using(perform_at=4e9)))

    parent.enqueue()
    drain(app)
    assert [handle.status() for handle in handles] == ["delayed", "delayed"]


def test_a_run_enqueues_ten_thousand_at_most(app, drain):
    sentences = []

    @app.task(queue="many")
    def child(number: int) -> None: ...

    @app.task(context=True)
    def parent(context: Context) -> None:
        for number in range(OUTBOX_LIMIT):
            context.enqueue(child, number)
        try:
            context.enqueue(child, -1)
        except EnqueueError as error:
            sentences.append(str(error))

    parent.enqueue()
    drain(app, queues=["default"])
    assert len(sentences) == 1
    assert {each.queue: each.length for each in app.broker.inspect.stats()}["many"] == OUTBOX_LIMIT


def test_a_bad_argument_in_a_run_is_refused_at_once(spawning, drain):
    app, _, child, _ = spawning

    @app.task(context=True, max_retry_count=0)
    def careless(context: Context) -> None:
        context.enqueue(child, {1, 2})

    handle = careless.enqueue()
    drain(app)
    [job] = app.broker.inspect.find("default", handle.id)
    assert "EnqueueError: Task child" in job.error
