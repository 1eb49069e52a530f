"""Poller: moves items that are due soon from the tables to SQS. One per process, as a duty of its worker.

A whole round sends items that are due within 900 s, the longest delay of SQS. Cancellable items, and items for FIFO
queues, which cannot delay a message, stay in the table until they are due. PollSchedule remembers their times if a
round has seen them or this process has stored them, and plans a short round for each time, which reads only due
items. So they are on time, and waiting items are not read again and again. Items that other processes store are seen
by the next whole round, up to `poll` seconds later. One poller at a time sends the items for FIFO queues, in order
of due time. Several pollers share the rest: the poller that claims an item sends it (`forward`).
"""

from __future__ import annotations

import math
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from ....clock import Clock
from ....errors import BrokerError
from ..errors import MissingError
from ..settings import LONGEST_DELAY_S, LOOK_AGAIN_S
from .delayed_jobs import CLAIM_S
from .items import DelayedItem

if TYPE_CHECKING:
    from ..account import Account
    from .forward import Forwarder
    from .tables import Table

#: A short round that starts this much too early, by the wall clock, still counts as the round for the item due then.
_EARLY_S = 1.0


class PollSchedule:
    """When one poller has its rounds. Safe to call from several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._is_whole = True
        #: The next whole round, on the monotonic clock.
        self._whole_at = -math.inf
        #: The times of short rounds before that, in unix seconds.
        self._times: set[float] = set()

    def begin(self, every_s: float) -> bool:
        """Begin a round. True: a whole round, and the next is in `every_s`. False: a short round, for items due now."""
        with self._lock:
            now, monotonic = self._clock.now(), self._clock.monotonic()
            self._is_whole = monotonic >= self._whole_at or not any(at <= now + _EARLY_S for at in self._times)
            if self._is_whole:
                # Counted from now: the round may miss items that are stored while it reads.
                self._whole_at = monotonic + every_s
            self._times = {at for at in self._times if at > now}
            return self._is_whole

    def end(self, again_s: float) -> float:
        """End a round that has to be repeated within `again_s`. Returns the seconds until the next round."""
        with self._lock:
            now, monotonic = self._clock.now(), self._clock.monotonic()
            if self._is_whole:
                self._whole_at = min(self._whole_at, monotonic + again_s)
            elif math.isfinite(again_s):
                self._times.add(now + again_s)
            return max(0.0, min([self._whole_at - monotonic, *(at - now for at in self._times)]))

    def whole_within(self, seconds: float) -> None:
        """Start the next whole round within so many seconds."""
        with self._lock:
            self._whole_at = min(self._whole_at, self._clock.monotonic() + seconds)

    def remember(self, times: Iterable[float]) -> float | None:
        """Add short rounds at these times. Returns the seconds until the first; None: the next whole round sees all."""
        with self._lock:
            now = self._clock.now()
            whole_at = now + self._whole_at - self._clock.monotonic()
            news = [at for at in times if at < whole_at]
            self._times.update(news)
            return max(0.0, min(news) - now) if news else None


#: Items that are handled together.
_BLOCK = 500
#: A round that has sent so many items, or lasted so long, ends so that its worker can stop. The next begins at once.
_ENOUGH = 2_000
_LONG_S = 15.0
#: Seconds until a failed send is tried again, and until another poller may have finished its items.
_AGAIN_S = 30.0
_OTHERS_S = 5.0
_FIFO_LOCK = "fifo"


class Poller:
    """Polls the tables of some queues."""

    name = "poller"

    def __init__(self, account: Account, forwarder: Forwarder, queues: Collection[str]) -> None:
        self._account = account
        self._forwarder = forwarder
        self._queues = list(queues)
        self._schedule = PollSchedule(account.clock)
        self._table_names: frozenset[str] = frozenset()
        #: Asks for the next round within some seconds. Set by the thread that runs the rounds.
        self.sooner: Callable[[float], None] = lambda seconds: None
        account.pollers.add(self)

    def notify(self, table: str, times: Iterable[float]) -> None:
        """Note the due times of items that stay in the table until then."""
        pause_s = self._schedule.remember(times) if table in self._table_names else None
        if pause_s is not None:
            self.sooner(pause_s)

    def round(self) -> float:
        """Send items that are due soon, for every queue in the tables. Returns the seconds until the next round."""
        found = [self._account.tables.of(queue) for queue in self._queues]
        tables = {table.name: table for table in found if table is not None}
        self._table_names = frozenset(tables)
        is_whole = self._schedule.begin(min(self._account.settings.poll_s, float(LONGEST_DELAY_S)))
        if None in found:
            self._schedule.whole_within(LOOK_AGAIN_S)
        try:
            return self._schedule.end(self._look(tables.values(), LONGEST_DELAY_S if is_whole else 0.0))
        except BaseException:
            self._schedule.whole_within(0.0)
            raise

    def _look(self, tables: Collection[Table], ahead_s: float) -> float:
        """Send items that are due within so many seconds. Returns the seconds until unsent items are tried again."""
        again_s = math.inf
        errors: list[BrokerError] = []
        for table in tables:
            part = _TableRound(self._account, self._forwarder, table, ahead_s)
            try:
                again_s = min(again_s, part.run())
                self._schedule.remember(part.later)
                errors += part.errors
            except MissingError:
                self._schedule.whole_within(LOOK_AGAIN_S)  # the table was deleted
            except BrokerError as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return again_s


class Pollers:
    """The pollers of this process, by weak references. Code that stores items tells them the due times."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._pollers: list[weakref.ref[Poller]] = []

    def add(self, poller: Poller) -> None:
        if self._pid != os.getpid():
            self._pid, self._pollers = os.getpid(), []  # the child of a fork has no pollers of its parent
        self._pollers = [*(each for each in self._pollers if each() is not None), weakref.ref(poller)]

    def notify(self, table: str, times: Iterable[float]) -> None:
        """Tell all pollers the due times of items that stay in this table until then."""
        due = list(times)
        if due and self._pid == os.getpid():
            for each in self._pollers:
                if (poller := each()) is not None:
                    poller.notify(table, due)


class _TableRound:
    """One round over one table."""

    def __init__(self, account: Account, forwarder: Forwarder, table: Table, ahead_s: float) -> None:
        self._table = table
        self._forwarder = forwarder
        self._clock = account.clock
        self._ahead_s = ahead_s
        self._next_s = math.inf
        self._sent = 0
        self._holds_lock = self._is_second = False
        #: FIFO groups with an item that was not sent. No later item of the group may be sent.
        self._stuck: set[tuple[str, str]] = set()
        #: Why items were not sent, if a later try may succeed.
        self.errors: list[BrokerError] = []
        #: The due times of items that it read and left in the table.
        self.later: set[float] = set()

    def run(self) -> float:
        began = self._clock.monotonic()
        try:
            for block in _blocks(self._table.delayed.due(self._clock.now() + self._ahead_s)):
                self._take(block)
                if self._sent >= _ENOUGH or (self._sent and self._clock.monotonic() - began > _LONG_S):
                    return 0.0
        finally:
            if self._holds_lock:
                self._table.locks.release(_FIFO_LOCK, self._forwarder.holder)
        return max(0.0, self._next_s)

    def _take(self, block: list[DelayedItem]) -> None:
        now = self._clock.now()
        wanted = [item for item in block if self._is_wanted(item, now)]
        if any(item.fifo for item in wanted) and not self._may_send_calls(now):
            wanted = [item for item in wanted if not item.fifo]
            self._look_again(_OTHERS_S)
        if not wanted:
            return
        done = self._forwarder.forward(self._table, wanted, self._stuck)
        self._sent += len(done.sent)
        self.errors += done.errors
        if done.kept:
            self._look_again(_AGAIN_S)
        if done.skipped:
            self._look_again(_OTHERS_S)

    def _may_send_calls(self, now: float) -> bool:
        """Whether this poller may send keyed calls: it holds the lock. If it was refused once, it does not try again in
        this round: the items that the other poller has left by then are older than the rest of this round."""
        if not self._is_second:
            self._holds_lock = self._table.locks.hold(_FIFO_LOCK, self._forwarder.holder, now, CLAIM_S)
            self._is_second = not self._holds_lock
        return not self._is_second

    def _is_wanted(self, item: DelayedItem, now: float) -> bool:
        if item.stays and item.perform_at > now:
            self.later.add(item.perform_at)
            return False
        if item.claimed(now, by_others_than=self._forwarder.holder):
            # If the item is still there when the claim expires, the process that made the claim is dead. No later item
            # of a FIFO group may be sent before this one; the forwarder ensures that.
            self._look_again(item.claim_until - now + 1.0)
            return item.fifo
        return True

    def _look_again(self, seconds: float) -> None:
        self._next_s = min(self._next_s, seconds)


def _blocks(items: Iterator[DelayedItem]) -> Iterator[list[DelayedItem]]:
    """Items in blocks, by due time. Keyed calls of the same due time may come from several partitions. All of them go
    into one block, sorted by id: ids grow, so that is the order of their arrival."""
    block: list[DelayedItem] = []
    for _, same in groupby(items, key=lambda item: item.perform_at):
        calls: list[DelayedItem] = []
        for item in same:
            (calls if item.fifo else block).append(item)
            if len(block) >= _BLOCK:
                yield block
                block = []
        block += sorted(calls, key=lambda item: item.job_id)
        if len(block) >= _BLOCK:
            yield block
            block = []
    if block:
        yield block
