"""Telemetry of runs and of enqueueing: when each event comes, what it holds, and what subscribers may do."""

from __future__ import annotations

from typing import Annotated

import pytest

from laneway import Batch, Context, Key, Middleware
from laneway.config import WorkerOptions
from laneway.telemetry import Enqueueing, JobsEnqueued, RunAbandoned, RunEnded, RunStarted
from laneway.worker import Worker

KINDS = (Enqueueing, JobsEnqueued, RunStarted, RunEnded, RunAbandoned)


class Seen(list):
    """The events of an app, in the order in which they came."""

    def __init__(self, app, *kinds: type) -> None:
        super().__init__()
        for kind in kinds or KINDS:
            app.telemetry.subscribe(kind, self.append)

    def of(self, kind: type) -> list:
        return [event for event in self if type(event) is kind]


def test_the_start_and_the_end_of_a_run_have_the_same_number(app, drain):
    seen = Seen(app, RunStarted, RunEnded)

    @app.task
    def work(number: int) -> None: ...

    work.enqueue_many([(1,), (2,), (3,)])
    drain(app, concurrency=1)
    started, ended = seen.of(RunStarted), seen.of(RunEnded)
    assert len({event.run for event in started}) == 3
    assert 0 not in {event.run for event in started}
    assert [event.run for event in started] == [event.run for event in ended]
    assert not any(event.more for event in ended)


def test_calls_of_a_key_are_runs_of_their_own(app, drain):
    seen = Seen(app, RunStarted, RunEnded)

    @app.task
    def work(key: Annotated[str, Key]) -> None: ...

    handles = [work.enqueue("a") for _ in range(3)]
    drain(app)
    assert [event.id for event in seen.of(RunStarted)] == [handle.id for handle in handles]
    assert [(type(event), event.run) for event in seen] == [
        (kind, event.run) for event in seen.of(RunStarted) for kind in (RunStarted, RunEnded)
    ]


def test_of_a_batch_all_ends_but_the_last_say_that_more_follow(app, drain):
    seen = Seen(app, RunStarted, RunEnded)

    @app.collect(shards=1, batch_size=4, max_retry_count=0)
    def gather(batch: Batch[str]) -> None:
        batch.fail("a", "no")
        batch.fail("b", "no")

    gather.enqueue_many([(key, "x") for key in "abcd"])
    drain(app)
    (start,) = seen.of(RunStarted)
    assert [(event.run, event.verdict, event.keys, event.more) for event in seen.of(RunEnded)] == [
        (start.run, "bury", 1, True),
        (start.run, "bury", 1, True),
        (start.run, "done", 2, False),
    ]


def test_of_a_batch_that_failed_in_all_its_keys_the_last_end_is_the_last(app, drain):
    seen = Seen(app, RunEnded)

    @app.collect(shards=1, batch_size=2, max_retry_count=0)
    def gather(batch: Batch[str]) -> None:
        for key in batch:
            batch.fail(key, "no")

    gather.enqueue_many([("a", "x"), ("b", "x")])
    drain(app)
    assert [event.more for event in seen] == [True, False]


def test_a_job_that_cannot_be_read_ends_without_having_started(app, drain):
    seen = Seen(app, RunStarted, RunEnded)

    @app.task
    def work() -> None: ...

    app.enqueue_body("nonsense")
    drain(app)
    (event,) = seen
    assert (event.run, event.task, event.verdict) == (0, "?", "bury")


def test_a_run_says_how_long_it_has_waited(bench):
    seen = Seen(bench.app, RunStarted)

    @bench.app.task
    def work() -> None: ...

    bench.run(work, perform_at=bench.clock.now() - 7.5)
    bench.run(work, perform_at=bench.clock.now() + 60)  # the worker's clock is late
    assert [event.waited_s for event in seen] == [7.5, 0.0]


@pytest.fixture
def bench():
    from laneway.jobs.data import Claim, Payload
    from tests.support.worker_fixtures import Bench

    class OneRun(Bench):
        def run(self, task, perform_at: float) -> None:
            body = self.app.serializer.dumps(task, {})
            claim = Claim("default", 1, "k", 1, perform_at, -1, 1, 0, [Payload(body)], worker=self.worker)
            run = self.runner.read(self.lane, claim)
            assert run is not None
            assert self.runner.execute(run) is None

    made = OneRun()
    yield made
    made.app.close()


def test_a_run_that_ends_the_worker_is_abandoned(app):
    seen = Seen(app, RunStarted, RunEnded, RunAbandoned)

    @app.task
    def fatal() -> None:
        raise SystemExit("enough")

    fatal.enqueue()
    assert Worker(app, WorkerOptions(until_empty=True)).run() == 1
    start, end = seen
    assert (type(start), type(end)) == (RunStarted, RunAbandoned)
    assert (end.run, end.error, type(end.exception)) == (start.run, "SystemExit: enough", SystemExit)


def test_what_is_enqueued_is_told_queue_by_queue_once_it_is_stored(app):
    seen = Seen(app, JobsEnqueued)

    @app.task
    class A:
        def run(self) -> None: ...

    @app.task(queue="other")
    class B:
        def run(self) -> None: ...

    app.telemetry.subscribe(JobsEnqueued, lambda event: found.append(app.broker.inspect.stats()))
    found: list = []
    app.enqueue_many([A(), B(), A()])
    assert seen == [JobsEnqueued("default", 2), JobsEnqueued("other", 1)]
    assert {stats.queue: stats.length for stats in found[0]} == {"default": 2, "other": 1}


def test_what_was_refused_is_not_told(app):
    seen = Seen(app, JobsEnqueued)

    @app.task
    def work(text: str) -> None: ...

    @app.collect
    def gather(batch: Batch[str]) -> None: ...

    gather.using().enqueue("x", "y")
    with pytest.raises(Exception, match="belongs to the collecting task"):
        work.using(queue="gather").enqueue("a")
    assert seen == [JobsEnqueued("gather", 1)]


def test_what_a_run_enqueues_is_told_when_the_run_has_succeeded(app, drain):
    @app.task
    def second() -> None: ...

    @app.task(context=True, max_retry_count=0)
    def first(context: Context, well: bool) -> None:
        context.enqueue(second)
        context.enqueue(second)
        if not well:
            raise ValueError("no")

    first.enqueue_many([(True,), (False,)])
    seen = Seen(app, JobsEnqueued)
    drain(app)
    assert seen == [JobsEnqueued("default", 2)]


def test_headers_given_to_the_question_travel_with_the_jobs(app, drain):
    found = []

    @app.task(context=True)
    def inner(context: Context) -> None:
        found.append((context.task, dict(context.headers)))

    @app.task(context=True)
    def outer(context: Context, key: Annotated[str, Key]) -> None:
        found.append((context.task, dict(context.headers)))
        context.enqueue(inner)

    def give(event: Enqueueing) -> None:
        event.headers["trace"] = f"{event.queue} {event.count} {len(asked)}"
        asked.append(event)

    asked: list[Enqueueing] = []
    app.telemetry.subscribe(Enqueueing, give)
    started = Seen(app, RunStarted)
    outer.enqueue("a")
    drain(app)
    assert found == [("outer", {"trace": "default 1 0"}), ("inner", {"trace": "default 1 1"})]
    assert [event.headers for event in started] == [headers for _, headers in found]


def test_a_header_of_a_middleware_stays(make_app, drain):
    class Own(Middleware):
        def around_enqueue(self, jobs):
            for job in jobs:
                job.headers = {"trace": "mine", "tenant": "acme"}
            yield

    app = make_app(middleware=[Own()])
    found = []

    @app.task(context=True)
    def work(context: Context) -> None:
        found.append(context.headers)

    app.telemetry.subscribe(Enqueueing, lambda event: event.headers.update(trace="theirs", more="yes"))
    work.enqueue()
    drain(app)
    assert found == [{"trace": "mine", "more": "yes", "tenant": "acme"}]


def test_a_collecting_job_is_asked_about_and_carries_nothing(app, drain):
    seen = Seen(app, RunStarted)

    @app.collect
    def gather(batch: Batch[str]) -> None: ...

    app.telemetry.subscribe(Enqueueing, lambda event: event.headers.update(trace="x"))
    gather.enqueue("a", "x")
    drain(app)
    assert [event.headers for event in seen] == [None]


def test_a_subscriber_that_fails_stops_no_job(app, drain, caplog):
    def fail(event: object) -> None:
        raise RuntimeError("no")

    @app.task
    def work() -> None: ...

    for kind in KINDS:
        app.telemetry.subscribe(kind, fail)
    work.enqueue()
    assert drain(app) == 0
    assert app.broker.inspect.stats()[0].processed == 1
    assert "a subscriber to RunEnded failed" in caplog.text


def test_nothing_is_counted_when_nobody_listens(bench, monkeypatch):
    @bench.app.task
    def work() -> None: ...

    numbers: list[int] = []
    monkeypatch.setattr("laneway.worker.run.report.next_run", lambda: numbers.append(1) or 1)
    bench.run(work, perform_at=0.0)
    assert numbers == []
    Seen(bench.app, RunStarted)
    bench.run(work, perform_at=0.0)
    assert numbers == [1]
