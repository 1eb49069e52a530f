"""One queue's lane of the bus: units of work that were fetched, settlements that are to be recorded, and how far the
lane fetches ahead, by how long its runs take. Lanes know nothing of each other: that is the bus's (`bus.py`), and how
much more one may fetch when others want the same runners is in `room.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...jobs.settlement import Settlement

if TYPE_CHECKING:
    from ...broker import Broker
    from ..run.run import Unit

#: The work that a lane keeps ready for each runner, and that is done on one visit.
VISIT_S = 0.02
LARGEST_LANE = 1_000
#: Runs that have ended and are not recorded yet: they are what a crash repeats. At most so many, or what runs in
#: 10 ms, if that is more. A broker that is away stops the runners here.
UNSETTLED = 100
#: That runs take longer than before is half believed of a turn with half as many as these, less of a smaller one.
TELLING = 20
UNSETTLED_S = 0.01


def ahead_of(broker: Broker) -> float:
    """Seconds of work that are kept ready for each runner; a broker with slow requests says how many in `ahead_s`."""
    ahead_s: float = getattr(broker, "ahead_s", VISIT_S)
    return ahead_s


def weight_of(broker: Broker) -> int | None:
    """How many are run on one visit of a lane; None: by measurement, unless a broker says so in `weight`."""
    weight: int | None = getattr(broker, "weight", None)
    return weight


class Lane:
    """One queue's part of the bus: units of work that wait, settlements that are to be recorded."""

    def __init__(self, queue: str, concurrency: int, ahead_s: float = VISIT_S, weight: int | None = None) -> None:
        self.queue = queue
        self.waiting: deque[Unit] = deque()
        #: How each claim is to be settled, and the seconds that its unit of work took, told once for each unit; None
        #: when nothing was run.
        self.finished: deque[tuple[Settlement, float | None]] = deque()
        #: How many of them a turn that is under way is recording, and how many there may be in all; with more, the lane
        #: hands out nothing.
        self.in_turn = 0
        self.most = UNSETTLED
        #: How many units are fetched ahead of the runners; 0: only what can be started at once.
        self.capacity = 0
        #: How many are run on one visit.
        self.weight = weight or 1
        self._fixed_weight = weight
        #: Whether the queue may have more that is due: the last turn did not bring all, or the waker has seen it.
        self.due = True
        #: Whether its turns fail at present.
        self.fails = False
        #: When something was last taken from it, counted in what is taken from the bus.
        self.served = 0
        #: Whether its last visit found it empty; and of what has come since, how many need not wait for the next.
        self.passed_over = False
        self.owed = 0
        #: Seconds that a run takes, usually; 0 until one has been seen.
        self.typical_s = 0.0
        self._concurrency = concurrency
        self._ahead_s = ahead_s
        #: Tells the lane's fetcher that there is something to settle.
        self.wake: Callable[[], None] = lambda: None

    @property
    def flows(self) -> bool:
        """Whether there is always something of it in hand, because it is run as quickly as that."""
        return self.due and self.capacity > 0 and not self.fails

    @property
    def calls(self) -> bool:
        """Whether it has nothing in hand, and would fetch something."""
        return self.due and not self.waiting and not self.fails

    def finish(self, settlement: Settlement, duration_s: float | None) -> None:
        """Note how a run ended; its fetcher records it with the next turn."""
        self.finished.append((settlement, duration_s))
        self.wake()

    def finish_all(self, settlements: list[Settlement], duration_s: float | None) -> None:
        """Note how a batch ended, in one step, so that one turn records all of it."""
        if len(settlements) == 1:
            self.finished.append((settlements[0], duration_s))
        else:
            self.finished.extend([(each, None if number else duration_s) for number, each in enumerate(settlements)])
        self.wake()

    def learn(self, durations: list[float]) -> None:
        """Adapt to how long runs take: as far ahead as 20 ms of work go (see `ahead_of`), one at a time for slow jobs.

        By the median, because a rare slow job must not make a thousand quick ones be fetched one by one.
        """
        durations.sort()
        median = durations[len(durations) // 2]
        weight = 0.5 if self.typical_s else 1.0
        if median > self.typical_s > 0:
            # The few runs of a small turn say little: they may only have waited for other threads.
            weight = min(weight, len(durations) / TELLING)
        self.typical_s += (median - self.typical_s) * weight
        self._adapt()

    def stalled(self, seconds: float) -> None:
        """Nothing has been taken for a while: the runners are busy with something slow, so nothing is fetched ahead."""
        self.typical_s = max(self.typical_s, seconds)
        self._adapt()
        self.capacity = 0

    def _adapt(self) -> None:
        typical_s = max(self.typical_s, 1e-6)
        self.weight = self._fixed_weight or max(1, min(LARGEST_LANE, int(VISIT_S / typical_s)))
        self.capacity = min(LARGEST_LANE, int(self._ahead_s / typical_s * self._concurrency))
