"""Whether the broker is away, for the worker as a whole: said once when it goes, and once when it is back."""

from __future__ import annotations

import threading
import time

from ..telemetry import BrokerAway, BrokerBack, Telemetry

#: However often the broker comes and goes, it is reported no more often than this.
QUIET_S = 1.0


class Outage:
    """Several threads notice that the broker is away; one report is enough."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._lock = threading.Lock()
        self._waiting: set[str] = set()
        self._since = 0.0
        self._reported = False
        self._last_report = float("-inf")

    def __bool__(self) -> bool:
        """Whether somebody waits for it."""
        return bool(self._waiting)

    def away(self, who: str, error: Exception) -> None:
        """`who` got no answer."""
        with self._lock:
            now = time.monotonic()
            if not self._waiting:
                self._since = now
            self._waiting.add(who)
            if self._reported or now - self._last_report < QUIET_S:
                return
            self._reported = True
            self._last_report = now
        self._telemetry.emit(BrokerAway(str(error)))

    def back(self, who: str) -> None:
        """`who` got an answer."""
        if not self._waiting:
            return
        with self._lock:
            self._waiting.discard(who)
            if self._waiting or not self._reported:
                return
            self._reported = False
            away_s = time.monotonic() - self._since
        self._telemetry.emit(BrokerBack(away_s))
