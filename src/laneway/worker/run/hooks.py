"""Hooks that are told what has been settled. They run in a thread of their own, and harm nothing when they fail."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ...clock import Clock
from ...context import Context
from ...jobs.data import JobView, Kind, Payload
from ...jobs.settlement import Settlement
from .decide import Verdicts
from .decode import Reader
from .report import Teller

if TYPE_CHECKING:
    from ...app import Laneway
    from ...tasks.task import AnyTask


class Hooks:
    """Calls `retries_exhausted` for jobs that have just been buried, each task's with those of one turn, and error
    handlers for runs whose outbox was refused."""

    def __init__(self, app: Laneway, clock: Clock) -> None:
        self._logger = app.logger
        self._reader = Reader(app)
        self._verdicts = Verdicts(app)
        self._clock = clock
        self._teller = Teller(app, clock)
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
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
        self._waiting.put(partial(self._call_exhausted, settlements))

    def told_error(self, error: BaseException, context: Context) -> None:
        """A run has failed after it had ended: an error for the app's error handlers."""
        self._waiting.put(partial(self._call_handlers, error, context))

    def _main(self) -> None:
        while call := self._waiting.get():
            call()

    def _call_exhausted(self, settlements: list[Settlement]) -> None:
        for task, jobs in self._by_task(settlements):
            try:
                assert task.options.retries_exhausted is not None
                task.options.retries_exhausted(jobs)
            except BaseException:
                keys = ", ".join(job.key for job in jobs[:5])
                self._logger.exception("retries_exhausted of %s failed for %s", task.name, keys)

    def _call_handlers(self, error: BaseException, context: Context) -> None:
        try:
            self._teller.handlers(error, context)
        except BaseException:
            self._logger.exception("an error handler failed")  # what is no Exception must not end this thread

    def _by_task(self, settlements: list[Settlement]) -> list[tuple[AnyTask, list[JobView]]]:
        """Those who want to know, each with the jobs that it is about."""
        found: dict[int, tuple[AnyTask, list[JobView]]] = {}
        for settlement in settlements:
            for payloads in _jobs(settlement):
                task = self._reader.task_of(settlement.claim, payloads[0])
                if task is not None and task.options.retries_exhausted is not None:
                    _, jobs = found.setdefault(id(task), (task, []))
                    jobs.append(self._dead(settlement, payloads))
        return list(found.values())

    def _dead(self, settlement: Settlement, payloads: list[Payload]) -> JobView:
        claim = settlement.claim
        return JobView(
            queue=claim.queue,
            key=claim.key,
            status="dead",
            shard=claim.shard,
            payloads=payloads,
            perform_at=claim.perform_at,
            retry_count=settlement.retry_count,
            attempt=payloads[0].attempt if claim.kind == Kind.KEYED else claim.attempt,
            kind=claim.kind,
            size=len(payloads),
            deaths=claim.deaths,
            error=self._verdicts.readable(settlement.error),
            updated_at=self._clock.now(),
        )


def _jobs(settlement: Settlement) -> list[list[Payload]]:
    """The payloads that were buried: those of a collecting job together, calls of a key one by one."""
    first = settlement.done
    buried = settlement.claim.payloads[first : first + max(1, settlement.buried)]
    return [buried] if settlement.claim.kind == Kind.COLLECTING else [[payload] for payload in buried]
