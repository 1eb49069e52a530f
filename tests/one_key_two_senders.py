"""One key that a web process and a job in another queue both enqueue: its calls must never run side by side.

For the tests of every broker.
"""

from __future__ import annotations

import threading
from typing import Annotated

from laneway import Context, Handle, Key, Laneway, Worker
from laneway.config import WorkerOptions

#: How long it may take on a busy machine.
PATIENCE_S = 60.0


def assert_exclusive(app: Laneway) -> None:
    """Enqueue a call from outside, a second one from a job of the queue `web`, and run both with one worker.

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
