"""`Bus`: a lane of fetched jobs per queue, and the permits to run them; `FetchAllowance`: fair fetching.

The bus serves the lanes in turn, about 20 ms of work each, so that a busy queue cannot starve another. New jobs of a
lane that was empty on its last visit go first. Runners take one unit of work at a time from lanes that they all
share, so a long job delays no job behind it. There are as many permits as the worker's concurrency. A thread keeps
its permit from job to job; an async run takes it to the event loop. An empty lane may fetch one unit while other
lanes keep the runners busy. It leaves an idle runner, for a moment, to a lane that was served longer ago, or the
first lane to fetch would get each free runner.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .prefetch import VISIT_S, Lane

if TYPE_CHECKING:
    from ..run.run import Run, Unit


class Bus:
    """All lanes, and the permits to run what is in them."""

    def __init__(self, lanes: list[Lane], concurrency: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.lanes = lanes
        self._monotonic = monotonic
        self._at = 0
        self._credit = 1
        #: When the visit under way ends, whatever is left of its credit.
        self._visit_ends = 0.0
        #: Lanes that were empty and have something now: each is served first, for one visit.
        self._owed: deque[Lane] = deque()
        #: How often something was taken.
        self._takes = 0
        #: Whether a lane flowed when somebody last looked.
        self._flowed = False
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
        """Add what a turn has brought; a runner that looks finds it, and `wake_runners` wakes the idle ones."""
        lane.waiting.extend(units)
        if not units or len(self.lanes) == 1:
            return
        if lane.passed_over:
            lane.passed_over, lane.owed = False, lane.weight
        if lane.owed > 0 and lane not in self._owed:
            self._owed.append(lane)

    def wake_runners(self, lane: Lane) -> None:
        """Wake as many runners as the lane can occupy now."""
        if lane.waiting:
            self._wake_runners(len(lane.waiting))

    def _wake_runners(self, count: int) -> None:
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
        if self._free and not self._idle and any(lane.waiting for lane in self.lanes):
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
        if self._owed and (taken := self._take_owed()):
            return taken
        lanes = self.lanes
        now = self._monotonic() if len(lanes) > 1 else 0.0
        if now > self._visit_ends:
            self._credit = min(self._credit, 0)
        for _ in range(len(lanes) + 1):
            if self._credit > 0:
                lane = lanes[self._at % len(lanes)]
                if len(lane.finished) + lane.in_turn < lane.most:
                    try:
                        unit = lane.waiting.popleft()
                    except IndexError:
                        lane.passed_over = True
                    else:
                        self._credit -= 1
                        self._takes = lane.served = self._takes + 1
                        return lane, unit
            self._at += 1
            lane = lanes[self._at % len(lanes)]
            self._credit, lane.owed = lane.weight, 0
            self._visit_ends = now + VISIT_S
        return None

    def _take_owed(self) -> tuple[Lane, Unit] | None:
        """A unit of the first lane that was empty on its last visit. Until the next one it may have as many as on a
        visit, at once or one by one as they come; so it gets its share and no more."""
        while True:
            try:
                lane = self._owed[0]
            except IndexError:
                return None
            if lane.owed > 0 and len(lane.finished) + lane.in_turn < lane.most:
                try:
                    unit = lane.waiting.popleft()
                except IndexError:
                    pass
                else:
                    lane.owed -= 1
                    self._takes = lane.served = self._takes + 1
                    return lane, unit
            try:
                self._owed.remove(lane)
            except ValueError:
                pass  # another runner was quicker

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
        if run is not None or any(lane.waiting for lane in self.lanes):
            self._wake_runners(1)
        else:
            self.on_room()

    @property
    def idle(self) -> int:
        """How many more jobs could be running now."""
        return self._free + self._idle + self._woken

    @property
    def flows(self) -> bool:
        """Whether runners come for more all the time: a lane that fetches ahead has something for them."""
        return any(lane.flows for lane in self.lanes)

    def turned(self, lane: Lane) -> None:
        """A lane has taken a turn. Others may fetch now that could not before: if there is a flow that they can join,
        or if it has left to them what they had left to it."""
        if len(self.lanes) == 1:
            return
        with self._work:
            before, self._flowed = self._flowed, self.flows
            leaves = (lane.fails or not lane.due) and self.idle > 0 and any(other.calls for other in self.lanes)
            if leaves or self._flowed > before:
                self.on_room()

    def close(self) -> None:
        """Send all runners home; what is waiting is not handed out any more."""
        with self._work:
            self._closed = True
            self._woken += self._idle
            self._idle = self._queueing = 0
            self._work.notify_all()
            self._permit.notify_all()


#: So long a runner may be left to another lane. It may be that lane's broker that does not answer.
GIVES_WAY_S = 0.02


class FetchAllowance:
    """The room of one lane."""

    def __init__(self, lane: Lane, bus: Bus, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._lane = lane
        self._bus = bus
        self._monotonic = monotonic
        #: Since when it leaves a runner to others, and whether it has done so for long enough.
        self._since: float | None = None
        self._over = False

    def units(self) -> int:
        """How many more units of work it may fetch now."""
        lane, bus = self._lane, self._bus
        room = lane.capacity + bus.idle - len(lane.waiting)
        if len(bus.lanes) == 1 or lane.capacity or lane.waiting:
            return room
        if bus.flows:
            return max(1, room)
        left = self._left_to_others() if lane.due and room > 0 else 0
        if not left:
            self.taken()
            return room
        if self._since is None:
            self._since = self._monotonic()
        return room if self._over else max(0, room - left)

    def due_in(self) -> float | None:
        """Seconds until it leaves nothing to others any more; None: it does not do so now."""
        if self._since is None or self._over:
            return None
        return max(0.0, self._since + GIVES_WAY_S - self._monotonic())

    def is_over(self) -> bool:
        """Whether it has just left a runner to others for long enough."""
        if self.due_in() != 0:
            return False
        self._over = True
        return True

    def taken(self) -> None:
        """A turn was taken: from now on it leaves runners to others again."""
        self._since, self._over = None, False

    def _left_to_others(self) -> int:
        """How many runners others need: for what they have in hand, and for what they would fetch before this one."""
        lane = self._lane
        others = [other for other in self._bus.lanes if other is not lane]
        return sum(len(other.waiting) + (other.calls and other.served < lane.served) for other in others)
