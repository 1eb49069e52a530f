"""How fast jobs go in and out: `python bench/drain.py [--jobs N] [--threads N] [--url URL]`.

Enqueues no-op jobs with `enqueue_many`, drains them with one worker in this process, and prints both rates. For
scale it also measures bare SQLite: claim-and-delete pairs in batches, on a table of the same shape.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from laneway import Laneway, Worker
from laneway.config import WorkerOptions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--url")
    parser.add_argument("--async", action="store_true", dest="asynchronous", help="drain async no-ops instead")
    options = parser.parse_args()
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            url = options.url or f"sqlite:///{Path(folder, 'bench.db')}"
            enqueued, drained = measure(url, options.jobs, options.threads, options.asynchronous)
        print(f"round {number + 1}: enqueue_many {enqueued:,.0f} a second, drained {drained:,.0f} a second")


def measure(url: str, jobs: int, threads: int, asynchronous: bool) -> tuple[float, float]:
    app = Laneway(url)
    ran = []

    if asynchronous:

        @app.task
        async def noop(number: int) -> None:
            ran.append(number)
    else:

        @app.task
        def noop(number: int) -> None:
            ran.append(number)

    began = time.perf_counter()
    noop.enqueue_many([(number,) for number in range(jobs)])
    enqueued = jobs / (time.perf_counter() - began)

    worker = Worker(app, WorkerOptions(concurrency=threads, until_empty=True))
    began = time.perf_counter()
    code = worker.run()
    drained = jobs / (time.perf_counter() - began)
    app.close()
    assert code == 0, code
    assert sorted(ran) == list(range(jobs)), "each job ran exactly once"
    return enqueued, drained


if __name__ == "__main__":
    main()
