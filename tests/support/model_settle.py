"""The model of one key, continued: how a run ends, and how a claim goes back without a settlement.

Pure functions, like those of `model.py`. A claim's payloads are counted from the front: the first are done, the next
are buried, and the rest goes back to the queue.
"""

from __future__ import annotations

from laneway.jobs.data import Kind
from laneway.jobs.merge import HEAD
from laneway.jobs.settlement import Settlement
from tests.support.model import Entries, KeyState, ModelDeadJob, ModelJob, ModelPayload, earliest, replace, united


def settle(state: KeyState, settlement: Settlement, now: float) -> KeyState:
    """Record how a run ended. Whoever asks has made sure that the claim still holds."""
    done = min(settlement.done, len(state.running))
    rest = state.running[done:]
    if settlement.verdict == "done" or (done and not rest):
        return _done(state)
    if settlement.died and rest and settlement.verdict != "release":
        state = died(state, rest[0].identity)
        rest = state.running[done:]
    if settlement.verdict == "bury":
        return _bury(state, rest, settlement, now)
    if settlement.verdict == "release":
        return _release(state, rest, done=done)
    return _again(state, rest, settlement, now, done=done)


def died(state: KeyState, identity: str) -> KeyState:
    """Count a death of the process that ran a claim: of a keyed one, at this call of it and at no other."""
    row = state.row
    assert row is not None
    if row.kind is not Kind.KEYED:
        return replace(state, row=replace(row, deaths=row.deaths + 1))
    counted = (replace(each, deaths=each.deaths + (each.identity == identity)) for each in state.running)
    return replace(state, running=tuple(counted))


def give_back(state: KeyState) -> KeyState:
    """Take a claim from a worker that has died or left: it goes back as it was, its attempts counted."""
    return _back(state, state.running, uncount=False)


def forget(state: KeyState) -> KeyState:
    """Take back a claim that its worker never knew of: it goes back as it was, its attempts not counted."""
    return _back(state, state.running, uncount=True)


def bury_into(
    dead: ModelDeadJob | None, row: ModelJob, entries: Entries, retry_count: int, error: str | None, now: float
) -> ModelDeadJob:
    """The morgue's job of a key after these payloads have come to it."""
    attempt = entries[-1].attempt if row.kind is Kind.KEYED and entries else row.attempt
    entries = tuple(_at_own_time(entry) for entry in entries)
    if dead is not None and row.kind is not Kind.PLAIN:
        entries = united(row.kind, dead.entries, entries)
    deaths = max(row.deaths, dead.deaths) if dead is not None and row.kind is Kind.COLLECTING else row.deaths
    return ModelDeadJob(row.kind, entries, error, retry_count, attempt, deaths, row.priority, now, row.headers)


def left_after_burial(state: KeyState, queued: Entries, now: float) -> KeyState:
    """A key whose payloads were buried or deleted, with what is left of them: a fresh job, due by itself."""
    row = state.row
    assert row is not None
    if not queued:
        return replace(state, row=None, queued=(), running=())
    first = earliest(queued)
    at = first if row.kind is Kind.KEYED and first is not None else now
    return replace(state, row=replace(_fresh(row, at), since=None), queued=queued, running=())


def _fresh(row: ModelJob, perform_at: float) -> ModelJob:
    """A queued row of which nothing has failed."""
    return replace(
        row,
        perform_at=perform_at,
        retry_count=-1,
        error=None,
        not_before=None,
        attempt=0,
        deaths=0,
        worker=None,
        token=0,
        next_at=None,
    )


def _at_own_time(entry: ModelPayload) -> ModelPayload:
    """A call that is no head any more: ordered by its own due time again."""
    return replace(entry, score=entry.perform_at) if entry.score == HEAD else entry


def _uncounted(kind: Kind, entries: Entries) -> Entries:
    """Calls that were handed out and never started."""
    if kind is not Kind.KEYED:
        return entries
    return tuple(replace(entry, attempt=entry.attempt - 1) for entry in entries)


def _done(state: KeyState) -> KeyState:
    row = state.row
    assert row is not None
    if row.next_at is None:
        return replace(state, row=None, running=())
    return replace(state, row=_fresh(row, row.next_at), running=())


def _again(state: KeyState, rest: Entries, settlement: Settlement, now: float, *, done: int) -> KeyState:
    """Retry and postpone: later, and for a keyed job nothing overtakes the call."""
    row = state.row
    assert row is not None
    at = now + settlement.delay_s
    error = settlement.error if settlement.verdict == "retry" else None if done else row.error
    head, behind = rest[0], _uncounted(row.kind, rest[1:])
    if row.kind is Kind.KEYED:
        head = replace(head, score=HEAD)
    row = replace(
        row,
        perform_at=at,
        not_before=at if row.kind is Kind.KEYED else None,
        retry_count=settlement.retry_count,
        error=error,
        attempt=head.attempt if row.kind is Kind.KEYED else row.attempt,
        worker=None,
        token=0,
        next_at=None,
        since=None,
    )
    return replace(state, row=row, queued=united(row.kind, state.queued, (head, *behind)), running=())


def _bury(state: KeyState, rest: Entries, settlement: Settlement, now: float) -> KeyState:
    row = state.row
    assert row is not None
    count = min(settlement.buried, len(rest))
    dead = bury_into(state.dead, row, rest[:count], settlement.retry_count, settlement.error, now)
    queued = united(row.kind, state.queued, _uncounted(row.kind, rest[count:]))
    return replace(left_after_burial(state, queued, now), dead=dead)


def _release(state: KeyState, rest: Entries, *, done: int) -> KeyState:
    if not done:
        return _back(state, rest, uncount=True)
    row = state.row
    assert row is not None
    queued = united(row.kind, state.queued, _uncounted(row.kind, rest))
    first = earliest(queued)
    at = first if row.kind is Kind.KEYED and first is not None else row.perform_at
    return replace(state, row=replace(_fresh(row, at), since=None), queued=queued, running=())


def _back(state: KeyState, rest: Entries, *, uncount: bool) -> KeyState:
    """Everything of the claim, as it was before it."""
    row = state.row
    assert row is not None
    at, attempt = row.perform_at, row.attempt
    if row.kind is Kind.KEYED and row.not_before is None and row.next_at is not None:
        at = min(at, row.next_at)
    if uncount:
        rest, attempt = _uncounted(row.kind, rest), attempt - 1
    row = replace(row, perform_at=at, attempt=attempt, worker=None, token=0, next_at=None, since=None)
    return replace(state, row=row, queued=united(row.kind, state.queued, rest), running=())
