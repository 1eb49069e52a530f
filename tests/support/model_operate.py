"""The model of one key, continued: what an operator may do to a job, and where its payloads are.

Pure functions, like those of `model.py`. A function returns None if it refuses.
"""

from __future__ import annotations

from laneway.jobs.data import Kind, Status
from laneway.jobs.merge import HEAD
from tests.support.model import WHOLE, Entries, KeyState, ModelJob, due_by_calls, earliest, in_order, replace, united
from tests.support.model_settle import bury_into, left_after_burial


def revive(state: KeyState, now: float) -> KeyState | None:
    """The morgue's job goes back to the queue, due now. None: there is none, or it must stay."""
    dead, row = state.dead, state.row
    if dead is None or (row is not None and row.kind is not dead.kind):
        return None
    entries = dead.entries
    if dead.kind is Kind.KEYED:
        dues = [min(entry.perform_at, now) for entry in entries]
        entries = tuple(replace(e, score=at, perform_at=at, deaths=0) for e, at in zip(entries, dues, strict=True))
    queued = united(dead.kind, state.queued, entries)
    if row is None:
        attempt = dead.attempt if dead.kind is Kind.PLAIN else 0
        row = ModelJob(dead.kind, now, dead.priority, attempt=attempt, error=dead.error, headers=dead.headers)
    elif row.worker is None:
        row = replace(row, perform_at=now, retry_count=-1, not_before=None, deaths=0, since=None)
    elif dead.kind is Kind.PLAIN:
        return None
    else:
        times = [entry.score for entry in entries] if dead.kind is Kind.KEYED else [now]
        if dead.kind is Kind.KEYED and row.next_at is not None:
            times.append(row.next_at)
        row = replace(row, next_at=min(times), since=None)
    return replace(state, row=row, queued=queued, dead=None)


def delete_dead(state: KeyState) -> KeyState | None:
    """Remove the morgue's job. None: there is none."""
    return None if state.dead is None else replace(state, dead=None)


def cancel(state: KeyState, identity: str | None) -> KeyState | None:
    """Remove a queued job, or one of its payloads. None: it is running or gone."""
    row = state.row
    if row is None:
        return None
    if identity is None:
        if row.worker is not None:
            return None
        return replace(state, row=None, queued=(), cancelled=state.cancelled | {WHOLE})
    removed = [entry for entry in state.queued if entry.identity == identity]
    if not removed:
        return None
    left = tuple(entry for entry in state.queued if entry.identity != identity)
    state = replace(state, queued=left, cancelled=state.cancelled | {identity})
    if row.worker is not None:
        next_at = earliest(left) if row.kind is Kind.KEYED else row.next_at if left else None
        return replace(state, row=replace(row, next_at=next_at, since=row.since if left else None))
    if not left:
        return replace(state, row=None)
    if row.kind is Kind.KEYED:
        if removed[0].score == HEAD:
            row = replace(row, not_before=None, retry_count=-1, error=None)
        row = replace(row, perform_at=due_by_calls(row, left))
    return replace(state, row=row)


def reschedule(state: KeyState, identity: str | None, at: float) -> KeyState | None:
    """Move a queued job to another time. None: it is running or gone."""
    row = state.row
    if row is None or (row.worker is not None and not any(entry.identity == identity for entry in state.queued)):
        return None
    if row.kind is not Kind.KEYED:
        if row.worker is not None:
            return replace(state, row=replace(row, next_at=at, since=None))
        return replace(state, row=replace(row, perform_at=at, not_before=None, since=None))
    if identity is None:
        return _rest_until(state, row, at)
    moved = [entry for entry in state.queued if entry.identity == identity]
    if not moved:
        return None
    if moved[0].score == HEAD:
        return replace(state, row=replace(row, perform_at=at, not_before=at))
    queued = in_order(
        row.kind,
        [replace(each, score=at, perform_at=at) if each.identity == identity else each for each in state.queued],
    )
    if row.worker is not None:
        return replace(state, queued=queued, row=replace(row, next_at=earliest(queued)))
    return replace(state, queued=queued, row=replace(row, perform_at=due_by_calls(row, queued)))


def _rest_until(state: KeyState, row: ModelJob, at: float) -> KeyState:
    """A keyed job as a whole: it rests until then, and calls that were due later are due then."""
    queued, row = _hastened(state.queued, row, at)
    rests = at > min(entry.score for entry in queued)
    return replace(state, queued=queued, row=replace(row, perform_at=at, not_before=at if rests else None))


def _hastened(queued: Entries, row: ModelJob, at: float) -> tuple[Entries, ModelJob]:
    """Calls of a keyed job that were due later are due then."""
    queued = in_order(
        row.kind,
        [replace(each, score=at, perform_at=at) if each.score > at else each for each in queued],
    )
    return queued, replace(row, latest=None if row.latest is None else min(row.latest, at))


def run_now(state: KeyState, now: float) -> KeyState | None:
    """Have a queued job be due now, with all its calls; what is due already keeps its place. None: it is not queued."""
    row = state.row
    if row is None or row.worker is not None:
        return None
    if row.perform_at > now:
        return reschedule(state, None, now)
    if row.kind is not Kind.KEYED:
        return state
    queued, row = _hastened(state.queued, row, now)
    return replace(state, queued=queued, row=row)


def bury_failed(state: KeyState, now: float) -> KeyState | None:
    """Move what has failed to the morgue without waiting for its retries. None: nothing has."""
    row = state.row
    if row is None or row.worker is not None or row.retry_count < 0:
        return None
    failed, left = _failed(row, state.queued)
    dead = bury_into(state.dead, row, failed, row.retry_count, row.error, now)
    return replace(left_after_burial(state, left, now), dead=dead)


def delete_failed(state: KeyState, now: float) -> KeyState | None:
    """Remove for good what `bury_failed` would bury."""
    row = state.row
    if row is None or row.worker is not None or row.retry_count < 0:
        return None
    return left_after_burial(state, _failed(row, state.queued)[1], now)


def _failed(row: ModelJob, queued: Entries) -> tuple[Entries, Entries]:
    """What has failed of a queued job, and the rest: a keyed job's head, or everything."""
    return (queued[:1], queued[1:]) if row.kind is Kind.KEYED else (queued, ())


def status(state: KeyState, identity: str | None, now: float) -> Status:
    """Where a job is or, with `identity`, one payload of it."""
    row = state.row
    if identity is None:
        if row is not None:
            return "running" if row.worker is not None else "delayed" if row.perform_at > now else "queued"
        remembered = WHOLE in state.cancelled
        return "dead" if state.dead is not None else "cancelled" if remembered else "gone"
    for entry in state.queued:  # first: a value may be running and set aside again, and that is the younger one
        if row is not None and entry.identity == identity:
            at = row.perform_at if row.worker is None else row.next_at or 0.0
            if row.kind is Kind.KEYED:
                at = max(at, entry.perform_at)
            return "delayed" if at > now else "queued"
    if any(entry.identity == identity for entry in state.running):
        return "running"
    if state.dead is not None and any(entry.identity == identity for entry in state.dead.entries):
        return "dead"
    return "cancelled" if state.cancelled & {identity, WHOLE} else "gone"
