"""Measures how fast plain jobs are enqueued one by one into SQLite, from one thread.

    python bench/sqlite_enqueue.py [--jobs N] [--rounds N] [--peers PYTHON]

Each round measures every system in turn, each on a new file in the same folder. `bare SQLite` is the INSERT of Laneway
without Laneway. With `--peers` huey is measured too, with the Python given (see `sqlite_peers`).

After a power failure, `full` and huey with fsync keep every job. Laneway's default, `normal`, syncs only when it copies
its log into the file: it may lose the last jobs, but never damages the file. huey without fsync may damage the file.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from laneway import Laneway
from laneway.brokers.sqlite import SQLiteBroker
from laneway.brokers.sqlite.database import read_statements
from laneway.ids import new_id

#: Seconds and CPU seconds.
Took = tuple[float, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", type=Path, metavar="PYTHON")
    options = parser.parse_args()
    systems: dict[str, Callable[[Path, int], Took]] = {
        "bare SQLite, normal": bare,
        "Laneway, normal": partial(laneway, synchronous="normal"),
        "Laneway, full": partial(laneway, synchronous="full"),
    }
    if options.peers:
        for fsync in ("no", "yes"):
            systems[f"huey, fsync: {fsync}"] = partial(huey, python=options.peers, fsync=fsync)
    took: dict[str, list[Took]] = {name: [] for name in systems}
    for number in range(options.rounds):
        for name in systems if number % 2 == 0 else reversed(systems):
            with tempfile.TemporaryDirectory() as folder:
                took[name].append(systems[name](Path(folder, "bench.db"), options.jobs))
    for name, rounds in took.items():
        rates = sorted(options.jobs / seconds for seconds, _ in rounds)
        cpu = statistics.median(cpu for _, cpu in rounds) / options.jobs * 1e6
        print(f"{name:<22} {statistics.median(rates):>8,.0f} a second (best {rates[-1]:,.0f}), CPU {cpu:.1f} µs a job")
    if not options.peers:
        print("without --peers: not compared with huey")


def laneway(file: Path, jobs: int, *, synchronous: str) -> Took:
    app = Laneway(f"sqlite:///{file}?synchronous={synchronous}")

    @app.task
    def noop(number: int) -> None: ...

    noop.enqueue(0)
    began, cpu = time.perf_counter(), time.process_time()
    for number in range(jobs):
        noop.enqueue(number)
    took = time.perf_counter() - began, time.process_time() - cpu
    app.close()
    return took


def bare(file: Path, jobs: int) -> Took:
    broker = SQLiteBroker(file)
    broker.declare("default", 5)
    broker.close()
    db = sqlite3.connect(file, isolation_level=None)
    db.execute("PRAGMA synchronous = NORMAL")
    statement = read_statements("queries")["enqueue_one"]
    began, cpu = time.perf_counter(), time.process_time()
    for number in range(jobs):
        db.execute(statement, (1, number % 5, new_id(), "{}", 0.0, time.time(), 0, None, None))
    took = time.perf_counter() - began, time.process_time() - cpu
    db.close()
    return took


def huey(file: Path, jobs: int, *, python: Path, fsync: str) -> Took:
    command = [python, Path(__file__).with_name("sqlite_peers.py"), file, str(jobs), fsync]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, cpu = map(float, said.split())
    return seconds, cpu


if __name__ == "__main__":
    main()
