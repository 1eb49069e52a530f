"""`IsolatedExecutor`: sends a run to an isolated process and turns the answer into settlements.

The whole run happens there, with the same `Runner`. The worker decides only the cases that the process cannot report:
the process died, the time is up, no process could be started, or the worker has given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import TimeLimitError
from ...jobs.data import Claim, Headers
from ...jobs.settlement import Settlement, died, postponed, retry_count_after
from ...telemetry import RunEnded, RunSent
from ..process.channel import RunRequest, RunResult, SettlementData, storable
from ..process.isolated_child import ProcessDeathError
from ..run.run import Run
from .pool import NoProcessError, ProcessPool, RunKilledError

if TYPE_CHECKING:
    from ...app import Laneway
    from ..run.runner import Runner

#: An async task is cancelled by its own process when its time is up; so much later the process is ended.
GRACE_S = 1.0


class IsolatedExecutor:
    """Has runs carried out in the processes of a pool."""

    def __init__(self, app: Laneway, runner: Runner, pool: ProcessPool) -> None:
        self._app = app
        self._runner = runner
        self._pool = pool
        self._asked = app.telemetry.of(RunSent)

    def execute(self, run: Run) -> Run | None:
        """Carry out a run. Returns the next one of the same claim, if there is one."""
        assert run.apart is not None, "it is to be kept apart"
        runner, options = self._runner, run.call.task.options
        limit_s = options.limit_s
        if limit_s is not None and run.call.task.is_async:
            limit_s += GRACE_S
        if not runner.begin(run):
            return None
        work = RunRequest(_sent(run), run.gathered is not None, self._headers(run))
        try:
            ended = self._pool.carry_out(work, run.apart, limit_s)
        except TimeLimitError:
            runner.forget(run)
            return runner.conclude(run, TimeLimitError(options.limit_s or 0.0))
        except ProcessDeathError as death:
            self._settle(run, f"the process that ran it {death}", ending=str(death))
        except NoProcessError as error:
            self._settle(run, str(error), again_in_s=error.again_in_s)
        except RunKilledError as error:
            self._settle(run, str(error))
        else:
            return self._conclude(run, ended)
        return None

    def _headers(self, run: Run) -> Headers:
        """What whoever listens wants to be known where it runs: here, where what RunStarted has made current is so."""
        if not self._asked:
            return {}
        event = RunSent(run.claim.queue, run.call.task.name, {})
        self._app.telemetry.emit(event)
        return {storable(str(name)): storable(str(value)) for name, value in event.headers.items()}

    def _conclude(self, run: Run, ended: RunResult) -> Run | None:
        """Record what the other process has decided; of a keyed claim, as far as it is about this call."""
        runner, calls = self._runner, run.calls
        duration_s = runner.forget(run)
        if calls is not None:
            calls.used_s += duration_s
        # A body that nobody wanted was not a run there, but was told as one here.
        events = ended.events or [_nothing_done(run)]
        for left, fields in zip(range(len(events) - 1, -1, -1), events, strict=True):
            self._app.telemetry.emit(RunEnded(**{**fields, "run": run.number, "more": left > 0}))
        if calls is not None:
            (ruling,) = ended.rulings
            if ruling.verdict == "done":
                return runner.go_on(calls, ruling.outbox or [])
            settlement = _settlement(calls.claim, ruling, 0)
            settlement.done, settlement.outbox = calls.done, calls.outbox or None
            run.lane.finish(settlement, calls.used_s)
            return None
        claims = run.gathered.claims if run.gathered else [run.claim]
        number = runner.verdicts.run_number() if any(ruling.run for ruling in ended.rulings) else 0
        settlements = [_settlement(claims[ruling.claim], ruling, number) for ruling in ended.rulings]
        run.lane.finish_all(settlements, duration_s)
        return None

    def _settle(self, run: Run, said: str, *, again_in_s: float = 0.0, ending: str | None = None) -> None:
        """Record a run of which the other process could not say anything; `ending` is how that has died, if it has."""
        calls = run.calls
        finished, outbox = (calls.done, calls.outbox) if calls else (0, None)
        settlements = []
        for claim in run.gathered.claims if run.gathered else [run.claim]:
            if ending is not None:
                settlement = died(claim, ending, done=finished, outbox=outbox)
            else:
                settlement = postponed(claim, again_in_s, done=finished, outbox=outbox)
            if settlement.error is not None:
                settlement.error = self._runner.verdicts.text(settlement.error)
            settlements.append(settlement)
        self._runner.settle(run, settlements, said)
        self._runner.forget(run)  # last, because a worker that gives up waits for it


def _nothing_done(run: Run) -> dict[str, Any]:
    return {
        "queue": run.claim.queue,
        "task": run.call.task.name,
        "key": run.claim.key,
        "attempt": run.attempt,
        "verdict": "done",
        "duration_s": 0.0,
        "id": run.id,
        "keys": run.keys,
    }


def _sent(run: Run) -> list[Claim]:
    """What the other process is given: of a keyed claim the one call, as if there were no other."""
    if run.gathered is not None:
        return run.gathered.claims
    if run.calls is None:
        return [run.claim]
    calls = run.calls
    retry_count = retry_count_after(calls.claim, calls.done)
    return [msgspec.structs.replace(calls.claim, payloads=[calls.current], retry_count=retry_count)]


def _settlement(claim: Claim, ruling: SettlementData, number: int) -> Settlement:
    return Settlement(
        claim,
        ruling.verdict,
        ruling.delay_s,
        ruling.retry_count,
        ruling.error,
        ruling.outbox,
        ruling.done,
        ruling.buried,
        run=number if ruling.run else 0,
    )
