"""Measures the cost of an idle worker and how soon it starts a new job.

    python bench/idle.py [--seconds N] [--jobs N]

Starts a worker process on a fresh SQLite file and measures its CPU time while it has nothing to do. Then enqueues
single jobs from this process and measures the time from `enqueue` to the start of the handler.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from laneway import Laneway

PROGRAM = """
import os, sys, time
from laneway import Laneway, Worker

app = Laneway()
out = os.open(sys.argv[1], os.O_APPEND | os.O_CREAT | os.O_WRONLY)

@app.task
def mark(sent: float) -> None:
    os.write(out, f"{time.time() - sent}\\n".encode())

if __name__ == "__main__":
    Worker(app).run()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--jobs", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program, marks = Path(folder, "program.py"), Path(folder, "marks")
        program.write_text(PROGRAM)
        os.environ["LANEWAY_URL"] = f"sqlite:///{Path(folder, 'idle.db')}"
        app = Laneway()

        @app.task
        def mark(sent: float) -> None: ...

        worker = subprocess.Popen([sys.executable, program, marks])
        try:
            mark.enqueue(time.time())
            wait_for_lines(marks, 1)
            before = cpu_seconds(worker.pid)
            time.sleep(options.seconds)
            used = cpu_seconds(worker.pid) - before
            for number in range(options.jobs):
                mark.enqueue(time.time())
                wait_for_lines(marks, number + 2)
                time.sleep(random.uniform(0.02, 0.06))  # not in step with the worker's ticks
            memory = resident_mib(worker.pid)
        finally:
            worker.terminate()
            worker.wait(30)
        app.close()
        waits = sorted(float(line) for line in marks.read_text().split()[1:])
    print(f"idle: {100 * used / options.seconds:.2f} % of a core, {memory:.1f} MiB resident")
    print(
        f"enqueue to start, another process: p50 {1000 * waits[len(waits) // 2]:.1f} ms, "
        f"p99 {1000 * waits[int(len(waits) * 0.99)]:.1f} ms, worst {1000 * waits[-1]:.1f} ms"
    )


def wait_for_lines(path: Path, count: int) -> None:
    while not path.exists() or path.read_bytes().count(b"\n") < count:
        time.sleep(0.001)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main()
