"""`Lane`: one queue's fetched jobs and finished runs, and how far the queue fetches ahead.

How far depends on how long its runs take. Lanes do not know each other; `bus` divides the runners between them.
`StallTimer`: if no runner takes a job of the lane for a while, its claims go back, because another worker may be
free. `SettlementBuffer` decides which settlements the next turn records. Most brokers get all of them. A broker that
counts requests says how many fill a request, and how long the first may wait for the rest (`SettleBatch`). Buffered
settlements count as held claims, and toward the lane's limit of unsettled runs, because a crash repeats them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...broker import SettleBatch
from ...jobs.settlement import Settlement

if TYPE_CHECKING:
    from ..run.run import Unit
    from .bus import Bus

#: The seconds of work that a lane keeps ready for each runner, and that runners take from it on one visit.
VISIT_S = 0.02
LARGEST_LANE = 1_000
#: The limit of runs that have ended and are not recorded yet, because a crash repeats them. If more runs than this end
#: in 10 ms, that number is the limit. A broker that is away stops the runners here.
UNSETTLED = 100
#: How many runs it takes to trust that runs now take longer. The runs of a turn get the weight runs / TELLING, at most
#: a half.
TELLING = 20
UNSETTLED_S = 0.01


class Lane:
    """One queue's part of the bus: units of work that wait, and settlements to be recorded."""

    def __init__(self, queue: str, concurrency: int, ahead_s: float = VISIT_S, weight: int | None = None) -> None:
        self.queue = queue
        self.waiting: deque[Unit] = deque()
        #: The settlement of each claim, and the seconds that its unit of work took. Only the first claim of a unit has
        #: the seconds; the rest have None. None also if no job was run.
        self.finished: deque[tuple[Settlement, float | None]] = deque()
        #: How many settlements the turn under way is recording, and how many may be unrecorded in all. At that limit
        #: the lane hands out no job.
        self.in_turn = 0
        self.most = UNSETTLED
        #: How many units are fetched ahead of the runners; 0: only units that can be started at once.
        self.capacity = 0
        #: How many units are taken on one visit.
        self.weight = weight or 1
        self._fixed_weight = weight
        #: Whether the queue may have more due jobs: the last turn did not bring all, or the waker has seen one.
        self.due = True
        #: Whether its turns fail at present.
        self.fails = False
        #: When a unit was last taken from it, counted in units taken from the bus.
        self.served = 0
        #: Whether its last visit found it empty; and how many units that came since need not wait for the next visit.
        self.passed_over = False
        self.owed = 0
        #: Seconds that a run usually takes; 0 until a run has ended.
        self.typical_s = 0.0
        self._concurrency = concurrency
        self._ahead_s = ahead_s
        #: Tells the lane's fetcher that there is a claim to settle.
        self.wake: Callable[[], None] = lambda: None

    @property
    def flows(self) -> bool:
        """Whether the lane always has fetched jobs, because its runs are short enough to fetch ahead."""
        return self.due and self.capacity > 0 and not self.fails

    @property
    def calls(self) -> bool:
        """Whether it has no fetched jobs and would fetch some."""
        return self.due and not self.waiting and not self.fails

    def finish(self, settlement: Settlement, duration_s: float | None) -> None:
        """Add the settlement of a run. The fetcher records it with a turn."""
        self.finished.append((settlement, duration_s))
        self.wake()

    def finish_all(self, settlements: list[Settlement], duration_s: float | None) -> None:
        """Add the settlements of a batch in one step, so that one turn records all of them."""
        if len(settlements) == 1:
            self.finished.append((settlements[0], duration_s))
        else:
            self.finished.extend([(each, None if number else duration_s) for number, each in enumerate(settlements)])
        self.wake()

    def learn(self, durations: list[float]) -> None:
        """Adapt to how long runs take: fetch `ahead_s` seconds of work ahead, and slow jobs one at a time.

        It uses the median, so that a rare slow job does not make a thousand quick ones be fetched one by one.
        """
        durations.sort()
        median = durations[len(durations) // 2]
        weight = 0.5 if self.typical_s else 1.0
        if median > self.typical_s > 0:
            # The few runs of a small turn prove little: they may only have waited for other threads.
            weight = min(weight, len(durations) / TELLING)
        self.typical_s += (median - self.typical_s) * weight
        self._adapt()

    def stalled(self, seconds: float) -> None:
        """Stop fetching ahead: no unit was taken for `seconds`, so the runners are busy with slow jobs."""
        self.typical_s = max(self.typical_s, seconds)
        self._adapt()
        self.capacity = 0

    def _adapt(self) -> None:
        typical_s = max(self.typical_s, 1e-6)
        self.weight = self._fixed_weight or max(1, min(LARGEST_LANE, int(VISIT_S / typical_s)))
        self.capacity = min(LARGEST_LANE, int(self._ahead_s / typical_s * self._concurrency))


#: If no unit is taken for this many seconds, the waiting claims are given back for other workers to take.
STALL_S = 0.25


class StallTimer:
    """Measures how long the same unit of work has been the first of a lane."""

    def __init__(self, lane: Lane, bus: Bus) -> None:
        self._lane = lane
        self._bus = bus
        self._head: Unit | None = None
        self._since = 0.0

    def due_in(self) -> float | None:
        """Seconds until the lane counts as stalled; None while no unit waits in it."""
        try:
            head = self._lane.waiting[0]
        except IndexError:
            self._head = None
            return None
        now = time.monotonic()
        if head is not self._head:
            self._head, self._since = head, now
        # The bus may have to visit many lanes before it comes to this one again.
        patience_s = STALL_S + self._bus.round_s
        return max(0.0, self._since + patience_s - now)


class SettlementBuffer:
    """The settlements of one lane. One thread at a time takes them. Any thread may ask whether there are enough."""

    def __init__(self, lane: Lane, gather: SettleBatch, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._lane = lane
        self._count = gather.count
        self._seconds = gather.seconds
        self._monotonic = monotonic
        #: Since when the first settlement has waited. None: none waits, or no thread has looked since it came.
        self._since: float | None = None
        #: Whether turns take all settlements without waiting for more. Set when the worker stops.
        self.at_once = gather.count <= 1

    def ready(self) -> bool:
        """Whether a turn should record settlements now."""
        if self.at_once:
            return bool(self._lane.finished)
        return self._due_in() == 0

    def due_in(self) -> float | None:
        """Seconds until a turn is to take them by itself. None: there are none, or `Lane.finish` wakes the fetcher."""
        return None if self.at_once else self._due_in()

    def take(self) -> list[Settlement]:
        """Take the settlements for the next turn; none if it is too early. The lane learns how long their runs took."""
        lane = self._lane
        if self.at_once:
            count = len(lane.finished)
        elif self._due_in() == 0:
            count = self._enough()
            self._since = None  # for those that are left the wait starts again: each waits twice as long at most
        else:
            count = 0
        settlements: list[Settlement] = []
        durations: list[float] = []
        lane.in_turn = count  # set before they are taken out: counted twice is better than not at all
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
        # When the lane has reached its limit, no more can come.
        if now >= since + self._seconds or len(finished) >= min(self._count, self._lane.most):
            return 0.0
        weight = 0
        for settlement in self._finished():
            if settlement.verdict == "release":
                return 0.0  # another worker could be running it
            weight += _weight(settlement)
        return 0.0 if weight >= self._count else since + self._seconds - now

    def _enough(self) -> int:
        """How many to take from the front: all, or, if they came quickly, as many as fill whole requests."""
        since, finished = self._since, self._finished()
        if since is None or self._monotonic() >= since + self._seconds:
            return len(finished)
        total = sum(map(_weight, finished))
        wanted = total - total % self._count
        if not wanted or any(each.run or each.verdict == "release" for each in finished):
            return len(finished)  # the settlements of a batch are recorded in one turn
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
    """How many places of a request the settlement fills: each call of a key takes one."""
    return max(1, settlement.done)
