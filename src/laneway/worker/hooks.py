"""Hooks that are told what has been settled. They run in a thread of their own, and harm nothing when they fail."""

from __future__ import annotations

import logging
import queue
import threading
from typing import TYPE_CHECKING

from ..clock import Clock
from ..job import JobView
from ..outcome import Settlement

if TYPE_CHECKING:
    from .runner import Runner


class Hooks:
    """Calls `retries_exhausted` for jobs that have just been buried."""

    def __init__(self, logger: logging.Logger, runner: Runner, clock: Clock) -> None:
        self._logger = logger
        self._runner = runner
        self._clock = clock
        self._waiting: queue.SimpleQueue[Settlement | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._main, name="laneway-hooks", daemon=True)

    def start(self) -> None:
        """Begin to call hooks."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Call what is left and end."""
        self._waiting.put(None)
        self._thread.join(timeout_s)

    def told_buried(self, settlements: list[Settlement]) -> None:
        """These were buried, and that is stored."""
        for settlement in settlements:
            self._waiting.put(settlement)

    def _main(self) -> None:
        while settlement := self._waiting.get():
            try:
                self._tell(settlement)
            except BaseException:
                self._logger.exception("retries_exhausted failed for %s", settlement.claim.key)

    def _tell(self, settlement: Settlement) -> None:
        task = self._runner.task_of(settlement.claim)
        if task is not None and task.options.retries_exhausted is not None:
            task.options.retries_exhausted([_dead(settlement, self._clock.now())])


def _dead(settlement: Settlement, now: float) -> JobView:
    claim = settlement.claim
    return JobView(
        queue=claim.queue,
        key=claim.key,
        status="dead",
        shard=0,
        payloads=claim.payloads,
        perform_at=claim.perform_at,
        retry_count=settlement.retry_count,
        attempt=claim.attempt,
        deaths=claim.deaths,
        error=settlement.error,
        updated_at=now,
    )
