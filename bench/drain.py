"""Measures how fast jobs are enqueued and drained.

    python bench/drain.py [--jobs N] [--threads N] [--rounds N] [--url URL] [--async]

Enqueues no-op jobs with `enqueue_many`, drains them with one worker in this process, and prints both rates. Without
`--url` each round uses a fresh SQLite file. As a reference each round also measures bare SQLite in the same minute:
the same number of rows of a similar shape is inserted, then claimed and deleted in batches of 100, without a
worker.
"""

from __future__ import annotations

import argparse
import sqlite3
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
            inserted, deleted = bare_sqlite(Path(folder, "bare.db"), options.jobs)
        print(
            f"round {number + 1}: enqueue_many {enqueued:,.0f} a second, drained {drained:,.0f} a second "
            f"(bare SQLite: inserted {inserted:,.0f}, claimed and deleted {deleted:,.0f})"
        )


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


def bare_sqlite(path: Path, jobs: int) -> tuple[float, float]:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, key TEXT UNIQUE, payload TEXT, due REAL, worker INTEGER)")
    db.execute("CREATE INDEX due ON jobs (due) WHERE worker IS NULL")
    began = time.perf_counter()
    db.execute("BEGIN IMMEDIATE")
    rows = ((f"{number:032x}", f'{{"number":{number}}}', time.time()) for number in range(jobs))
    db.executemany("INSERT INTO jobs (key, payload, due) VALUES (?, ?, ?)", rows)
    db.execute("COMMIT")
    inserted = jobs / (time.perf_counter() - began)
    began = time.perf_counter()
    claim = (
        "UPDATE jobs SET worker = 1 WHERE id IN (SELECT id FROM jobs WHERE worker IS NULL ORDER BY due LIMIT 100) "
        "RETURNING id, payload"
    )
    while True:
        db.execute("BEGIN IMMEDIATE")
        claimed = db.execute(claim).fetchall()
        db.execute("COMMIT")
        if not claimed:
            break
        db.execute("BEGIN IMMEDIATE")
        db.executemany("DELETE FROM jobs WHERE id = ?", [(id,) for id, _ in claimed])
        db.execute("COMMIT")
    deleted = jobs / (time.perf_counter() - began)
    db.close()
    return inserted, deleted


if __name__ == "__main__":
    main()
