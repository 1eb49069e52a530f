"""Measures how soon an idle worker on Redis starts a job.

    python bench/redis_latency.py [--jobs N] [--peers PYTHON] [--server NAME]

Starts `laneway worker` as a process and sends it one job at a time from this process, with pauses of 20 to 60 ms.
The job records the time since it was sent, on the same clock. With `--peers` the same is measured with huey and
taskiq (see `redis_peers`), each in its own processes. Laneway and the peers take turns job by job, so that other
load on the machine disturbs all of them alike.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from redis_measuring import line, parser_of, started

from laneway import Laneway
from tests.support.servers import RedisServer

PROGRAM = """
import os, time
from laneway import Laneway

app = Laneway()
out = os.open(os.environ["MARKS"], os.O_APPEND | os.O_CREAT | os.O_WRONLY)

@app.task
def mark(sent: float) -> None:
    os.write(out, f"{time.time() - sent}\\n".encode())
"""
PEERS = ("huey", "taskiq")
#: How long a worker may take to start and run a job on a busy machine.
PATIENCE_S = 60.0


class Runner:
    """A worker that has begun its first job, and what sends it the next."""

    def __init__(self, name: str, worker: subprocess.Popen[bytes], marks: Path, send: Callable[[], object]) -> None:
        self.name, self.worker, self.marks, self._send = name, worker, marks, send
        self._ended = 0
        self.others: list[subprocess.Popen[bytes]] = []

    def one(self) -> None:
        """Send a job, and wait until it has run."""
        self._send()
        self._ended += 1
        deadline = time.monotonic() + PATIENCE_S
        while not self.marks.exists() or self.marks.read_bytes().count(b"\n") < self._ended:
            if self.worker.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"The worker of {self.name} does not run its job; it has ended: {self.worker.poll()}."
                )
            time.sleep(0.001)

    def cpu_s(self) -> float:
        """CPU seconds of the worker, the processes that it has started included."""
        ticks = 0
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    fields = (folder / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue  # it has ended
                if int(fields[3]) == self.worker.pid:  # its session
                    ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        for process in (self.worker, *self.others):
            process.terminate()
            process.communicate(timeout=60)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--peers", type=Path, metavar="PYTHON")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the workers are ended too
    for server in started(options.server):
        with tempfile.TemporaryDirectory() as folder:
            measure(server, Path(folder), options.jobs, options.peers)


def measure(server: RedisServer, folder: Path, jobs: int, peers: Path | None) -> None:
    app = Laneway(server.url)
    runners = [laneway(app, server.url, folder)]
    try:
        runners += [peer(name, peers, server.url, folder) for name in PEERS if peers]
        for runner in runners:
            for _ in range(10):
                runner.one()
        before = [runner.cpu_s() for runner in runners]
        for _ in range(jobs):
            for runner in runners:
                runner.one()
                time.sleep(random.uniform(0.02, 0.06))  # not in step with anybody's ticks
        used = [runner.cpu_s() - cpu for runner, cpu in zip(runners, before, strict=True)]
    finally:
        for runner in runners:
            runner.end()
        app.close()
    for runner, cpu in zip(runners, used, strict=True):
        waits = sorted(float(each) for each in runner.marks.read_text().split()[10:])
        line(
            f"{runner.name}, enqueue to start",
            f"p50 {1000 * waits[len(waits) // 2]:6.2f} ms, p99 {1000 * waits[int(len(waits) * 0.99)]:6.2f} ms, worst "
            f"{1000 * waits[-1]:6.2f} ms   CPU of the worker for one: {1000 * cpu / jobs:.1f} ms",
        )
    if not peers:
        print("  without --peers: not compared with other systems")


def laneway(app: Laneway, url: str, folder: Path) -> Runner:
    program, marks = folder / "program.py", folder / "laneway"
    program.write_text(PROGRAM)

    @app.task
    def mark(sent: float) -> None: ...

    command = [sys.executable, "-m", "laneway", "worker", program]
    environment = {**os.environ, "LANEWAY_URL": url, "MARKS": str(marks)}
    worker = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
    return Runner("Laneway", worker, marks, lambda: mark.enqueue(time.time()))


def peer(name: str, python: Path, url: str, folder: Path) -> Runner:
    marks = folder / name
    script = Path(__file__).with_name("redis_peers.py")
    worker = subprocess.Popen(
        [python, script, "work", name, url, marks],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    sender = subprocess.Popen([python, script, "send", name, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send() -> None:
        assert sender.stdin
        assert sender.stdout
        sender.stdin.write(b"\n")
        sender.stdin.flush()
        sender.stdout.readline()

    runner = Runner(name, worker, marks, send)
    runner.others.append(sender)
    return runner


if __name__ == "__main__":
    main()
