"""`Waker`: the one thread of a process that waits for due jobs on behalf of all idle fetchers.

It wakes the fetchers whose queues have due jobs. If the worker has only one fetcher, the waker takes the turn itself,
so that a single job does not wait for another thread.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import BrokerAwayError, BrokerError, NoQueueError

if TYPE_CHECKING:
    from ...app import Laneway
    from ..outage import Outage
    from .fetcher import Fetcher

#: The longest a wait lasts: a step of the wall clock is noticed after this.
WAIT_S = 1.0


class Waker:
    """Wakes a fetcher when its queue has a job due."""

    def __init__(self, app: Laneway, fetchers: Sequence[Fetcher], outage: Outage) -> None:
        self._app = app
        self._outage = outage
        #: Waits in a row that were refused; None when that has been said.
        self._refusals: int | None = 0
        self._fetchers = fetchers
        self._idle = threading.Event()
        self._waited_for: frozenset[str] = frozenset()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._main, name="laneway-waker", daemon=True)
        for fetcher in fetchers:
            fetcher.on_idle = self._someone_is_idle

    def start(self) -> None:
        """Begin to wait."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """End now. False: it still waits for the broker, which does not even answer that."""
        self._stopping.set()
        self._idle.set()
        self._app.broker.nudge()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _someone_is_idle(self, fetcher: Fetcher) -> None:
        self._idle.set()
        if fetcher.queue not in self._waited_for:
            self._app.broker.nudge()

    def _report_refusal(self, error: Exception) -> None:
        """Say once that only waiting is refused: jobs are run all the same, but each is found a second late."""
        if self._refusals is None or isinstance(error, (BrokerAwayError, NoQueueError)):
            return
        if not isinstance(error, BrokerError):
            self._refusals = None
            self._app.logger.exception("the broker's wait failed, so the worker looks for jobs every second")
            return
        self._refusals += 1
        if self._refusals > 1 and not self._outage:  # else everything is, and the fetchers have said so
            self._refusals = None
            self._app.logger.warning("the broker does not let it wait for jobs, so it looks every second: %s", error)

    def _main(self) -> None:
        while not self._stopping.is_set():
            self._idle.wait()
            hungry = {fetcher.queue: fetcher for fetcher in self._fetchers if fetcher.hungry}
            self._waited_for = frozenset(hungry)
            if not hungry:
                self._idle.clear()
                # A fetcher that became idle between the look and the clearing has set it in vain.
                if any(fetcher.hungry for fetcher in self._fetchers):
                    self._idle.set()
                continue
            try:
                ready = self._app.broker.wait(list(hungry), WAIT_S)
            except Exception as error:
                # The fetchers find out for themselves whether the broker is back, and say so.
                ready = set(hungry)
                self._report_refusal(error)
                self._stopping.wait(0.5 + random.random())
            else:
                self._refusals = self._refusals and 0
                if ready and len(self._fetchers) == 1:  # a turn may take long, and nobody else waits for this thread
                    hungry[ready.pop()].fetch_now()
            for queue in ready:
                hungry[queue].work_is_due()
