"""The time limit of async tasks: what is awaited is cancelled when its time is up.

Sync code cannot be cancelled: it runs in a process that can be ended, see `isolation.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from ...errors import TimeLimitError
from .decode import FAILURES

Result = TypeVar("Result")


async def within(limit_s: float, work: Awaitable[Result]) -> Result:
    """Await `work` for so long; raises TimeLimitError if it took longer, whatever it has made of that itself."""
    loop = asyncio.get_running_loop()
    due = loop.time() + limit_s
    timeout = asyncio.timeout_at(due)
    error: BaseException | None = None
    try:
        async with timeout:
            result = await work
    except FAILURES as raised:
        if not timeout.expired():
            raise  # its own error, a TimeoutError or a cancellation of its own too
        error = raised
    else:
        # It may also have kept the loop from telling it.
        if not timeout.expired() and loop.time() < due:
            return result
    # The TimeoutError that stands for the cancellation says nothing; what the handler raised instead may.
    try:
        raise TimeLimitError(limit_s) from (None if isinstance(error, TimeoutError) else error)
    finally:
        del error  # its traceback leads to this frame: else the two would wait for the garbage collector
