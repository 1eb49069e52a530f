"""Signal handlers of a worker process: TERM, INT and USR1 stop it; USR2 and TTIN write all stacks to the log.

A stack dump runs in a thread of its own, because the main thread may hold the lock that the log needs. A process that
a job has forked is not the worker: there a stop signal has its default effect.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

STOP = ("SIGTERM", "SIGINT", "SIGUSR1")
STACKS = ("SIGUSR2", "SIGTTIN")


def handle_signals(stop: Callable[[int], None], show: Callable[[], None]) -> dict[int, Any]:
    """Have `stop` called for TERM, INT and USR1, and `show` for USR2 and TTIN. Returns what was there before."""

    process = os.getpid()

    def stopping(number: int, frame: object) -> None:
        if os.getpid() == process:
            stop(number)
        else:  # a job has forked: what it has started is not the worker, and ends as any other program would
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def showing(number: int, frame: object) -> None:
        # Not in the handler: the main thread may hold the very lock that writing the log needs.
        threading.Thread(target=show, name="laneway-stacks", daemon=True).start()

    handlers = [*((name, stopping) for name in STOP), *((name, showing) for name in STACKS)]
    return {
        number: signal.signal(number, handler)
        for name, handler in handlers
        if (number := getattr(signal, name, None)) is not None  # not every system has them all
    }


def restore_signals(before: Mapping[int, Any]) -> None:
    """Put back what was there before `handle_signals`."""
    for number, handler in before.items():
        signal.signal(number, handler)


def show_stacks(logger: logging.Logger, what: str) -> None:
    """Write where every thread stands to the log: beside the message, which would be cut."""
    record = logger.makeRecord(logger.name, logging.WARNING, "", 0, what, (), None, sinfo=stacks())
    if logger.isEnabledFor(record.levelno):
        logger.handle(record)


def stacks() -> str:
    """Where every thread stands, as text; code only, no values."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame)).rstrip()}"
        for ident, frame in sys._current_frames().items()
    )
