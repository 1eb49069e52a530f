"""Measures how many SQS requests a job costs and how fast jobs are enqueued and drained.

    python bench/sqs_requests.py [--jobs N] [--threads N] [--takes MS] [kind …]

Kinds: `plain`, and `keyed, a key each`, `keyed, 1,000 keys` and `keyed, one key`. The server is the fake from the
tests, in its own process. It answers within about a millisecond, which the real SQS does not: the rates show the
cost of Laneway, not of SQS. The server counts the requests. Those that send, receive, delete or hide messages are
given per job. Other requests are counted separately, without GetQueueUrl and GetQueueAttributes.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for the servers that tests start

from laneway import Key, Laneway, Worker
from laneway.brokers.aws import AWSBroker
from laneway.config import WorkerOptions
from tests.support.aws.servers import ENVIRONMENT, FakeProcess

KEYS: dict[str, Callable[[int], str] | None] = {
    "plain": None,
    "keyed, a key each": lambda number: f"order-{number}",
    "keyed, 1,000 keys": lambda number: f"order-{number % 1_000}",
    "keyed, one key": lambda number: "order",
}
#: What a job is made of; all else happens once, or once a minute.
SHARE = ("SendMessageBatch", "ReceiveMessage", "DeleteMessageBatch", "ChangeMessageVisibilityBatch")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=5)
    parser.add_argument("--takes", type=float, default=0.0, metavar="MS", help="how long a job sleeps")
    parser.add_argument("kinds", nargs="*", default=list(KEYS), metavar="kind")
    options = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    print("\nSQS, the tests' fake, loopback", flush=True)
    server = FakeProcess.start()
    try:
        for kind in options.kinds:
            measure(server, kind, options.jobs, options.threads, options.takes / 1_000)
    finally:
        server.end()


def measure(server: FakeProcess, kind: str, jobs: int, threads: int, takes_s: float) -> None:
    server.reset()
    server.create_queues("default")
    app = Laneway(broker=AWSBroker(server.settings()))
    key_of, ran, ended = KEYS[kind], list[int](), threading.Event()

    def note(number: int) -> None:
        if takes_s:
            time.sleep(takes_s)
        ran.append(number)
        if len(ran) >= jobs:
            ended.set()

    @app.task
    def plain(number: int) -> None:
        note(number)

    @app.task
    def keyed(key: Annotated[str, Key], number: int) -> None:
        note(number)

    before = server.requests
    began = time.perf_counter()
    if key_of is None:
        plain.enqueue_many([(number,) for number in range(jobs)])
    else:
        keyed.enqueue_many([(key_of(number), number) for number in range(jobs)])
    line(f"{kind}, enqueue_many", jobs, time.perf_counter() - began, server.requests - before)
    before = server.requests
    worker: Any = Worker(app, WorkerOptions(concurrency=threads))
    began = time.perf_counter()
    worker.start()
    ended.wait()
    took_s = time.perf_counter() - began
    name = "default" if key_of is None else "default.fifo"
    while server.counts(name) != (0, 0, 0):
        time.sleep(0.05)
    requests = server.requests - before
    worker.stop(60)
    app.close()
    assert sorted(ran) == list(range(jobs)), "each job ran exactly once"
    line(f"{kind}, drained by a worker", jobs, took_s, requests)


def line(name: str, jobs: int, took_s: float, requests: Counter[str]) -> None:
    """GetQueueAttributes is this script's own way of seeing that nothing is left."""
    shares = sum(requests[f"sqs.{each}"] for each in SHARE)
    others = requests.total() - shares - requests["sqs.GetQueueAttributes"] - requests["sqs.GetQueueUrl"]
    said = f"{jobs / took_s:9,.0f} a second   {shares / jobs:.3f} requests a job, {others} others"
    print(f"  {name:<44} {said}", flush=True)


if __name__ == "__main__":
    main()
