"""Writes warnings of Python and of other loggers in the log's format, if the program does not handle them.

Without it Python would write them to stderr as they are, between our lines. It writes the same records as Python
would, no more and no fewer.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import TextIO

from .lines import LineHandler


class LastResort(logging.Handler):
    """Python's handler of last resort: for records that no handler has got, from WARNING on as always.

    Not a handler of the root logger. Those get what others have shown already, and are taken for the program's own: its
    `basicConfig` would do nothing any more.
    """

    def __init__(self, ours: LineHandler) -> None:
        super().__init__(logging.WARNING)
        self.ours = ours

    def emit(self, record: logging.LogRecord) -> None:
        self.ours.handle(record)


def install_last_resort(ours: LineHandler) -> Callable[[], None]:
    """Have a handler of ours write warnings of other loggers and of Python from now on. Returns what undoes it."""
    resort, show = logging.lastResort, warnings.showwarning
    if resort is not None:  # else the program wants silence
        logging.lastResort = LastResort(ours)

    def shown(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if file is not None:
            show(message, category, filename, lineno, file, line)
            return
        text = warnings.formatwarning(message, category, filename, lineno, "").rstrip()  # without the line of code
        fields = {"name": "py.warnings", "levelno": logging.WARNING, "levelname": "WARNING", "msg": text}
        ours.handle(logging.makeLogRecord(fields))

    if getattr(show, "__module__", "") in ("warnings", "_py_warnings"):  # else the program has its own way
        warnings.showwarning = shown

    def undo() -> None:
        logging.lastResort = resort
        warnings.showwarning = show

    return undo


def installed_last_resort() -> LineHandler | None:
    """The handler of ours that does so now."""
    return logging.lastResort.ours if isinstance(logging.lastResort, LastResort) else None
