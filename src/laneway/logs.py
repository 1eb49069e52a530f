"""The worker's log, for the person who reads it at night.

Failures and slow runs by default, every run when verbose; never an argument. Runs are noted as they happen and
turned into lines by a thread of its own, in batches, because a line formatted and written in the runner's thread
costs more than a small job. Lines go to the app's logger like any others; `LineHandler` writes them to a terminal.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from time import time
from typing import TYPE_CHECKING, Any, TextIO

from .telemetry import (
    BrokerAway,
    BrokerBack,
    LeaseEnded,
    ProcessEnded,
    ProcessGivenUp,
    ProcessReplaced,
    ProcessStarted,
    Reclaimed,
    RunEnded,
    SettlementRefused,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
    WorkerWaiting,
)

if TYPE_CHECKING:
    from .app import Laneway

#: Lines are written at the latest after this many seconds.
FLUSH_S = 0.1

_COLOURS = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}

Sentence = tuple[int, str]


class EventLog:
    """Turns an app's events into lines of its logger."""

    def __init__(self, app: Laneway, *, verbose: bool = False, slow_s: float = 10.0) -> None:
        self._telemetry = app.telemetry
        self._logger = app.logger
        self._verbose = verbose
        self._slow_s = slow_s
        self._events: deque[tuple[float, Any]] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._main, name="laneway-log", daemon=True)

    def start(self) -> None:
        """Begin to listen and to write."""
        self._telemetry.subscribe(RunEnded, self._run_ended)
        for kind in _SENTENCES:
            self._telemetry.subscribe(kind, self._note)
        self._thread.start()

    def stop(self) -> None:
        """Write what is left and end."""
        self._telemetry.unsubscribe(RunEnded, self._run_ended)
        for kind in _SENTENCES:
            self._telemetry.unsubscribe(kind, self._note)
        self._stopping = True
        self._wake.set()
        self._thread.join(5.0)

    def _run_ended(self, event: RunEnded) -> None:
        if self._verbose or event.error is not None or event.duration_s >= self._slow_s:
            self._note(event)

    def _note(self, event: Any) -> None:
        self._events.append((time(), event))
        if not self._wake.is_set():
            self._wake.set()

    def _main(self) -> None:
        gather = threading.Event()
        while True:
            self._wake.wait()
            if not self._stopping:
                gather.wait(FLUSH_S)  # let more lines gather
            self._wake.clear()
            self._write()
            if self._stopping and not self._events:
                return

    def _write(self) -> None:
        with ExitStack() as batches:
            for handler in self._logger.handlers:
                if isinstance(handler, LineHandler):
                    batches.enter_context(handler.batch())
            for _ in range(len(self._events)):
                try:
                    self._log(*self._events.popleft())
                except Exception:  # a handler that raises must not silence the log for good
                    traceback.print_exc()

    def _log(self, at: float, event: Any) -> None:
        logger = self._logger
        level, line = self._sentence(event)
        if logger.isEnabledFor(level):
            record = logger.makeRecord(logger.name, level, "", 0, line, (), None)
            record.created, record.msecs = at, at % 1 * 1000  # when it happened
            logger.handle(record)

    def _sentence(self, event: Any) -> Sentence:
        if isinstance(event, RunEnded):
            return _run_line(event, self._slow_s)
        sentence: Sentence = _SENTENCES[type(event)](event)
        return sentence


class LineHandler(logging.Handler):
    """Writes the records of a logger as lines that can be read at a glance: time, level, sentence."""

    def __init__(self, stream: TextIO | None = None, *, colour: bool = False) -> None:
        super().__init__()
        self._stream = stream or sys.stderr
        self._colour = colour
        self._lines: list[str] = []
        self._batches = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or keep it until the batch is over."""
        try:
            self._lines.append(self._line(record))
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

    def _line(self, record: logging.LogRecord) -> str:
        stamp = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        level, line = record.levelname, _harmless(self.format(record))
        if self._colour:
            return f"\x1b[2m{stamp}\x1b[0m \x1b[{_COLOURS.get(level, '0')}m{level:<7}\x1b[0m {line}\n"
        return f"{stamp} {level:<7} {line}\n"


def _harmless(line: str) -> str:
    """A line without what would move a terminal's cursor: errors repeat whatever a remote server said."""
    if line.isprintable():
        return line
    return "".join(each if each.isprintable() or each in "\n\t" else repr(each)[1:-1] for each in line)


def _run_line(event: RunEnded, slow_s: float) -> Sentence:
    took = _duration(event.duration_s)
    call = f" {event.id}" if event.id else ""
    others = f" and {event.keys - 1} more" if event.keys > 1 else ""
    head = f"{event.queue}/{event.task} {event.key}{call}{others}"
    if event.verdict == "done":
        if event.duration_s >= slow_s:
            return logging.WARNING, f"{head} done, slow: took {took}"
        return logging.INFO, f"{head} done in {took}"
    error = f": {event.error}" if event.error else ""
    if event.verdict == "postpone":
        return logging.INFO, f"{head} postponed for {_duration(event.delay_s)}{error}"
    if event.verdict == "bury":
        return logging.ERROR, f"{head} buried after attempt {event.attempt}{error}"
    return logging.WARNING, f"{head} failed in attempt {event.attempt}, again in {_duration(event.delay_s)}{error}"


def _duration(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def _stopping(event: WorkerStopping) -> Sentence:
    if not event.running:
        return logging.INFO, "stopping"
    return logging.INFO, f"stopping; waiting for {', '.join(event.running[:5])}{_more(event.running)}"


def _waiting(event: WorkerWaiting) -> Sentence:
    what = f"{', '.join(event.running[:5])}{_more(event.running)}" if event.running else "the broker"
    return logging.INFO, f"still waiting for {what}; giving up in {_duration(event.left_s)}"


def _more(names: list[str]) -> str:
    return f" and {len(names) - 5} more" if len(names) > 5 else ""


def _process_ended(event: ProcessEnded) -> Sentence:
    head = f"process {event.number} (pid {event.pid}) {event.ending}"
    blamed = f"; {event.blamed} jobs that it was running count a death" if event.blamed else ""
    if event.again_in_s is None:
        again = ""
    else:
        again = f"; another is started in {_duration(event.again_in_s)}" if event.again_in_s else "; another is started"
    return logging.INFO if event.orderly else logging.ERROR, f"{head}{blamed}{again}"


def _stopped(event: WorkerStopped) -> Sentence:
    counts = f"{event.processed} done, {event.failed} failed"
    if event.abandoned:
        return logging.ERROR, f"stopped with {event.abandoned} jobs unfinished: others take them over ({counts})"
    return logging.INFO, f"stopped ({counts})"


_SENTENCES: dict[type, Any] = {
    WorkerStarted: lambda e: (
        logging.INFO,
        f"worker {e.worker} started: {e.tasks} tasks, queues {', '.join(e.queues)}, {e.concurrency} jobs at once",
    ),
    WorkerStopping: _stopping,
    WorkerWaiting: _waiting,
    WorkerStopped: _stopped,
    ProcessStarted: lambda e: (logging.INFO, f"process {e.number} started (pid {e.pid})"),
    ProcessEnded: _process_ended,
    ProcessGivenUp: lambda e: (logging.ERROR, f"process {e.number} (pid {e.pid}) {e.why}: it is ended"),
    ProcessReplaced: lambda e: (logging.INFO, f"process {e.number} (pid {e.pid}) {e.why}: another takes its place"),
    LeaseEnded: lambda e: (logging.ERROR, f"worker {e.worker} was taken for dead; it goes on under a new id"),
    Reclaimed: lambda e: (logging.WARNING, f"took back {e.count} jobs of dead workers {', '.join(e.workers)}".rstrip()),
    SettlementRefused: lambda e: (
        logging.WARNING,
        f"{e.queue}: {len(e.keys)} runs ended after their claim was lost; others have taken them over",
    ),
    BrokerAway: lambda e: (logging.ERROR, f"the broker is away, trying again: {e.error}"),
    BrokerBack: lambda e: (logging.INFO, f"the broker is back after {_duration(e.away_s)}"),
}
