"""What becomes of runs whose outbox the broker refuses: it will again, so they have failed. Pure functions."""

from __future__ import annotations

from ..brokers.common import check_jobs
from ..errors import EnqueueError
from ..job import Kind, NewJob
from ..outcome import Settlement, buried
from .failure import describe


def without_refused(settlements: list[Settlement], error: EnqueueError) -> list[Settlement]:
    """Bury the runs whose outbox cannot be stored: those that are to blame, or all if that cannot be told.

    Of a batch all keys: what it enqueued was for all of them.
    """
    sending = [each for each in settlements if each.outbox]
    blamed = [each for each in sending if _unstorable(each.outbox or [], error.place)] or sending
    runs = {_run_of(each) for each in blamed}
    text = f"What the run enqueued was refused. {describe(error)}"
    return [_buried(each, text) if _run_of(each) in runs else each for each in settlements]


def _run_of(settlement: Settlement) -> tuple[str, int]:
    """Settlements of one run have the same; a run of one claim is known by its settlement."""
    return ("batch", settlement.run) if settlement.run else ("alone", id(settlement))


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
