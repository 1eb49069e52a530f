"""Which of its shards a process claims from first.

A scheduler of your own is a function of the queue's name and of the shards that this process serves and that have
something due, each with its lag: the seconds by which its most overdue job is late. It is asked before every turn that
finds something due, and returns the shards to claim from, in order. It may leave some out, and call `lag` and `seq`:

    def mine(queue: str, lags: Mapping[int, float]) -> Sequence[int]:
        late = {shard: lags[shard] for shard in lags if lags[shard] > 60}
        return lag(queue, late or lags)

It costs one more question to the broker each turn. `lag` and `seq` themselves cost none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence

Scheduler = Callable[[str, Mapping[int, float]], Sequence[int]]

#: The shard that each queue's last turn by `seq` began with: all that it remembers.
_began: dict[str, int] = {}


def lag(queue: str, lags: Mapping[int, float]) -> Sequence[int]:
    """The shard with the most overdue job first. Where a worker is given this itself, the broker sees to it."""
    return sorted(lags, key=lambda shard: (-lags[shard], shard))


def seq(queue: str, lags: Mapping[int, float]) -> Sequence[int]:
    """One shard after the other, each turn beginning behind the one that the last began with. Where a worker is given
    this itself, the worker sees to it."""
    shards = sorted(lags)
    if not shards:
        return shards
    at = bisect_right(shards, _began.get(queue, -1)) % len(shards)
    _began[queue] = shards[at]
    return [*shards[at:], *shards[:at]]
