"""Queues that are missing in the broker, for the worker as a whole: each is said once, and once when it is there.

The broker is not away then: the other queues go on. A supervisor says it for all its processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from ..telemetry import QueueFound, QueueMissing, Telemetry


class MissingQueues:
    """Several processes miss the same queue; one report is enough."""

    def __init__(self, telemetry: Telemetry, changed: Callable[[], None] = lambda: None) -> None:
        self._telemetry = telemetry
        #: Called when one is missed, and when it is there, each time.
        self._changed = changed
        self._lock = threading.Lock()
        #: Who misses each queue.
        self._by: dict[str, set[str]] = {}
        self._since: dict[str, float] = {}
        #: What is wrong with each.
        self.errors: dict[str, str] = {}

    def miss(self, queue: str, error: str, who: str = "") -> None:
        """`who` was told that there is no such queue."""
        with self._lock:
            news = queue not in self.errors
            self._by.setdefault(queue, set()).add(who)
            if news:
                self.errors = {**self.errors, queue: error}
                self._since[queue] = time.monotonic()
        if news:
            self._changed()
            self._telemetry.emit(QueueMissing(queue, error))

    def found(self, queue: str, who: str = "") -> None:
        """`who` has got something from it."""
        if self._let_go(queue, who):
            away_s = time.monotonic() - self._since[queue]
            self._changed()
            self._telemetry.emit(QueueFound(queue, away_s))

    def missed_by(self, who: str, errors: Mapping[str, str]) -> None:
        """These are the queues that `who` misses now, and no others."""
        for queue in self.errors:
            if queue not in errors:
                self.found(queue, who)
        for queue, error in errors.items():
            self.miss(queue, error, who)

    def forget(self, who: str) -> None:
        """`who` is gone, and does not know whether they are there: that is over without a word."""
        for queue in self.errors:
            self._let_go(queue, who)

    def _let_go(self, queue: str, who: str) -> bool:
        """Whether nobody misses it any more who did."""
        if queue not in self.errors:
            return False
        with self._lock:
            missing = self._by.get(queue, set())
            if who not in missing:
                return False
            missing.discard(who)
            if missing:
                return False
            self.errors = {name: error for name, error in self.errors.items() if name != queue}
            return True
