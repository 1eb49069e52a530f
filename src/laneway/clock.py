"""Clock: the source of time for all of Laneway, so that a test can pass its own.

`now` is wall-clock time, for stored times. `monotonic` measures intervals and never steps.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    def now(self) -> float:
        """Unix seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds of an arbitrary beginning that only ever grow."""
        ...


class SystemClock:
    """The machine's own clock."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


class ManualClock:
    """A clock that stands still until it is told to move: for tests."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now
        self._monotonic = 1_000.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass on both clocks."""
        self._now += seconds
        self._monotonic += seconds

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an operator would; intervals do not change."""
        self._now += seconds
