"""SQS delivers 5 % of its messages twice and 20 % out of order: keyed calls stay in order, no job is lost.

A job that takes twelve times its visibility timeout runs once. `make chaos` runs at full size.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from typing import Annotated, Any

import pytest

from laneway import Key, Laneway
from tests.support.aws.servers import FakeServer, MotoServer
from tests.support.aws.workers import Tally, app_on, running, wait_until
from tests.support.worker_processes import LARGE

pytestmark = pytest.mark.chaos

KEYS, CALLS = (500, 40) if LARGE else (20, 15)
JOBS = 20_000 if LARGE else 300
#: Where a long job runs, and whether it has a key.
LONG = [("fake", False), ("fake", True), ("moto", False), ("moto", True)]


class Watch:
    """Notes every call, and whether another of its key runs at the same time."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.overlaps: list[str] = []
        self._busy = {f"k{n}": threading.Lock() for n in range(KEYS)}

    def declare(self, app: Laneway) -> Any:
        @app.task
        def call(key: Annotated[str, Key], number: int) -> None:
            if not self._busy[key].acquire(blocking=False):
                self.overlaps.append(key)
                return
            self.tally.note((key, number))
            self._busy[key].release()

        @app.task
        def plain(number: int) -> None:
            self.tally.note(("", number))

        return call, plain


def test_disorder_and_repeats_do_no_harm(fake: FakeServer) -> None:
    fake.create_queues("default")
    fake.faults.duplicates, fake.faults.reordered = 0.05, 0.2
    watch = Watch()
    with ExitStack() as stack:
        apps = [stack.enter_context(app_on(fake)) for _ in range(2)]  # two processes, as far as SQS knows
        (call, plain), _ = [watch.declare(app) for app in apps]
        call.enqueue_many([(f"k{key}", number) for number in range(CALLS) for key in range(KEYS)])
        plain.enqueue_many([(number,) for number in range(JOBS)])
        for app in apps:
            stack.enter_context(running(app, concurrency=8))
        watch.tally.wait_for(KEYS * CALLS + JOBS)
        for name in ("default", "default.fifo"):
            wait_until(lambda name=name: fake.queues[name].counts.all == 0, name)
    ran = Counter(watch.tally.ran)
    repeats = ran.total() - len(ran)
    print(f"{fake.faults.duplicated} delivered twice, {fake.faults.overtaken} overtaken: {repeats} of {JOBS} run twice")
    assert fake.faults.duplicated > JOBS // 50
    assert fake.faults.overtaken > JOBS // 20
    assert watch.overlaps == []
    for key in range(KEYS):
        assert [number for name, number in watch.tally.ran if name == f"k{key}"] == list(range(CALLS))
    assert {number for name, number in ran if not name} == set(range(JOBS))
    assert repeats <= fake.faults.duplicated


@pytest.mark.parametrize(("place", "keyed"), LONG if LARGE else LONG[1:3])
def test_a_job_that_takes_much_longer_than_its_visibility_runs_once(
    place: str, keyed: bool, request: pytest.FixtureRequest
) -> None:
    """What runs is kept hidden, and so is what waits behind it."""
    aws: MotoServer | FakeServer = request.getfixturevalue(place)
    visibility_s, takes_s = (5, 60.0) if LARGE else (3, 6.5)
    aws.create_queues("default", VisibilityTimeout=visibility_s)
    tally, slow = Tally(), threading.Event()

    def run(number: int) -> None:
        tally.note(number)
        slow.wait(takes_s if number == 0 else 0)

    with ExitStack() as stack:
        apps = [stack.enter_context(app_on(aws)) for _ in range(2)]
        tasks = []
        for app in apps:

            @app.task
            def plain(number: int) -> None:
                run(number)

            @app.task
            def call(key: Annotated[str, Key], number: int) -> None:
                run(number)

            tasks.append((plain, call))
        (plain_task, call_task), _ = tasks
        if keyed:
            call_task.enqueue_many([("k", number) for number in range(5)])
        else:
            plain_task.enqueue_many([(number,) for number in range(5)])
        for app in apps:
            stack.enter_context(running(app, concurrency=1, lease_s=float(visibility_s)))
        tally.wait_for(5, takes_s + 60)
        wait_until(lambda: aws.counts("default.fifo" if keyed else "default") == (0, 0, 0))
    assert sorted(tally.ran) == list(range(5))
    if keyed:
        assert tally.ran == list(range(5))
