"""A worker that has run many jobs uses no more memory than one that has run a few."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Callable, Iterator
from typing import Annotated

import pytest

from laneway import Batch, Call, Context, Key, Laneway, Middleware
from laneway.middleware import Around
from tests.support.memory_use import samples
from tests.support.worker_fixtures import Drain, stats


def test_twenty_thousand_jobs_leave_nothing_behind() -> None:
    seen = samples("plain", jobs=20_000, warm_up=20_000, backlog=25_000)
    assert seen[-1].descriptors == seen[0].descriptors
    # A kibibyte kept of each job would be 60 %.
    assert seen[-1].rss_kib < seen[0].rss_kib * 1.2


class Noted(Exception):
    """An error that can be watched while it is forgotten."""

    kept: list[weakref.ref[Noted]]

    def __init__(self) -> None:
        super().__init__("boom")
        self.kept.append(weakref.ref(self))


class Passing(Middleware):
    """Lets every error through."""

    def around_execution(self, call: Call, context: Context) -> Around:
        yield


class Replacing(Middleware):
    """Raises an error of its own for that of the handler."""

    def around_execution(self, call: Call, context: Context) -> Around:
        try:
            yield
        except Noted as error:
            raise Noted from error


def enqueue_sync(app: Laneway) -> None:
    @app.task(max_retry_count=0)
    def task() -> None:
        raise Noted

    task.enqueue()


def enqueue_async(app: Laneway) -> None:
    @app.task(max_retry_count=0)
    async def task() -> None:
        raise Noted

    task.enqueue()


def enqueue_limited(app: Laneway) -> None:
    @app.task(max_retry_count=0, time_limit=0.01)
    async def task() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            raise Noted

    task.enqueue()


def enqueue_keyed(app: Laneway) -> None:
    @app.task(max_retry_count=0)
    def task(key: Annotated[str, Key]) -> None:
        raise Noted

    task.enqueue("k")


def enqueue_collecting(app: Laneway) -> None:
    @app.collect(queue="default", max_retry_count=0)
    def task(batch: Batch[str]) -> None:
        raise Noted

    task.enqueue("k", "v")


@pytest.fixture
def no_collector() -> Iterator[None]:
    """References alone decide what goes."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("enqueue", [enqueue_sync, enqueue_async, enqueue_limited, enqueue_keyed, enqueue_collecting])
@pytest.mark.parametrize("middleware", [None, Passing, Replacing])
@pytest.mark.usefixtures("no_collector")
def test_the_error_of_a_run_needs_no_garbage_collector_to_go(
    drain: Drain, enqueue: Callable[[Laneway], None], middleware: type[Middleware] | None
) -> None:
    """It leads to the frames of its run, and so to all that the run has used. In a cycle they would wait for the
    collector, by the thousand."""
    Noted.kept = []
    logger = logging.Logger("apart")  # pytest keeps the records of all others, and the errors with them
    app = Laneway("memory:", middleware=[middleware()] if middleware else [], logger=logger)
    enqueue(app)
    drain(app)
    assert stats(app).failed == 1
    assert Noted.kept
    assert [each() for each in Noted.kept if each() is not None] == []
