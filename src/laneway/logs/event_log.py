"""EventLog: turns telemetry into records of the app's logger. It logs failures and slow runs, or every run.

Subscribers only note the event. A thread of the log turns events into records, in batches, because formatting and
writing a line in the runner's thread costs more than a small job. A record carries the event's name and fields, so
that any handler can use them. It never holds a job's arguments.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Collection
from contextlib import ExitStack, suppress
from time import time
from typing import TYPE_CHECKING, Any

import msgspec

from ..telemetry import RunEnded
from .lines import LineHandler
from .sentences import SENTENCES, sentence
from .text import LONGEST, cut, traceback_text

if TYPE_CHECKING:
    from ..app import Laneway

#: Lines are written at the latest after this many seconds, or when so many have gathered: what waits here of a run that
#: failed is its error, and with it all that the run has used.
FLUSH_S, FLUSH_COUNT = 0.1, 20

#: Of these a line says nothing, or says it in its own way.
_UNSAID = frozenset({"exception", "run", "more"})


class EventLog:
    """Turns an app's events into lines of its logger."""

    def __init__(
        self, app: Laneway, *, verbose: bool = False, slow_s: float = 10.0, unsaid: Collection[type] = ()
    ) -> None:
        self._telemetry = app.telemetry
        self._logger = app.logger
        self._verbose = verbose
        self._slow_s = slow_s
        self._kinds = [kind for kind in SENTENCES if kind not in unsaid]
        self._events: deque[tuple[float, Any]] = deque()
        self._wake = threading.Event()
        self._gathered = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._main, name="laneway-log", daemon=True)

    def start(self) -> None:
        """Begin to listen and to write."""
        if self._verbose:
            self._telemetry.subscribe(RunEnded, self._note)
        else:
            self._telemetry.subscribe_unusual(self._run_ended, self._slow_s)
        for kind in self._kinds:
            self._telemetry.subscribe(kind, self._note)
        self._thread.start()

    def stop(self) -> None:
        """Write what is left and end."""
        if self._verbose:
            self._telemetry.unsubscribe(RunEnded, self._note)
        else:
            self._telemetry.unsubscribe_unusual(self._run_ended)
        for kind in self._kinds:
            self._telemetry.unsubscribe(kind, self._note)
        self._stopping = True
        self._wake.set()
        self._thread.join(5.0)

    def _run_ended(self, event: RunEnded) -> None:
        if event.error is not None or event.duration_s >= self._slow_s:
            self._note(event)

    def _note(self, event: Any) -> None:
        self._events.append((time(), event))
        if not self._wake.is_set():
            self._wake.set()
        if len(self._events) >= FLUSH_COUNT and not self._gathered.is_set():
            self._gathered.set()

    def _main(self) -> None:
        while True:
            self._wake.wait()
            if not self._stopping:
                self._gathered.wait(FLUSH_S)  # let more lines gather
            self._wake.clear()
            self._gathered.clear()
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
                except BaseException as error:  # a handler that raises must not silence the log for good
                    with suppress(OSError, ValueError):
                        print(traceback_text(error, whole=True), file=sys.stderr)

    def _log(self, at: float, event: Any) -> None:
        logger = self._logger
        fields = {name: getattr(event, name) for name in event.__struct_fields__}
        long = {name: cut(value) for name, value in fields.items() if isinstance(value, str) and len(value) > LONGEST}
        if long:
            event = msgspec.structs.replace(event, **long)
            fields |= long
        level, line = sentence(event, self._slow_s)
        if not logger.isEnabledFor(level):
            return
        record = logger.makeRecord(logger.name, level, "", 0, cut(line), (), None)
        record.created, record.msecs = at, at % 1 * 1000  # when it happened
        record.event = type(event).__name__
        for name, value in fields.items():
            if name not in _UNSAID:
                setattr(record, name, value)
        # Not as `exc_info`: a line is enough for whoever has not asked for more.
        record.raised = getattr(event, "exception", None)
        logger.handle(record)
