"""When nobody takes what waits in a lane: the runners are busy with something slow, and other workers may be free."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..run.run import Unit
    from .bus import Bus
    from .prefetch import Lane

#: Without any claim taken for so long, what waits is given back for other workers to take.
STALL_S = 0.25


class Stall:
    """Remembers since when the same unit of work has been the first of a lane."""

    def __init__(self, lane: Lane, bus: Bus) -> None:
        self._lane = lane
        self._bus = bus
        self._head: Unit | None = None
        self._since = 0.0

    def due_in(self) -> float | None:
        """Seconds until the lane counts as stalled; None while nothing waits in it."""
        try:
            head = self._lane.waiting[0]
        except IndexError:
            self._head = None
            return None
        now = time.monotonic()
        if head is not self._head:
            self._head, self._since = head, now
        # Many lanes may have to be visited before it is this one's turn again.
        patience_s = STALL_S + self._bus.round_s
        return max(0.0, self._since + patience_s - now)
