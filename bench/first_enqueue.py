"""Measures what the first `enqueue` of a process costs, and what it costs after `app.open()`.

    python bench/first_enqueue.py [--rounds N] [--old CHECKOUT] [memory | sqlite | valkey | redis | sqs …]

Each run is a fresh process. It makes an app with one task, and times the steps: import of the app's module,
`app.open()` in every second process, the first `enqueue` and the second. For each step it shows the median of the
wall time and of the CPU time of that process. Wall times depend on the other load of the machine, CPU times hardly
do. With `--old` the processes of another checkout run in turn with those of this one; a checkout without `app.open`
is measured without it. The queue exists and the server knows the scripts: the first processes are not counted.

SQS is the fake from the tests, in its own process, without TLS: the real SQS costs more round trips.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the servers that tests start

from tests.support.aws.servers import ACCOUNT, ENVIRONMENT, FakeProcess
from tests.support.servers import RedisServer, servers

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import json, sys, time

def timed(step):
    wall, cpu = time.perf_counter(), time.process_time()
    step()
    times.append((time.perf_counter() - wall, time.process_time() - cpu))

def make():
    global app, add
    from laneway import Laneway
    app = Laneway(sys.argv[1])

    @app.task
    def add(a: int, b: int) -> None: ...

times = []
timed(make)
if sys.argv[2] == "open":
    timed(app.open)
timed(lambda: add.enqueue(1, 2))
timed(lambda: add.enqueue(1, 2))
print(json.dumps(times))
"""
#: Without `open` and with it.
STEPS = (("import and declare", "first enqueue", "second enqueue"), ("", "app.open()", "first enqueue after it", ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--old", type=Path, metavar="CHECKOUT", help="compare with this one")
    parser.add_argument("brokers", nargs="*", metavar="broker", default=["memory", "sqlite", *servers(), "sqs"])
    options = parser.parse_args()
    sides = {"new": ROOT} if options.old is None else {"old": options.old.resolve(), "new": ROOT}
    for broker in options.brokers:
        with ExitStack() as stack:  # a store each: another checkout may have another format
            urls = {side: stack.enter_context(opened(broker)) for side in sides}
            measure(broker, urls, sides, options.rounds)


@contextmanager
def opened(broker: str) -> Iterator[str]:
    """The URL of a broker that is empty, until the end of the block."""
    with tempfile.TemporaryDirectory() as folder:
        if broker == "memory":
            yield "memory:"
        elif broker == "sqlite":
            yield f"sqlite:///{folder}/first.db"
        elif broker == "sqs":
            fake = FakeProcess.start()
            try:
                fake.create_queues("default")
                yield f"{fake.endpoint}/{ACCOUNT}/default"
            finally:
                fake.end()
        else:
            server = RedisServer.start(servers()[broker], Path(folder))
            try:
                yield server.url
            finally:
                server.end()


def measure(broker: str, urls: dict[str, str], sides: dict[str, Path], rounds: int) -> None:
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for number in range(rounds + 1):
        for side in sides if number % 2 else reversed(sides):
            for opens, steps in enumerate(STEPS):
                if opens and "def open(" not in (sides[side] / "src" / "laneway" / "app.py").read_text():
                    continue
                times = run(sides[side], urls[side], "open" if opens else "-")
                for step, (wall, cpu) in zip(steps, times, strict=True):
                    if number and step:
                        found.setdefault((step, side), []).append((wall, cpu))
    print(f"\n{broker}, {rounds} processes each", flush=True)
    for (step, side), times in sorted(found.items(), key=lambda item: _place(item[0][0])):
        wall, cpu = (1_000 * statistics.median(column) for column in zip(*times, strict=True))
        name = step if len(sides) == 1 else f"{step}, {side}"
        print(f"  {name:<32} {wall:8.2f} ms   CPU {cpu:8.2f} ms", flush=True)


def _place(step: str) -> int:
    return [each for steps in STEPS for each in steps].index(step)


def run(checkout: Path, url: str, opens: str) -> list[tuple[float, float]]:
    """The wall and the CPU seconds of each step of one process."""
    environ = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(checkout / "src")}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a web server does not compile its modules at each start
    command = [sys.executable, "-c", PROGRAM, url, opens]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    return [(wall, cpu) for wall, cpu in json.loads(done.stdout)]


if __name__ == "__main__":
    main()
