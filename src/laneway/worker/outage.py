"""Whether the broker is away, for the worker as a whole: said once when it goes, and once when it is back.

A broker that answers, and refuses, is away as well. That is said once more, in its own words, if it did not answer at
first: a server that comes back with another certificate, or another password, is one that somebody has to mend.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ..errors import BrokerAwayError, BrokerError
from ..telemetry import BrokerAway, BrokerBack, Telemetry

#: However often the broker comes and goes, it is reported no more often than this: a line that it is away, and one that
#: it is back.
QUIET_S = 2.0


class Outage:
    """Several threads notice that the broker is away; one report is enough."""

    def __init__(self, telemetry: Telemetry, changed: Callable[[], None] = lambda: None) -> None:
        self._telemetry = telemetry
        #: Called when it has gone, and when it is back, each time.
        self._changed = changed
        #: What was last said of it, and whether by itself.
        self.error = ""
        self.refused = False
        self._lock = threading.Lock()
        self._waiting: set[str] = set()
        #: Until somebody gets an answer, though whoever waited for one may be gone.
        self._is_away = False
        self._since = 0.0
        self._reported = False
        self._reported_error = ""
        self._reported_refusal = False
        self._last_report = float("-inf")

    def __bool__(self) -> bool:
        """Whether somebody waits for it."""
        return bool(self._waiting)

    def waits(self, who: str) -> bool:
        """Whether `who` does."""
        return who in self._waiting

    def away(self, who: str, error: Exception) -> None:
        """`who` got no answer, or was refused."""
        refused = isinstance(error, BrokerError) and not isinstance(error, BrokerAwayError)
        with self._lock:
            now = time.monotonic()
            gone = not self._waiting
            if not self._is_away:
                self._is_away, self._since = True, now
                self._reported_refusal = self.refused = False
            changed = gone or (refused and not self.refused)
            if changed:
                self.error, self.refused = str(error), refused
            self._waiting.add(who)
            news = refused and not self._reported_refusal and str(error) != self._reported_error
            news = news or not self._reported
            report = news and now - self._last_report >= QUIET_S
            if report:
                self._reported, self._reported_refusal, self._reported_error = True, refused, str(error)
                self._last_report = now
        if changed:
            self._changed()
        if report:
            self._telemetry.emit(BrokerAway(str(error), refused))

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
        """`who` is gone, and does not know whether it is back."""
        with self._lock:
            self._waiting.discard(who)
