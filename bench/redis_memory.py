"""Measures the memory of a queued job in Redis, compared with Lowkiq's layout.

    python bench/redis_memory.py [--jobs N] [--server NAME]

Stores small jobs of each kind, with one key per job, and reads `used_memory` before and after. For comparison the
same keys are stored on the same server in the layout of Lowkiq: four sorted sets of all ids (one of them split by
shard), and a sorted set of payloads for each id. Both layouts can list and find jobs by key, by time and by retry
count. Laneway keeps the index of keys only while a client lists by key. The comparison includes that index; the
last number is a job without it.

The payload in Lowkiq's layout is first the argument alone, which is all that Lowkiq would store: that is the
comparison that counts. Then it is Laneway's body, which for plain and keyed tasks is a ticket with the task's name.
A body of more than 64 bytes makes a sorted set several times as large, which flatters Laneway.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated
from zlib import crc32

from redis_measuring import line, parser_of, started

from laneway import Batch, Key, Laneway
from laneway.jobs.data import NewJob
from tests.support.servers import RedisServer

SHARDS = 5
CHUNK = 5_000
TARGET = 0.60


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=100_000)
    options = parser.parse_args()
    for server in started(options.server):
        for kind, jobs in jobs_of(options.jobs).items():
            ours = measured(server, partial(store, server, jobs)) / len(jobs)
            plain = measured(server, partial(store, server, jobs, listed=False)) / len(jobs)
            bare = measured(server, partial(store_as_lowkiq, server, jobs, bare=True)) / len(jobs)
            same = measured(server, partial(store_as_lowkiq, server, jobs, bare=False)) / len(jobs)
            assert min(ours, bare, same) > 50, "no job is that small: something else was freed meanwhile"
            body = sum(len(job.body) for job in jobs) / len(jobs)
            verdict = "within" if ours / bare <= TARGET else "OVER"
            line(
                f"{kind}, body of {body:.0f} bytes",
                f"{ours:4.0f} bytes a job; Lowkiq's layout {bare:4.0f} with the argument alone: "
                f"{100 * ours / bare:.0f} % ({verdict} {100 * TARGET:.0f} %); {same:5.0f} with the same body: "
                f"{100 * ours / same:.0f} %. {plain:.0f} bytes while nobody lists by key",
            )


def jobs_of(count: int) -> dict[str, Sequence[NewJob]]:
    app = Laneway("memory:")

    @app.collect(queue="orders", shards=SHARDS)
    def gather(batch: Batch[int]) -> None: ...

    @app.task
    def plain(number: int) -> None: ...

    @app.task
    def keyed(order: Annotated[str, Key], number: int) -> None: ...

    return {
        "collecting": [app.outgoing(gather, (f"order-{number}", number), {}) for number in range(count)],
        "plain": [app.outgoing(plain, (number,), {}) for number in range(count)],
        "keyed": [app.outgoing(keyed, (f"order-{number}", number), {}) for number in range(count)],
    }


def measured(server: RedisServer, fill: Callable[[], None]) -> int:
    """The bytes that a server takes more after `fill`."""
    with server.client() as client:
        client.execute_command("FLUSHALL", "SYNC")
        while client.info("memory")["lazyfree_pending_objects"]:
            time.sleep(0.01)
        before = client.info("memory")["used_memory"]
        fill()
        after = client.info("memory")["used_memory"]
    return int(after - before)


def store(server: RedisServer, jobs: Sequence[NewJob], *, listed: bool = True) -> None:
    app = Laneway(server.url)
    app.broker.declare(jobs[0].queue, SHARDS)
    for first in range(0, len(jobs), CHUNK):
        app.broker.enqueue(jobs[first : first + CHUNK])
    if listed:
        app.broker.inspect.listing(jobs[0].queue, "queued", order="key", limit=1)  # which makes the index of keys
    app.close()


def store_as_lowkiq(server: RedisServer, jobs: Sequence[NewJob], *, bare: bool) -> None:
    prefix = f"lowkiq:A:v1:{jobs[0].queue}"
    with server.client() as client:
        for first in range(0, len(jobs), CHUNK):
            some = jobs[first : first + CHUNK]
            now = time.time()
            pipeline = client.pipeline(transaction=False)
            pipeline.zadd(f"{prefix}:all_ids_lex", {job.key: 0 for job in some})
            pipeline.zadd(f"{prefix}:all_ids_scored_by_perfrom_in", {job.key: now for job in some})
            pipeline.zadd(f"{prefix}:all_ids_scored_by_retry_count", {job.key: -1 for job in some})
            for number, job in enumerate(some, first):
                pipeline.zadd(f"{prefix}:ids_scored_by_perform_in:{crc32(job.key.encode()) % SHARDS}", {job.key: now})
                pipeline.zadd(f"{prefix}:payloads:{job.key}", {str(number) if bare else job.body: now})
            pipeline.execute()


if __name__ == "__main__":
    main()
