"""How far a call has come that stores many messages, and what is said when it ends too early."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from ...errors import BrokerAwayError, BrokerError, EnqueueError
from .batches import Sent
from .trouble import RefusedError

#: The jobs that an error names.
_NAMED = 3


class Progress:
    """Which messages of a call are stored; an error that ends it is told with the names of the others."""

    def __init__(self, keys: Sequence[str], sent: Sent | None) -> None:
        self._keys = keys
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
            told.args = (self._text(error),)
            raise told from None

    def _text(self, error: BrokerError | EnqueueError) -> str:
        text, total = str(error), len(self._keys)
        if isinstance(error, RefusedError):
            text = f"{error.service} does not take {_named([self._keys[number] for number in error.entries])} ({text})."
        left = [key for number, key in enumerate(self._keys) if number not in self._stored]
        if total == 1 or not left:
            return text
        unsure = (
            "may not have been" if isinstance(error, BrokerAwayError) else "was not" if len(left) == 1 else "were not"
        )
        return f"{len(left):,} of {total:,} jobs {unsure} stored, {_named(left)}: {text}"


def _named(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _NAMED:,} more" if len(keys) > _NAMED else ""
    return ("the job " if len(keys) == 1 else "the jobs ") + ", ".join(map(repr, keys[:_NAMED])) + more
