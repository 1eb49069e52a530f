"""Measures the cost of a long queue on Redis.

    python bench/redis_depth.py [--few N] [--many N] [--slice N] [--rounds N] [--server NAME]

Two servers: one has a short queue, the other a long queue. Jobs of both are claimed and settled slice by slice, in
alternation: by a bare loop around the broker with turns of 100, and by a worker of 5 threads in this process. The
median slice of each counts, so that other load on the machine disturbs both alike. `timed` jobs have random due
times in the past; the other jobs are claimed in their order of arrival. After each slice the queue is filled again.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import threading
import time
from pathlib import Path

from redis_drain import bare_loop
from redis_measuring import Meter, line, parser_of, started

from laneway import Laneway, Worker
from laneway.config import WorkerOptions
from laneway.jobs.data import NewJob
from tests.support.servers import RedisServer

SHARDS = 5
CHUNK = 50_000


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--few", type=int, default=10_000)
    parser.add_argument("--many", type=int, default=1_000_000)
    parser.add_argument("--slice", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    for server in started(options.server):
        with tempfile.TemporaryDirectory() as folder:
            other = RedisServer.start(server.binary, Path(folder))
            try:
                for timed in (False, True):
                    few = Queue(server, options.few, timed)
                    many = Queue(other, options.many, timed)
                    for by_worker in (False, True):
                        compare(few, many, options.slice, options.rounds, by_worker)
                    few.close()
                    many.close()
            finally:
                other.end()


def compare(few: Queue, many: Queue, count: int, rounds: int, by_worker: bool) -> None:
    """Drain slices of both in turn, and say how they compare."""
    meters: dict[Queue, list[Meter]] = {few: [], many: []}
    for _ in range(rounds):
        for queue in (few, many):
            meters[queue].append(queue.drain(count, by_worker))
    took, cpu = [], []
    for queue, parts in meters.items():
        median = sorted(parts, key=lambda part: part.took_s)[rounds // 2]
        took.append(median.took_s)
        cpu.append(statistics.median(part.server_s for part in parts))
        line(f"{queue.name}, {'worker' if by_worker else 'bare loop'}", median.said(count))
    print(f"    {took[0] / took[1]:.2f} x the rate, {cpu[1] / cpu[0]:.2f} x the server's CPU", flush=True)


class Queue:
    """A queue that always has as many jobs when a slice of it is to be drained."""

    def __init__(self, server: RedisServer, depth: int, timed: bool) -> None:
        self.name = f"{depth:,} {'timed' if timed else 'as they came'}"
        server.flush()
        self._server = server
        self._depth = depth
        self._timed = timed
        self._app = app = Laneway(server.url)
        self._ended, self._target, self._enough = 0, 0, threading.Event()

        @app.task(queue="bench")
        def call(number: int) -> None:
            self._ended += 1  # only nearly exact with several threads
            if self._ended >= self._target:
                self._enough.set()

        self._call = call
        app.broker.declare("bench", SHARDS)
        self._fill()

    def drain(self, count: int, by_worker: bool) -> Meter:
        if not by_worker:
            with Meter(self._server) as meter:
                bare_loop(self._app, count)
        else:
            self._ended, self._target = 0, count
            self._enough.clear()
            worker = Worker(self._app, WorkerOptions(concurrency=5))
            with Meter(self._server) as meter:
                worker.start()
                assert self._enough.wait(300), "the worker does not get on"
            worker.stop()
        self._fill()
        return meter

    def _fill(self) -> None:
        now = time.time()
        short = self._depth - sum(stats.length for stats in self._app.broker.inspect.stats())
        for first in range(0, short, CHUNK):
            numbers = range(first, min(first + CHUNK, short))
            jobs: list[NewJob] = [self._app.outgoing(self._call, (number,), {}) for number in numbers]
            for job in jobs if self._timed else ():
                job.perform_at = now - random.uniform(1, 1_000)
            self._app.broker.enqueue(jobs)

    def close(self) -> None:
        self._app.close()


if __name__ == "__main__":
    main()
