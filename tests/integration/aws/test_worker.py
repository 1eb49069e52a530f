"""Tests of workers on SQS as users see them: jobs run once, keys in order, few requests, delays on time."""

from __future__ import annotations

import threading
from typing import Annotated

import pytest

from laneway import Context, Key
from laneway.brokers.aws.sqs import dead_letters
from tests.support.aws.servers import FakeServer, MotoServer
from tests.support.aws.workers import PATIENCE_S, Tally, app_on, running, wait_until
from tests.support.scenarios import a_key_runs_once_at_a_time


def test_jobs_run_and_are_gone(aws: MotoServer | FakeServer) -> None:
    aws.create_queues("default")
    with app_on(aws) as app:
        tally = Tally()

        @app.task
        def note(number: int) -> None:
            tally.note(number)

        note.enqueue_many([(number,) for number in range(25)])
        with running(app):
            tally.wait_for(25)
            note.enqueue(25)
            tally.wait_for(26)
        assert sorted(tally.ran) == list(range(26))
        wait_until(lambda: aws.counts("default") == (0, 0, 0))


@pytest.mark.parametrize("keyed", [False, True], ids=["plain", "1,000 keys"])
def test_a_busy_worker_needs_few_requests(fake: FakeServer, keyed: bool) -> None:
    """Sent, received and deleted in tens: at most 0.35 requests a job, where one by one would be 3."""
    fake.create_queues("default")
    jobs, name = 1_000, "default.fifo" if keyed else "default"
    with app_on(fake) as app:
        tally = Tally()

        @app.task
        def plain(number: int) -> None:
            tally.note(number)

        @app.task
        def call(key: Annotated[str, Key], number: int) -> None:
            tally.note(number)

        fake.requests.clear()
        if keyed:
            call.enqueue_many([(f"order-{number}", number) for number in range(jobs)])
        else:
            plain.enqueue_many([(number,) for number in range(jobs)])
        with running(app):
            tally.wait_for(jobs)
            wait_until(lambda: fake.queues[name].counts.all == 0)
        requests = sum(count for name, count in fake.requests.items() if name.startswith("sqs."))
        assert len(set(tally.ran)) == len(tally.ran) == jobs
        assert requests / jobs <= 0.35, fake.requests


def test_a_key_runs_one_call_after_another(fake: FakeServer) -> None:
    """A group of 100 messages and 8 threads."""
    fake.create_queues("default")
    with app_on(fake) as app:
        tally, busy = Tally(), threading.Lock()

        @app.task
        def step(key: Annotated[str, Key], number: int) -> None:
            assert busy.acquire(blocking=False), "two calls of a key at once"
            tally.note(number)
            busy.release()

        step.enqueue_many([("order-1", number) for number in range(100)])
        with running(app, concurrency=8):
            tally.wait_for(100)
        assert tally.ran == list(range(100))


def test_a_key_that_two_queues_enqueue_runs_once_at_a_time(aws: MotoServer | FakeServer) -> None:
    aws.create_queues("default")
    aws.create_queues("web")
    with app_on(aws) as app:
        a_key_runs_once_at_a_time(app)


def test_keys_run_side_by_side(fake: FakeServer) -> None:
    """All of 20 groups at once, if there are as many threads; none waits for another to end."""
    fake.create_queues("default")
    keys = 20
    with app_on(fake) as app:
        tally, together = Tally(), threading.Barrier(keys)

        @app.task
        def step(key: Annotated[str, Key], number: int) -> None:
            if number == 0:
                together.wait(PATIENCE_S)
            tally.note((key, number))

        step.enqueue_many([(f"order-{key}", number) for number in range(5) for key in range(keys)])
        with running(app, concurrency=keys):
            tally.wait_for(5 * keys)
        for key in range(keys):
            assert [number for name, number in tally.ran if name == f"order-{key}"] == list(range(5))


def test_what_a_run_enqueues_is_sent_when_it_succeeds(
    aws: MotoServer | FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(aws, MotoServer | FakeServer):
        monkeypatch.setattr(dead_letters, "WAIT_S", 0)  # they have all their messages at hand; AWS itself does not
    aws.create_queues("default")
    with app_on(aws) as app:
        tally = Tally()

        @app.task
        def child(number: int) -> None:
            tally.note(number)

        @app.task(context=True, max_retry_count=0)
        def parent(context: Context, fails: bool) -> None:
            context.enqueue(child, 1 if fails else 2)
            if fails:
                raise ValueError("nothing of this is sent")

        parent.enqueue(True)
        parent.enqueue(False)
        with running(app):
            tally.wait_for(1)
            wait_until(lambda: aws.counts("default") == (0, 0, 0) and aws.counts("default-deadletter")[0] == 1)
        assert tally.ran == [2]
        (buried,) = app.broker.inspect.listing("default", "dead").jobs
        assert "nothing of this is sent" in (buried.error or "")
        assert app.broker.operate.revive("default", [buried.key]) == 1
        # A receive of the worker's may still have been under way: then it has been given back, in a moment.
        wait_until(lambda: aws.counts("default")[0] == 1)


@pytest.mark.parametrize("keyed", [False, True])
def test_a_short_delay_in_the_table_is_on_time_where_the_worker_is(fake: FakeServer, keyed: bool) -> None:
    """The next poll is in five minutes, and what is stored meanwhile is not left until then."""
    fake.create_queues("default")
    fake.create_table("default")
    with app_on(fake, poll_s=300.0) as app:
        tally = Tally()

        @app.task
        def plain(number: int) -> None:
            tally.note(number)

        @app.task
        def call(key: Annotated[str, Key], number: int) -> None:
            tally.note(number)

        def is_polled() -> bool:
            return fake.requests["dynamodb.Query"] >= 5  # all partitions

        with running(app):
            wait_until(is_polled)
            for number in range(2):
                if keyed:
                    call.using(delay=0.2).enqueue("k", number)
                else:
                    plain.using(delay=0.2, cancellable=True).enqueue(number)
            assert fake.items("default")
            tally.wait_for(2)
        assert sorted(tally.ran) == [0, 1]
