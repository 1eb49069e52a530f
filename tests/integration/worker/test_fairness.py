"""A queue with many waiting jobs does not delay a job that arrives in another queue."""

from __future__ import annotations

import asyncio
import threading

import pytest

from laneway import Laneway
from laneway.broker import Answer, Turn
from laneway.brokers.sqlite import MemoryBroker
from laneway.worker.fetch.prefetch import STALL_S
from tests.support.worker_fixtures import PATIENCE_S, Running


class Busy:
    """Counts the jobs of the busy queue, and has the event be sent when some have run."""

    def __init__(self, after: int) -> None:
        self.ran = 0
        self._after = after
        self._lock = threading.Lock()
        self.send = threading.Event()
        self.ran_before: list[int] = []
        self.arrived = threading.Event()

    def job(self) -> None:
        with self._lock:
            self.ran += 1
        if self.ran >= self._after:
            self.send.set()

    def event(self) -> None:
        self.ran_before.append(self.ran)
        self.arrived.set()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_event_among_the_waiting_jobs_of_another_queue_does_not_wait_for_them(app, kind):
    busy = Busy(after=100)
    pause = threading.Event()

    if kind == "sync":

        @app.task(queue="busy", name="job")
        def job(number: int) -> None:
            pause.wait(0.002)
            busy.job()

        @app.task(queue="event", name="event")
        def event() -> None:
            busy.event()
    else:

        @app.task(queue="busy", name="job")
        async def job(number: int) -> None:
            await asyncio.sleep(0.002)
            busy.job()

        @app.task(queue="event", name="event")
        async def event() -> None:
            busy.event()

    job.enqueue_many([(number,) for number in range(10_000)])
    with Running(app, concurrency=2):
        assert busy.send.wait(PATIENCE_S)
        sent = busy.ran
        event.enqueue()
        assert busy.arrived.wait(PATIENCE_S)
    assert busy.ran_before[0] - sent < 1_000, "usually it is about ten"


def test_neither_does_it_wait_for_slow_ones_that_have_not_begun():
    """There is one runner, and the busy queue is always quicker to ask when it is free. What came too late for it has
    to be given back, because the next job takes longer than a stall."""
    pause = threading.Event()

    class Hesitant(MemoryBroker):
        def turn(self, turn: Turn) -> Answer:
            if turn.queue == "event":
                pause.wait(0.005)
            return super().turn(turn)

    app = Laneway(broker=Hesitant())
    busy = Busy(after=1)

    @app.task(queue="busy")
    def job(number: int) -> None:
        pause.wait(STALL_S + 0.1)
        busy.job()

    @app.task(queue="event")
    def event() -> None:
        busy.event()

    job.enqueue_many([(number,) for number in range(12)])
    with Running(app, concurrency=1):
        assert busy.send.wait(PATIENCE_S)
        sent = busy.ran
        event.enqueue()
        assert busy.arrived.wait(PATIENCE_S)
    assert busy.ran_before[0] - sent <= 5, "usually it is one"
