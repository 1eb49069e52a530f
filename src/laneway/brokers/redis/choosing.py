"""Which jobs a turn on a Cluster claims: decided from what its shards have said is due. Pure functions.

The rule is that of `claim` in scripts/parts/claiming.lua, which decides the same on one server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

#: Priority, due time and arrival of a job.
Due = tuple[int, float, int]


def choose(shards: Sequence[Sequence[Due]], limit: int, batch: int, in_order: bool) -> list[list[int]]:
    """For each shard, the places that its jobs get among the claims of the turn, from 1 on.

    What is due in a shard stands in the order in which it is handed out there.
    """
    places: list[list[int]] = [[] for _ in shards]
    by_priority = [{level: list(jobs) for level, jobs in groupby(shard, itemgetter(0))} for shard in shards]
    taken = 0
    for level in sorted({level for shard in by_priority for level in shard}, reverse=True):
        lanes = [_Lane(shard.get(level, ()), mine) for shard, mine in zip(by_priority, places, strict=True)]
        while taken < limit and (due := [lane for lane in lanes if lane.head is not None]):
            for lane in due if in_order else [min(due, key=_Lane.urgency)]:
                taken += lane.take(min(max(batch, 1), limit - taken), taken)
    return places


class _Lane:
    """What one shard has of one priority."""

    def __init__(self, due: Iterable[Due], places: list[int]) -> None:
        self._due = iter(due)
        self._places = places
        self.head = next(self._due, None)

    def urgency(self) -> tuple[float, int]:
        assert self.head is not None
        return self.head[1:]

    def take(self, most: int, taken: int) -> int:
        """Take up to so many; returns how many there were."""
        count = 0
        while count < most and self.head is not None:
            count += 1
            self._places.append(taken + count)
            self.head = next(self._due, None)
        return count
