"""Runs the periodic duties of a broker, such as moving due jobs from a table to SQS: one thread per duty.

Every process of a supervisor runs all duties; the broker divides the work between them. A duty that fails is reported
once and retried; jobs run on without it. `Duties` stops a duty only between two rounds. If the process is killed
during a round, another worker can finish everything that the round left half done.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..broker import Duty
from ..errors import BrokerError
from ..telemetry import DutyBack, DutyFailed
from .fetch.fetcher import FIRST_BACKOFF_S

if TYPE_CHECKING:
    from ..app import Laneway

#: The longest pause before a failed round is repeated. Other workers do the same work, and jobs run without it.
LONGEST_BACKOFF_S = 10.0


class Duties:
    """The duties of one worker."""

    def __init__(self, app: Laneway, duties: Sequence[Duty], fatal: Callable[[BaseException], None]) -> None:
        self._app = app
        self._fatal = fatal
        self._pauses = [DutyPause() for _ in duties]
        self._threads = [
            threading.Thread(target=self._main, args=(duty, pause), name=f"laneway-duty-{duty.name}", daemon=True)
            for duty, pause in zip(duties, self._pauses, strict=True)
        ]

    def start(self) -> None:
        """Start the first round of each duty at once."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Start no more rounds. False: a round is still under way."""
        for pause in self._pauses:
            pause.end()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _main(self, duty: Duty, pause: DutyPause) -> None:
        duty.sooner = pause.no_longer
        backoff_s = FIRST_BACKOFF_S
        failing_since: float | None = None
        try:
            while not pause.is_over:
                try:
                    pause_s = duty.round()
                except Exception as error:
                    if not isinstance(error, BrokerError):
                        self._app.logger.exception("the duty %s failed", duty.name)
                    if failing_since is None:
                        failing_since = time.monotonic()
                        self._app.telemetry.emit(DutyFailed(duty.name, str(error)))
                    pause_s = backoff_s * (0.5 + random.random())
                    backoff_s = min(backoff_s * 2, LONGEST_BACKOFF_S)
                else:
                    if failing_since is not None:
                        self._app.telemetry.emit(DutyBack(duty.name, time.monotonic() - failing_since))
                    failing_since, backoff_s = None, FIRST_BACKOFF_S
                pause.wait(pause_s)
        except BaseException as error:
            # Other workers rely on this duty, and no part would report that it has stopped.
            self._fatal(error)


class DutyPause:
    """The pauses between the rounds of one duty. Another thread may shorten a pause, or end all of them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        #: The latest start of the next round, on the monotonic clock, if a thread set one since the last round began.
        self._wanted_at = math.inf
        self.is_over = False

    def wait(self, seconds: float) -> None:
        """Wait for `seconds`, or for less if `no_longer` or `end` is called."""
        with self._changed:
            until = time.monotonic() + seconds
            while not self.is_over and (left_s := min(until, self._wanted_at) - time.monotonic()) > 0:
                self._changed.wait(min(left_s, threading.TIMEOUT_MAX))
            self._wanted_at = math.inf

    def no_longer(self, seconds: float) -> None:
        """Start the next round within `seconds`, also if a round is under way now."""
        with self._changed:
            self._wanted_at = min(self._wanted_at, time.monotonic() + seconds)
            self._changed.notify()

    def end(self) -> None:
        """End the pause under way, and skip all later ones."""
        with self._changed:
            self.is_over = True
            self._changed.notify()
