"""The Redis broker: jobs on one Redis or Valkey server, or on a Cluster.

redis-py is loaded only for TLS, for ready clients, and where hiredis is missing.

- `broker`: RedisBroker: its verbs, and the leases of workers
- `settings`: parses redis: URLs without loading redis-py
- `enqueue`: stores jobs in atomic chunks; keeps the copies of an event together
- `turn`: settles and claims in one script call
- `outbox`: on a Cluster, delivers what runs and publishers send to other queues
- `inspect`: status, find, stats, lags, workers, and pages of jobs
- `operate`: cancel, reschedule, run now, bury, delete, revive, pause
- `subscriptions`: stores which queue gets the events of which topic
- `reshard`: changes a queue's shard count, a step at a time
- `repair`: checks the servers' settings and the stored data, and repairs the data
- `layout`: caches each queue's shards; reads them again when a script reports that they are stale
- `keys`: the names of the Redis keys
- `codec`: encodes script arguments and decodes script replies
- `script`: loads a Lua script with its parts
- `client/`: connections to a server or a Cluster: retries, blocking waits, TLS, errors
- `scripts/`: the Lua scripts; `scripts/parts/` holds the pieces that they share
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .broker import RedisBroker

__all__ = ["RedisBroker"]


def __getattr__(name: str) -> Any:
    if name != "RedisBroker":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .broker import RedisBroker

    return RedisBroker
