"""What a run enqueues is stored if and only if the run succeeds."""

from __future__ import annotations

from typing import Annotated

import pytest

from laneway import Batch, Context, EnqueueError, Key, Middleware
from laneway.job import Claim, Kind, NewJob, Payload
from laneway.outcome import OUTBOX_LIMIT, done
from laneway.worker.refusals import without_refused
from tests.worker.conftest import dead, stats


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
    assert {each.queue: each.length for each in app.broker.stats()}["children"] == 0


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
    [stats] = app.broker.stats()
    assert (stats.length, stats.dead) == (0, 1)


def test_enqueueing_through_the_task_is_sent_at_once(app, drain):
    @app.task(max_retry_count=0)
    def parent(depth: int) -> None:
        if depth:
            parent.enqueue(depth - 1)
        raise ValueError("boom")

    parent.enqueue(2)
    drain(app)
    assert app.broker.stats()[0].dead == 3


def test_a_job_goes_to_the_queue_said_else_declared_else_the_running_one(app, drain):
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

    parent.enqueue()
    drain(app, queues=["parents", "own", "said", "default"])
    assert sorted(seen) == [("loose", "parents"), ("loose", "said"), ("settled", "own")]


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
    assert {each.queue: each.length for each in app.broker.stats()}["many"] == OUTBOX_LIMIT


def test_a_bad_argument_in_a_run_is_refused_at_once(spawning, drain):
    app, _, child, _ = spawning

    @app.task(context=True, max_retry_count=0)
    def careless(context: Context) -> None:
        context.enqueue(child, {1, 2})

    handle = careless.enqueue()
    drain(app)
    [job] = app.broker.find("default", handle.id)
    assert "EnqueueError: Task child" in job.error


def test_all_keys_of_a_batch_whose_outbox_is_refused_are_buried(app, drain):
    """The broker knows the key as a plain job's, so that it cannot be a keyed one's; the batch beside it is fine."""

    @app.task(queue="elsewhere")
    def plain() -> None: ...

    @app.task(queue="elsewhere")
    def keyed(key: Annotated[str, Key]) -> None: ...

    taken = plain.using(delay=1_000).enqueue().id
    ran = []

    @app.collect(batch_size=3, shards=1, context=True, max_retry_count=9)
    def gather(context: Context, batch: Batch[int]) -> None:
        ran.append(sorted(batch))
        if "c" in batch:
            batch.fail("c", "said so")
        if "x" not in batch:
            context.enqueue(keyed, taken)

    gather.enqueue_many([(key, 1) for key in "abcxyz"])
    assert drain(app, queues=["gather"], concurrency=1) == 0
    assert ran == [["a", "b", "c"], ["x", "y", "z"]]
    jobs = dead(app, "gather")
    assert sorted(job.key for job in jobs) == ["a", "b", "c"]
    assert all("What the run enqueued was refused" in job.error for job in jobs)
    assert stats(app, "gather").length == 0
    assert [job.kind for job in app.broker.find("elsewhere", taken)] == [Kind.PLAIN]


def test_only_the_run_to_blame_is_buried():
    """A broker that refuses a key of another kind says which; the runs beside it are none the worse."""
    claims = [Claim("q", n, str(n), 1, 0.0, -1, 1, 0, [Payload("{}")]) for n in range(3)]
    good, bad = (NewJob(queue="q", key=key, body="{}") for key in ("good", "bad"))
    settlements = [done(claims[0], [good]), done(claims[1], [good, bad]), done(claims[2])]
    refused = without_refused(settlements, EnqueueError("no", place=("q", "bad")))
    assert [each.verdict for each in refused] == ["done", "bury", "done"]
    assert [each.verdict for each in without_refused(settlements, EnqueueError("no"))] == ["bury", "bury", "done"]


def test_the_claims_of_one_run_are_blamed_together():
    claims = [Claim("q", n, str(n), 1, 0.0, -1, 1, 0, [Payload("1")], kind=Kind.COLLECTING) for n in range(5)]
    bad = NewJob(queue="q", key="bad", body="{}")
    settlements = [done(claim) for claim in claims]
    for settlement, run in zip(settlements, (1, 1, 2, 2, 0), strict=True):
        settlement.run = run
    settlements[0].outbox = [bad]
    settlements[2].outbox = [NewJob(queue="q", key="good", body="{}")]
    refused = without_refused(settlements, EnqueueError("no", place=("q", "bad")))
    assert [each.verdict for each in refused] == ["bury", "bury", "done", "done", "done"]
    refused = without_refused(settlements, EnqueueError("no"))
    assert [each.verdict for each in refused] == ["bury", "bury", "bury", "bury", "done"]
