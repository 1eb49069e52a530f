"""How much more one lane may fetch, while others want the same runners.

A lane fetches what fills it, and one for each idle runner. That is not enough to be fair: lanes of quick jobs keep all
runners busy for as long as they last, and whoever fetches first gets a runner that is free. So a lane that has nothing
in hand

- may fetch one while others flow: runners come by all the time, and take it on its next visit;
- leaves an idle runner, for a moment, to a lane that would fetch as well and was served longer ago.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from .bus import Bus
from .prefetch import Lane

#: So long a runner may be left to another lane. It may be that lane's broker that does not answer.
GIVES_WAY_S = 0.02


class Room:
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
