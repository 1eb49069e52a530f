"""Tests `app.open()`: it makes the queues of the app's tasks, as often and from as many threads as it is called."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from laneway import Batch, DeclarationError, Laneway


def test_open_makes_the_queues_of_the_tasks_with_their_shards(app: Laneway) -> None:
    @app.task(queue="mails")
    def mail() -> None: ...

    @app.collect(queue="sums", shards=7)
    def add(batch: Batch[int]) -> None: ...

    for _ in range(2):
        app.open()
        assert app.broker.inspect.queues() == {"mails": 5, "sums": 7}


def test_an_app_without_tasks_makes_no_queues(app: Laneway) -> None:
    app.open()
    assert app.broker.inspect.queues() == {}


def test_threads_that_open_an_app_at_once_open_one_broker() -> None:
    app = Laneway("memory:")
    app.task(lambda: None, name="nothing")
    barrier = Barrier(8)

    def open_it(_: int) -> int:
        barrier.wait()
        app.open()
        return id(app.broker)

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(open_it, range(8)))) == 1
    app.close()


def test_open_refuses_a_task_that_the_broker_cannot_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Laneway("memory:")

    @app.collect(queue="sums")
    def add(batch: Batch[int]) -> None: ...

    monkeypatch.setattr(app, "_given_url", "sqs://?region=eu-central-1")
    with pytest.raises(DeclarationError, match="SQS"):
        app.open()
