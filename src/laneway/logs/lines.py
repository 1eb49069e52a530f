"""LineHandler: writes records as plain lines of time, level and sentence. It can write a batch of lines at once."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import ClassVar, Literal, TextIO

from ..errors import text_of
from .text import cut, harmless, one_line, traceback_text

Format = Literal["plain", "rich", "json"]


class LineHandler(logging.Handler):
    """Writes the records of a logger as plain lines; other formats override `line`."""

    #: Which format it is.
    kind: ClassVar[Format] = "plain"

    def __init__(self, stream: TextIO | None = None, *, process: str | None = None) -> None:
        super().__init__()
        self._stream = stream or sys.stderr
        #: Which of several processes this is.
        self.process_name = None if process is None else one_line(process)
        self._lines: list[str] = []
        self._batches = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or keep it until the batch is over."""
        try:
            self._lines.append(self.line(record))
        except BaseException as error:  # what is shown may be anything, and raise anything
            try:
                self._lines.append(self.line(unformatted(record, error)))
            except Exception:
                self.handleError(record)
        if not self._batches:
            self.flush()

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Write everything that is logged meanwhile in one go."""
        self._batches += 1
        try:
            yield
        finally:
            self._batches -= 1
            self.flush()

    def flush(self) -> None:
        """Write what is kept."""
        with self.lock or threading.RLock():
            text = "".join(self._lines)
            self._lines.clear()
            try:
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError):
                pass  # nobody is there to read it any more

    def line(self, record: logging.LogRecord) -> str:
        """A record as it is written, with the line break at its end."""
        return f"{stamp(record)} {record.levelname:<7} {self.lead()}{message(record)}{below(record)}\n"

    def lead(self) -> str:
        """What stands before the sentence: which process it is from, when there are several."""
        return "" if self.process_name is None else f"[{self.process_name}] "


def message(record: logging.LogRecord) -> str:
    """What a record says, as it may stand in a line."""
    return cut(harmless(cut(record.getMessage())))


def below(record: logging.LogRecord) -> str:
    """What stands below it: a traceback, or stacks."""
    error = record.exc_info[1] if record.exc_info else None
    # Not the record's own text of the error, if there is the error itself: another handler has made it, in any length.
    shown = [record.exc_text if error is None else traceback_text(error, whole=True), record.stack_info]
    return "".join(harmless(f"\n{text}") for text in shown if text)


def unformatted(record: logging.LogRecord, error: BaseException) -> logging.LogRecord:
    """What stands for a record that cannot be made a line, such as one with too few arguments: where it was logged."""
    what = repr(record.msg) if isinstance(record.msg, str) else f"a {type(record.msg).__name__}"
    why = f"{type(error).__name__}: {text_of(error)}"
    text = f"{what}, logged at {record.pathname}:{record.lineno}, cannot be shown: {why}"
    given = {name: getattr(record, name) for name in ("name", "levelno", "levelname", "created", "msecs")}
    return logging.makeLogRecord({**given, "msg": one_line(text)})


def stamp(record: logging.LogRecord) -> str:
    """The time of day, for a person."""
    return datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
