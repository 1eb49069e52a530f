"""Measures whether busy queues delay an event in another queue.

    python bench/fairness.py [--jobs N] [--busy QUEUES] [--threads N] [--takes MS] [--every S] [--seconds S]
                             [--broker NAME] [variant …]

One worker with 5 runners serves queues that are full of jobs of 10 ms each. Another process publishes an event
every `--every` seconds. The same worker listens to it, and the handler records the time since the publish, on the
same clock. The job rate of the busy queues is measured before events are published and while they are. SQS is the
fake from the tests, in its own process. The publisher also reports how late it wakes from its own sleep: that shows
how much other load the machine has. Variants:

sleep     jobs sleep in a thread
async     jobs and the listener are coroutines
burn      jobs hold the GIL for their 10 ms: they slow down their whole process, and no scheduling can prevent that
mixed     every 20th job sleeps 20 times as long, the other jobs return at once
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import threading
import time
from typing import Any

from places import place

from laneway import Laneway, Worker
from laneway.config import WorkerOptions

VARIANTS = ("sleep", "async", "burn", "mixed")
BROKERS = ("sqlite", "redis", "cluster", "sqs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=50_000, help="that wait, in all busy queues together")
    parser.add_argument("--busy", type=int, default=1, metavar="QUEUES")
    parser.add_argument("--threads", type=int, default=5)
    parser.add_argument("--takes", type=float, default=10.0, metavar="MS", help="how long a job takes")
    parser.add_argument("--every", type=float, default=0.1, metavar="S", help="between two events")
    parser.add_argument("--seconds", type=float, default=60.0, help="for which events come")
    parser.add_argument("--broker", choices=BROKERS, action="append", dest="brokers", help="this one only")
    parser.add_argument("--publish", metavar="URL", help=argparse.SUPPRESS)
    parser.add_argument("variants", nargs="*", default=list(VARIANTS), metavar="variant")
    options = parser.parse_args()
    if options.publish:
        publish(options)
        return
    for broker in options.brokers or BROKERS:
        for variant in options.variants:
            with place(broker, *(f"busy-{number}" for number in range(options.busy))) as url:
                measure(broker, url, variant, options)


class Marks:
    """What has been run: jobs of the busy queues, counted; events, with their waits."""

    def __init__(self) -> None:
        self.ran = 0
        self.waits: list[float] = []
        self._lock = threading.Lock()

    def job(self) -> None:
        with self._lock:
            self.ran += 1


def declare(app: Laneway, variant: str, busy: int, takes_s: float, marks: Marks) -> list[Any]:
    """The listener, and the tasks of the busy queues."""

    async def wait(number: int) -> None:
        await asyncio.sleep(takes_s)
        marks.job()

    def sleep(number: int) -> None:
        time.sleep(takes_s)
        marks.job()

    def burn(number: int) -> None:
        until = time.perf_counter() + takes_s
        while time.perf_counter() < until:
            pass
        marks.job()

    def mixed(number: int) -> None:
        if number % 20 == 0:
            time.sleep(takes_s * 20)
        marks.job()

    def hear(sent: float) -> None:
        if sent:
            marks.waits.append(time.time() - sent)

    async def hear_async(sent: float) -> None:
        hear(sent)

    app.listener("sent", source="publisher")(hear_async if variant == "async" else hear)
    job: Any = {"async": wait, "sleep": sleep, "burn": burn, "mixed": mixed}[variant]
    return [app.task(queue=f"busy-{number}", name=f"job-{number}")(job) for number in range(busy)]


def measure(broker: str, url: str, variant: str, options: argparse.Namespace) -> None:
    app, marks = Laneway(url, name="fair", development=True), Marks()
    for task in declare(app, variant, options.busy, options.takes / 1_000, marks):
        task.enqueue_many([(number,) for number in range(options.jobs // options.busy)])
    worker: Any = Worker(app, WorkerOptions(concurrency=options.threads))
    worker.start()
    publisher: subprocess.Popen[str] | None = None
    late = ""
    try:
        time.sleep(1.0)  # runs must have been seen before it is known how long they take
        alone = rate(marks, max(5.0, options.seconds / 6))
        command = [sys.executable, __file__, "--publish", url, "--every", str(options.every)]
        publisher = subprocess.Popen([*command, "--seconds", str(options.seconds)], stdout=subprocess.PIPE, text=True)
        beside = rate(marks, options.seconds)
        late, _ = publisher.communicate(timeout=60)
        left = options.jobs - marks.ran
        wanted, deadline = int(options.seconds / options.every), time.monotonic() + 10
        while len(marks.waits) < wanted and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        if publisher is not None:
            publisher.kill()
            publisher.wait()
        worker.stop(60)
        app.close()
    line(f"{broker}, {variant}, {options.busy} busy", said(marks.waits))
    if len(marks.waits) != wanted:
        line("", f"{len(marks.waits)} of {wanted} events were heard of")
    line("", f"{alone:,.0f} jobs a second alone, {beside:,.0f} beside events; {left:,} were left")
    line("", f"the publisher's own sleep was longer than asked for by {late.strip()}")


def publish(options: argparse.Namespace) -> None:
    """What the other process does: an event again and again, on time."""
    app = Laneway(options.publish, name="publisher")
    late: list[float] = []
    app.publish("sent", 0.0)  # by then it is connected; it does not count
    began = time.monotonic() + 0.5
    for number in range(int(options.seconds / options.every)):
        due = began + number * options.every
        time.sleep(max(0.0, due - time.monotonic()))
        late.append(time.monotonic() - due)
        app.publish("sent", time.time())
    app.close()
    print(said(late))


def rate(marks: Marks, seconds: float) -> float:
    """How many jobs of the busy queues run in a second."""
    before, began = marks.ran, time.perf_counter()
    time.sleep(seconds)
    return (marks.ran - before) / (time.perf_counter() - began)


def said(waits: list[float]) -> str:
    if not waits:
        return "none has run"
    ordered = sorted(waits)
    shares = {name: ordered[int(len(ordered) * share)] for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}
    shares["worst"] = ordered[-1]
    return ", ".join(f"{name} {1000 * wait:.1f} ms" for name, wait in shares.items())


def line(name: str, said: str) -> None:
    print(f"  {name:<44} {said}", flush=True)


if __name__ == "__main__":
    main()
