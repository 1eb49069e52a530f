"""Keeping messages hidden for as long as this process holds them, up to the 12 hours that SQS allows."""

from __future__ import annotations

import logging
import math

from ....clock import Clock
from .holding import Held
from .inflight import Stock
from .visibility import Change, Changes

#: What was hidden for its whole length less than this part of the lease ago is left alone.
FRESH = 1 / 6

_log = logging.getLogger("laneway")


class Extender:
    """Extends what one process holds."""

    def __init__(self, stock: Stock, changes: Changes, clock: Clock) -> None:
        self._stock = stock
        self._changes = changes
        self._clock = clock

    def extend(self, lease_s: float) -> None:
        """Hide everything that is held for another lease. Raises when SQS did not take it all.

        When it returns, whatever is held stays hidden for five sixths of the lease at least, but for what has come to
        the end of its 12 hours, or is ours no more: settling that is refused.
        """
        with self._changes.visibility:
            changes = self._changes_of(max(1, math.ceil(lease_s)), lease_s)
            try:
                self._changes.carry_out(change for _, change in changes)
            finally:
                self._see_lost(changes)

    def _changes_of(self, hide_s: int, lease_s: float) -> list[tuple[Held, Change]]:
        now = self._clock.monotonic()
        changes: list[tuple[Held, Change]] = []
        with self._stock.changed:
            for held in self._stock.holding:
                left_s = math.floor(held.hideable_until - now)
                if (held.is_leaving and not held.is_ending) or held.is_lost:
                    continue
                if left_s < 1:
                    self._give_up(held)
                if not held.is_ours(now):
                    continue
                for message in (held.message, *held.twins):
                    if message.hidden_until - now < lease_s * (1 - FRESH):
                        changes.append((held, Change(message, min(hide_s, left_s))))
        return changes

    def _see_lost(self, changes: list[tuple[Held, Change]]) -> None:
        """SQS says of some that they are not ours: they have been deleted, or their time was up."""
        with self._stock.changed:
            for held, change in changes:
                if not change.is_refused or held.is_leaving:
                    continue
                if change.message is held.message:
                    held.lose()
                else:
                    held.twins = [twin for twin in held.twins if twin is not change.message]

    def _give_up(self, held: Held) -> None:
        held.lose()
        _log.error(
            "the job %s of the queue %s has been held for 12 hours, and SQS keeps a message hidden no longer: it is "
            "given up, what it does is not recorded, and it will be run again; have it enqueue a part of its work",
            held.id,
            held.message.channel.queue,
        )
