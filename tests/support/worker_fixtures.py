"""Fixtures and helpers for tests that run a worker, on every broker that needs no server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis  # noqa: F401 - pytest's summary imports it, and that fails once a test has used up the stack
import pytest

from laneway import JobView, Laneway, QueueStats, Worker
from laneway.clock import ManualClock
from laneway.config import WorkerOptions
from laneway.worker.fetch.prefetch import Lane
from laneway.worker.run.runner import Runner

Drain = Callable[..., int]

#: How long a test waits for what must happen; long enough for a machine that is busy with something else.
PATIENCE_S = 60.0


@pytest.fixture(params=["sqlite", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
def make_app(url: str) -> Iterator[Callable[..., Laneway]]:
    apps: list[Laneway] = []

    def make(**options: Any) -> Laneway:
        apps.append(Laneway(url, **options))
        return apps[-1]

    yield make
    for app in apps:
        app.close()


@pytest.fixture
def app(make_app: Callable[..., Laneway]) -> Laneway:
    return make_app()


def drain(app: Laneway, **options: Any) -> int:
    """Run a worker until nothing is due, and return its exit code."""
    return Worker(app, WorkerOptions(until_empty=True, **options)).run()


@pytest.fixture(name="drain")
def drain_fixture() -> Drain:
    return drain


class Running:
    """A worker in the background of a test."""

    def __init__(self, app: Laneway, **options) -> None:
        self.worker = Worker(app, WorkerOptions(**options))

    def __enter__(self) -> Worker:
        self.worker.start()
        return self.worker

    def __exit__(self, *exc: object) -> None:
        self.worker.stop(PATIENCE_S)


def stats(app: Laneway, queue: str = "default") -> QueueStats:
    return next(each for each in app.broker.inspect.stats() if each.queue == queue)


def dead(app: Laneway, queue: str = "default") -> list[JobView]:
    return app.broker.inspect.listing(queue, "dead").jobs


class Bench:
    """One runner on a manual clock, without threads or a broker, whose worker goes by `worker`."""

    def __init__(self) -> None:
        self.app = Laneway("memory:")
        self.clock = ManualClock()
        self.worker = "me"
        self.valid_until = self.clock.monotonic() + 30
        self.ran: list[Any] = []
        self.lane = Lane("default", 1)
        self.runner = Runner(
            self.app,
            fatal=lambda error, run: None,
            wait_for=lambda coroutine: None,
            clock=self.clock,
            held_under=lambda: self.worker,
            valid_until=lambda: self.valid_until,
        )
