"""The memory broker: for tests and trials in one process.

- `broker`: MemoryBroker, its subscriptions and its workers
- `queue`: one queue, its morgue, and a heap of due jobs per priority and shard
- `job`: one job and its payloads in order
- `settle`: applies a settlement to one key
- `operate`: cancel, reschedule, run now; bury or delete failed payloads
- `inspect`: status, find, listing, stats
- `reshard`: changes the shard count; repairs jobs in a wrong shard
"""

from __future__ import annotations

from .broker import MemoryBroker

__all__ = ["MemoryBroker"]
