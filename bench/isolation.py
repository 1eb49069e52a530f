"""Measures the cost of isolation: jobs in threads, in reused processes and in fresh processes.

    python bench/isolation.py [--jobs N] [--threads N]

Drains no-op jobs with one worker: in its own threads, in isolated processes that are used again, and in a fresh
process per job. The rates are those of one worker and include the time to start the processes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from laneway import Laneway, Worker
from laneway.config import WorkerOptions

app = Laneway("memory:")


@app.task
def here() -> None: ...


@app.task(isolation="process")
def process() -> None: ...


@app.task(isolation="fresh")
def fresh() -> None: ...


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=5_000, help="a hundredth of them for fresh processes")
    parser.add_argument("--threads", type=int, default=5)
    options = parser.parse_args()
    for task, jobs in ((here, options.jobs), (process, options.jobs), (fresh, max(1, options.jobs // 100))):
        with tempfile.TemporaryDirectory() as folder:
            app.use(f"sqlite:///{Path(folder, 'bench.db')}")
            task.enqueue_many([()] * jobs)
            began = time.perf_counter()
            code = Worker(app, WorkerOptions(concurrency=options.threads, until_empty=True)).run()
            took_s = time.perf_counter() - began
            assert code == 0, "the worker did not finish"
            assert sum(each.processed for each in app.broker.inspect.stats()) == jobs, "not every job is done"
            app.close()
        kind = f'isolation="{task.isolation}"' if task.isolation else "in the worker"
        print(f"{kind}: {jobs:,} jobs, {jobs / took_s:,.0f} a second, {took_s / jobs * 1000:,.2f} ms each")


if __name__ == "__main__":
    main()
