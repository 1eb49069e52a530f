"""How far a call has come that stores many messages, and what is said when it ends too early."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from ....errors import BrokerAwayError, BrokerError, EnqueueError, places_in_words
from ..errors import RefusedError
from .send_batch import Sent

#: The jobs that an error names.
_NAMED = 3


class Progress:
    """Which messages of a call are stored; an error that ends it is told with the names of the others.

    Those of a program's own list are named by their places: it knows no others. `verb` is what becomes of them.
    """

    def __init__(self, keys: Sequence[str], sent: Sent | None, *, by_place: bool = False, verb: str = "stored") -> None:
        self._keys = keys
        self._by_place = by_place
        self._verb = verb
        self._sent = sent
        self._stored: set[int] = set()

    def stored(self, number: int) -> None:
        self._stored.add(number)
        if self._sent is not None:
            self._sent(number)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, (BrokerError, EnqueueError)):
            told = copy.copy(error)
            left = [number for number in range(len(self._keys)) if number not in self._stored]
            told.args = (self._text(error, left),)
            if self._by_place and len(self._keys) > 1:
                told.unstored = left
            raise told from None

    def _text(self, error: BrokerError | EnqueueError, left: Sequence[int]) -> str:
        text, total = str(error), len(self._keys)
        if isinstance(error, RefusedError):
            text = f"{error.service} does not take {self._named(error.entries)} ({text})."
        if total == 1 or not left:
            return text
        unsure = (
            "may not have been" if isinstance(error, BrokerAwayError) else "was not" if len(left) == 1 else "were not"
        )
        named = self._named(left)
        if self._by_place:
            return f"{named[0].upper()}{named[1:]} of {total:,} {unsure} {self._verb}: {text}"
        return f"{len(left):,} of {total:,} jobs {unsure} {self._verb}, {named}: {text}"

    def _named(self, numbers: Sequence[int]) -> str:
        if self._by_place and len(self._keys) > 1:
            return places_in_words(sorted(numbers))
        if self._by_place and self._verb == "published":
            return "the event"
        keys = [self._keys[number] for number in numbers]
        more = f" and {len(keys) - _NAMED:,} more" if len(keys) > _NAMED else ""
        return ("the job " if len(keys) == 1 else "the jobs ") + ", ".join(map(repr, keys[:_NAMED])) + more
