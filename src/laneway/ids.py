"""Ids of jobs and workers: unique everywhere, and growing with time.

An id is 32 hexadecimal digits: 12 of milliseconds, 4 of a counter, 16 of chance. Ids made one after the
other sort one after the other, so that they are appended to a B-tree rather than scattered over it.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable

IdSource = Callable[[], str]


def id_source() -> IdSource:
    """Return a function that makes ids; safe to call from several threads."""
    count = itertools.count(int.from_bytes(os.urandom(2), "big"))
    urandom, now_ns = os.urandom, time.time_ns

    def new_id() -> str:
        return f"{now_ns() // 1_000_000:012x}{next(count) & 0xFFFF:04x}{urandom(8).hex()}"

    return new_id


new_id = id_source()
