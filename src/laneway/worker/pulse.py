"""The pulse of a worker: a thread that never asks the broker anything, and so can tell when others wait for it in vain.

Every second it tells the supervisor, if there is one, that the process lives and what it has done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from ..clock import Clock
from ..errors import BrokerAwayError
from .outage import Outage

#: How often, at most.
BEAT_S = 1.0
#: A broker that has not answered for so long is spoken of, though it may still answer.
SILENT_S = 3.0


class Asking(Protocol):
    """A part of the worker that asks the broker."""

    @property
    def name(self) -> str:
        """What it is called when it waits."""
        ...

    @property
    def asked_at(self) -> float | None:
        """Since when it has been waiting for an answer, on the monotonic clock; None: it is not."""
        ...


class Pulse:
    """Beats until it is stopped."""

    def __init__(
        self, clock: Clock, asking: Sequence[Asking], outage: Outage, lease_s: float, tell: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._asking = asking
        self._outage = outage
        self._every_s = min(BEAT_S, lease_s / 6)
        self._tell = tell
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, name="laneway-pulse", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join()

    def _main(self) -> None:
        self.beat()
        while not self._stop.wait(self._every_s):
            self.beat()

    def beat(self) -> None:
        """Look who waits, and tell."""
        now = self._clock.monotonic()
        for part in self._asking:
            asked_at = part.asked_at
            if asked_at is not None and now - asked_at > SILENT_S:
                self._outage.away(part.name, BrokerAwayError(f"It has not answered for {SILENT_S:g} s."))
        self._tell()
