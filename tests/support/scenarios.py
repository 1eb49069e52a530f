"""Scenarios that must hold on every broker, run with a real worker. The tests of each broker call them."""

from __future__ import annotations

import math
import threading
import time
from typing import Annotated

from laneway import Context, Handle, Key, Laneway, Worker
from laneway.config import WorkerOptions

#: How long it may take on a busy machine.
PATIENCE_S = 60.0


def a_key_runs_once_at_a_time(app: Laneway) -> None:
    """A key that a web process and a job of another queue both enqueue never runs twice at once.

    The first call holds its key until the job of the queue `web` has ended and later jobs of every queue have run: a
    second call in another queue would have begun by then.
    """
    first_runs, go_on, both = threading.Event(), threading.Event(), threading.Semaphore(0)
    marks = threading.Semaphore(0)
    running: list[int] = []
    overlaps: list[int] = []
    stored: list[Handle] = []

    @app.task
    def charge(order: Annotated[str, Key], cents: int) -> None:
        overlaps.extend(running)
        running.append(cents)
        first_runs.set()
        assert go_on.wait(PATIENCE_S)
        running.remove(cents)
        both.release()

    @app.task(queue="web", context=True)
    def checkout(context: Context) -> None:
        stored.append(context.enqueue(charge, "order-17", cents=2))
        context.enqueue(mark)
        context.enqueue(mark.using(queue=context.queue))

    @app.task
    def mark() -> None:
        marks.release()

    charge.enqueue("order-17", cents=1)
    worker = Worker(app, WorkerOptions(concurrency=5))
    worker.start()
    try:
        assert first_runs.wait(PATIENCE_S)
        checkout.enqueue()
        for _ in range(2):
            assert marks.acquire(timeout=PATIENCE_S)
        go_on.set()
        for _ in range(2):
            assert both.acquire(timeout=PATIENCE_S)
    finally:
        go_on.set()
        worker.stop(PATIENCE_S)
    assert overlaps == []
    assert [handle.queue for handle in stored] == ["default"]


def a_ticket_waits_for_its_time(app: Laneway) -> None:
    """A ticket that the Ruby original has delayed, `_execute_after`, does not run earlier."""
    ran: list[tuple[str, float]] = []
    both = threading.Semaphore(0)

    @app.task
    def note(name: str) -> None:
        ran.append((name, time.time()))
        both.release()

    after = math.ceil(time.time()) + 2
    app.enqueue_body(f'{{"_job_class":"note","_job_params":{{"name":"late"}},"_execute_after":{after}}}')
    app.enqueue_body('{"_job_class":"note","_job_params":{"name":"past"},"_execute_after":1000}')
    worker = Worker(app, WorkerOptions(concurrency=5))
    worker.start()
    try:
        for _ in range(2):
            assert both.acquire(timeout=PATIENCE_S)
    finally:
        worker.stop(PATIENCE_S)
    assert [name for name, _ in ran] == ["past", "late"]
    assert ran[1][1] >= after, (ran, after)
