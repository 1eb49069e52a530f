"""The payloads of one key in one place, in order. Knows nothing of jobs, workers or time."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from ...jobs.data import Headers, Kind, Payload
from ...jobs.merge import HEAD, smaller


class Entry(msgspec.Struct):
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
        """The payload as others see it: a copy, and without the score of a head, which is nobody's business."""
        if kind is not Kind.KEYED:
            return Payload(self.body, self.score, self.identity)
        headers = dict(self.headers) if self.headers else None
        score = self.perform_at if self.score == HEAD else self.score
        return Payload(self.body, score, self.identity, self.attempt, headers, self.deaths)


_Position = tuple[float, int | str, str]


def _score(position: _Position) -> float:
    return position[0]


class Pile:
    """Entries sorted by score: calls then by arrival, values by their bytes. An identity is in it once.

    A sorted list and a dict: finding is by halves, and taking from the front or the end moves only pointers.
    """

    __slots__ = ("_by_identity", "_calls", "_order")

    def __init__(self, kind: Kind, entries: Iterable[Entry] = ()) -> None:
        self._calls = kind is not Kind.COLLECTING
        self._by_identity: dict[str, Entry] = {}
        self._order: list[_Position] = []
        self.unite(entries)

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, identity: str) -> bool:
        return identity in self._by_identity

    def __iter__(self) -> Iterator[Entry]:
        return (self._by_identity[identity] for _, _, identity in self._order)

    def get(self, identity: str) -> Entry | None:
        return self._by_identity.get(identity)

    def first(self, count: int) -> list[Entry]:
        return list(islice(self, count))

    @property
    def smallest(self) -> float:
        """The score of the first one; there must be one."""
        return self._order[0][0]

    @property
    def largest(self) -> float | None:
        return self._order[-1][0] if self._order else None

    def unite(self, entries: Iterable[Entry]) -> None:
        """Add entries. What is there already stays, with the smaller score and the more deaths of the two."""
        for entry in entries:
            there = self._by_identity.get(entry.identity)
            if there is None:
                self._by_identity[entry.identity] = entry
                insort(self._order, self._position(entry))
            else:
                there.deaths = max(there.deaths, entry.deaths)
                self.move(there, smaller(there.score, entry.score))

    def move(self, entry: Entry, score: float) -> None:
        """Give an entry of this pile another score."""
        if score != entry.score:
            self._drop(entry)
            entry.score = score
            insort(self._order, self._position(entry))

    def remove(self, identity: str) -> Entry | None:
        entry = self._by_identity.pop(identity, None)
        if entry is not None:
            self._drop(entry)
        return entry

    def take(self, count: int, until: float = math.inf) -> list[Entry]:
        """Take out the first ones, with a score up to `until`."""
        count = min(count, bisect_right(self._order, until, key=_score))
        taken = [self._by_identity.pop(identity) for _, _, identity in self._order[:count]]
        del self._order[:count]
        return taken

    def _drop(self, entry: Entry) -> None:
        del self._order[bisect_left(self._order, self._position(entry))]

    def _position(self, entry: Entry) -> _Position:
        # Texts compare by code points, which is the order of their UTF-8 bytes.
        return entry.score, (entry.seq if self._calls else entry.body), entry.identity
