"""Middleware: entered outermost first, left innermost first; it can observe, swallow and stop a step."""

from __future__ import annotations

import logging

import pytest

from laneway import EnqueueError, Laneway, Middleware
from laneway.brokers.sqlite import MemoryBroker
from laneway.middleware import MiddlewareStack, overriding, surround

pytestmark = pytest.mark.unit


def run(step, *generators):
    return surround(generators, (), step)


def boom():
    raise ValueError("boom")


def test_the_first_one_is_the_outermost():
    log = []

    def named(name):
        def around():
            log.append(f"{name} in")
            result = yield
            log.append(f"{name} out with {result}")

        return around

    assert run(lambda: log.append("step") or 5, named("a"), named("b")) == (True, 5)
    assert log == ["a in", "b in", "step", "b out with 5", "a out with 5"]


def test_it_sees_what_was_raised_and_lets_it_through():
    seen = []

    def watching():
        try:
            yield
        except ValueError as error:
            seen.append(str(error))
            raise

    with pytest.raises(ValueError, match="boom"):
        run(boom, watching, watching)
    assert seen == ["boom", "boom"]


def test_it_may_swallow_what_was_raised():
    def swallowing():
        try:
            yield
        except ValueError:
            pass

    outer = []

    def watching():
        outer.append((yield))

    assert run(boom, watching, swallowing) == (True, None)
    assert outer == [None]


def test_it_may_raise_something_else_before_or_after():
    def after():
        yield
        raise KeyError("after")

    def before():
        raise KeyError("before")
        yield

    def turning():
        try:
            yield
        except KeyError as error:
            raise LookupError("turned") from error

    reached = []
    with pytest.raises(LookupError, match="turned"):
        run(lambda: reached.append(1), turning, after)
    with pytest.raises(LookupError, match="turned"):
        run(lambda: reached.append(2), turning, before)
    assert reached == [1]


def test_one_that_does_not_call_on_stops_the_step_and_nothing_else():
    log = []

    def outer():
        log.append("in")
        log.append((yield))

    def stopping():
        if log == "never":
            yield

    def inner():
        log.append("inner")
        yield

    assert run(lambda: log.append("step"), outer, stopping, inner) == (False, None)
    assert log == ["in", None]


def test_one_that_yields_twice_fails_the_step_and_is_ended():
    ended = []

    def twice():
        try:
            yield
            yield
        finally:
            ended.append("twice")

    def stubborn():
        for _ in range(3):  # one more than it takes to end a generator twice
            try:
                yield
            except GeneratorExit:
                ended.append("stubborn")

    with pytest.raises(RuntimeError, match="twice yields more than once"):
        run(lambda: 1, twice)
    with pytest.raises(RuntimeError, match="stubborn yields more than once"):
        run(lambda: 1, stubborn)
    assert ended[:2] == ["twice", "stubborn"]


def test_one_that_is_no_generator_is_told_to_yield():
    with pytest.raises(TypeError, match="must be a generator: write a yield"):
        run(lambda: 1, lambda: None)


def test_a_stop_iteration_of_the_step_is_not_taken_for_success():
    def around():
        yield

    def stop():
        raise StopIteration

    with pytest.raises(RuntimeError):
        run(stop, around)


def test_a_stack_may_be_entered_and_left_by_hand():
    stack = MiddlewareStack([])
    assert stack.enter()
    assert stack.leave(5, None) == 5


def test_only_methods_that_were_written_are_called():
    class Some(Middleware):
        def around_enqueue(self, jobs):
            yield

    class Inherits(Some): ...

    some, inherits = Some(), Inherits()
    assert overriding([Middleware(), some, inherits], "around_enqueue") == [
        some.around_enqueue,
        inherits.around_enqueue,
    ]
    assert overriding([Middleware(), some], "around_execution") == []


def app_with(*middleware):
    app = Laneway(broker=MemoryBroker(), middleware=middleware)

    @app.task
    def noop(n=None): ...

    return app, noop


class Change(Middleware):
    def __init__(self, change):
        self.change = change

    def around_enqueue(self, jobs):
        for job in jobs:
            self.change(job)
        yield


def test_what_is_enqueued_may_be_given_headers():
    stored = []

    class Recording(MemoryBroker):
        def enqueue(self, jobs):
            stored.extend(job.headers for job in jobs)
            super().enqueue(jobs)

    app, _ = app_with(Change(lambda job: setattr(job, "headers", {"trace": "7"})))
    app._broker = Recording()
    app.registry.find("noop").enqueue_many([(1,), (2,)])
    assert stored == [{"trace": "7"}] * 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda job: setattr(job, "body", job.body * 99_999), "After the middleware the body of the job [0-9a-f]+ is"),
        (lambda job: setattr(job, "body", b"x"), "must be text, not bytes"),
        (lambda job: setattr(job, "queue", "a b"), "queue must be 1 to 80 letters"),
    ],
)
def test_what_a_middleware_made_unfit_is_refused(change, sentence):
    app, noop = app_with(Change(change))
    with pytest.raises(EnqueueError, match=sentence):
        noop.enqueue(1)
    assert app.broker.inspect.stats() == []


def test_what_a_middleware_keeps_back_is_not_stored_and_said_so(caplog):
    class Stop(Middleware):
        def around_enqueue(self, jobs):
            return
            yield

    app, noop = app_with(Stop())
    with caplog.at_level(logging.WARNING, logger="laneway"):
        noop.enqueue_many([(1,), (2,)])
    assert "did not call on: 2 jobs were not enqueued" in caplog.text
    assert app.broker.inspect.stats() == []


def test_a_middleware_may_take_jobs_out():
    class Drop(Middleware):
        def around_enqueue(self, jobs):
            del jobs[0]
            yield

    _, noop = app_with(Drop())
    one, two = noop.enqueue_many([(1,), (2,)])
    assert [one.status(), two.status()] == ["gone", "queued"]
    assert noop.using(queue="default").enqueue(3).status() == "gone"


def test_the_brokers_own_error_reaches_the_middleware_and_the_caller():
    seen = []

    class Watch(Middleware):
        def around_enqueue(self, jobs):
            try:
                yield
            except OSError as error:
                seen.append(error)
                raise

    class Full(MemoryBroker):
        def enqueue(self, jobs):
            raise OSError("disk full")

    app, noop = app_with(Watch())
    app._broker = Full()
    with pytest.raises(OSError, match="disk full"):
        noop.enqueue(1)
    assert len(seen) == 1
