"""The bus: what has been fetched and not yet started, a bounded lane for each queue.

Lanes are served in turn, each for about 20 ms of work, so that a busy queue cannot starve another. Runners take
one unit of work at a time (a claim, or a batch of claims) from a lane that all of them share: a long job holds up
nothing that was fetched behind it.

A permit is the right to run one job; there are as many as the worker's concurrency. A runner thread keeps its
permit from job to job; an async job takes it along to the event loop and gives it back at the end.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..outcome import Settlement

if TYPE_CHECKING:
    from ..broker import Broker
    from .run import Run, Unit

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


class Lane:
    """One queue's part of the bus: units of work that wait, settlements that are to be recorded."""

    def __init__(self, queue: str, concurrency: int, ahead_s: float = VISIT_S) -> None:
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
        self.weight = 1
        #: Seconds that a run takes, usually; 0 until one has been seen.
        self.typical_s = 0.0
        self._concurrency = concurrency
        self._ahead_s = ahead_s
        #: Tells the lane's fetcher that there is something to settle.
        self.wake: Callable[[], None] = lambda: None

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
        self.weight = max(1, min(LARGEST_LANE, int(VISIT_S / typical_s)))
        self.capacity = min(LARGEST_LANE, int(self._ahead_s / typical_s * self._concurrency))


class Bus:
    """All lanes, and the permits to run what is in them."""

    def __init__(self, lanes: list[Lane], concurrency: int) -> None:
        self._lanes = lanes
        self._at = 0
        self._credit = 1
        #: Runs that were read on the event loop and turned out to be for a thread.
        self.prepared: deque[Run] = deque()
        lock = threading.Lock()
        self._work = threading.Condition(lock)
        self._permit = threading.Condition(lock)
        #: Permits that nobody holds.
        self._free = concurrency
        #: Threads that wait for work with a permit, and those that wait for a permit. Whoever wakes one counts it out,
        #: so that nobody relies on a thread that has been woken for something else.
        self._idle = 0
        self._queueing = 0
        #: Threads that were woken and have not taken anything yet: what they were woken for still counts as waiting.
        self._woken = 0
        self._closed = False
        #: Starts one more runner thread, if there may be one; set by the worker.
        self.grow: Callable[[], None] = lambda: None
        #: Told when a runner finds nothing to do: there is room for more.
        self.on_room: Callable[[], None] = lambda: None
        #: Seconds in which every lane is visited once.
        self.round_s = VISIT_S * len(lanes)

    def put(self, lane: Lane, units: Sequence[Unit]) -> None:
        """Add what a turn has brought; whoever looks finds it, and `summon` wakes the others."""
        lane.waiting.extend(units)

    def summon(self, lane: Lane) -> None:
        """Wake as many runners as the lane can occupy now."""
        if lane.waiting:
            self._summon(len(lane.waiting))

    def _summon(self, count: int) -> None:
        with self._work:
            woken = min(count, self._idle)
            self._idle -= woken
            self._woken += woken
            self._work.notify(woken)
            short_handed = woken < count and self._free > 0 and not self._queueing
        if short_handed:
            self.grow()

    def call_for_help(self) -> None:
        """Start another runner before this one is busy, if there is work and a permit for it and nobody idle."""
        if self._free and not self._idle and any(lane.waiting for lane in self._lanes):
            self.grow()

    def take(self, holding: bool) -> tuple[Lane, Unit] | Run | None:
        """Wait for a permit, unless one is held already, and for work. None: the bus is closed."""
        if holding and (taken := self.take_nowait()):
            return taken
        with self._work:
            while not self._closed:
                if not holding:
                    if not self._free:
                        self._queueing += 1
                        self._permit.wait()
                        continue
                    self._free -= 1
                    holding = True
                if taken := self.take_nowait():
                    return taken
                self._idle += 1
                self.on_room()
                self._work.wait()
                taken = self.take_nowait() if not self._closed else None
                self._woken -= 1
                if taken:
                    return taken
            if holding:
                self._free += 1
        return None

    def take_nowait(self) -> tuple[Lane, Unit] | Run | None:
        """The next unit of work of the lane whose turn it is; None if there is none.

        Runs without a lock: popleft is atomic, and a race for `_credit` only shifts a visit by a job.
        """
        if self.prepared:
            try:
                return self.prepared.popleft()
            except IndexError:
                pass  # another runner was quicker
        lanes = self._lanes
        for _ in range(len(lanes) + 1):
            if self._credit > 0:
                lane = lanes[self._at % len(lanes)]
                if len(lane.finished) + lane.in_turn < lane.most:
                    try:
                        unit = lane.waiting.popleft()
                    except IndexError:
                        pass
                    else:
                        self._credit -= 1
                        return lane, unit
            self._at += 1
            self._credit = lanes[self._at % len(lanes)].weight
        return None

    def give_back(self, run: Run | None = None) -> None:
        """Return a permit, and leave a prepared run to a thread."""
        if run is not None:
            self.prepared.append(run)
        with self._work:
            self._free += 1
            if self._queueing:
                self._queueing -= 1
                self._permit.notify()
                return
        if run is not None or any(lane.waiting for lane in self._lanes):
            self._summon(1)
        else:
            self.on_room()

    @property
    def idle(self) -> int:
        """How many more jobs could be running now."""
        return self._free + self._idle + self._woken

    def close(self) -> None:
        """Send all runners home; what is waiting is not handed out any more."""
        with self._work:
            self._closed = True
            self._woken += self._idle
            self._idle = self._queueing = 0
            self._work.notify_all()
            self._permit.notify_all()
