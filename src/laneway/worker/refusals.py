"""What becomes of runs whose outbox the broker refuses: it will again, so they have failed. Pure functions."""

from __future__ import annotations

from ..brokers.common import check_jobs
from ..errors import EnqueueError
from ..job import Kind, NewJob
from ..outcome import Settlement, buried
from .failure import describe


def without_refused(settlements: list[Settlement], error: EnqueueError) -> list[Settlement]:
    """Bury the runs whose outbox cannot be stored: those that are to blame, or all if that cannot be told."""
    blamed = {id(each) for each in settlements if each.outbox and _unstorable(each.outbox, error.place)}
    return [
        _buried(settlement, f"What the run enqueued was refused. {describe(error)}")
        if settlement.outbox and (id(settlement) in blamed or not blamed)
        else settlement
        for settlement in settlements
    ]


def _buried(settlement: Settlement, error: str) -> Settlement:
    burial = buried(settlement.claim, error)
    if settlement.claim.kind == Kind.KEYED:
        # Their outboxes have become one. None of these calls is run again, and none is forgotten.
        burial.buried = max(1, settlement.done)
    return burial


def _unstorable(outbox: list[NewJob], place: tuple[str, str] | None) -> bool:
    if any((job.queue, job.key) == place for job in outbox):
        return True
    try:
        check_jobs(outbox)
    except EnqueueError:
        return True
    return False
