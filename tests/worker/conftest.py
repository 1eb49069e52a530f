"""Apps and workers for the tests of the worker, on every broker that needs no server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from laneway import Laneway, Worker
from laneway.config import WorkerOptions

Drain = Callable[..., int]


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
