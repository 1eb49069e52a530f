"""The model of one key: its job and payloads, and what becomes of them, as values and pure functions.

A broker is right if its answers do not differ from the model's. The model shares only the small decisions of
`laneway.jobs.merge` with the brokers. It knows nothing of files and locks. Queues, shards and the choice of claims
are in `reference.py`.

A key has at most one job, whose payloads are queued (those set aside too) or running, and at most one job in the
morgue. Every function takes a state and returns the next state. The functions that end a run are in
`model_settle.py`, those of an operator in `model_operate.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from laneway.errors import EnqueueError
from laneway.jobs.data import Headers, Kind, NewJob, Payload
from laneway.jobs.merge import HEAD, MAX_PAYLOADS, due_on_arrival, due_when_queued, next_score, quiet_until, smaller

#: Stands for the job as a whole among what was cancelled.
WHOLE = ""

replace = msgspec.structs.replace


class ModelPayload(msgspec.Struct, frozen=True):
    """One payload."""

    identity: str
    body: str
    #: What orders it; HEAD for a call that failed or was postponed.
    score: float
    #: Arrival: decides between keyed calls that are due at the same time.
    seq: int = 0
    #: A keyed call's own due time.
    perform_at: float = 0.0
    attempt: int = 0
    headers: Headers | None = None
    #: How often the process that ran a keyed call has died.
    deaths: int = 0

    def payload(self, kind: Kind) -> Payload:
        """As a worker or an onlooker gets it: HEAD never leaves the broker."""
        score = self.perform_at if self.score == HEAD else self.score
        headers = self.headers if kind is Kind.KEYED else None
        return Payload(self.body, score, self.identity, self.attempt, headers, self.deaths)


Entries = tuple[ModelPayload, ...]


class ModelJob(msgspec.Struct, frozen=True):
    """A key's job, without its payloads."""

    kind: Kind
    perform_at: float
    priority: int = 0
    retry_count: int = -1
    attempt: int = 0
    #: How often the process that ran it has died; calls of a keyed job have their own count.
    deaths: int = 0
    error: str | None = None
    headers: Headers | None = None
    #: Until when a keyed key rests, after a failure, a postponement or because it was told to.
    not_before: float | None = None
    #: Since when a collecting job has been waiting for quiet.
    since: float | None = None
    #: When the last call was due that was given no time.
    latest: float | None = None
    #: Who runs it, under which token; None while it is queued.
    worker: str | None = None
    token: int = 0
    #: While it runs: when what waits beside it is due; None when nothing waits.
    next_at: float | None = None


class ModelDeadJob(msgspec.Struct, frozen=True):
    """A key's job in the morgue."""

    kind: Kind
    entries: Entries
    error: str | None
    retry_count: int
    attempt: int
    deaths: int
    priority: int
    updated_at: float
    headers: Headers | None = None


class KeyState(msgspec.Struct, frozen=True):
    """Everything that a broker holds under one key of one queue."""

    row: ModelJob | None = None
    #: In order; set aside while the row is running.
    queued: Entries = ()
    #: In the order of the claim.
    running: Entries = ()
    dead: ModelDeadJob | None = None
    #: What was cancelled and not enqueued again: identities, and WHOLE for the job as a whole.
    cancelled: frozenset[str] = frozenset()


def in_order(kind: Kind, entries: Iterable[ModelPayload]) -> Entries:
    """Payloads as they are run: calls by due time, then arrival; values by score, then their bytes."""
    if kind is Kind.COLLECTING:
        return tuple(sorted(entries, key=lambda entry: (entry.score, entry.body.encode())))
    return tuple(sorted(entries, key=lambda entry: (entry.score, entry.seq)))


def united(kind: Kind, there: Entries, coming: Entries) -> Entries:
    """Both, each identity once: what is there already stays, with the smaller score and the more deaths of the two."""
    by_identity = {entry.identity: entry for entry in there}
    for entry in coming:
        known = by_identity.get(entry.identity)
        if known is not None:
            score, deaths = smaller(known.score, entry.score), max(known.deaths, entry.deaths)
            entry = replace(known, score=score, deaths=deaths)
        by_identity[entry.identity] = entry
    return in_order(kind, by_identity.values())


def earliest(entries: Entries) -> float | None:
    """When the first of a keyed job's calls is due."""
    return min((entry.score for entry in entries), default=None)


def due_by_calls(row: ModelJob, queued: Entries) -> float:
    """When a queued keyed job is due: `max(not_before, its earliest call's due time)`."""
    first = min(entry.score for entry in queued)
    return first if row.not_before is None else max(row.not_before, first)


# -- in ------------------------------------------------------------------------------------------------


def enqueue(state: KeyState, new: NewJob, now: float, seq: int) -> KeyState:
    """Store a job, or one more payload for it. `seq` is its arrival number."""
    at = now + new.delay_s if new.perform_at is None else new.perform_at
    row = state.row
    if row is not None and row.kind is not new.kind:
        raise EnqueueError(f"The key {new.key!r} of queue {new.queue} belongs to a {row.kind.name.lower()} job.")
    if new.kind is Kind.PLAIN:
        return state if row is not None else _first_plain(state, new, at, seq)
    if new.kind is Kind.KEYED and _has(state, new.identity):
        return state  # a repeat is harmless
    if new.kind is Kind.KEYED and not new.timed and row is not None:
        at = due_on_arrival(at, row.latest)
    queued = united(new.kind, state.queued, (_entry(state, new, at, now, seq),))
    if row is None:
        row = _first_row(new, at, now)
    elif row.worker is None:
        row = _onto_queued(row, new, at, now, queued)
    else:
        row = _beside_running(row, new, at, now, len(queued))
    if new.kind is Kind.KEYED and not new.timed:
        row = replace(row, latest=at)
    return replace(state, row=row, queued=queued, cancelled=state.cancelled - {new.identity, WHOLE})


def _has(state: KeyState, identity: str) -> bool:
    return any(entry.identity == identity for entry in state.queued + state.running)


def _first_plain(state: KeyState, new: NewJob, at: float, seq: int) -> KeyState:
    entry = ModelPayload("", new.body, new.score or 0.0, seq, at)
    return replace(state, row=ModelJob(Kind.PLAIN, at, new.priority, headers=new.headers), queued=(entry,))


def _entry(state: KeyState, new: NewJob, at: float, now: float, seq: int) -> ModelPayload:
    if new.kind is Kind.KEYED:
        return ModelPayload(new.identity, new.body, at, seq, at, 0, new.headers)
    score = new.score
    if score is None:
        equal = [entry.score for entry in state.queued if entry.identity == new.identity]
        largest = max((entry.score for entry in state.queued + state.running), default=None)
        score = equal[0] if equal else next_score(now, largest)
    return ModelPayload(new.identity, new.body, score, seq, at)


def _first_row(new: NewJob, at: float, now: float) -> ModelJob:
    if new.quiet is not None:
        return ModelJob(new.kind, quiet_until(now, now, 1, new.quiet), new.priority, since=now)
    return ModelJob(new.kind, at, new.priority)


def _onto_queued(row: ModelJob, new: NewJob, at: float, now: float, queued: Entries) -> ModelJob:
    if new.kind is Kind.KEYED and row.not_before is not None:
        return replace(row, perform_at=due_by_calls(row, queued))
    if new.quiet is not None and row.retry_count == -1 and row.since is not None:
        return replace(row, perform_at=quiet_until(now, row.since, len(queued), new.quiet, row.perform_at))
    return replace(row, perform_at=due_when_queued(new.kind, row.perform_at, at))


def _beside_running(row: ModelJob, new: NewJob, at: float, now: float, size: int) -> ModelJob:
    if new.kind is Kind.KEYED:
        return replace(row, next_at=at if row.next_at is None else min(row.next_at, at))
    if new.quiet is not None:
        if row.next_at is None:
            return replace(row, since=now, next_at=quiet_until(now, now, 1, new.quiet))
        if row.since is not None:
            return replace(row, next_at=quiet_until(now, row.since, size, new.quiet, row.next_at))
    return replace(row, next_at=at) if row.next_at is None else row


# -- out -----------------------------------------------------------------------------------------------


def is_due(state: KeyState, now: float) -> bool:
    """Whether the key may be claimed."""
    return state.row is not None and state.row.worker is None and state.row.perform_at <= now


def claim(state: KeyState, worker: str, token: int, now: float, max_payloads: int | None) -> KeyState:
    """Hand a key that is due to a worker: its due calls, or its first payloads."""
    row = state.row
    assert row is not None
    most = MAX_PAYLOADS[row.kind] if max_payloads is None or row.kind is Kind.PLAIN else max_payloads
    taken = [entry for entry in state.queued if row.kind is not Kind.KEYED or entry.score <= now][:most]
    left = tuple(entry for entry in state.queued if entry not in taken)
    if row.kind is Kind.KEYED:
        taken = [replace(entry, attempt=entry.attempt + 1) for entry in taken]
    next_at = None
    if left:
        next_at = earliest(left) if row.kind is Kind.KEYED else row.perform_at
    row = replace(row, attempt=row.attempt + 1, worker=worker, token=token, next_at=next_at, since=None)
    return replace(state, row=row, queued=left, running=tuple(taken))


def holds(state: KeyState, worker: str, token: int) -> bool:
    """Whether a claim is still its worker's: only then may it be settled."""
    return state.row is not None and state.row.worker == worker and state.row.token == token


# -- always --------------------------------------------------------------------------------------------


def flaws(state: KeyState) -> list[str]:
    """What can never be true of a key, a sentence each: mistakes of the model itself."""
    row, found = state.row, []
    places = {"queued": state.queued, "running": state.running, "dead": state.dead.entries if state.dead else ()}
    for place, entries in places.items():
        if len({entry.identity for entry in entries}) < len(entries):
            found.append(f"A payload is {place} twice.")
    if row is None:
        return found + (["There are payloads without a job."] if state.queued or state.running else [])
    if row.worker is None:
        if state.running or not state.queued or row.next_at is not None:
            found.append("A queued job has nothing queued, or something that runs.")
        if row.kind is Kind.KEYED and all(entry.score > row.perform_at for entry in state.queued):
            found.append("A keyed job is due before any of its calls.")
    elif not state.running or (row.next_at is None) != (not state.queued):
        found.append("A running job runs nothing, or does not know when what is set aside is due.")
    if sum(entry.score == HEAD for entry in state.queued + state.running) > 1:
        found.append("A key has two heads.")
    return found
