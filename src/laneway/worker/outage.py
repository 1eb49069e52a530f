"""Whether the broker is away, for the worker as a whole: said once when it goes, and once when it is back.

A broker that answers, and refuses, is away as well. That is said in its own words, also if it did not answer at first:
a server that comes back with another certificate, or another password, is one that somebody has to mend. What is said
differently to several, as about queues that are missing, is said for each of them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

from ..errors import BrokerAwayError, BrokerError
from ..telemetry import BrokerAway, BrokerBack, Telemetry

#: However often the broker comes and goes, it is reported no more often than this: a line that it is away, and one that
#: it is back.
QUIET_S = 2.0


class Outage:
    """Several threads notice that the broker is away; one report is enough."""

    def __init__(self, telemetry: Telemetry, changed: Callable[[], None] = lambda: None, *, refusals: int = 1) -> None:
        self._telemetry = telemetry
        #: Called when it has gone, when it refuses with other words, and when it is back, each time.
        self._changed = changed
        #: How many refusals of one who waits are reported: their words may be others each time.
        self._refusals = refusals
        #: What was last said of it, and whether by itself; of several refusals each for a while.
        self.error = ""
        self.refused = False
        self._lock = threading.Lock()
        self._waiting: set[str] = set()
        #: Until somebody gets an answer, though whoever waited for one may be gone.
        self._is_away = False
        self._since = 0.0
        self._reported = False
        self._reported_errors: set[str] = set()
        self._reported_refusals: Counter[str] = Counter()
        self._last_report = self._last_change = float("-inf")

    def __bool__(self) -> bool:
        """Whether somebody waits for it."""
        return bool(self._waiting)

    def waits(self, who: str) -> bool:
        """Whether `who` does."""
        return who in self._waiting

    def away(self, who: str, error: Exception) -> None:
        """`who` got no answer, or was refused."""
        refused, text = isinstance(error, BrokerError) and not isinstance(error, BrokerAwayError), str(error)
        with self._lock:
            now = time.monotonic()
            gone = not self._waiting
            if not self._is_away:
                self._is_away, self._since = True, now
                self.refused = False
                self._reported_errors.clear()
                self._reported_refusals.clear()
            others = refused and text != self.error and now - self._last_change >= QUIET_S
            changed = gone or (refused and not self.refused) or others
            if changed:
                self.error, self.refused, self._last_change = text, refused, now
            self._waiting.add(who)
            news = refused and text not in self._reported_errors and self._reported_refusals[who] < self._refusals
            report = (news or not self._reported) and now - self._last_report >= QUIET_S
            if report:
                self._reported, self._last_report = True, now
                self._reported_errors.add(text)
                self._reported_refusals[who] += refused
        if changed:
            self._changed()
        if report:
            self._telemetry.emit(BrokerAway(text, refused))

    def back(self, who: str) -> None:
        """`who` got an answer."""
        if not self._is_away:
            return
        with self._lock:
            self._waiting.discard(who)
            if self._waiting or not self._is_away:
                return
            self._is_away = False
            report, self._reported = self._reported, False
            away_s = time.monotonic() - self._since
        self._changed()
        if report:
            self._telemetry.emit(BrokerBack(away_s))

    def forget(self, who: str) -> None:
        """`who` is gone, and does not know whether it is back. What it was refused, nobody else is asked for: that is
        over without a word."""
        with self._lock:
            self._waiting.discard(who)
            if self.refused and not self._waiting:
                self._is_away = self._reported = False
