"""Measures how fast jobs are enqueued into Redis, one by one and many at once.

    python bench/redis_enqueue.py [--jobs N] [--single N] [--rounds N] [--peers PYTHON] [--server NAME]

One by one is `task.enqueue(number)` from one thread, so the rate includes the round trip to Redis. With `--peers`
the same is measured with the other systems that this Python has (see `redis_peers`), in alternation with Laneway on
the same server. The best of several rounds counts.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path
from typing import Annotated

from redis_measuring import Meter, line, parser_of, round_trips, started

from laneway import Batch, Key, Laneway
from tests.support.servers import RedisServer

PEERS = ("huey", "taskiq", "dramatiq", "rq", "arq")


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=100_000, help="at once")
    parser.add_argument("--single", type=int, default=3_000, help="one by one, in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peers", type=Path, metavar="PYTHON")
    options = parser.parse_args()
    for server in started(options.server):
        many(server, options.jobs)
        single(server, options)


def many(server: RedisServer, jobs: int) -> None:
    app = Laneway(server.url)

    @app.task
    def noop(number: int) -> None: ...

    noop.enqueue(0)
    with Meter(server) as meter:
        noop.enqueue_many([(number,) for number in range(jobs)])
    line(f"enqueue_many, {jobs:,} plain", meter.said(jobs))
    app.close()
    server.flush()


def single(server: RedisServer, options: argparse.Namespace) -> None:
    app = Laneway(server.url)

    @app.task
    def plain(number: int) -> None: ...

    @app.task
    def keyed(order: Annotated[str, Key], number: int) -> None: ...

    @app.collect
    def gather(batch: Batch[int]) -> None: ...

    count = options.single
    best: dict[str, tuple[float, str]] = {}

    def note(name: str, meter: Meter) -> None:
        best[name] = max(best.get(name, (0.0, "")), (meter.rate(count), meter.said(count)))

    for _ in range(options.rounds):
        server.flush()
        note("redis-py, a round trip", round_trips(server, count))
        app.use(server.url)
        plain.enqueue(0)
        gather.enqueue("0", 0)
        with Meter(server) as meter:
            for number in range(count):
                plain.enqueue(number)
        note("Laneway, plain", meter)
        with Meter(server) as meter:
            for number in range(count):
                keyed.enqueue(f"order-{number}", number)
        note("Laneway, keyed", meter)
        with Meter(server) as meter:
            for number in range(count):
                gather.enqueue(f"order-{number}", number)
        note("Laneway, collecting", meter)
        for name in PEERS if options.peers else ():
            with Meter(server) as meter:
                said = subprocess.run(
                    [
                        options.peers,
                        Path(__file__).with_name("redis_peers.py"),
                        "enqueue",
                        name,
                        server.url,
                        str(count),
                    ],
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout
            meter.took_s, meter.here_s = map(float, said.split())
            note(name, meter)
    app.close()
    for name, (_, said) in best.items():
        line(name, said)
    if options.peers:
        peer = max(PEERS, key=lambda name: best[name][0])
        ratio = best["Laneway, plain"][0] / best[peer][0]
        print(f"  Laneway, plain, is {ratio:.2f} x {peer}, the fastest of {', '.join(PEERS)}")
    else:
        print("  without --peers: not compared with other systems")


if __name__ == "__main__":
    main()
