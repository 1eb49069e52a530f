"""The second broker: another implementation of the contract, in dicts and heaps, which shares no code with SQLite.

It checks the conformance suite, the state machine and the simulator: what they ask for is not just what SQLite does.
Their tests break it in many ways, one method at a time, to see that each bug is found. It is also what the pages of
other brokers are compared with.

- `broker`: SecondBroker, its subscriptions and its workers
- `queue`: one queue, its morgue, and a heap of due jobs per priority and shard
- `job`: one job and its payloads in order
- `settle`: applies a settlement to one key
- `operate`: cancel, reschedule, run now; bury or delete failed payloads
- `inspect`: status, find, listing, stats
- `reshard`: changes the shard count; repairs jobs in a wrong shard
"""

from __future__ import annotations

from .broker import SecondBroker

__all__ = ["SecondBroker"]
