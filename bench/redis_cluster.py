"""Measures one server and a Cluster of three nodes: drains, script calls of a turn, and what shards cost a turn.

    python bench/redis_cluster.py [--jobs N] [--server NAME] [part …]

Parts:

- `one`: tiny jobs in one queue; `sleep`: jobs of 10 ms in one queue, with 20 runners; `three`: tiny jobs in three
  queues, on the Cluster on three nodes. Each is drained by one worker in this process. The CPU time of the busiest
  node says how many jobs a second one node could serve.
- `turns`: a bare loop of turns that settle 100 jobs and claim the next 100, with the number of script calls of a turn
- `send`: the same loop, with jobs that each send one plain job to another queue; `keyed`: each sends a keyed one
- `shards`: the CPU time of a server for a turn that claims one job, by the number of shards
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import redis
from redis.crc import key_slot
from redis_measuring import line, parser_of, used_cpu_s

from laneway import Laneway, Worker
from laneway.broker import Turn
from laneway.config import WorkerOptions
from laneway.jobs.data import Kind, NewJob, WorkerView
from laneway.jobs.settlement import done
from tests.support.servers import SLOTS, RedisCluster, RedisServer, servers

SHARDS = 5
TURN = 100


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--jobs", type=int, default=30_000)
    parser.add_argument("parts", nargs="*", default=list(PARTS), metavar="part")
    options = parser.parse_args()
    for name, binary in servers().items():
        if options.server not in (None, name):
            continue
        print(f"\n{name}", flush=True)
        for part in options.parts:
            with tempfile.TemporaryDirectory() as folder:
                server = RedisServer.start(binary, Path(folder))
                try:
                    measure = PARTS[part]
                    if measure is None:
                        shards(server)
                        continue
                    measure("one server", server.url, [server], options.jobs)
                finally:
                    server.end()
                # Without a disk, like the server.
                cluster = RedisCluster.start(binary, Path(folder), "--appendonly", "no")
                try:
                    measure("Cluster", cluster.url, cluster.nodes, options.jobs)
                finally:
                    cluster.end()


class NodeMeter:
    """Seconds, CPU seconds of the busiest node, and script calls of all nodes, between `with` and its end."""

    def __init__(self, nodes: Sequence[RedisServer]) -> None:
        self._clients = [node.client() for node in nodes]
        self.took_s = self.busiest_s = 0.0
        self.calls = 0

    def __enter__(self) -> NodeMeter:
        self._before = [(used_cpu_s(client), script_calls(client)) for client in self._clients]
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.took_s = time.perf_counter() - self._began
        spent = [used_cpu_s(client) - cpu for client, (cpu, _) in zip(self._clients, self._before, strict=True)]
        self.busiest_s = max(spent)
        self.calls = sum(
            script_calls(client) - calls for client, (_, calls) in zip(self._clients, self._before, strict=True)
        )
        for client in self._clients:
            client.close()

    def said(self, count: int) -> str:
        return (
            f"{count / self.took_s:9,.0f} a second   "
            f"the busiest node: {1e6 * self.busiest_s / count:6.1f} µs of CPU a job"
        )


def script_calls(client: redis.Redis) -> int:
    stats = client.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {"calls": 0})["calls"])


def queue_on(node: int, tag: Callable[[str], str]) -> str:
    """A name of a queue whose keys are on this node of three."""
    names = (f"bench{number}" for number in range(10_000))
    return next(name for name in names if key_slot(tag(name).encode()) * 3 // SLOTS == node)


#: What a part measures: where, the URL, the servers, and how many jobs.
Part = Callable[[str, str, Sequence[RedisServer], int], None]


def drain(queues: Sequence[str], takes_s: float, threads: int, label: str, share: int = 1) -> Part:
    def measure(where: str, url: str, nodes: Sequence[RedisServer], jobs: int) -> None:
        jobs //= share
        with closing(Laneway(url)) as app:
            ran: list[int] = []

            def run(number: int) -> None:
                if takes_s:
                    time.sleep(takes_s)
                ran.append(number)

            tasks = [app.task(queue=queue, name=f"run-{queue}")(run) for queue in queues]
            for queue in queues:
                app.broker.declare(queue, SHARDS)
            for task in tasks:
                task.enqueue_many([(number,) for number in range(jobs // len(tasks))])
            with NodeMeter(nodes) as meter:
                code = Worker(app, WorkerOptions(concurrency=threads, until_empty=True)).run()
            assert (code, len(ran)) == (0, jobs // len(tasks) * len(tasks))
            line(f"{where}, {label}", meter.said(len(ran)))

    return measure


def loop(target: str, kind: Kind, label: str, share: int = 1) -> Part:
    def measure(where: str, url: str, nodes: Sequence[RedisServer], jobs: int) -> None:
        jobs //= share
        with closing(Laneway(url)) as app:
            broker = app.broker
            for queue in ("bench", "other"):
                broker.declare(queue, SHARDS)
            for first in range(0, jobs, 1_000):
                broker.enqueue([NewJob(queue="bench", key=f"job-{n}", body="{}") for n in range(first, first + 1_000)])
            broker.join(worker("bench"))
            seq, ran = 1, 0
            claims = broker.turn(Turn("worker-1", "bench", seq, (), 0)).claims  # loads the scripts
            with NodeMeter(nodes) as meter:
                while ran < jobs:
                    seq += 1
                    settlements = [done(claim) for claim in claims]
                    if target:
                        for settlement in settlements:
                            key = f"sent-{settlement.claim.key}"
                            settlement.outbox = [NewJob(queue=target, key=key, body="{}", kind=kind, identity=key)]
                    claims = broker.turn(Turn("worker-1", "bench", seq, settlements, TURN)).claims
                    ran += len(settlements)
            line(f"{where}, {label}", f"{meter.said(ran)}   {meter.calls / (seq - 1):.1f} calls of scripts a turn")

    return measure


def worker(queue: str) -> WorkerView:
    return WorkerView(
        id="worker-1", host="bench", pid=1, queues=[queue], concurrency=1, lease_s=60.0, started_at=0.0, seen_at=0.0
    )


def shards(server: RedisServer) -> None:
    for count in (1, 5, 50, 200, 1_000):
        server.flush()
        with closing(Laneway(server.url)) as app:
            broker = app.broker
            broker.declare("bench", count)
            for first in range(0, 10_000, 1_000):
                broker.enqueue([NewJob(queue="bench", key=f"job-{n}", body="{}") for n in range(first, first + 1_000)])
            broker.join(worker("bench"))
            broker.turn(Turn("worker-1", "bench", 1, (), 1))
            with NodeMeter([server]) as meter:
                for seq in range(2, 102):
                    broker.turn(Turn("worker-1", "bench", seq, (), 1))
        line(f"a turn that claims one of 10,000, {count} shards", f"{1e4 * meter.busiest_s:9,.0f} µs of CPU")


PARTS: dict[str, Part | None] = {
    "one": drain(["bench"], 0.0, 5, "one queue, tiny jobs"),
    "sleep": drain(["bench"], 0.01, 20, "one queue, jobs of 10 ms, 20 runners", 10),
    "three": drain([queue_on(node, lambda name: f"laneway:{name}:0") for node in range(3)], 0.0, 5, "three queues"),
    "turns": loop("", Kind.PLAIN, "turns of 100 jobs"),
    "send": loop("other", Kind.PLAIN, "the same, each sends a job elsewhere", 3),
    "keyed": loop("other", Kind.KEYED, "the same, each sends a keyed job elsewhere", 3),
    "shards": None,
}


if __name__ == "__main__":
    main()
