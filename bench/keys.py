"""Measures the cost of keys and their order.

    python bench/keys.py [--jobs N] [--url URL] [scene …]

Scenes, each on fresh SQLite files with one worker of 5 threads in this process. `--url` is the beginning of a
SQLite URL, to which each scene adds an ending such as `-0.db`. If several scenes are given, each runs in its own
process, because memory is measured as the peak of a process.

rates     no-op jobs, enqueued and drained: plain, keyed and collecting
large     one key with as many payloads as `--jobs`, one key that always fails, and 1,000 other keys that are enqueued
          afterwards: how long the other keys wait, and how much memory the worker needs
slow      one key whose call takes 5 s, and 999 quick keys with 10 calls of 1 ms each: how long the quick keys take
          with the slow key and without it
"""

from __future__ import annotations

import argparse
import logging
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Annotated

from laneway import Batch, Key, Laneway, Task, Worker
from laneway.config import WorkerOptions

THREADS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--url")
    parser.add_argument("scenes", nargs="*", default=["rates", "large", "slow"], metavar="scene")
    options = parser.parse_args()
    scenes: dict[str, Callable[[str, int], None]] = {"rates": rates, "large": large, "slow": slow}
    if len(options.scenes) > 1:  # each in a process of its own, because memory is measured by its highest
        for name in options.scenes:
            url = ["--url", options.url] if options.url else []
            subprocess.run([sys.executable, __file__, "--jobs", str(options.jobs), *url, name], check=True)
        return
    for name in options.scenes:
        with tempfile.TemporaryDirectory() as folder:
            scenes[name](options.url or f"sqlite:///{folder}/{name}", options.jobs)


def drain(app: Laneway) -> float:
    began = time.perf_counter()
    assert Worker(app, WorkerOptions(concurrency=THREADS, until_empty=True)).run() == 0
    return time.perf_counter() - began


def rates(url: str, jobs: int) -> None:
    def keyed(app: Laneway, keys: int) -> Callable[[], object]:
        @app.task
        def call(key: Annotated[str, Key], number: int) -> None:
            seen.append(number)

        return lambda: call.enqueue_many([(f"key-{number % keys}", number) for number in range(jobs)])

    def collecting(app: Laneway, keys: int, batch_size: int) -> Callable[[], object]:
        @app.collect(batch_size=batch_size)
        def gather(batch: Batch[int]) -> None:
            for values in batch.values():
                seen.extend(values)

        return lambda: gather.enqueue_many([(f"key-{number % keys}", number) for number in range(jobs)])

    def plain(app: Laneway) -> Callable[[], object]:
        @app.task
        def call(number: int) -> None:
            seen.append(number)

        return lambda: call.enqueue_many([(number,) for number in range(jobs)])

    cases: list[tuple[str, Callable[[Laneway], Callable[[], object]]]] = [
        ("plain", plain),
        ("keyed, 1,000 keys", lambda app: keyed(app, 1_000)),
        ("keyed, a key each", lambda app: keyed(app, jobs)),
        ("collecting, a key each", lambda app: collecting(app, jobs, 1)),
        ("collecting, a key each, batches of 10", lambda app: collecting(app, jobs, 10)),
        ("collecting, 1,000 keys", lambda app: collecting(app, 1_000, 1)),
    ]
    for number, (name, declare) in enumerate(cases):
        app = Laneway(f"{url}-{number}.db")
        seen: list[int] = []
        enqueue = declare(app)
        began = time.perf_counter()
        enqueue()
        enqueued = jobs / (time.perf_counter() - began)
        drained = jobs / drain(app)
        app.close()
        assert sorted(seen) == list(range(jobs)), "each ran exactly once"
        print(f"{name}: enqueue_many {enqueued:,.0f} a second, drained {drained:,.0f} a second")


def large(url: str, jobs: int) -> None:
    logger = logging.getLogger("bench")
    logger.setLevel(logging.CRITICAL)  # a line for every failure is not what is measured
    app = Laneway(f"{url}.db", logger=logger)
    waits: list[float] = []
    gathered: list[int] = []
    failed = threading.Event()

    @app.collect(max_retry_count=1_000, retry_in=lambda count: 0.01)
    def gather(batch: Batch[float]) -> None:
        for key, values in batch.items():
            if key == "fails":
                failed.set()
                raise ValueError("as always")
            if key == "large":
                gathered.append(len(values))
            else:
                waits.append(time.time() - values[0])

    for start in range(0, jobs, 10_000):
        gather.enqueue_many([("large", float(number)) for number in range(start, min(jobs, start + 10_000))])
    gather.enqueue("fails", 0.0)
    worker = Worker(app, WorkerOptions(concurrency=THREADS))
    before = memory_mib()
    worker.start()
    failed.wait()
    for number in range(1_000):
        gather.enqueue(f"key-{number}", time.time())
    while sum(gathered) < jobs or len(waits) < 1_000:
        time.sleep(0.01)
    after = memory_mib()
    worker.stop()
    app.close()
    waits.sort()
    print(
        f"large: {jobs:,} payloads of a key in {len(gathered)} runs of {max(gathered)} at most; 1,000 other keys "
        f"waited {waits[500] * 1e3:.0f} ms (p50), {waits[990] * 1e3:.0f} ms (p99), {waits[-1] * 1e3:.0f} ms at most; "
        f"memory {before:.0f} MiB before, {after:.0f} MiB at most"
    )


def declare_sleep(app: Laneway, ended: list[float]) -> Task[[str, float], [str, float], None]:
    @app.task
    def call(key: Annotated[str, Key], seconds: float) -> None:
        time.sleep(seconds)
        if key != "slow":
            ended.append(time.perf_counter())

    return call


def slow(url: str, jobs: int) -> None:
    taken = {}
    for with_slow in (False, True):
        app = Laneway(f"{url}-{with_slow}.db")
        ended: list[float] = []

        quick = declare_sleep(app, ended)
        if with_slow:
            quick.enqueue("slow", 5.0)
        quick.enqueue_many([(f"key-{number % 999}", 0.001) for number in range(9_990)])
        began = time.perf_counter()
        drain(app)
        taken[with_slow] = max(ended) - began
        app.close()
    print(
        f"slow: 9,990 calls of 999 quick keys took {taken[False]:.2f} s alone and {taken[True]:.2f} s beside one call "
        "of 5 s, with a thread less"
    )


def memory_mib() -> float:
    """What this process has used at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
