"""The fetcher of one queue: a thread that takes turns with the broker.

A turn records what has finished and brings what is next, so that a busy worker makes one transaction for many
jobs. The fetcher never runs a job, and only it settles the claims of its queue.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..broker import Answer, Turn
from ..brokers.common import check_jobs
from ..errors import BrokerError, EnqueueError, LeaseLost
from ..outcome import Settlement, buried, released
from ..telemetry import SettlementRefused
from .failure import describe
from .holdings import Holdings

if TYPE_CHECKING:
    from ..app import Laneway
    from ..job import Claim, NewJob
    from .bus import Bus, Lane
    from .outage import Outage

#: While the runners have enough to do, so much time is left between two turns for settlements to gather.
GATHER_S = 0.003
#: Without any claim taken for so long, what waits is given back for other workers to take.
STALL_S = 0.25
LONGEST_BACKOFF_S = 2.0


class Fetcher:
    """Fetches and settles one queue for one worker."""

    def __init__(
        self,
        app: Laneway,
        lane: Lane,
        bus: Bus,
        outage: Outage,
        *,
        worker_id: Callable[[], str],
        lost: Callable[[str], None],
        told_buried: Callable[[list[Settlement]], None],
        fatal: Callable[[BaseException], None],
    ) -> None:
        self._app = app
        self._lane = lane
        self._bus = bus
        self._outage = outage
        self._worker_id = worker_id
        self._lost = lost
        self._told_buried = told_buried
        self._fatal = fatal
        self._wake = threading.Event()
        self._quit = threading.Event()
        self._stopping = False
        self._seq = 0
        #: False when the last turn brought all there was; the waker sets it again.
        self.due = True
        #: Tells the waker to look out for this queue.
        self.on_idle: Callable[[Fetcher], None] = lambda fetcher: None
        self.holdings = Holdings()
        self.processed = 0
        self.failed = 0
        self._head: Claim | None = None
        self._head_since = 0.0
        lane.wake = self.wake
        self._thread = threading.Thread(target=self._main, name=f"laneway-fetch-{lane.queue}", daemon=True)

    # -- what others may do ----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to fetch."""
        self._wake.set()
        self._thread.start()

    def wake(self) -> None:
        """There is something to settle, or room, or a reason to stop."""
        if not self._wake.is_set():
            self._wake.set()

    def work_is_due(self) -> None:
        """The waker has seen a due job in this queue."""
        self.due = True
        self.wake()

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self._lane.queue

    @property
    def hungry(self) -> bool:
        """Whether it has room and would fetch, if there were something due."""
        return not self.due and not self._stopping and self._wanted() > 0

    def stop(self) -> None:
        """Stop fetching and give back what has not started; what finishes is still settled."""
        self._stopping = True
        self.wake()

    def finish(self) -> None:
        """Settle what is left and end; do not wait for a broker that is away."""
        self._quit.set()
        self.wake()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end. False if something is left unsettled; the lease then runs out and others take it over."""
        self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive() and not self.holdings

    def forget(self) -> None:
        """The worker has a new id: what it held under the old one is no longer its own."""
        self._lane.waiting.clear()
        self.holdings.forget()
        self.work_is_due()

    # -- the thread ------------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            self._take_turns()
        except BaseException as error:
            # Without its fetcher a queue would stand still and nobody would know.
            self._fatal(error)

    def _take_turns(self) -> None:
        lane = self._lane
        while True:
            self._wait()
            if self._stopping:
                self._return_waiting()
            finished = self._collect()
            wanted = max(0, self._wanted())
            if finished or (self.due and wanted):
                self._turn(finished, wanted)
            if self._quit.is_set() and not lane.finished and not lane.waiting:
                return
            if self.hungry:
                self.on_idle(self)

    def _wait(self) -> None:
        """Wait for something to do; give back what waits when nobody has taken any of it for a while."""
        lane = self._lane
        if lane.capacity > 1 and len(lane.waiting) > lane.capacity // 2 and not self._stopping:
            self._quit.wait(GATHER_S)
        while not self._wake.wait(self._stalls_in()):
            if self._stalls_in() == 0:
                # All runners are busy with slow jobs, and other workers may be free.
                lane.stalled(STALL_S)
                self._return_waiting()
                return
        self._wake.clear()

    def _stalls_in(self) -> float | None:
        """Seconds until the lane counts as stalled; None while nothing waits in it."""
        try:
            head = self._lane.waiting[0]
        except IndexError:
            self._head = None
            return None
        now = time.monotonic()
        if head is not self._head:
            self._head, self._head_since = head, now
        # Many lanes may have to be visited before it is this one's turn again.
        patience_s = STALL_S + self._bus.round_s
        return max(0.0, self._head_since + patience_s - now)

    def _wanted(self) -> int:
        if self._stopping:
            return 0
        lane = self._lane
        return lane.capacity + self._bus.idle - len(lane.waiting)

    def _collect(self) -> list[Settlement]:
        lane = self._lane
        settlements: list[Settlement] = []
        durations: list[float] = []
        for _ in range(len(lane.finished)):
            settlement, duration_s = lane.finished.popleft()
            settlements.append(settlement)
            if settlement.verdict != "release":
                durations.append(duration_s)
        if durations:
            lane.learn(durations)
        return settlements

    def _return_waiting(self) -> None:
        lane = self._lane
        while lane.waiting:
            try:
                claim = lane.waiting.pop()
            except IndexError:
                return  # a runner was quicker
            lane.finished.append((released(claim), 0.0))

    def _turn(self, settlements: list[Settlement], wanted: int) -> None:
        """Take one turn, however long the broker is away; the repeat of a lost one gets the same answer."""
        self.holdings.ask()
        turn = self._next(settlements, wanted)
        backoff_s = 0.05
        while True:
            try:
                answer = self._app.broker.turn(turn)
                break
            except LeaseLost:
                self._lost(turn.worker)
                if self._worker_id() == turn.worker:  # no new id to be had yet
                    backoff_s = self._back_off(backoff_s)
                # Under the new id these claims are settled if nobody has taken them over yet, else refused.
                turn = self._next(settlements, wanted)
            except EnqueueError as error:
                # The broker refuses what a run has enqueued, and will again: that run has failed.
                self._app.logger.error("%s: what a run enqueued cannot be stored: %s", self.queue, error)
                settlements = _without_refused(settlements, error)
                turn = self._next(settlements, wanted)
            except Exception as error:
                if not isinstance(error, BrokerError):
                    self._app.logger.exception("a turn on the queue %s failed", self.queue)
                self._outage.away(self.queue, error)
                if self._quit.is_set():
                    return  # nothing is lost: the claims are taken back when the lease has ended
                backoff_s = self._back_off(backoff_s)
        self._outage.back(self.queue)
        self._take_in(turn, answer)

    def _next(self, settlements: list[Settlement], wanted: int) -> Turn:
        self._seq += 1
        return Turn(self._worker_id(), self._lane.queue, self._seq, settlements, wanted)

    def _back_off(self, pause_s: float) -> float:
        """Wait a while, spread by chance; returns how long to wait the next time."""
        self._quit.wait(pause_s * (0.5 + random.random()))
        return min(pause_s * 2, LONGEST_BACKOFF_S)

    def _take_in(self, turn: Turn, answer: Answer) -> None:
        # Declared dead since the turn was taken: its claims are given back with all the others.
        mine = turn.worker == self._worker_id()
        self.holdings.take_in(turn.settlements, answer, keep=mine)
        self.due = len(answer.claims) >= turn.limit
        if answer.claims and mine:
            self._bus.put(self._lane, answer.claims)
        if self._stopping:
            self.wake()  # what this turn brought goes back as well
        if answer.refused:
            self._app.telemetry.emit(SettlementRefused(self.queue, answer.refused))
        self._count(turn.settlements, set(answer.refused))

    def _count(self, settlements: Sequence[Settlement], refused: set[str]) -> None:
        exhausted = []
        for settlement in settlements:
            if settlement.claim.key in refused:
                continue
            if settlement.verdict == "done":
                self.processed += 1
            elif settlement.verdict in ("retry", "bury"):
                self.failed += 1
                if settlement.verdict == "bury":
                    exhausted.append(settlement)
        if exhausted:
            self._told_buried(exhausted)


def _without_refused(settlements: list[Settlement], error: EnqueueError) -> list[Settlement]:
    """Bury the runs whose outbox cannot be stored: those that are to blame, or all if that cannot be told."""
    blamed = {id(settlement) for settlement in settlements if settlement.outbox and _unstorable(settlement.outbox)}
    return [
        buried(settlement.claim, f"What the run enqueued was refused. {describe(error)}")
        if settlement.outbox and (id(settlement) in blamed or not blamed)
        else settlement
        for settlement in settlements
    ]


def _unstorable(outbox: list[NewJob]) -> bool:
    try:
        check_jobs(outbox)
    except EnqueueError:
        return True
    return False
