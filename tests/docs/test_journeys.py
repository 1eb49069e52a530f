"""The way of a job through Laneway is measured: how many files and functions carry it from enqueue to settled.

`tests/support/journey.py` says what counts. The numbers are recorded here. A commit that makes a way longer or shorter
changes its number.

A journey is made twice in the same app. The first one opens connections, imports modules and fills caches, and is not
measured. On a very busy machine a thread may come so late that another thread does its work, and then the count
differs. So a journey whose count is not the recorded one is repeated, and the test fails only if it never is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from botocore.client import BaseClient

from laneway import Key, Laneway, Worker, WorkerOptions
from laneway.brokers.aws import AWSBroker
from laneway.clock import SystemClock
from tests.support.aws.servers import ENVIRONMENT, FakeServer
from tests.support.journey import Function, Journey
from tests.support.servers import RedisServer

#: Files and functions.
JOURNEYS = {
    "a plain job on SQLite": (34, 124),
    "a keyed job on SQLite": (36, 148),
    "a keyed job on Redis": (35, 138),
    "a delayed job on AWS": (53, 276),
    "an event on SQLite": (38, 135),
}
#: How often a journey is measured before a count that is not the recorded one is believed.
TIMES = 5
#: Some things are looked at once a second, by the first job that comes. After this pause, every journey looks at them.
PAUSE_S = 1.1


def check(name: str, make: Callable[[], set[Function]]) -> None:
    """Make a journey, and compare its count with the recorded one."""
    make()
    problem: str | None = None
    for _ in range(TIMES):
        time.sleep(PAUSE_S)
        problem = problem_of(name, JOURNEYS[name], make())
        if problem is None:
            return
    pytest.fail(str(problem), pytrace=False)


def problem_of(name: str, recorded: tuple[int, int], functions: set[Function]) -> str | None:
    """What to say of a journey whose count is not the recorded one."""
    by_file: dict[str, list[str]] = {}
    for file, function in sorted(functions):
        by_file.setdefault(file, []).append(function)
    sentences = []
    for what, before, now in zip(("files", "functions"), recorded, (len(by_file), len(functions)), strict=True):
        if now > before:
            sentences.append(
                f"The number of {what} that carry {name} rose from {before} to {now}. Shorten the way; or, if the rise "
                "is meant, change the number in JOURNEYS in the same commit."
            )
        elif now < before:
            sentences.append(
                f"The number of {what} that carry {name} fell from {before} to {now}. Lower the recorded number in "
                "JOURNEYS in the same commit."
            )
    if not sentences:
        return None
    return "\n".join([*sentences, "It touches:", *(f"  {file}: {', '.join(by_file[file])}" for file in by_file)])


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Laneway]:
    app = Laneway(f"sqlite:///{tmp_path / 'jobs.db'}", name="shop")
    yield app
    app.close()


def test_a_plain_job_on_sqlite_takes_the_recorded_way(app: Laneway) -> None:
    journey = Journey(app)

    @app.task
    def plain(number: int) -> None:
        journey.has_job()

    check("a plain job on SQLite", lambda: journey.make(lambda: plain.enqueue(1)))


def test_a_keyed_job_on_sqlite_takes_the_recorded_way(app: Laneway) -> None:
    journey = Journey(app)

    @app.task
    def keyed(order: Annotated[str, Key], number: int) -> None:
        journey.has_job()

    check("a keyed job on SQLite", lambda: journey.make(lambda: keyed.enqueue("order-1", 1)))


def test_an_event_on_sqlite_takes_the_recorded_way(app: Laneway) -> None:
    journey = Journey(app)

    @app.listener("order_placed", source="shop")
    def listener(number: int) -> None:
        journey.has_job()

    # The first worker writes the subscription.
    assert Worker(app, WorkerOptions(until_empty=True)).run() == 0
    check("an event on SQLite", lambda: journey.make(lambda: app.publish("order_placed", 1)))


@pytest.mark.parametrize("redis_server", ["valkey"], indirect=True)
def test_a_keyed_job_on_redis_takes_the_recorded_way(redis_server: RedisServer) -> None:
    app = Laneway(redis_server.url)
    journey = Journey(app)

    @app.task
    def keyed(order: Annotated[str, Key], number: int) -> None:
        journey.has_job()

    try:
        check("a keyed job on Redis", lambda: journey.make(lambda: keyed.enqueue("order-1", 1)))
    finally:
        app.close()


class SetForward(SystemClock):
    """The machine's clock, which a test may set forward."""

    ahead_s = 0.0

    def now(self) -> float:
        return time.time() + self.ahead_s


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    server = FakeServer.start()
    yield server
    server.end()


def test_a_delayed_job_on_aws_takes_the_recorded_way(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is due in an hour, so it is stored in the table. When it is due, the poller moves it to SQS."""
    hour_s = 3_600.0
    fake.create_queues("default")
    fake.create_table("default")
    clock = SetForward()
    app = Laneway(broker=AWSBroker(fake.settings(), clock=clock))
    journey = Journey(app)
    request = BaseClient._make_api_call

    def watched(client: Any, operation: str, params: dict[str, Any]) -> Any:
        """A thread has the job in hand if its request, or the answer, contains the argument of the job."""
        answer = request(client, operation, params)
        if "order-1" in repr((params, answer)):
            journey.has_job()
        return answer

    monkeypatch.setattr(BaseClient, "_make_api_call", watched)

    @app.task
    def plain(order: str) -> None:
        journey.has_job()

    def become_due() -> None:
        clock.ahead_s += hour_s

    try:
        enqueue = plain.using(delay=hour_s).enqueue
        check("a delayed job on AWS", lambda: journey.make(lambda: enqueue("order-1"), become_due))
    finally:
        app.close()


def test_a_rise_and_a_fall_are_told_with_what_is_touched() -> None:
    functions = {("app.py", "Laneway.enqueue"), ("app.py", "Laneway.load"), ("worker.py", "Worker.run")}
    assert problem_of("a job", (2, 3), functions) is None
    told = problem_of("a job", (1, 4), functions)
    assert told is not None
    assert "The number of files that carry a job rose from 1 to 2." in told
    assert "The number of functions that carry a job fell from 4 to 3." in told
    assert told.endswith("It touches:\n  app.py: Laneway.enqueue, Laneway.load\n  worker.py: Worker.run")
