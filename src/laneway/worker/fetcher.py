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
from ..errors import BrokerError, LeaseLost
from ..outcome import Settlement, released
from ..telemetry import BrokerAway, BrokerBack, SettlementRefused

if TYPE_CHECKING:
    from ..app import Laneway
    from .bus import Bus, Lane

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
        *,
        worker_id: Callable[[], str],
        lost: Callable[[str], None],
        buried: Callable[[list[Settlement]], None],
        fatal: Callable[[BaseException], None],
    ) -> None:
        self._app = app
        self._lane = lane
        self._bus = bus
        self._worker_id = worker_id
        self._lost = lost
        self._buried = buried
        self._fatal = fatal
        self._wake = threading.Event()
        self._stopping = False
        self._given_up = False
        self._seq = 0
        #: False when the last turn brought all there was; the waker sets it again.
        self.due = True
        #: Tells the waker to look out for this queue.
        self.on_idle: Callable[[Fetcher], None] = lambda fetcher: None
        self._lock = threading.Lock()
        self._held: dict[int, int] = {}
        self._answered = 0
        self._in_flight = False
        self.processed = 0
        self.failed = 0
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

    def finish(self, timeout_s: float) -> None:
        """Settle what is left and end, within `timeout_s` if the broker is away."""
        self._given_up = True
        self.wake()
        self._thread.join(timeout_s)

    @property
    def holds_any(self) -> bool:
        """Whether it has claims that are not settled yet: waiting, running or finished."""
        return bool(self._held)

    def holdings(self) -> tuple[set[int], int | None, int]:
        """The tokens of unsettled claims; the last token before a turn under way, if one is; the last one known."""
        with self._lock:
            return set(self._held), self._answered if self._in_flight else None, self._answered

    def forget(self) -> None:
        """The worker has a new id: what it held under the old one is no longer its own."""
        self._lane.waiting.clear()
        with self._lock:
            self._held.clear()
            self._seq = 0
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
            if self._given_up and not lane.finished and not lane.waiting:
                return
            if self.hungry:
                self.on_idle(self)

    def _wait(self) -> None:
        lane = self._lane
        if len(lane.waiting) > lane.capacity // 2 and not self._stopping:
            time.sleep(GATHER_S)
        head = lane.waiting[0] if lane.waiting else None
        while not self._wake.wait(STALL_S if head is not None else None):
            # No run has ended since: all runners are busy with slow jobs, and other workers may be free.
            if len(lane.waiting) > 1 and lane.waiting[0] is head:
                lane.stalled(STALL_S)
                self._return_waiting(keep=1)
                return
            head = lane.waiting[0] if lane.waiting else None
        self._wake.clear()

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

    def _return_waiting(self, keep: int = 0) -> None:
        lane = self._lane
        while len(lane.waiting) > keep:
            try:
                claim = lane.waiting.pop()
            except IndexError:
                return  # a runner was quicker
            lane.finished.append((released(claim), 0.0))

    def _turn(self, settlements: list[Settlement], wanted: int) -> None:
        """Take one turn, however long the broker is away; the repeat of a lost one gets the same answer."""
        self._seq += 1
        turn = Turn(self._worker_id(), self._lane.queue, self._seq, settlements, wanted)
        away_since: float | None = None
        backoff_s = 0.05
        with self._lock:
            self._in_flight = True
        while True:
            try:
                answer = self._app.broker.turn(turn)
                break
            except LeaseLost:
                self._lost(turn.worker)
                # Under the new id these claims are settled if nobody has taken them over yet, else refused.
                self._seq += 1
                turn = Turn(self._worker_id(), self._lane.queue, self._seq, settlements, wanted)
            except Exception as error:
                if away_since is None:
                    away_since = time.monotonic()
                    if not isinstance(error, BrokerError):
                        self._app.logger.exception("a turn on the queue %s failed", self.queue)
                    self._app.telemetry.emit(BrokerAway(self.queue, str(error)))
                if self._given_up:
                    return  # nothing is lost: the claims are taken back when the lease has ended
                time.sleep(backoff_s * (0.5 + random.random()))
                backoff_s = min(backoff_s * 2, LONGEST_BACKOFF_S)
        if away_since is not None:
            self._app.telemetry.emit(BrokerBack(self.queue, time.monotonic() - away_since))
        self._take_in(turn, answer)

    def _take_in(self, turn: Turn, answer: Answer) -> None:
        with self._lock:
            self._in_flight = False
            self._answered = max(self._answered, answer.token)
            for settlement in turn.settlements:
                token = settlement.claim.token
                left = self._held.get(token, 0) - 1
                if left > 0:
                    self._held[token] = left
                else:
                    self._held.pop(token, None)
            # Declared dead since the turn was taken: its claims are given back with all the others.
            claims = answer.claims if turn.worker == self._worker_id() else []
            if claims:
                self._held[answer.token] = len(claims)
        self.due = len(answer.claims) >= turn.limit
        if self._stopping:
            self.wake()  # what this turn brought goes back as well
        if claims:
            self._bus.put(self._lane, claims)
        if answer.refused:
            self._app.telemetry.emit(SettlementRefused(self.queue, answer.refused))
        self._count(turn.settlements, set(answer.refused))

    def _count(self, settlements: Sequence[Settlement], refused: set[str]) -> None:
        buried = []
        for settlement in settlements:
            if settlement.verdict == "done":
                self.processed += 1
            elif settlement.verdict in ("retry", "bury"):
                self.failed += 1
                if settlement.verdict == "bury" and settlement.claim.key not in refused:
                    buried.append(settlement)
        if buried:
            self._buried(buried)
