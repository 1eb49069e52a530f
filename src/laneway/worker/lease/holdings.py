"""`Holdings`: the unsettled claims of one fetcher, as a renewal of the lease reports them.

All claims of a turn share a token. A token is held until every claim under it is settled. The broker gives back older
claims that the renewal does not report, because their answer never arrived.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from ...broker import Answer
from ...jobs.settlement import Settlement


class Holdings:
    """The unsettled claims of one fetcher, by token."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, int] = {}
        self._answered = 0
        self._under_way = False

    def __len__(self) -> int:
        with self._lock:
            return sum(self._held.values())

    @property
    def answered(self) -> int:
        """The largest token of any answer so far."""
        return self._answered

    def ask(self) -> None:
        """A turn is about to be taken: its claims will have a larger token than any answered."""
        with self._lock:
            self._under_way = True

    def take_in(self, settled: Iterable[Settlement], answer: Answer, *, keep: bool) -> None:
        """A turn was answered. Without `keep` its claims belong to an id that was declared dead meanwhile."""
        with self._lock:
            self._under_way = False
            self._answered = max(self._answered, answer.token)
            for settlement in settled:
                token = settlement.claim.token
                left = self._held.get(token, 0) - 1
                if left > 0:
                    self._held[token] = left
                else:
                    self._held.pop(token, None)
            if answer.claims and keep:
                self._held[answer.token] = len(answer.claims)

    def forget(self) -> None:
        """All of it belongs to others now."""
        with self._lock:
            self._held.clear()

    def report(self) -> tuple[set[int], int | None]:
        """The tokens held, and, if a turn is under way, the token below which there is nothing unknown."""
        with self._lock:
            return set(self._held), self._answered if self._under_way else None
