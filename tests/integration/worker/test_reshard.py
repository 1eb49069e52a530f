"""The shard count changes while a worker runs: the worker helps, loses nothing and keeps the order."""

from __future__ import annotations

import threading
from typing import Annotated

from laneway import Batch, Key, Laneway, Worker, by_node
from laneway.errors import ConfigError
from laneway.testing.faulty_broker import FaultyBroker
from tests.support.worker_fixtures import PATIENCE_S, Running, stats


def test_a_worker_helps_to_reshard_and_goes_on(app):
    seen: dict[str, list[int]] = {}
    total, half, done = 600, threading.Event(), threading.Event()
    count = [0]
    lock = threading.Lock()

    @app.task
    def work(key: Annotated[str, Key], number: int) -> None:
        with lock:
            seen.setdefault(key, []).append(number)
            count[0] += 1
            if count[0] == total // 4:
                half.set()
            if count[0] == total:
                done.set()

    work.enqueue_many([(f"key-{number % 20}", number) for number in range(total // 2)])
    with Running(app):
        assert half.wait(PATIENCE_S)
        app.broker.shards.reshard("default", 9, limit=1)  # begins it; the worker does the rest
        work.enqueue_many([(f"key-{number % 20}", number) for number in range(total // 2, total)])
        assert done.wait(PATIENCE_S)
    assert app.broker.inspect.queues()["default"] == 9
    assert seen == {f"key-{key}": list(range(key, total, 20)) for key in range(20)}
    assert stats(app).length == 0


def test_what_runs_is_waited_for(app):
    begun, go, after = threading.Event(), threading.Event(), threading.Event()

    @app.task
    def slow(key: Annotated[str, Key]) -> None:
        begun.set()
        assert go.wait(PATIENCE_S)

    @app.task
    def quick(key: Annotated[str, Key]) -> None:
        after.set()

    slow.enqueue("a")
    turn, in_vain, often = app.broker.turn, [], threading.Event()

    def watched(asked):
        answer = turn(asked)
        if answer.resharding:
            in_vain.append(answer)
            if len(in_vain) == 5:
                often.set()
        return answer

    app.broker.turn = watched
    with Running(app):
        assert begun.wait(PATIENCE_S)
        assert not app.broker.shards.reshard("default", 2).done
        quick.enqueue("b")
        assert often.wait(PATIENCE_S)
        assert not after.is_set(), "nothing is claimed until what runs has settled"
        go.set()
        assert after.wait(PATIENCE_S)
    assert app.broker.inspect.queues()["default"] == 2


def test_a_splitters_share_is_chosen_anew_and_told(make_app):
    app = make_app(splitter=by_node(2, 0))
    seen, done = [], threading.Event()

    @app.collect(shards=2)
    def sync(batch: Batch[int]) -> None:
        seen.extend(batch)
        done.set()

    join, told = app.broker.join, threading.Event()

    def watched(view):
        join(view)
        if view.shards == {"sync": [0, 2, 4, 6]}:
            told.set()

    app.broker.join = watched
    with Running(app):
        app.broker.shards.reshard("sync", 7, limit=1)
        sync.enqueue_many([(f"key-{number}", number) for number in range(10)])
        assert done.wait(PATIENCE_S)
        assert told.wait(PATIENCE_S)
        assert [view.shards for view in app.broker.inspect.workers()] == [{"sync": [0, 2, 4, 6]}]
    assert app.broker.inspect.queues()["sync"] == 7


def test_a_step_that_fails_does_not_end_the_fetcher(make_app):
    app = make_app()
    done = threading.Event()

    @app.task
    def work() -> None:
        done.set()

    inner = app.broker
    faulty = FaultyBroker(inner)
    other = Laneway(broker=faulty)
    other.registry.add(work)
    left = [RuntimeError("a bug"), ConfigError("another count"), RuntimeError("a bug")]

    def reshard(queue, shards, **options):
        if left:
            raise left.pop()
        return inner.shards.reshard(queue, shards, **options)

    faulty.shards.reshard = reshard
    work.enqueue_many([()] * 5)
    assert not inner.shards.reshard("default", 3, limit=1).done
    worker = Worker(other)
    worker.start()
    try:
        assert done.wait(PATIENCE_S)
    finally:
        worker.stop(PATIENCE_S)
    assert left == []
    assert inner.inspect.queues()["default"] == 3
