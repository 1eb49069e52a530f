"""Counts the instructions per job of several checkouts of Laneway, with valgrind. Noise hardly changes this number.

    python bench/instructions.py FOLDER [FOLDER …] [--jobs N]

For each kind of job (`single`: enqueued one by one; `plain` and `keyed`: enqueued at once and drained by a worker of
5 threads, on SQLite) it counts a process with N jobs and one with 3 N. The difference, divided by 2 N, is the cost of
a job without that of starting Python. Debian's package valgrind must be installed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import sys
from typing import Annotated
from laneway import Key, Laneway, Worker
from laneway.config import WorkerOptions

kind, jobs, url = sys.argv[1], int(sys.argv[2]), sys.argv[3]
app = Laneway(url)

@app.task
def plain(number: int) -> None: ...

@app.task
def keyed(key: Annotated[str, Key]) -> None: ...

if kind == "single":
    for number in range(jobs):
        plain.enqueue(number)
else:
    if kind == "keyed":
        keyed.enqueue_many([(str(number),) for number in range(jobs)])
    else:
        plain.enqueue_many([(number,) for number in range(jobs)])
    Worker(app, WorkerOptions(concurrency=5, until_empty=True)).run()
app.close()
"""
KINDS = ("single", "plain", "keyed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--jobs", type=int, default=1_000)
    options = parser.parse_args()
    for kind in KINDS:
        for folder in options.folders:
            few, many = (instructions(folder.resolve(), kind, jobs) for jobs in (options.jobs, 3 * options.jobs))
            start = few - (many - few) // 2
            print(f"{kind}, {folder}: {(many - few) // (2 * options.jobs):,} a job, {start:,} for the process")


def instructions(folder: Path, kind: str, jobs: int) -> int:
    """The instructions of one process that enqueues, and perhaps drains, so many jobs."""
    with tempfile.TemporaryDirectory() as place:
        url = f"sqlite:///{Path(place, 'bench.db')}"
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={place}/out", f"--log-file={place}/log"]
        subprocess.run(
            [*command, sys.executable, "-c", PROGRAM, kind, str(jobs), url],
            env={**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONHASHSEED": "0"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        found = re.search(r"Collected : (\d+)", Path(place, "log").read_text())
        assert found, "valgrind counted nothing"
        return int(found[1])


if __name__ == "__main__":
    main()
