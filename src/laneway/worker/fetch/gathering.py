"""What has been run in a lane and is not recorded yet: when a turn takes it along, and how much of it.

Most brokers have it with the very next turn. One that counts requests, and takes several settlements in one, says how
many are worth it and how long the first of them may wait for the others (`Broker.gather`). What gathers is unsettled:
it counts as held, and toward what a lane may have unsettled.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ...capabilities import Gather
from ...jobs.settlement import Settlement
from .prefetch import Lane


class Gathering:
    """The settlements of one lane. One thread at a time takes them; any may ask whether there are enough."""

    def __init__(self, lane: Lane, gather: Gather, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._lane = lane
        self._count = gather.count
        self._seconds = gather.seconds
        self._monotonic = monotonic
        #: Since when the first of them waits; None: none does, or nobody has looked since it came.
        self._since: float | None = None
        #: Set when the worker stops: nothing more is worth waiting for.
        self.at_once = gather.count <= 1

    def ready(self) -> bool:
        """Whether a turn is to take some along now."""
        if self.at_once:
            return bool(self._lane.finished)
        return self._due_in() == 0

    def due_in(self) -> float | None:
        """Seconds until they are to be taken unasked; None: there are none, or whoever brings one says so."""
        return None if self.at_once else self._due_in()

    def take(self) -> list[Settlement]:
        """Those that the next turn takes along, and none if it is too early. The lane learns how long they took."""
        lane = self._lane
        if self.at_once:
            count = len(lane.finished)
        elif self._due_in() == 0:
            count = self._enough()
            self._since = None  # those that are left begin anew: so each waits for twice as long, at most
        else:
            count = 0
        settlements: list[Settlement] = []
        durations: list[float] = []
        lane.in_turn = count  # before they are taken out: counted twice is better than not at all
        for _ in range(count):
            settlement, duration_s = lane.finished.popleft()
            settlements.append(settlement)
            if duration_s is not None:
                durations.append(duration_s)
        if durations:
            lane.learn(durations)
        return settlements

    def _due_in(self) -> float | None:
        finished = self._lane.finished
        if not finished:
            return None
        now, since = self._monotonic(), self._since
        if since is None:
            since = self._since = now
        # With as many as the lane may have, no more can come.
        if now >= since + self._seconds or len(finished) >= min(self._count, self._lane.most):
            return 0.0
        weight = 0
        for settlement in self._finished():
            if settlement.verdict == "release":
                return 0.0  # somebody could be running it
            weight += _weight(settlement)
        return 0.0 if weight >= self._count else since + self._seconds - now

    def _enough(self) -> int:
        """How many from the front: all, or, if they came quickly, so many that requests are full."""
        since, finished = self._since, self._finished()
        if since is None or self._monotonic() >= since + self._seconds:
            return len(finished)
        total = sum(map(_weight, finished))
        wanted = total - total % self._count
        if not wanted or any(each.run or each.verdict == "release" for each in finished):
            return len(finished)  # what a batch has settled is recorded in one turn
        taken = 0
        for number, settlement in enumerate(finished):
            if taken >= wanted:
                return number
            taken += _weight(settlement)
        return len(finished)

    def _finished(self) -> list[Settlement]:
        while True:
            try:
                return [settlement for settlement, _ in list(self._lane.finished)]
            except RuntimeError:
                pass  # a runner has just added one


def _weight(settlement: Settlement) -> int:
    """How much of a request it fills: each call of a key has its own place in one."""
    return max(1, settlement.done)
