"""RedisBroker: the broker verbs on one Redis or Valkey server, or on a Cluster.

Any number of processes and machines may share a server. The verbs run Lua scripts. A script is one step on the
server, uses the server's clock, and may be repeated after its answer was lost. Keys and their formats are described
in scripts/parts/jobs.lua. A script that stores a job wakes one waiting worker, by an element in a list. The woken
worker may die before it claims, so every waiting worker also looks by itself every `LOOK_S`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ...clock import Clock
from ...errors import BrokerAwayError, ConfigError
from ...jobs.data import NewJob, StartedRun, WorkerView
from ...urls import Url
from ..shared import REMEMBER_DEAD_S, check_jobs, check_shards
from . import operate
from .client.cluster import ClusterServer
from .client.server import RedisClient, Server
from .enqueue import JobWriter
from .inspect import RedisInspect
from .keys import Keys
from .layout import Layout, Layouts
from .outbox import ClusterOutbox
from .repair import RedisHealth
from .reshard import RedisShards
from .script import load
from .settings import CAPABILITIES, RedisSettings, check_pool
from .subscriptions import RedisEvents
from .turn import Turns, dead

if TYPE_CHECKING:
    import redis

#: Idle workers are woken. A woken worker may die before it claims, so every waiting worker also looks this often.
LOOK_S = 2.0


class RedisBroker:
    """A broker that stores jobs in Redis. Any number of threads may use it."""

    capabilities = CAPABILITIES

    def __init__(self, server: RedisClient, *, prefix: str = "laneway", clock: Clock | None = None) -> None:
        self._server = server
        self._keys = Keys(prefix)
        self._layouts = Layouts(server, self._keys, clock)
        self._outbox = ClusterOutbox(self._layouts) if server.is_cluster else None
        self._writer = JobWriter(self._layouts, self._outbox)
        self.turn = Turns(self._layouts, self._writer, self._outbox).turn
        self._nudges = 0
        self.inspect = RedisInspect(self._layouts, self._outbox)
        self.status = self.inspect.status
        self.operate = operate.RedisOperate(self._layouts, self.inspect)
        self.events = RedisEvents(self._layouts)
        self.shards = RedisShards(self._layouts)
        self.health = RedisHealth(self._layouts, lambda workers: self._give_back(workers, leaves=True))

    @classmethod
    def from_url(cls, url: Url) -> RedisBroker:
        """The broker of a redis://, rediss://, redis+cluster:// or redis+unix:// URL, or the same with valkey.

        See `urls`.
        """
        settings = RedisSettings.from_url(url)
        return cls(settings.open(), prefix=settings.prefix)

    @classmethod
    def of(cls, client: redis.Redis | redis.RedisCluster, *, prefix: str = "laneway", pool: int = 5) -> RedisBroker:
        """A broker on the server, or the Cluster, of an existing redis-py client."""
        import redis

        check_pool(pool)
        Keys(prefix)
        _ensure_client(client)
        if isinstance(client, redis.RedisCluster):
            return cls(ClusterServer.of(client, pool=pool), prefix=prefix)
        return cls(Server.of(client, pool=pool), prefix=prefix)

    def __repr__(self) -> str:
        return f"<RedisBroker {self._server.place}>"

    # -- jobs in ---------------------------------------------------------------------------------------

    def declare(self, queue: str, shards: int) -> int:
        check_shards(queue, shards)
        self._layouts.forget(queue)  # the cached layout may be outdated
        layout = self._layouts.declare(queue, shards)
        self._writer.load_scripts(layout)
        return layout.shards

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        check_jobs(jobs)
        self._writer.enqueue(jobs)

    # -- a worker's verbs ------------------------------------------------------------------------------

    def join(self, worker: WorkerView) -> None:
        view = msgspec.json.encode(msgspec.structs.replace(worker, shards={}, dead=False, busy=0))
        args = self._layouts.args(id=worker.id, view=view.decode(), shards=msgspec.json.encode(worker.shards).decode())
        self._server.run(load("join"), [self._keys.workers, self._keys.leases, self._keys.times], [args])

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        deadline = time.monotonic() + timeout_s
        nudges = self._nudges
        lists: list[bytes | str] = []
        with_due: dict[bytes, str] = {}
        for queue in queues:
            look, due = self._keys.wakeup_lists(queue)
            with_due[due.encode()] = queue
            lists += [due, look]
        while True:
            ready, soonest = self._look(queues)
            left = deadline - time.monotonic()
            if ready or left <= 0 or nudges != self._nudges:
                return ready
            if not lists:
                return set()
            popped = self._server.wait(lists, min(left, soonest, LOOK_S), lambda: nudges != self._nudges)
            if popped and popped <= with_due.keys():
                return {with_due[each] for each in popped}

    def _look(self, queues: Collection[str]) -> tuple[set[str], float]:
        """The queues that have a job due, and the seconds until the next job is due."""
        wanted = self._layouts.known(queues)
        ready: set[str] = set()
        soonest = LOOK_S
        calls = self._layouts.together("peek", wanted, lambda _: self._layouts.args())
        by_root = {layout.root: layout for layout in wanted}
        for (_, roots, _), answer in zip(calls, self._server.run_all(calls), strict=True):
            now = float(answer[-1])
            for root, due in zip(roots, answer[:-1], strict=True):
                if due == b"stale":
                    self._layouts.refresh(by_root[str(root)])
                    soonest = 0.0
                elif due:
                    if float(due) <= now:
                        ready.add(by_root[str(root)].queue)
                    soonest = min(soonest, float(due) - now)
        return ready, max(soonest, 0.0)

    def nudge(self) -> None:
        self._nudges += 1
        self._server.nudge()

    def renew(self, worker: str, held: Collection[int], before: int) -> None:
        if not self._server.run(load("renew"), [self._keys.leases, self._keys.times], [self._layouts.args(id=worker)]):
            raise dead(worker)
        if before:
            try:
                self._give_back([worker], before=before, held=list(held))
            except BrokerAwayError:
                if not self._server.is_cluster:
                    raise
                # A node is away, and the lease is renewed all the same: queues of other nodes go on. A later renewal
                # gives these claims back.
        if self._outbox is not None:
            self._outbox.report_removed()

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        # The worker is dead from here on. If this process ends in between, the next worker that reclaims counts the
        # deaths and gives the claims back.
        if not self._end_lease(worker, None, died):
            return 0
        count = self._give_back([worker], died=died, leaves=True)
        self._forget([worker])
        return count

    def leases(self) -> dict[str, tuple[int, float]]:
        counters, views = self._server.do_all([("HGETALL", self._keys.leases), ("HGETALL", self._keys.workers)])
        known = {views[i]: views[i + 1] for i in range(0, len(views), 2)}
        return {
            counters[i].decode(): (int(counters[i + 1]), _read_view(known[counters[i]]).lease_s)
            for i in range(0, len(counters), 2)
            if counters[i] in known
        }

    def declare_dead(self, worker: str, counter: int) -> bool:
        if not self._end_lease(worker, counter):
            return False
        self._server.do_all([("HDEL", f"{layout.root}:meta", f"w:{worker}") for layout in self._layouts.read_all()])
        return True

    def _end_lease(self, worker: str, counter: int | None, died: Collection[StartedRun] = ()) -> bool:
        keys = [self._keys.leases, self._keys.times, self._keys.dead]
        left = msgspec.json.encode(list(died)).decode() if counter is None else None
        return bool(self._server.run(load("expire"), keys, [self._layouts.args(id=worker, counter=counter, left=left)]))

    def reclaim(self) -> int:
        found = self._server.do("ZRANGE", self._keys.dead, 0, -1, "WITHSCORES")
        ended = {found[i].decode(): float(found[i + 1]) for i in range(0, len(found), 2)}
        lost = [*ended, *self._forgotten(ended)]
        count = self._give_back(lost, self._died_of(list(ended)), leaves=True, tidy=True)
        now = self._now()
        self._forget([worker for worker, at in ended.items() if at < now - REMEMBER_DEAD_S])
        if self._outbox is not None:
            self._outbox.sweep(now)
            self._outbox.report_removed()
        return count

    def _forgotten(self, ended: Collection[str]) -> list[str]:
        """Workers that queues know but that have no lease and are not known as dead.

        They were admitted to a queue at the moment they left.
        """
        fields = self._server.do_all([("HKEYS", f"{layout.root}:meta") for layout in self._layouts.read_all()])
        known = {field[2:].decode() for found in fields for field in found if field.startswith(b"w:")}
        # The leases are read last: a worker that is admitted later has a lease.
        return sorted(known - {worker.decode() for worker in self._server.do("HKEYS", self._keys.leases)} - set(ended))

    def _died_of(self, workers: Sequence[str]) -> list[StartedRun]:
        """The runs that died with workers whose `leave` did not finish, as `leave` noted them."""
        if not workers:
            return []
        left = self._server.do("HMGET", self._keys.times, *(f"left:{worker}" for worker in workers))
        return [run for died in left if died is not None for run in _read_died(died)]

    def _give_back(self, workers: Sequence[str], died: Collection[StartedRun] = (), **how: Any) -> int:
        runs = list(dict.fromkeys(died))

        def args(group: list[Layout]) -> bytes:
            places = {layout.queue: n for n, layout in enumerate(group, 1)}
            here = [(places[run.queue], run.key, run.token, run.identity) for run in runs if run.queue in places]
            return self._layouts.args(workers=workers, died=here, **how)

        calls = self._layouts.together("give_back", self._layouts.read_all(), args)
        return sum(int(count) for count in self._server.run_all(calls))

    def _forget(self, workers: Sequence[str]) -> None:
        if workers:
            fields = [field for name in workers for field in (f"started:{name}", f"seen:{name}", f"left:{name}")]
            self._server.do_all(
                [
                    ("HDEL", self._keys.workers, *workers, *(f"shards:{name}" for name in workers)),
                    ("HDEL", self._keys.times, *fields),
                    ("ZREM", self._keys.dead, *workers),
                ]
            )

    def _now(self) -> float:
        if self._layouts.clock is not None:
            return self._layouts.clock.now()
        seconds, micros = self._server.do("TIME")
        return int(seconds) + int(micros) / 1e6

    # -- a handle's verbs ------------------------------------------------------------------------------

    def cancel(self, queue: str, key: str, identity: str | None = None) -> bool:
        return operate.cancel(self._layouts, queue, key, identity)

    def reschedule(
        self,
        queue: str,
        key: str,
        identity: str | None = None,
        *,
        delay_s: float = 0.0,
        perform_at: float | None = None,
    ) -> bool:
        return operate.reschedule(self._layouts, queue, key, identity, delay_s, perform_at)

    def close(self) -> None:
        """Close all connections; the next call opens new ones."""
        if self._outbox is not None:
            self._outbox.report_removed()
        self.nudge()
        self._server.close()


def _ensure_client(client: object) -> None:
    """Raise ConfigError unless `client` is a redis-py client that threads can use."""
    import redis

    if isinstance(client, (redis.Redis, redis.RedisCluster)):
        return
    kind = type(client)
    if isinstance(client, str):
        what, instead = "a text", "give a URL to Laneway(…) as it is"
    elif isinstance(client, type):
        what, instead = f"the class {client.__name__}", f"give a client, {client.__name__}(…)"
    elif ".asyncio" in kind.__module__:
        what, instead = (
            f"an asyncio {kind.__name__}",
            "that belongs to an event loop, and Laneway has threads",
        )
    else:
        what, instead = f"{kind.__module__}.{kind.__qualname__}", "give one of those, or a URL to Laneway(…)"
    raise ConfigError(
        f"RedisBroker.of takes a client of redis-py's, redis.Redis(…) or redis.RedisCluster(…), not {what}; {instead}."
    )


_read_view = msgspec.json.Decoder(WorkerView).decode
_read_died = msgspec.json.Decoder(list[StartedRun]).decode
