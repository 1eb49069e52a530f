"""When a poller looks into its tables, and how far ahead; and who tells it of what is stored meanwhile.

Some items leave a table when they are due and no sooner. Their times are remembered, whether a round has seen them or
this very process has stored them, and at each of them there is a short round that reads only what is due by then.
So they are on time, and what waits is not read again and again. What other processes store is seen by the next whole
round, which is up to `poll` seconds later.
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Iterable
from typing import Protocol

from ....clock import Clock

#: A round that comes so much too early, by the wall clock, is meant for the item that is due then.
_EARLY_S = 1.0


class Timetable:
    """When one poller looks. Safe to call from several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._is_whole = True
        #: The next whole round, on the monotonic clock.
        self._whole_at = -math.inf
        #: When there are short rounds before that, in unix seconds.
        self._times: set[float] = set()

    def begin(self, every_s: float) -> bool:
        """Begin a round. True: a whole one, and the next of those is in `every_s`; False: one for what is due now."""
        with self._lock:
            now, monotonic = self._clock.now(), self._clock.monotonic()
            self._is_whole = monotonic >= self._whole_at or not any(at <= now + _EARLY_S for at in self._times)
            if self._is_whole:
                # From now on: what is stored while the round reads may have been missed by it.
                self._whole_at = monotonic + every_s
            self._times = {at for at in self._times if at > now}
            return self._is_whole

    def end(self, again_s: float) -> float:
        """End a round that is to be repeated after `again_s` at the latest. Returns the seconds until the next one."""
        with self._lock:
            now, monotonic = self._clock.now(), self._clock.monotonic()
            if self._is_whole:
                self._whole_at = min(self._whole_at, monotonic + again_s)
            elif math.isfinite(again_s):
                self._times.add(now + again_s)
            return max(0.0, min([self._whole_at - monotonic, *(at - now for at in self._times)]))

    def whole_within(self, seconds: float) -> None:
        """Have the next whole round no later than that."""
        with self._lock:
            self._whole_at = min(self._whole_at, self._clock.monotonic() + seconds)

    def remember(self, times: Iterable[float]) -> float | None:
        """Look at these times, too. Returns the seconds until the first; None: the next whole round sees them all."""
        with self._lock:
            now = self._clock.now()
            whole_at = now + self._whole_at - self._clock.monotonic()
            news = [at for at in times if at < whole_at]
            self._times.update(news)
            return max(0.0, min(news) - now) if news else None


class Listener(Protocol):
    """A poller, as those see it who store items."""

    def hear(self, table: str, times: Iterable[float]) -> None:
        """Take note that items are due at these times that leave the table no sooner."""
        ...


class Pollers:
    """The pollers of this process, as long as they live."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._pollers: list[weakref.ref[Listener]] = []

    def add(self, poller: Listener) -> None:
        if self._pid != os.getpid():
            self._pid, self._pollers = os.getpid(), []  # a fork has none of its parent's
        self._pollers = [*(each for each in self._pollers if each() is not None), weakref.ref(poller)]

    def tell(self, table: str, times: Iterable[float]) -> None:
        """Tell all of them when items are due that leave this table no sooner."""
        held = list(times)
        if held and self._pid == os.getpid():
            for each in self._pollers:
                if (poller := each()) is not None:
                    poller.hear(table, held)
