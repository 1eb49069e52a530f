"""Measures how the memory of a process grows with the number of its jobs.

    python bench/memory.py [--jobs N] [--warm-up N] [--backlog N] [--kind KIND] [-v] [--json]

Starts one worker process on a fresh SQLite file and feeds it from this process so that it never runs out of jobs.
Reads its resident memory, its private memory and its open descriptors from /proc. Growth is counted from the end of
the warm-up. By then all threads run, all statements are compiled, all modules that a run needs are imported, the
page cache of the broker is full (4 MB, filled by 17,000 small jobs), and the worker has been idle twice. The first
idle time opens its third connection. After the second, in the middle of the warm-up, malloc takes up to 2 MB for
its arenas, once. Memory that grows later grows with the jobs. The first and the last sample are taken when all jobs
fed so far have run. In between, an additional descriptor is a file that is open for a moment: a source file that a
traceback is read from, or the folder, when SQLite starts a new log.

`--kind producer` measures the other side: a process that enqueues jobs one by one and runs none.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from laneway import Laneway
from laneway.jobs.data import Kind, NewJob

KINDS = ("plain", "async", "keyed", "collecting", "failing", "producer")

PROGRAM = """
import sys
from typing import Annotated
from laneway import Batch, Key, Laneway, Retry, Context, Worker
from laneway.config import WorkerOptions

app = Laneway(sys.argv[1])

@app.task(queue="plain")
def plain(number: int) -> None: ...

@app.task(queue="async")
async def asynchronous(number: int) -> None: ...

@app.task(queue="keyed")
def keyed(key: Annotated[str, Key], number: int) -> None: ...

@app.collect(queue="collecting", batch_size=10)
def collecting(batch: Batch[dict]) -> None: ...

@app.task(queue="failing", context=True)
def failing(context: Context, number: int) -> None:
    if context.attempt == 1:
        raise Retry(f"not yet, {number}", after=0)

if __name__ == "__main__":
    if sys.argv[2] == "producer":
        for line in sys.stdin:
            for number in range(int(line)):
                plain.enqueue(number)
            print("done", flush=True)
    else:
        Worker(app, WorkerOptions(queues=[sys.argv[2]], slow_s=1e9)).run()
"""
#: That a process has to the file, when it has been busy and idle.
CONNECTIONS = 3
TASKS = {"plain": "plain", "async": "asynchronous", "keyed": "keyed", "failing": "failing"}


@dataclass(frozen=True)
class Sample:
    """What a process has, at one moment."""

    jobs: int
    rss_kib: int
    #: Pages that nobody else has: what the process itself costs.
    private_kib: int
    descriptors: int
    threads: int

    def __str__(self) -> str:
        return (
            f"{self.jobs:>9,} jobs: {self.rss_kib / 1024:6.2f} MiB resident, "
            f"{self.private_kib / 1024:6.2f} MiB its own, {self.descriptors} descriptors, {self.threads} threads"
        )


def look(pid: int, jobs: int) -> Sample:
    """Read /proc."""
    process = Path(f"/proc/{pid}")
    status, rollup = _fields(process / "status"), _fields(process / "smaps_rollup")
    private = rollup["Private_Clean"] + rollup["Private_Dirty"]
    return Sample(jobs, status["VmRSS"], private, len(descriptors_of(pid)), status["Threads"])


def descriptors_of(pid: int, *, numbered: bool = False) -> list[str]:
    """What the descriptors of a process lead to."""
    found = []
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(f"{each.name if numbered else ''}{each.readlink()}")
        except FileNotFoundError:
            pass  # closed in between
    return found


def _fields(path: Path) -> dict[str, int]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0].rstrip(":"): int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}


def measure(kind: str, *, jobs: int, warm_up: int, backlog: int, samples: int = 20) -> Iterator[Sample]:
    """Run jobs of a kind in one process; yields a sample after the warm-up and then at equal distances."""
    with tempfile.TemporaryDirectory() as folder:
        program, path = Path(folder, "program.py"), Path(folder, "jobs.db")
        url = f"sqlite:///{path}"
        program.write_text(PROGRAM)
        command = [sys.executable, str(program), url, kind]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        marks = [warm_up + jobs * number // samples for number in range(samples + 1)]
        try:
            if kind == "producer":
                yield from _produce(process, marks)
            else:
                yield from _feed(process, Laneway(url), path, kind, marks, backlog)
        finally:
            process.terminate()
            process.communicate(timeout=60)


def _produce(process: subprocess.Popen[bytes], marks: list[int]) -> Iterator[Sample]:
    assert process.stdin is not None
    assert process.stdout is not None
    made = 0
    for mark in marks:
        process.stdin.write(b"%d\n" % (mark - made))
        process.stdin.flush()
        process.stdout.readline()
        made = mark
        yield look(process.pid, made)


def _feed(
    process: subprocess.Popen[bytes], app: Laneway, path: Path, kind: str, marks: list[int], backlog: int
) -> Iterator[Sample]:
    app.broker.declare(kind, 5)
    while descriptors_of(process.pid).count(str(path)) < CONNECTIONS:
        time.sleep(0.01)  # it opens the last when it finds nothing to do
    fed = ended = 0
    for mark in [marks[0] // 2, *marks]:
        most = mark if mark <= marks[0] else marks[-1]
        while ended < mark:
            if process.poll() is not None:
                raise RuntimeError(f"The worker ended with {process.returncode}.")
            more = min(ended + backlog, most) - fed
            if more >= min(1_000, backlog, most - fed) > 0:
                app.broker.enqueue([_new(kind, number) for number in range(fed, fed + more)])
                fed += more
            else:
                time.sleep(0.002)
            (stats,) = [each for each in app.broker.inspect.stats() if each.queue == kind]
            ended = stats.processed
        sample = at_rest(process.pid, ended) if ended == most else look(process.pid, ended)
        if mark >= marks[0]:
            yield sample
    app.close()


def at_rest(pid: int, jobs: int) -> Sample:
    """A sample without what is open for a moment only."""
    before = set[str]()
    while (now := set(descriptors_of(pid, numbered=True))) != before:
        before = now
        time.sleep(0.2)
    return look(pid, jobs)


def _new(kind: str, number: int) -> NewJob:
    # Every key has a single payload, so that what was fed and what has ended count alike.
    if kind == "collecting":
        return NewJob(
            queue=kind, key=f"k{number}", kind=Kind.COLLECTING, identity=f"{number}", body=f'{{"number":{number}}}'
        )
    key = f', "key": "k{number}"' if kind == "keyed" else ""
    id = f"{number:032x}"
    body = f'{{"_job_class":"{TASKS[kind]}","_job_params":{{"number":{number}{key}}},"_job_id":"{id}"}}'
    if kind == "keyed":
        return NewJob(queue=kind, key=f"k{number}", kind=Kind.KEYED, identity=id, body=body)
    return NewJob(queue=kind, key=id, body=body)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a long life does to memory.")
    parser.add_argument("--jobs", type=int, default=200_000)
    parser.add_argument("--warm-up", type=int, default=20_000)
    parser.add_argument("--backlog", type=int, default=5_000, help="how many jobs wait at most")
    parser.add_argument("--kind", choices=[*KINDS, "all"], default="all")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every sample")
    parser.add_argument("--json", action="store_true", help="print every sample, as a line of JSON, and nothing else")
    options = parser.parse_args()
    for kind in KINDS if options.kind == "all" else [options.kind]:
        began = time.monotonic()
        samples = []
        for sample in measure(kind, jobs=options.jobs, warm_up=options.warm_up, backlog=options.backlog):
            samples.append(sample)
            if options.json:
                print(json.dumps(asdict(sample)), flush=True)
            elif options.verbose:
                print(f"{kind:>10} {sample}", flush=True)
        if options.json:
            continue
        first, last = samples[0], samples[-1]
        print(
            f"{kind}: {first.jobs:,} to {last.jobs:,} jobs in {time.monotonic() - began:.0f} s: resident "
            f"{first.rss_kib / 1024:.1f} to {last.rss_kib / 1024:.1f} MiB "
            f"({_growth(first.rss_kib, last.rss_kib)}), its own "
            f"{first.private_kib / 1024:.1f} to {last.private_kib / 1024:.1f} MiB "
            f"({_growth(first.private_kib, last.private_kib)}), descriptors "
            f"{first.descriptors} to {last.descriptors} (at most {max(each.descriptors for each in samples)})",
            flush=True,
        )


def _growth(first: int, last: int) -> str:
    return f"{100 * (last / first - 1):+.1f} %"


if __name__ == "__main__":
    main()
