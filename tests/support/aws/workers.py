"""Apps and workers on SQS, for tests that run jobs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from laneway import Laneway, Worker
from laneway.brokers.aws import AWSBroker
from laneway.config import WorkerOptions
from tests.support.aws.endpoints import Place

#: How long a test waits for what must happen; long enough for a machine that is busy with something else.
PATIENCE_S = 60.0


@contextmanager
def app_on(place: Place, **options: Any) -> Iterator[Laneway]:
    """An app whose jobs are kept there; `options` are those of its settings."""
    app = Laneway(broker=AWSBroker(place.settings(**options)))
    try:
        yield app
    finally:
        app.close()


@contextmanager
def running(app: Laneway, **options: Any) -> Iterator[Worker]:
    """A worker in the background of a test."""
    worker = Worker(app, WorkerOptions(**options))
    worker.start()
    try:
        yield worker
    finally:
        worker.stop(PATIENCE_S)


class Tally:
    """Counts what has run, and wakes whoever waits for a number of runs."""

    def __init__(self) -> None:
        self.ran: list[Any] = []
        self._condition = threading.Condition()

    def note(self, what: Any) -> None:
        with self._condition:
            self.ran.append(what)
            self._condition.notify_all()

    def wait_for(self, count: int, timeout_s: float = PATIENCE_S) -> None:
        with self._condition:
            assert self._condition.wait_for(lambda: len(self.ran) >= count, timeout_s), f"only {len(self.ran)} ran"


def wait_until(true: Callable[[], object], what: str = "") -> None:
    """Look again and again until something is true that nobody tells of."""
    until = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < until, f"it has not happened: {what}"
        time.sleep(0.01)
