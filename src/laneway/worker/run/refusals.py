"""Runs whose outbox the broker refuses: they have failed after all, like any other run, and are told as such.

Which of them are to blame is found out here, of the calls of a key which one. What becomes of those is their task's own
rule: another run may send something else, and what was missing or forbidden may be mended by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...brokers.shared import check_jobs
from ...context import Context
from ...errors import EnqueueError
from ...jobs.data import Kind, NewJob
from ...jobs.settlement import Settlement
from ...telemetry import OutboxRefused
from .decide import Verdicts
from .decode import UNREADABLE, Reader
from .failure import describe
from .run import Outbox

if TYPE_CHECKING:
    from ...app import Laneway

#: Hands an error to the app's error handlers, in a thread where they hold up nobody.
Tell = Callable[[BaseException, Context], None]


class Refusals:
    """Decides for an app what becomes of runs whose outbox is refused. Never talks to a broker."""

    def __init__(self, app: Laneway, tell: Tell) -> None:
        self._app = app
        self._tell = tell
        self._reader = Reader(app)
        self._verdicts = Verdicts(app)

    def fail(self, settlements: list[Settlement], error: EnqueueError) -> list[Settlement]:
        """The same settlements, but those runs have failed whose outbox is to blame; all, if that cannot be told.

        Of a batch all keys: what it enqueued was for all of them.
        """
        sending = [each for each in settlements if each.outbox]
        blamed = [each for each in sending if _unstorable(each.outbox or [], error.place)] or sending
        refused = EnqueueError(f"What the run sent was refused: {error}", place=error.place)
        refused.__cause__ = error.__cause__
        runs: dict[tuple[str, int], list[Settlement]] = {_run_of(each): [] for each in blamed}
        found: list[Settlement] = []
        for settlement in settlements:
            failed = runs.get(_run_of(settlement))
            if failed is None:
                found.append(settlement)
            else:
                failed.append(self._failed(settlement, refused))
                found.append(failed[-1])
        for failed in runs.values():
            self._told(failed, refused)
        return found

    def _failed(self, settlement: Settlement, refused: EnqueueError) -> Settlement:
        """What becomes of a claim, one of whose runs has failed after all. Calls behind that one are run again, too:
        they must not overtake it."""
        claim, outbox, call = settlement.claim, settlement.outbox, 0
        before: list[NewJob] | None = None
        if isinstance(outbox, Outbox):
            call = next((n for n in range(outbox.calls) if _unstorable(outbox.of(n), refused.place)), 0)
            before = outbox.before(call)
        task = self._reader.task_of(claim, claim.payloads[call]) or UNREADABLE
        return self._verdicts.failed(claim, task.options, refused, done=call, outbox=before)

    def _told(self, failed: list[Settlement], refused: EnqueueError) -> None:
        """Tell of one run."""
        first = failed[0]
        claim, call = first.claim, first.done
        task = self._reader.task_of(claim, claim.payloads[call]) or UNREADABLE
        context = Context(self._app, claim, task, call)
        self._app.telemetry.emit(
            OutboxRefused(
                claim.queue,
                task.name,
                claim.key,
                context.attempt,
                first.verdict,
                first.delay_s,
                describe(refused),
                refused,
                context.id if claim.kind is Kind.KEYED else "",
                len(failed),
            )
        )
        self._tell(refused, context)


def _run_of(settlement: Settlement) -> tuple[str, int]:
    """Settlements of one run have the same; a run of one claim is known by its settlement."""
    return ("batch", settlement.run) if settlement.run else ("alone", id(settlement))


def _unstorable(outbox: list[NewJob], place: tuple[str, str] | None) -> bool:
    if any((job.queue, job.key) == place for job in outbox):
        return True
    try:
        check_jobs(outbox)
    except EnqueueError:
        return True
    return False
