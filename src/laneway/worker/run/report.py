"""What is told of runs: events for whoever has subscribed to them, and errors for the app's error handlers.

An event is built only when somebody wants to know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...clock import Clock
from ...context import Context
from ...jobs.settlement import Settlement, Verdict
from ...telemetry import RunAbandoned, RunEnded, RunStarted, next_run
from .failure import describe
from .run import Run

if TYPE_CHECKING:
    from ...app import Laneway


class Teller:
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
