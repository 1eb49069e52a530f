"""Measures how fast jobs are enqueued into Redis and drained.

    python bench/redis_drain.py [--jobs N] [--threads N] [--server NAME] [kind …]

Kinds: `collecting` (one key per job, batch_size 1), `plain`, `keyed` (one key per job). The jobs are enqueued with
`enqueue_many` into a queue of 5 shards, then drained by one worker in this process. There are two references. A
bare loop around the broker drains the same jobs without a worker: each of its turns settles 100 jobs and claims the
next 100. And redis-py makes plain round trips.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from redis_measuring import Meter, line, parser_of, round_trips, started

from laneway import Batch, Key, Laneway, Worker
from laneway.broker import Turn
from laneway.config import WorkerOptions
from laneway.jobs.data import WorkerView
from laneway.jobs.settlement import done
from tests.support.servers import RedisServer

SHARDS = 5
TURN = 100


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=5)
    parser.add_argument("kinds", nargs="*", default=list(KINDS), metavar="kind")
    options = parser.parse_args()
    for server in started(options.server):
        line("redis-py, a round trip", round_trips(server).said(5_000))
        for kind in options.kinds:
            measure(server, kind, options.jobs, options.threads)


def collecting(app: Laneway, ran: list[int]) -> tuple[Any, Callable[[int], tuple[Any, ...]]]:
    @app.collect(queue="bench", shards=SHARDS, batch_size=1)
    def gather(batch: Batch[int]) -> None:
        for values in batch.values():
            ran.extend(values)

    return gather, lambda number: (f"order-{number}", number)


def plain(app: Laneway, ran: list[int]) -> tuple[Any, Callable[[int], tuple[Any, ...]]]:
    @app.task(queue="bench")
    def call(number: int) -> None:
        ran.append(number)

    return call, lambda number: (number,)


def keyed(app: Laneway, ran: list[int]) -> tuple[Any, Callable[[int], tuple[Any, ...]]]:
    @app.task(queue="bench")
    def call(order: Annotated[str, Key], number: int) -> None:
        ran.append(number)

    return call, lambda number: (f"order-{number}", number)


KINDS = {"collecting": collecting, "plain": plain, "keyed": keyed}


def measure(server: RedisServer, kind: str, jobs: int, threads: int) -> None:
    server.flush()
    app = Laneway(server.url)
    ran: list[int] = []
    task, arguments = KINDS[kind](app, ran)
    app.broker.declare("bench", SHARDS)
    with Meter(server) as meter:
        task.enqueue_many([arguments(number) for number in range(jobs)])
    line(f"{kind}, enqueue_many", meter.said(jobs))
    with Meter(server) as meter:
        code = Worker(app, WorkerOptions(concurrency=threads, until_empty=True)).run()
    assert code == 0, code
    assert sorted(ran) == list(range(jobs)), "each job ran exactly once"
    line(f"{kind}, drained by a worker", meter.said(jobs))
    task.enqueue_many([arguments(number) for number in range(jobs)])
    with Meter(server) as meter:
        assert bare_loop(app) == jobs
    line(f"{kind}, a bare loop around the broker", meter.said(jobs))
    app.close()


def bare_loop(app: Laneway, most: int | None = None) -> int:
    """Claim and settle up to `most` jobs, or all there are; returns how many."""
    broker, worker = app.broker, "bare"
    broker.join(
        WorkerView(id=worker, host="", pid=0, queues=["bench"], concurrency=1, lease_s=600, started_at=0, seen_at=0)
    )
    ended, turn = 0, Turn(worker, "bench", 1, limit=TURN)
    while True:
        claims = broker.turn(turn).claims
        ended += len(claims)
        enough = not claims or (most is not None and ended >= most)
        turn = Turn(worker, "bench", turn.seq + 1, [done(claim) for claim in claims], 0 if enough else TURN)
        if enough:
            break
    broker.turn(turn)
    broker.leave(worker)
    return ended


if __name__ == "__main__":
    main()
