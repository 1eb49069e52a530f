"""The worker's log, for the person who reads it at night.

Failures and slow runs by default, every run when verbose; never an argument. Runs are noted as they happen and
written in batches by a thread of its own, because a line formatted and written in the runner's thread costs
more than a small job. Everything else that happens (start, stop, broker away) is rare and written the same way.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from datetime import datetime
from time import time
from typing import TYPE_CHECKING, Any, Literal, TextIO

from .telemetry import (
    BrokerAway,
    BrokerBack,
    LeaseEnded,
    Reclaimed,
    RunEnded,
    SettlementRefused,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)

if TYPE_CHECKING:
    from .app import Laneway

#: Lines are written at the latest after this many seconds.
FLUSH_S = 0.1

Level = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
_COLOURS = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}


class LogWriter(logging.Handler):
    """Subscribes to an app's events and takes over its logger's records, and writes both to one stream."""

    def __init__(
        self,
        app: Laneway,
        *,
        verbose: bool = False,
        slow_s: float = 10.0,
        stream: TextIO | None = None,
        style: Literal["plain", "rich"] = "plain",
    ) -> None:
        super().__init__()
        self._app = app
        self._verbose = verbose
        self._slow_s = slow_s
        self._stream = stream or sys.stderr
        self._colour = style == "rich"
        self._lines: deque[tuple[float, Any]] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._main, name="laneway-log", daemon=True)

    def start(self) -> None:
        """Begin to listen and to write."""
        telemetry, logger = self._app.telemetry, self._app.logger
        telemetry.subscribe(RunEnded, self._run_ended)
        for kind in _SENTENCES:
            telemetry.subscribe(kind, self._note)
        self._before = logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(logging.DEBUG if self._verbose else logging.INFO)
        logger.propagate = False
        self._thread.start()

    def stop(self) -> None:
        """Write what is left and end."""
        telemetry, logger = self._app.telemetry, self._app.logger
        telemetry.unsubscribe(RunEnded, self._run_ended)
        for kind in _SENTENCES:
            telemetry.unsubscribe(kind, self._note)
        logger.removeHandler(self)
        level, logger.propagate = self._before
        logger.setLevel(level)
        self._stopping = True
        self._wake.set()
        self._thread.join(5.0)

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record of the app's logger."""
        self._note(record)

    def _run_ended(self, event: RunEnded) -> None:
        if self._verbose or event.error is not None or event.duration_s >= self._slow_s:
            self._lines.append((time(), event))
            if not self._wake.is_set():
                self._wake.set()

    def _note(self, event: Any) -> None:
        self._lines.append((time(), event))
        self._wake.set()

    def _main(self) -> None:
        gather = threading.Event()
        while True:
            self._wake.wait()
            if not self._stopping:
                gather.wait(FLUSH_S)  # let more lines gather
            self._wake.clear()
            self._write()
            if self._stopping and not self._lines:
                return

    def _write(self) -> None:
        text = []
        for _ in range(len(self._lines)):
            at, what = self._lines.popleft()
            level, line = self._sentence(what)
            text.append(self._line(at, level, _harmless(line)))
        try:
            self._stream.write("".join(text))
            self._stream.flush()
        except (OSError, ValueError):
            pass  # nobody is there to read it any more

    def _sentence(self, what: Any) -> tuple[str, str]:
        if isinstance(what, logging.LogRecord):
            return what.levelname, self.format(what)
        if isinstance(what, RunEnded):
            return _run_line(what, self._slow_s)
        level, line = _SENTENCES[type(what)](what)
        return level, line

    def _line(self, at: float, level: str, line: str) -> str:
        stamp = datetime.fromtimestamp(at).astimezone().strftime("%H:%M:%S.%f")[:-3]
        if self._colour:
            return f"\x1b[2m{stamp}\x1b[0m \x1b[{_COLOURS.get(level, '0')}m{level:<7}\x1b[0m {line}\n"
        return f"{stamp} {level:<7} {line}\n"


def _harmless(line: str) -> str:
    """A line without what would move a terminal's cursor: errors repeat whatever a remote server said."""
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() or each in "\n\t" else repr(each)[1:-1] for each in line)


def _run_line(event: RunEnded, slow_s: float) -> tuple[Level, str]:
    took = _duration(event.duration_s)
    head = f"{event.queue}/{event.task} {event.key}"
    if event.verdict == "done":
        if event.duration_s >= slow_s:
            return "WARNING", f"{head} done, slow: took {took}"
        return "INFO", f"{head} done in {took}"
    error = f": {event.error}" if event.error else ""
    if event.verdict == "postpone":
        return "INFO", f"{head} postponed for {_duration(event.delay_s)}{error}"
    if event.verdict == "bury":
        return "ERROR", f"{head} buried after attempt {event.attempt}{error}"
    return "WARNING", f"{head} failed in attempt {event.attempt}, again in {_duration(event.delay_s)}{error}"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def _stopping(event: WorkerStopping) -> tuple[Level, str]:
    if not event.running:
        return "INFO", "stopping"
    more = f" and {len(event.running) - 5} more" if len(event.running) > 5 else ""
    return "INFO", f"stopping; waiting for {', '.join(event.running[:5])}{more}"


def _stopped(event: WorkerStopped) -> tuple[Level, str]:
    counts = f"{event.processed} done, {event.failed} failed"
    if event.abandoned:
        return "ERROR", f"stopped with {event.abandoned} jobs still running: others take them over ({counts})"
    return "INFO", f"stopped ({counts})"


_SENTENCES: dict[type, Any] = {
    WorkerStarted: lambda e: (
        "INFO",
        f"worker {e.worker} started: {e.tasks} tasks, queues {', '.join(e.queues)}, {e.concurrency} jobs at once",
    ),
    WorkerStopping: _stopping,
    WorkerStopped: _stopped,
    LeaseEnded: lambda e: ("ERROR", f"worker {e.worker} was taken for dead; it goes on under a new id"),
    Reclaimed: lambda e: ("WARNING", f"took back {e.count} jobs of dead workers {', '.join(e.workers)}".rstrip()),
    SettlementRefused: lambda e: (
        "WARNING",
        f"{e.queue}: {len(e.keys)} runs ended after their claim was lost; others have taken them over",
    ),
    BrokerAway: lambda e: ("ERROR", f"{e.queue}: the broker is away, trying again: {e.error}"),
    BrokerBack: lambda e: ("INFO", f"{e.queue}: the broker is back after {_duration(e.away_s)}"),
}
