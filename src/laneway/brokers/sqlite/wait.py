"""Wakes an idle process: at once for its own threads' commits, within a tick for those of other processes.

SQLite cannot tell another process of a commit. But `PRAGMA data_version` changes with each commit and costs 5 µs to
read. A worker's waker reads it 55 times a second while the process is idle. It looks for due jobs only when the
version has changed or when the next delayed job is due.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

from ...clock import Clock
from .database import Database
from .queues import to_json

#: Seconds between two looks. A worker should be awake 30 ms after another process has enqueued.
TICK_S = 0.018


class DatabaseWait:
    """The waits of one process."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock
        #: A lock for each waiting thread. The thread cannot acquire it until another thread releases it. (A Condition
        #: makes such a lock for every tick, which is half of what an idle worker would cost.)
        self._sleepers: list[threading.Lock] = []
        self._wakes = 0
        self._nudges = 0

    def wake(self) -> None:
        """Make all waiting threads look again, because this process has stored something."""
        self._wakes += 1
        self._wake_all()

    def nudge(self) -> None:
        """End every wait, whether a job is due or not."""
        self._nudges += 1
        self._wake_all()

    def _wake_all(self) -> None:
        for lock in tuple(self._sleepers):
            try:
                lock.release()
            except RuntimeError:
                pass  # the thread is being woken already

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        """The queues that have a job due. Waits up to `timeout_s` for one."""
        deadline = time.monotonic() + timeout_s
        names = to_json(list(queues))
        nudges = self._nudges
        lock = threading.Lock()
        lock.acquire()
        self._sleepers.append(lock)
        try:
            while True:
                # The counters and the version are read before looking, so a job stored after the look causes another.
                wakes = self._wakes
                with self._db.watch() as tx:
                    version = self._db.version(tx)
                    dues = {name: due for name, due in tx.all("next_due", names=names) if due is not None}
                now = self._clock.now()
                ready = {name for name, due in dues.items() if due <= now}
                if ready or nudges != self._nudges or time.monotonic() >= deadline:
                    return ready
                soonest = min((due - now for due in dues.values()), default=timeout_s)
                self._sleep(lock, min(deadline, time.monotonic() + soonest), (wakes, nudges), version)
        finally:
            self._sleepers.remove(lock)

    def _sleep(self, lock: threading.Lock, until: float, marks: tuple[int, int], version: int) -> None:
        while (left := until - time.monotonic()) > 0:
            if marks != (self._wakes, self._nudges):
                return
            lock.acquire(timeout=min(TICK_S, left))
            with self._db.watch() as tx:
                if self._db.version(tx) != version:
                    return
