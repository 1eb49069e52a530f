"""Ids of jobs and workers, unique and growing with time; and ids derived from a run.

An id is 32 hexadecimal digits: 12 of milliseconds, 4 of a counter, 16 random. Consecutive ids sort in order, so that
a B-tree appends them instead of scattering them. The random part is drawn once per process, and again after a fork.
`RunIds` derives the ids of the jobs that a run enqueues, so that a repeated run sends the same jobs.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from hashlib import sha256

IdSource = Callable[[], str]

_DIGITS = frozenset("0123456789abcdef")


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


def made_at(id: str) -> float | None:
    """When an id was made, in unix seconds, if it tells: strangers' ids do not.

    Those of a run look alike, and by chance: nearly all of them as if they were made in thousands of years.
    """
    return int(id[:12], 16) / 1_000 if len(id) == 32 and set(id) <= _DIGITS else None


class RunIds:
    """The ids of what one run enqueues, made from the run's own: if it is repeated, it sends the same jobs.

    They are made of what is enqueued as well, and not of its number alone: a run that enqueues in another order the
    second time, because it goes over a set, must not have one of its jobs taken for another, and lost.
    """

    __slots__ = ("_made", "_run")

    def __init__(self, run: str) -> None:
        self._run = run
        #: How many equal ones there have been.
        self._made: Counter[bytes] = Counter()

    def __call__(self, queue: str, key: str, body: str) -> str:
        """The id of a job that goes to this queue, with this key if it has one, and this body without any id."""
        parts = [part.encode("utf-8", "surrogatepass") for part in (self._run, queue, key, body)]
        digest = sha256(b"".join(len(part).to_bytes(8) + part for part in parts))
        same = digest.digest()
        self._made[same] += 1
        digest.update(self._made[same].to_bytes(8))
        return digest.hexdigest()[:32]
