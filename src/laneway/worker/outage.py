"""Whether the broker is away, for the worker as a whole: said once when it goes, and once when it is back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

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
        #: What was last said of it.
        self.error = ""
        self._lock = threading.Lock()
        self._waiting: set[str] = set()
        self._since = 0.0
        self._reported = False
        self._last_report = float("-inf")

    def __bool__(self) -> bool:
        """Whether somebody waits for it."""
        return bool(self._waiting)

    def waits(self, who: str) -> bool:
        """Whether `who` does."""
        return who in self._waiting

    def away(self, who: str, error: Exception | str) -> None:
        """`who` got no answer."""
        with self._lock:
            now = time.monotonic()
            gone = not self._waiting
            if gone:
                self._since = now
                self.error = str(error)
            self._waiting.add(who)
            report = not self._reported and now - self._last_report >= QUIET_S
            if report:
                self._reported = True
                self._last_report = now
        if gone:
            self._changed()
        if report:
            self._telemetry.emit(BrokerAway(str(error)))

    def back(self, who: str) -> None:
        """`who` got an answer."""
        if not self._waiting:
            return
        with self._lock:
            self._waiting.discard(who)
            if self._waiting:
                return
            report, self._reported = self._reported, False
            away_s = time.monotonic() - self._since
        self._changed()
        if report:
            self._telemetry.emit(BrokerBack(away_s))
