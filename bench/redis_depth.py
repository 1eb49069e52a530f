"""What a long queue costs on Redis: `python bench/redis_depth.py [--few N] [--many N] [--drain N]`.

Claims and settles as many jobs of a short queue as of a long one, of which the rest stays: by a bare loop around
the broker that takes turns of 100, and by a worker of 5 threads in this process. `timed` jobs were given a due
time, which has passed, in no order; others came as they are claimed. The short queue is filled again as often as
need be.
"""

from __future__ import annotations

import random
import threading
import time

from redis_drain import bare_loop
from redis_measuring import Meter, line, parser_of, started

from laneway import Laneway, Worker
from laneway.config import WorkerOptions
from laneway.job import NewJob
from tests.servers import RedisServer

SHARDS = 5
CHUNK = 50_000


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--few", type=int, default=10_000)
    parser.add_argument("--many", type=int, default=1_000_000)
    parser.add_argument("--drain", type=int, default=20_000)
    options = parser.parse_args()
    for server in started(options.server):
        for timed in (False, True):
            cost = [measure(server, depth, options.drain, timed) for depth in (options.few, options.many)]
            few, many = cost
            rates = [one.took_s / other.took_s for one, other in zip(few, many, strict=True)]
            cpu = many[0].server_s / few[0].server_s
            print(
                f"  {'timed' if timed else 'as they came'}: {options.many:,} against {options.few:,} queued: bare loop "
                f"{rates[0]:.2f} x the rate and {cpu:.2f} x the server's CPU, worker {rates[1]:.2f} x the rate",
                flush=True,
            )


def measure(server: RedisServer, depth: int, drain: int, timed: bool) -> tuple[Meter, Meter]:
    """What it takes to drain so many by a bare loop and by a worker, with `depth` jobs in the queue at first."""
    server.flush()
    app = Laneway(server.url)
    ended, enough = [0], threading.Event()

    @app.task(queue="bench")
    def call(number: int) -> None:
        ended[0] += 1  # only nearly exact with several threads
        if ended[0] >= target:
            enough.set()

    app.broker.declare("bench", SHARDS)
    fill(app, call, depth, timed)
    loop, worked = Meter(server), Meter(server)
    for meter, by_worker in ((loop, False), (worked, True)):
        left, took, server_s, here_s = drain, 0.0, 0.0, 0.0
        while left > 0:
            target = min(left, depth * 9 // 10)
            with Meter(server) as part:
                if by_worker:
                    ended[0] = 0
                    enough.clear()
                    worker = Worker(app, WorkerOptions(concurrency=5))
                    worker.start()
                    assert enough.wait(300), "the worker does not get on"
                else:
                    bare_loop(app, target)
            if by_worker:
                worker.stop()
            left -= target
            took, server_s, here_s = took + part.took_s, server_s + part.server_s, here_s + part.here_s
            if left > 0 or not by_worker:
                fill(app, call, depth - sum(stats.length for stats in app.broker.stats()), timed)
        meter.took_s, meter.server_s, meter.here_s = took, server_s, here_s
        name = f"{depth:,} {'timed' if timed else 'as they came'}, {'worker' if by_worker else 'bare loop'}"
        line(name, meter.said(drain))
    app.close()
    return loop, worked


def fill(app: Laneway, call: object, count: int, timed: bool) -> None:
    now = time.time()
    for first in range(0, count, CHUNK):
        jobs: list[NewJob] = [app.outgoing(call, (number,), {}) for number in range(first, min(first + CHUNK, count))]
        for job in jobs if timed else ():
            job.perform_at = now - random.uniform(1, 1_000)
        app.broker.enqueue(jobs)


if __name__ == "__main__":
    main()
