"""Emptying the morgue of one queue: all of it revived or deleted, on any broker, with an end.

Only what was dead when it began is touched, and never more than there was: what is revived may die again before it is
through. Between two steps it can be interrupted, and nothing is half done then.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from threading import Event

from ..broker import Broker
from ..capabilities import Emptied, emptier_of
from .progress import Bar

#: Jobs handled in one step: short transactions, so that workers get their turns.
PAGE = 500
#: A broker that counts about right may say 0 too early: so many are looked for in any case.
LEAST = 10


class Emptying:
    """One run over the morgue of a queue. `done` is right also when an error has ended it."""

    def __init__(self, broker: Broker, queue: str, *, revive: bool, total: int, most: int | None) -> None:
        own = emptier_of(broker)
        limit = total if own is None else max(total, LEAST)
        if most is not None:
            limit = min(limit, most)
        self._total = total
        self._limit = limit
        self._expected = min(total, limit)
        self._steps = _by_pages(broker, queue, revive, limit) if own is None else own(queue, revive=revive, most=limit)
        #: What a broker that has a way of its own says when it is through.
        self._end: Emptied | None = None
        self.done = 0
        self.interrupted = False

    @property
    def unseen(self) -> int:
        """How many were counted when it began, and not seen, though it did not end because it was enough."""
        if self._end is None or self.done >= self._limit:
            return 0
        return max(0, self._total - self._end.seen)

    @property
    def ownerless(self) -> int:
        """How many were left because nothing says whose they are."""
        return 0 if self._end is None else self._end.ownerless

    @property
    def hidden_s(self) -> int:
        """Seconds for which dead jobs may be hidden."""
        return 0 if self._end is None else self._end.hidden_s

    def carry_out(self, what: str) -> None:
        """Go through it, unless Ctrl-C ends it early; `what` stands before the bar."""
        with _interruptions() as interrupted, Bar(what, self._expected) as bar, closing(self._noted()) as steps:
            for count in steps:
                self.done += count
                bar.update(self.done, max(self._expected, self.done), what)
                if interrupted.is_set():
                    self.interrupted = True
                    return

    def _noted(self) -> Generator[int, None, None]:
        self._end = yield from self._steps


def _by_pages(broker: Broker, queue: str, revive: bool, most: int) -> Generator[int, None, None]:
    """The oldest first. What was buried last when it began says where it ends, by the broker's own clock."""
    act = broker.revive if revive else broker.delete_dead
    last = [job.updated_at for job in broker.listing(queue, "dead", reverse=True, limit=1).jobs]
    until = math.inf if not last or last[0] is None else last[0]
    after, left = None, most
    while left > 0:
        page = broker.listing(queue, "dead", after=after, limit=min(PAGE, left))
        keys = [job.key for job in page.jobs if (job.updated_at or 0.0) <= until]
        if keys:
            yield act(queue, keys)
        left -= len(keys)
        after = page.after
        if after is None or len(keys) < len(page.jobs):
            return


@contextmanager
def _interruptions() -> Iterator[Event]:
    """Note a Ctrl-C, for the end of the step that is under way; a second one does not wait for that."""
    interrupted = Event()

    def interrupt(number: int, frame: object) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
