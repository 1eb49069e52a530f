"""Reports once that the broker or a queue is away, and once that it is back; notices a silent broker.

`Outage`: a broker that answers with a refusal counts as away too. The report quotes the refusal, also if the broker
did not answer at first, because an operator has to fix a new certificate or password. Different refusals are each
reported, up to a limit. `MissingQueues`: a missing queue is no outage, and the other queues go on. A supervisor makes
both reports for all its processes. `SilenceWatch` is a thread that never calls the broker, so it can notice that
another part has waited too long. At least every second it sends the supervisor a heartbeat.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ..clock import Clock
from ..errors import BrokerAwayError, BrokerRefusedError
from ..telemetry import BrokerAway, BrokerBack, QueueFound, QueueMissing, Telemetry

#: The least number of seconds between two reports, however often the broker comes and goes. A report is one line that
#: the broker is away, and one that it is back.
QUIET_S = 2.0


class Outage:
    """Makes one report that the broker is away, though several threads notice it."""

    def __init__(self, telemetry: Telemetry, changed: Callable[[], None] = lambda: None, *, refusals: int = 1) -> None:
        self._telemetry = telemetry
        #: Called each time that the broker goes away, refuses with another text, or is back.
        self._changed = changed
        #: How many refusals are reported for each caller: their text may differ each time.
        self._refusals = refusals
        #: The text of the current error, and whether the broker itself refused. Of several refusals, each stays for a
        #: while.
        self.error = ""
        self.refused = False
        self._lock = threading.Lock()
        self._waiting: set[str] = set()
        #: True until a caller gets an answer and no other waits, even if the callers that waited are gone.
        self._is_away = False
        self._since = 0.0
        self._reported = False
        self._reported_errors: set[str] = set()
        self._reported_refusals: Counter[str] = Counter()
        self._last_report = self._last_change = float("-inf")

    def __bool__(self) -> bool:
        """Whether a caller waits for the broker."""
        return bool(self._waiting)

    def waits(self, who: str) -> bool:
        """Whether `who` waits for the broker."""
        return who in self._waiting

    def away(self, who: str, error: Exception) -> None:
        """`who` got no answer, or was refused."""
        refused, text = isinstance(error, BrokerRefusedError), str(error)
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
        """Forget a caller that is gone. It does not know whether the broker is back.

        If the broker refused, and no other caller waits, the outage ends without a report: no other call asks for what
        this caller was refused.
        """
        with self._lock:
            self._waiting.discard(who)
            if self.refused and not self._waiting:
                self._is_away = self._reported = False


class MissingQueues:
    """Makes one report for each missing queue, though several processes miss it."""

    def __init__(self, telemetry: Telemetry, changed: Callable[[], None] = lambda: None) -> None:
        self._telemetry = telemetry
        #: Called each time that a queue is missed, or found again.
        self._changed = changed
        self._lock = threading.Lock()
        #: The processes that miss each queue.
        self._by: dict[str, set[str]] = {}
        self._since: dict[str, float] = {}
        #: The error for each missing queue.
        self.errors: dict[str, str] = {}

    def miss(self, queue: str, error: str, who: str = "") -> None:
        """The broker told `who` that there is no such queue."""
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
        """The broker answered `who` for this queue."""
        if self._let_go(queue, who):
            away_s = time.monotonic() - self._since[queue]
            self._changed()
            self._telemetry.emit(QueueFound(queue, away_s))

    def missed_by(self, who: str, errors: Mapping[str, str]) -> None:
        """Set the queues that `who` misses now: exactly these."""
        for queue in self.errors:
            if queue not in errors:
                self.found(queue, who)
        for queue, error in errors.items():
            self.miss(queue, error, who)

    def forget(self, who: str) -> None:
        """Forget a process that is gone. It does not know whether its queues are back, so nothing is reported."""
        for queue in self.errors:
            self._let_go(queue, who)

    def _let_go(self, queue: str, who: str) -> bool:
        """Whether `who` was the last process that missed the queue."""
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


#: The longest interval between two heartbeats, in seconds.
BEAT_S = 1.0
#: A broker that has not answered for this many seconds is reported, though it may still answer.
SILENT_S = 3.0


class BrokerCaller(Protocol):
    """A part of the worker that calls the broker."""

    @property
    def name(self) -> str:
        """Its name for `Outage` when it waits."""
        ...

    @property
    def asked_at(self) -> float | None:
        """Since when it has been waiting for an answer, on the monotonic clock; None: it is not waiting."""
        ...


class SilenceWatch:
    """A thread that notices a silent broker and sends heartbeats until it is stopped."""

    def __init__(
        self, clock: Clock, asking: Sequence[BrokerCaller], outage: Outage, lease_s: float, tell: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._asking = asking
        self._outage = outage
        self._every_s = min(BEAT_S, lease_s / 6)
        self._tell = tell
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, name="laneway-pulse", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stop.set()
        self._thread.join()

    def _main(self) -> None:
        self.beat()
        while not self._stop.wait(self._every_s):
            self.beat()

    def beat(self) -> None:
        """Report the parts that have waited too long, and send a heartbeat."""
        now = self._clock.monotonic()
        for part in self._asking:
            asked_at = part.asked_at
            if asked_at is not None and now - asked_at > SILENT_S:
                self._outage.away(part.name, BrokerAwayError(f"It has not answered for {SILENT_S:g} s."))
        self._tell()
