"""Ids of jobs and workers: unique everywhere, and growing with time.

An id is 32 hexadecimal digits: 12 of milliseconds, 4 of a counter, 16 of chance. Ids made one after the
other sort one after the other, so that they are appended to a B-tree rather than scattered over it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

IdSource = Callable[[], str]


class Ids:
    """Makes ids; safe to call from several threads.

    The part left to chance is drawn once for a process, because asking the kernel for every id costs more than
    all the rest of an enqueue. So a fork must draw anew: `reseed`.
    """

    __slots__ = ("_chance", "_last", "_lock", "_now_ns")

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._last = 0
        self.reseed()

    def reseed(self) -> None:
        """Become another source, as the child of a fork must: its parent goes on with the old one."""
        # The lock may have been held by a thread that the child does not have.
        self._lock = threading.Lock()
        self._chance = os.urandom(8).hex()

    def __call__(self) -> str:
        # Time and counter are one number that only grows, whatever the clock does.
        now = self._now_ns() // 1_000_000 << 16
        with self._lock:
            self._last = number = now if now > self._last else self._last + 1
        return number.to_bytes(8).hex() + self._chance


def id_source() -> IdSource:
    """Return a function that makes ids; safe to call from several threads."""
    ids = Ids()
    if hasattr(os, "register_at_fork"):  # Windows does not fork
        os.register_at_fork(after_in_child=ids.reseed)
    return ids


new_id = id_source()
