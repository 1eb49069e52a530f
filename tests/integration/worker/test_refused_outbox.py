"""A run whose outbox the broker refuses has failed: its task's rule retries it, then buries it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated, Any

import pytest

from laneway import Batch, Context, EnqueueError, Key, Laneway
from laneway.jobs.data import Claim, Kind, NewJob, Payload
from laneway.jobs.settlement import done
from laneway.telemetry import OutboxRefused
from laneway.worker.run.decide import OutboxRefusals
from laneway.worker.run.run import RunOutbox
from tests.support.worker_fixtures import Drain, dead, stats


def keyed_and_taken(app: Laneway) -> tuple[Any, str]:
    """A keyed task, and a key that no job of it can have: the broker knows it as a plain one's."""

    @app.task(queue="elsewhere")
    def plain() -> None: ...

    @app.task(queue="elsewhere")
    def keyed(key: Annotated[str, Key]) -> None: ...

    return keyed, plain.using(delay=1_000).enqueue().id


@pytest.fixture
def taken(app: Laneway) -> tuple[Any, str]:
    return keyed_and_taken(app)


def test_it_is_retried_by_its_tasks_rule_and_told_each_time(
    make_app: Callable[..., Laneway], drain: Drain, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[int] = []
    handled: list[tuple[str, str, str, int, BaseException]] = []
    told: list[OutboxRefused] = []
    exhausted: list[str] = []
    app = make_app(error_handlers=[lambda error, c: handled.append((c.task, c.id, c.queue, c.attempt, error))])
    keyed, key = keyed_and_taken(app)
    app.telemetry.subscribe(OutboxRefused, told.append)

    @app.task(
        context=True,
        max_retry_count=2,
        retry_in=lambda count: 0,
        retries_exhausted=lambda jobs: exhausted.extend(job.key for job in jobs),
    )
    def parent(context: Context) -> None:
        attempts.append(context.attempt)
        context.enqueue(keyed, key)

    id = parent.enqueue().id
    with caplog.at_level(logging.WARNING, "laneway"):
        assert drain(app, queues=["default"]) == 0
    assert attempts == [1, 2, 3]
    assert [each[:4] for each in handled] == [("parent", id, "default", number) for number in (1, 2, 3)]
    assert all(isinstance(each[4], EnqueueError) for each in handled)
    assert [(each.task, each.key, each.attempt, each.verdict) for each in told] == [
        ("parent", id, 1, "retry"),
        ("parent", id, 2, "retry"),
        ("parent", id, 3, "bury"),
    ]
    [job] = dead(app)
    assert job.error is not None
    assert job.error.startswith("EnqueueError: What the run sent was refused: ")
    assert exhausted == [id]
    lines = [record.getMessage() for record in caplog.records if id in record.getMessage()]
    assert [line.partition(",")[0] for line in lines[:2]] == [
        f"default/parent {id} failed in attempt {number}" for number in (1, 2)
    ]
    assert lines[2].startswith(f"default/parent {id} buried after attempt 3: EnqueueError: What the run sent")


def test_a_run_that_sends_what_can_be_stored_the_next_time_is_done(
    app: Laneway, taken: tuple[Any, str], drain: Drain
) -> None:
    keyed, key = taken

    @app.task(context=True, retry_in=lambda count: 0)
    def parent(context: Context) -> None:
        context.enqueue(keyed, key if context.attempt == 1 else "free")

    parent.enqueue()
    drain(app, queues=["default"])
    assert (stats(app).length, stats(app).dead) == (0, 0)
    assert [job.status for job in app.broker.inspect.find("elsewhere", "free")] == ["queued"]


def test_of_a_key_the_call_to_blame_fails_and_those_before_it_are_done(
    app: Laneway, taken: tuple[Any, str], drain: Drain
) -> None:
    keyed, key = taken
    ran: list[int] = []

    @app.task(context=True, max_retry_count=1, retry_in=lambda count: 0)
    def call(context: Context, key_: Annotated[str, Key], number: int) -> None:
        ran.append(number)
        context.enqueue(keyed, key if number == 2 else f"free-{number}")

    call.enqueue_many([("a", number) for number in (1, 2, 3)])
    assert drain(app, queues=["default"], concurrency=1) == 0
    assert [number for number in ran if number != 3] == [1, 2, 2]
    assert ran[-1] == 3  # again, because it must not overtake the second
    [job] = dead(app)
    assert ['"number":2' in payload.body for payload in job.payloads] == [True]
    assert stats(app).length == 0
    for number in (1, 3):
        assert len(app.broker.inspect.find("elsewhere", f"free-{number}")) == 1


def test_all_keys_of_a_batch_fail(app: Laneway, taken: tuple[Any, str], drain: Drain) -> None:
    """The batch beside it is fine."""
    keyed, key = taken
    ran: list[list[str]] = []
    told: list[OutboxRefused] = []
    app.telemetry.subscribe(OutboxRefused, told.append)

    @app.collect(batch_size=3, shards=1, context=True, max_retry_count=1, retry_in=lambda count: 0)
    def gather(context: Context, batch: Batch[int]) -> None:
        ran.append(sorted(batch))
        if "x" not in batch:
            context.enqueue(keyed, key)

    gather.enqueue_many([(each, 1) for each in "abcxyz"])
    assert drain(app, queues=["gather"], concurrency=1) == 0
    assert sorted(ran) == [["a", "b", "c"], ["a", "b", "c"], ["x", "y", "z"]]
    jobs = dead(app, "gather")
    assert sorted(job.key for job in jobs) == ["a", "b", "c"]
    assert all("What the run sent was refused" in (job.error or "") for job in jobs)
    assert stats(app, "gather").length == 0
    assert [(each.keys, each.verdict) for each in told] == [(3, "retry"), (3, "bury")]


# -- who is to blame -----------------------------------------------------------------------------------


@pytest.fixture
def refusals() -> OutboxRefusals:
    return OutboxRefusals(Laneway("memory:"), lambda error, context: None)


def claim(number: int, kind: Kind = Kind.PLAIN, payloads: int = 1) -> Claim:
    return Claim("q", number, str(number), 1, 0.0, -1, 1, 0, [Payload("1")] * payloads, kind=kind)


def new(key: str) -> NewJob:
    return NewJob(queue="q", key=key, body="{}")


def test_only_the_run_to_blame_fails(refusals: OutboxRefusals) -> None:
    """A broker that refuses a key of another kind says which; the runs beside it are none the worse."""
    settlements = [done(claim(0), [new("good")]), done(claim(1), [new("good"), new("bad")]), done(claim(2))]
    found = refusals.fail(settlements, EnqueueError("no", place=("q", "bad")))
    assert [each.verdict for each in found] == ["done", "retry", "done"]
    assert [each.verdict for each in refusals.fail(settlements, EnqueueError("no"))] == ["retry", "retry", "done"]


def test_the_claims_of_one_run_are_blamed_together(refusals: OutboxRefusals) -> None:
    settlements = [done(claim(number, Kind.COLLECTING)) for number in range(5)]
    for settlement, run in zip(settlements, (1, 1, 2, 2, 0), strict=True):
        settlement.run = run
    settlements[0].outbox, settlements[2].outbox = [new("bad")], [new("good")]
    found = refusals.fail(settlements, EnqueueError("no", place=("q", "bad")))
    assert [each.verdict for each in found] == ["retry", "retry", "done", "done", "done"]
    found = refusals.fail(settlements, EnqueueError("no"))
    assert [each.verdict for each in found] == ["retry", "retry", "retry", "retry", "done"]


@pytest.mark.parametrize(("place", "finished", "sent"), [(("q", "bad"), 2, ["one"]), (None, 0, [])])
def test_the_calls_before_the_one_to_blame_keep_what_they_sent(
    refusals: OutboxRefusals, place: tuple[str, str] | None, finished: int, sent: list[str]
) -> None:
    outbox = RunOutbox()
    for jobs in ([new("one")], [], [new("bad"), new("two")], [new("three")]):
        outbox.add(jobs)
    [found] = refusals.fail([done(claim(0, Kind.KEYED, 4), outbox)], EnqueueError("no", place=place))
    assert (found.verdict, found.done) == ("retry", finished)
    assert [job.key for job in found.outbox or []] == sent
    assert found.outbox is None or isinstance(found.outbox, RunOutbox)  # it may be refused in its turn


def test_what_cannot_be_read_has_the_default_rule(refusals: OutboxRefusals) -> None:
    contexts: list[Context] = []
    tell: Callable[[BaseException, Context], None] = lambda error, context: contexts.append(context)  # noqa: E731
    [found] = OutboxRefusals(Laneway("memory:"), tell).fail([done(claim(0), [new("bad")])], EnqueueError("no"))
    assert (found.verdict, found.retry_count) == ("retry", 0)
    assert [(context.task, context.id) for context in contexts] == [("?", "0")]
