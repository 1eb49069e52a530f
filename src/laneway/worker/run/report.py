"""Reports runs to telemetry, error handlers and `retries_exhausted`, and counts settlements.

`RunReporter` builds an event only if it has subscribers. `Hooks` calls `retries_exhausted`, and error handlers for
refused outboxes, in a thread of its own; a hook that fails is logged and harms nothing. `SettlementReport` counts the
claims that one fetcher has settled. It reports settlements that came too late, and jobs that runs enqueued.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...clock import Clock
from ...context import Context
from ...jobs.data import JobView, Kind, Payload
from ...jobs.settlement import Settlement, Verdict
from ...telemetry import RunAbandoned, RunEnded, RunStarted, SettlementRefused, next_run
from .decide import FailureDecider, describe
from .decode import RunDecoder
from .run import Run

if TYPE_CHECKING:
    from ...app import Laneway
    from ...tasks.task import AnyTask


class RunReporter:
    """Tells of an app's runs."""

    def __init__(self, app: Laneway, clock: Clock) -> None:
        self._telemetry = app.telemetry
        self._emit = app.telemetry.emit
        self._error_handlers = app.error_handlers
        self._monotonic = clock.monotonic
        self._now = clock.now
        self._started = app.telemetry.of(RunStarted)
        self._ended = app.telemetry.of(RunEnded)
        self._abandoned = app.telemetry.of(RunAbandoned)

    def started(self, run: Run) -> None:
        """A run is about to begin."""
        if not self._started:
            return
        claim, due_at = run.claim, run.claim.perform_at
        if run.calls is not None:  # a call behind the first may have been due later
            due_at = max(due_at, run.calls.current.score)
        run.number = next_run()
        self._emit(
            RunStarted(
                claim.queue,
                run.call.task.name,
                claim.key,
                run.attempt,
                run.id,
                run.keys,
                run.number,
                max(0.0, self._now() - due_at),
                run.context.headers or None,
            )
        )

    def abandoned(self, run: Run, error: BaseException) -> None:
        """A run has ended its worker."""
        if not self._abandoned:
            return
        claim, duration_s = run.claim, self._monotonic() - run.began
        self._emit(
            RunAbandoned(
                claim.queue,
                run.call.task.name,
                claim.key,
                run.attempt,
                duration_s,
                describe(error),
                error,
                run.id,
                run.number,
            )
        )

    def ended(
        self,
        run: Run,
        settlement: Settlement | None,
        error: BaseException | None,
        duration_s: float,
        keys: int = 1,
        *,
        more: bool = False,
        said: str | None = None,
    ) -> None:
        """A run has ended: well when there is neither an error nor anything `said` instead of one."""
        if not self._ended and error is None and said is None and duration_s < self._telemetry.slow_s:
            return
        claim = run.claim if run.gathered is None or settlement is None else settlement.claim
        self._emit(
            RunEnded(
                claim.queue,
                run.call.task.name,
                claim.key,
                run.attempt if claim is run.claim else claim.attempt,
                settlement.verdict if settlement else "done",
                duration_s,
                settlement.delay_s if settlement else 0.0,
                said if error is None else describe(error),
                error,
                run.id,
                keys,
                run.number,
                more,
            )
        )

    def batch_ended(
        self,
        run: Run,
        settlements: list[Settlement],
        failures: dict[str, BaseException],
        error: BaseException | None,
        duration_s: float,
    ) -> None:
        """Once for the keys that ended alike, and once for each that its handler said has failed."""
        if not self._ended and error is None and not failures and duration_s < self._telemetry.slow_s:
            return
        alike: dict[Verdict, list[Settlement]] = {}
        ends: list[tuple[Settlement, BaseException | None, int]] = []
        for settlement in settlements:
            failure = failures.get(settlement.claim.key)
            if failure is None:
                alike.setdefault(settlement.verdict, []).append(settlement)
            else:
                ends.append((settlement, failure, 1))
        ends += [(several[0], error, len(several)) for several in alike.values()]
        for left, (settlement, failure, keys) in zip(range(len(ends) - 1, -1, -1), ends, strict=True):
            self.ended(run, settlement, failure, duration_s, keys, more=left > 0)

    def handlers(self, error: BaseException, context: Context) -> None:
        """Hand an error to the app's error handlers."""
        for handler in self._error_handlers:
            try:
                handler(error, context)
            except Exception:
                context.logger.exception("an error handler failed")


class Hooks:
    """Calls `retries_exhausted` for jobs that have just been buried, each task's with those of one turn, and error
    handlers for runs whose outbox was refused."""

    def __init__(self, app: Laneway, clock: Clock) -> None:
        self._logger = app.logger
        self._reader = RunDecoder(app)
        self._verdicts = FailureDecider(app)
        self._clock = clock
        self._teller = RunReporter(app, clock)
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._main, name="laneway-hooks", daemon=True)

    def start(self) -> None:
        """Begin to call hooks."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Call what is left and end."""
        self._waiting.put(None)
        self._thread.join(timeout_s)

    def notify_buried(self, settlements: list[Settlement]) -> None:
        """These were buried, and that is stored."""
        self._waiting.put(partial(self._call_exhausted, settlements))

    def notify_error(self, error: BaseException, context: Context) -> None:
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


class SettlementReport:
    """What one fetcher has settled."""

    def __init__(
        self, app: Laneway, queue: str, told_buried: Callable[[list[Settlement]], None], counted: Callable[[], None]
    ) -> None:
        self._app = app
        self._queue = queue
        self._told_buried = told_buried
        #: Told when it has counted what a turn has settled.
        self._counted = counted
        self.processed = 0
        self.failed = 0

    def take_in(
        self, settlements: Sequence[Settlement], refused_keys: Sequence[str], stayed: Sequence[str] = ()
    ) -> None:
        """A turn has recorded these, but for those that came too late; those that stayed are not buried."""
        if refused_keys:
            self._app.telemetry.emit(SettlementRefused(self._queue, list(refused_keys)))
        refused = set(refused_keys)
        self._count(settlements, refused, set(stayed))
        if self._app.reports_enqueued:
            held = [each for each in settlements if each.outbox and each.claim.key not in refused]
            self._app.report_enqueued([job for settlement in held for job in settlement.outbox or ()])

    def _count(self, settlements: Sequence[Settlement], refused: set[str], stayed: set[str]) -> None:
        exhausted = []
        for settlement in settlements:
            if settlement.claim.key in refused:
                continue
            if settlement.verdict == "done" or settlement.done:
                self.processed += 1
            if settlement.verdict in ("retry", "bury"):
                self.failed += 1
                if settlement.verdict == "bury" and settlement.claim.key not in stayed:
                    exhausted.append(settlement)
        if exhausted:
            self._told_buried(exhausted)
        if settlements:
            self._counted()
