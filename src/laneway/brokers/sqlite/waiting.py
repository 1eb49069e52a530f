"""How an idle process learns of work: at once from its own threads, within a tick from other processes.

SQLite has no way to tell another process of a commit, but `PRAGMA data_version` changes with each one and costs
5 µs to read. One thread of the process reads it 70 times a second while the process is idle, and looks for due
jobs only when it has changed or when the next delayed job is due.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection
from typing import Any

from ...clock import Clock
from .database import Database

TICK_S = 0.014


class Waiting:
    """The waiting of one process."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock
        self._made_in = os.getpid()
        self._own_condition = threading.Condition()
        self._wakes = 0
        self._nudges = 0

    @property
    def _condition(self) -> threading.Condition:
        if self._made_in != os.getpid():  # a fork: a thread that holds the parent's does not exist here
            self._made_in, self._own_condition = os.getpid(), threading.Condition()
        return self._own_condition

    def wake(self) -> None:
        """Something was stored by this process: have a look."""
        with self._condition:
            self._wakes += 1
            self._condition.notify_all()

    def nudge(self) -> None:
        """Come back, whether there is something due or not."""
        with self._condition:
            self._nudges += 1
            self._condition.notify_all()

    def wait(self, next_due: str, queues: Collection[str], timeout_s: float) -> set[str]:
        """The queues with a job due now; waits for one until `timeout_s` have passed."""
        deadline = time.monotonic() + timeout_s
        nudges = self._nudges
        while True:
            # Both marks are taken before looking: what is stored after the look makes another round.
            wakes = self._wakes
            with self._db.watch() as db:
                version = _version(db)
                dues = {name: db.execute(next_due, {"name": name}).fetchone()[0] for name in queues}
            now = self._clock.now()
            ready = {name for name, due in dues.items() if due is not None and due <= now}
            if ready or nudges != self._nudges or time.monotonic() >= deadline:
                return ready
            soonest = min((due - now for due in dues.values() if due is not None), default=timeout_s)
            self._sleep(min(deadline, time.monotonic() + soonest), wakes, nudges, version)

    def _sleep(self, until: float, wakes: int, nudges: int, version: int) -> None:
        while (left := until - time.monotonic()) > 0:
            with self._condition:
                if wakes != self._wakes or nudges != self._nudges:
                    return
                self._condition.wait(min(TICK_S, left))
            with self._db.watch() as db:
                if _version(db) != version:
                    return


def _version(db: Any) -> int:
    version: int = db.execute("PRAGMA data_version").fetchone()[0]
    return version
