"""Checks on any broker for workers of several nodes, each with its own shards, that end when these are empty."""

from __future__ import annotations

import threading
from typing import Annotated

from laneway import Context, Key, Laneway, Worker, WorkerOptions, by_node
from laneway.jobs.shards import shard_of
from tests.support.worker_fixtures import PATIENCE_S, Running, drain

KEYS = [f"k{number}" for number in range(40)]


def node_of(key: str) -> int:
    """Which of two nodes serves a key; there are five shards."""
    return shard_of(key, 5) % 2


def check_others_jobs_do_not_keep_a_worker(app: Laneway) -> None:
    """What is due for another node stays; what the worker's own runs have sent to its shards is run, too."""
    ran: list[str] = []

    @app.task
    def work(key: Annotated[str, Key]) -> None:
        ran.append(key)

    @app.task(context=True)
    def spread(context: Context, key: Annotated[str, Key]) -> None:
        ran.append(key)
        for number in range(20):
            context.enqueue(work, f"child-{number}")

    mine, others = ([key for key in KEYS if node_of(key) == node] for node in (1, 0))
    work.enqueue_many([(key,) for key in KEYS])
    work.using(delay=3600).enqueue(mine[0])
    spread.enqueue(mine[1])
    assert drain(app, splitter=by_node(2, 1)) == 0
    children = [key for key in map("child-{}".format, range(20)) if node_of(key) == 1]
    assert sorted(ran) == sorted([*mine, mine[1], *children])
    ran.clear()
    assert drain(app, splitter=by_node(2, 0)) == 0
    assert set(ran) > set(others)
    assert app.broker.status("default", mine[0]) == "delayed"


def check_a_busy_node_does_not_keep_a_worker(app: Laneway) -> None:
    """There is nothing left for a worker while another node's worker runs one job after another."""
    ended = threading.Event()

    @app.task(context=True)
    def work(context: Context, key: Annotated[str, Key]) -> None:
        if not ended.is_set():
            context.enqueue(work, key)

    others = [key for key in KEYS if node_of(key) == 0]
    work.enqueue_many([(key,) for key in others])
    with Running(app, splitter=by_node(2, 0)):
        worker = Worker(app, WorkerOptions(splitter=by_node(2, 1)))
        worker.start()
        try:
            assert all(worker.is_empty() for _ in range(10))
        finally:
            ended.set()
            worker.stop()


def check_what_runs_keeps_those_who_serve_its_shard(app: Laneway) -> None:
    """Another node's run does not; one of the worker's own shards does, whoever runs it."""
    begun, go = threading.Event(), threading.Event()

    @app.task
    def work(key: Annotated[str, Key]) -> None:
        begun.set()
        assert go.wait(PATIENCE_S)

    work.enqueue(next(key for key in KEYS if node_of(key) == 0))
    with Running(app, splitter=by_node(2, 0)):
        assert begun.wait(PATIENCE_S)
        assert drain(app, splitter=by_node(2, 1)) == 0
        twin = Worker(app, WorkerOptions(splitter=by_node(2, 0)))
        twin.start()
        try:
            assert not twin.is_empty()
        finally:
            go.set()
            twin.stop()
    assert drain(app, splitter=by_node(2, 0)) == 0
