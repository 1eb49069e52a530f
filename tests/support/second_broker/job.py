"""MemoryJob: one job and its payloads in order. Callers get copies, never the job itself.

PayloadList keeps the payloads of one key sorted, each identity once. It knows nothing of jobs, workers or time.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from laneway.jobs.data import Claim, Headers, JobView, Kind, Payload, Status
from laneway.jobs.merge import HEAD, MAX_PAYLOADS, smaller


class PayloadEntry(msgspec.Struct):
    """One payload as it is kept."""

    identity: str
    body: str
    score: float
    #: Arrival: a number from the broker.
    seq: int
    #: A keyed call's own due time, which stays when a failure makes it the head of its key.
    perform_at: float
    attempt: int = 0
    headers: Headers | None = None
    expires: float | None = None
    #: How often the process that ran this call has died.
    deaths: int = 0

    def payload(self, kind: Kind) -> Payload:
        """The payload as others see it: a copy, and without the score of a head, which no reader needs."""
        if kind is not Kind.KEYED:
            return Payload(self.body, self.score, self.identity)
        headers = dict(self.headers) if self.headers else None
        score = self.perform_at if self.score == HEAD else self.score
        return Payload(self.body, score, self.identity, self.attempt, headers, self.deaths)


_Position = tuple[float, int | str, str]


def _score(position: _Position) -> float:
    return position[0]


class PayloadList:
    """Entries sorted by score: calls then by arrival, values by their bytes. An identity is in it once.

    A sorted list and a dict: finding is by halves, and taking from the front or the end moves only pointers.
    """

    __slots__ = ("_by_identity", "_calls", "_order")

    def __init__(self, kind: Kind, entries: Iterable[PayloadEntry] = ()) -> None:
        self._calls = kind is not Kind.COLLECTING
        self._by_identity: dict[str, PayloadEntry] = {}
        self._order: list[_Position] = []
        self.unite(entries)

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, identity: str) -> bool:
        return identity in self._by_identity

    def __iter__(self) -> Iterator[PayloadEntry]:
        return (self._by_identity[identity] for _, _, identity in self._order)

    def get(self, identity: str) -> PayloadEntry | None:
        return self._by_identity.get(identity)

    def first(self, count: int) -> list[PayloadEntry]:
        return list(islice(self, count))

    @property
    def smallest(self) -> float:
        """The score of the first one; there must be one."""
        return self._order[0][0]

    @property
    def largest(self) -> float | None:
        return self._order[-1][0] if self._order else None

    def unite(self, entries: Iterable[PayloadEntry]) -> None:
        """Add entries. What is there already stays, with the smaller score and the more deaths of the two."""
        for entry in entries:
            there = self._by_identity.get(entry.identity)
            if there is None:
                self._by_identity[entry.identity] = entry
                insort(self._order, self._position(entry))
            else:
                there.deaths = max(there.deaths, entry.deaths)
                self.move(there, smaller(there.score, entry.score))

    def move(self, entry: PayloadEntry, score: float) -> None:
        """Give an entry of this pile another score."""
        if score != entry.score:
            self._drop(entry)
            entry.score = score
            insort(self._order, self._position(entry))

    def remove(self, identity: str) -> PayloadEntry | None:
        entry = self._by_identity.pop(identity, None)
        if entry is not None:
            self._drop(entry)
        return entry

    def take(self, count: int, until: float = math.inf) -> list[PayloadEntry]:
        """Take out the first ones, with a score up to `until`."""
        count = min(count, bisect_right(self._order, until, key=_score))
        taken = [self._by_identity.pop(identity) for _, _, identity in self._order[:count]]
        del self._order[:count]
        return taken

    def _drop(self, entry: PayloadEntry) -> None:
        del self._order[bisect_left(self._order, self._position(entry))]

    def _position(self, entry: PayloadEntry) -> _Position:
        # Texts compare by code points, which is the order of their UTF-8 bytes.
        return entry.score, (entry.seq if self._calls else entry.body), entry.identity


#: How many payloads a view holds: of a key that was asked for, and of a job in a listing.
FIND_PAYLOADS = 1_000
LIST_PAYLOADS = 10


class MemoryJob(msgspec.Struct, kw_only=True, eq=False):
    """A key's job in the queue or, with `updated_at`, in the morgue."""

    queue: str
    ref: int
    key: str
    kind: Kind
    shard: int
    perform_at: float
    #: Queued ones, set aside included, or the dead ones.
    payloads: PayloadList
    #: Those of the claim that is held, in its order.
    running: list[PayloadEntry] = []
    #: A keyed job rests until then.
    not_before: float | None = None
    #: While it runs: when what was set aside is due; None when nothing was.
    next_at: float | None = None
    #: When the first payload came of those that wait for quiet; None when none does.
    since: float | None = None
    #: When the last call was due that was given no time.
    latest: float | None = None
    priority: int = 0
    expires: float | None = None
    headers: Headers | None = None
    retry_count: int = -1
    attempt: int = 0
    #: Of a plain or collecting job; calls of a keyed one have their own.
    deaths: int = 0
    error: str | None = None
    #: Who runs it; None while it is queued.
    worker: str | None = None
    token: int = 0
    updated_at: float | None = None
    #: The number of its entry in the lanes, while it is queued.
    slot: int | None = None

    def start(self, worker: str, token: int, max_payloads: int | None, now: float) -> None:
        """Queued → running, with its first payloads: calls only if they are due."""
        limit = MAX_PAYLOADS[self.kind]
        if max_payloads is not None and self.kind is not Kind.PLAIN:
            limit = max(max_payloads, 1)
        self.running = self.payloads.take(limit, now if self.kind is Kind.KEYED else math.inf)
        assert self.running, f"the key {self.key} is due without a payload that is"
        self.worker, self.token = worker, token
        self.attempt += 1
        self.since = self.next_at = None
        if self.kind is Kind.KEYED:
            for entry in self.running:
                entry.attempt += 1
        if self.payloads:
            self.next_at = self.payloads.smallest if self.kind is Kind.KEYED else self.perform_at

    def claim(self) -> Claim:
        """The job as a worker gets it; what the worker does to it changes nothing here."""
        return Claim(
            queue=self.queue,
            ref=self.ref,
            key=self.key,
            token=self.token,
            perform_at=self.perform_at,
            retry_count=self.retry_count,
            attempt=self.attempt,
            deaths=self.deaths,
            payloads=[entry.payload(self.kind) for entry in self.running],
            error=self.error,
            headers=dict(self.headers) if self.headers else None,
            kind=self.kind,
            shard=self.shard,
            priority=self.priority,
        )

    def count_death(self, identity: str) -> None:
        """The process that ran it has died: of a keyed job, that ran this call."""
        if self.kind is not Kind.KEYED:
            self.deaths += 1
        for entry in self.running if self.kind is Kind.KEYED else ():
            entry.deaths += entry.identity == identity

    def become_fresh(self) -> None:
        """Forget the failures: what is first now has not had any."""
        self.retry_count, self.error, self.not_before = -1, None, None
        self.attempt = self.deaths = 0

    # -- looking ---------------------------------------------------------------------------------------

    def status(self, now: float) -> Status:
        if self.updated_at is not None:
            return "dead"
        if self.worker is not None:
            return "running"
        return "delayed" if self.perform_at > now else "queued"

    def status_of(self, identity: str, now: float) -> Status | None:
        """Where one payload is; None if it is not one of this job's."""
        entry = self.payloads.get(identity)
        if entry is None:
            return "running" if any(each.identity == identity for each in self.running) else None
        if self.updated_at is not None:
            return "dead"
        due = self.perform_at if self.next_at is None else self.next_at
        if self.kind is Kind.KEYED:
            due = max(due, entry.perform_at)
        return "delayed" if due > now else "queued"

    def view(self, now: float, payloads: int = LIST_PAYLOADS) -> JobView:
        """The job as it runs, is queued or dead."""
        if self.worker is None:
            return self._view(self.status(now), self.payloads.first(payloads), len(self.payloads))
        return self._view("running", self.running[:payloads], len(self.running))

    def views(self, now: float) -> list[JobView]:
        """The job, and what is set aside while it runs."""
        views = [self.view(now, FIND_PAYLOADS)]
        if self.next_at is not None:
            status: Status = "delayed" if self.next_at > now else "queued"
            aside = self._view(status, self.payloads.first(FIND_PAYLOADS), len(self.payloads))
            aside.perform_at, aside.worker, aside.error = self.next_at, None, None
            aside.retry_count, aside.attempt = -1, 0
            aside.deaths = aside.deaths if self.kind is Kind.KEYED else 0
            views.append(aside)
        return views

    def _view(self, status: Status, entries: Sequence[PayloadEntry], size: int) -> JobView:
        return JobView(
            queue=self.queue,
            key=self.key,
            status=status,
            shard=self.shard,
            payloads=[entry.payload(self.kind) for entry in entries],
            perform_at=self.perform_at,
            retry_count=self.retry_count,
            attempt=self.attempt,
            kind=self.kind,
            size=size,
            deaths=entries[0].deaths if self.kind is Kind.KEYED else self.deaths,
            priority=self.priority,
            error=self.error,
            updated_at=self.updated_at,
            worker=self.worker,
        )
