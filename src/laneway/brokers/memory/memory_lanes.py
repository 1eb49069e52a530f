"""Which queued job is due next: a heap for each priority and shard. Its caller holds the lock."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence

from .job import Job

_slots = itertools.count(1)


class _Lane(list[tuple[float, int, int, Job]]):
    """A heap of perform_at, arrival, the number of the entry, and the job."""

    #: With more entries it is looked through for those that were left behind.
    most = 64


class Lanes:
    """The queued jobs of a queue by priority, highest first, and shard.

    A job that was moved or removed leaves its entry behind; it is dropped when it comes to the top, or when the lane
    has doubled.
    """

    def __init__(self) -> None:
        self._by_priority: dict[int, dict[int, _Lane]] = {}

    def put(self, job: Job) -> None:
        """Put a job where it belongs by its priority, shard and due time, and nowhere else."""
        if job.priority not in self._by_priority:
            self._by_priority[job.priority] = {}
            self._by_priority = dict(sorted(self._by_priority.items(), reverse=True))
        job.slot = next(_slots)
        lane = self._by_priority[job.priority].setdefault(job.shard, _Lane())
        heapq.heappush(lane, (job.perform_at, job.ref, job.slot, job))
        if len(lane) > lane.most:
            lane[:] = [entry for entry in lane if entry[3].slot == entry[2]]
            heapq.heapify(lane)
            lane.most = max(_Lane.most, 2 * len(lane))

    def keep_shards(self, count: int) -> None:
        """Forget the shards from `count` on: all that was in them has moved."""
        for lanes in self._by_priority.values():
            for shard in [shard for shard in lanes if shard >= count]:
                del lanes[shard]

    def take(self, shards: Sequence[int], limit: int, batch: int, now: float, *, in_order: bool) -> Iterator[Job]:
        """Take out the jobs that are due, `batch` at a time from one shard, highest priority first."""
        for lanes in self._by_priority.values():
            wanted = [lanes[shard] for shard in dict.fromkeys(shards) if shard in lanes]
            for lane in self._round(wanted, now) if in_order else self._most_overdue(wanted, now):
                for _ in range(max(batch, 1)):
                    if limit <= 0:
                        return
                    if not self._is_due(lane, now):
                        break
                    limit -= 1
                    job = heapq.heappop(lane)[3]
                    job.slot = None
                    yield job

    def _most_overdue(self, lanes: Sequence[_Lane], now: float) -> Iterator[_Lane]:
        while due := [lane for lane in lanes if self._is_due(lane, now)]:
            yield min(due, key=lambda lane: lane[0][:2])

    def _round(self, lanes: Sequence[_Lane], now: float) -> Iterator[_Lane]:
        while due := [lane for lane in lanes if self._is_due(lane, now)]:
            yield from due

    def _is_due(self, lane: _Lane, now: float) -> bool:
        at = self._earliest(lane)
        return at is not None and at <= now

    def next_due(self) -> float | None:
        """When the earliest job is due."""
        return min(self.dues().values(), default=None)

    def dues(self) -> dict[int, float]:
        """When the earliest job of each shard that has one is due."""
        dues: dict[int, float] = {}
        for lanes in self._by_priority.values():
            for shard, lane in lanes.items():
                at = self._earliest(lane)
                if at is not None:
                    dues[shard] = min(at, dues.get(shard, at))
        return dues

    def _earliest(self, lane: _Lane) -> float | None:
        while lane:
            at, _, slot, job = lane[0]
            if job.slot == slot:
                return at
            heapq.heappop(lane)
        return None
