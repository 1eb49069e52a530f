"""Which of its shards a process claims from first.

A scheduler of your own is a function of the queue's name and the shards that this process serves; it is asked
before every turn and returns the shards to look at, in order. It may leave some out:

    def mine(queue: str, shards: Sequence[int]) -> Sequence[int]:
        return random.sample(shards, len(shards))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Scheduler = Callable[[str, Sequence[int]], Sequence[int]]


def lag(queue: str, shards: Sequence[int]) -> Sequence[int]:
    """The shard with the most overdue job first, wherever it is: the broker sees to that."""
    return shards


def seq(queue: str, shards: Sequence[int]) -> Sequence[int]:
    """One shard after the other, each turn beginning one further: the worker sees to that."""
    return shards
