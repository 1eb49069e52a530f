"""`Fetcher`: the thread of one queue that takes turns with the broker; `TurnClient` repeats each turn.

A turn settles finished claims and claims new jobs, so a busy worker needs one transaction for many jobs. The fetcher
never runs a job, and no other part settles the claims of its queue. `TurnClient` takes one turn at a time and repeats
it until the broker answers; the repeat of a lost turn gets the same answer. If it gives up at shutdown, no job is
lost: the claims are taken back when the lease has ended. While the queue is resharded no job is claimed, so the
fetcher helps with the resharding.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...broker import Answer, Turn
from ...errors import BrokerError, EnqueueError, LeaseLost, NoQueueError
from ...failpoints import armed, reach
from ...jobs.settlement import Settlement, released
from ..lease.holdings import Holdings
from ..run.report import SettlementReport
from ..run.run import claims_of
from .bus import FetchAllowance
from .prefetch import STALL_S, SettlementBuffer, StallTimer
from .shards import ShardWatch

if TYPE_CHECKING:
    from ...app import Laneway
    from ..outage import MissingQueues, Outage
    from ..run.decide import OutboxRefusals
    from .bus import Bus
    from .prefetch import Lane
    from .shards import ShardAssignment

#: The first and the longest pause before a call is repeated.
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.05, 2.0


class TurnClient:
    """The turns of one worker on one queue, in order."""

    def __init__(
        self,
        app: Laneway,
        queue: str,
        outage: Outage,
        missing: MissingQueues,
        share: ShardAssignment,
        refusals: OutboxRefusals,
        *,
        worker_id: Callable[[], str],
        lost: Callable[[str], None],
        given_up: Callable[[], bool],
        pause: Callable[[float], object],
        summon: Callable[[], None],
    ) -> None:
        self._app = app
        self._queue = queue
        self._outage = outage
        self._missing = missing
        self._share = share
        self._refusals = refusals
        self._worker_id = worker_id
        self._lost = lost
        #: Whether to stop waiting for a broker that is away.
        self._given_up = given_up
        self._pause = pause
        #: Wakes the runners for the units that wait.
        self._wake_runners = summon
        self._seq = 0
        #: Since when it has been waiting for the broker.
        self.asked_at: float | None = None

    def take(self, settlements: list[Settlement], wanted: int) -> tuple[Turn, Answer] | None:
        """Take one turn. The repeat of a lost turn gets the same answer.

        None: the turn was given up. No job is lost, because the claims are taken back when the lease has ended.
        """
        turn = self._next(settlements, wanted)
        backoff_s = FIRST_BACKOFF_S
        while True:
            try:
                answer = self._ask(turn)
                break
            except LeaseLost:
                self._lost(turn.worker)
                if self._worker_id() == turn.worker:  # there is no new id yet
                    backoff_s = self._back_off(backoff_s)
                # Under the new id these settlements are refused, because the claims belong to the old id.
                turn = self._next(settlements, wanted)
            except EnqueueError as error:
                settlements = self._refusals.fail(settlements, error)
                turn = self._next(settlements, wanted)
            except NoQueueError as error:
                self._outage.back(self._queue)  # the broker answers
                self._missing.miss(self._queue, str(error))
                if self._given_up():
                    return None
                backoff_s = self._back_off(backoff_s)
            except Exception as error:
                if not isinstance(error, BrokerError):
                    self._app.logger.exception("a turn on the queue %s failed", self._queue)
                self._outage.away(self._queue, error)
                if self._given_up():
                    return None
                backoff_s = self._back_off(backoff_s)
        self._outage.back(self._queue)
        self._missing.found(self._queue)
        return turn, answer

    def _next(self, settlements: list[Settlement], wanted: int) -> Turn:
        self._seq += 1
        turn = Turn(self._worker_id(), self._queue, self._seq, settlements)
        self._share.ask(turn, wanted)
        turn.on_sent = self._wake_runners
        return turn

    def _ask(self, turn: Turn) -> Answer:
        if armed and turn.settlements:
            reach("before settle")
        self.asked_at = time.monotonic()
        try:
            answer = self._app.broker.turn(turn)
        finally:
            self.asked_at = None
            self._wake_runners()  # also if the turn failed; the broker may have done it already, by `on_sent`
        if armed and turn.settlements:
            reach("after settle")
        if armed and answer.claims:
            reach("after claim")
        return answer

    def _back_off(self, pause_s: float) -> float:
        """Wait for about `pause_s`, with random spread. Returns how long to wait the next time."""
        self._pause(pause_s * (0.5 + random.random()))
        return min(pause_s * 2, LONGEST_BACKOFF_S)


#: Seconds to wait before a turn while the runners have enough to do, so that it records more settlements.
GATHER_S = 0.003
#: Seconds for which the fetcher leaves the processor to the runners, so that the jobs just fetched can start.
SOON_S = 0.000_5


class Fetcher:
    """Fetches and settles one queue for one worker."""

    def __init__(
        self,
        app: Laneway,
        lane: Lane,
        bus: Bus,
        outage: Outage,
        missing: MissingQueues,
        share: ShardAssignment,
        refusals: OutboxRefusals,
        *,
        worker_id: Callable[[], str],
        held_under: Callable[[], str],
        lost: Callable[[str], None],
        told_buried: Callable[[list[Settlement]], None],
        counted: Callable[[], None],
        fatal: Callable[[BaseException], None],
        moved: Callable[[], None],
        may_begin: Callable[[], bool] | None = None,
    ) -> None:
        self._lane = lane
        self._bus = bus
        self._share = share
        #: The worker id whose claims are ours; empty from when the lease is known to be lost until there is a new id.
        self._held_under = held_under
        self._fatal = fatal
        #: Whether a job claimed now may be started. None: not checked here; a runner gives back a job that it must not
        #: start.
        self._may_begin = may_begin
        self._wake = threading.Event()
        self._quit = threading.Event()
        self._stopping = False
        #: Held by the thread that takes turns: the fetcher's own, or the waker on its behalf.
        self._taking = threading.Lock()
        self._turns = TurnClient(
            app,
            lane.queue,
            outage,
            missing,
            share,
            refusals,
            worker_id=worker_id,
            lost=lost,
            given_up=self._quit.is_set,
            pause=self._rest,
            summon=self._wake_runners,
        )
        gather = app.broker.capabilities.settle_batch
        self._gathering = SettlementBuffer(lane, gather)
        #: How many jobs fill a request, for a broker that counts requests.
        self._full = gather.count
        self._shards = ShardWatch(app, lane.queue, share, moved)
        self._room = FetchAllowance(lane, bus)
        self._stall = StallTimer(lane, bus)
        self._settled = SettlementReport(app, lane.queue, told_buried, counted)
        #: Whether a remote broker carries out the turns, so that runners can work meanwhile.
        self._overlaps = app.broker.capabilities.remote
        #: Tells the waker to wait for due jobs of this queue.
        self.on_idle: Callable[[Fetcher], None] = lambda fetcher: None
        self.holdings = Holdings()
        #: Whether the last turn brought claims that have not been given time to start yet.
        self._brought = False
        lane.wake = self.wake
        self._thread = threading.Thread(target=self._main, name=f"laneway-fetch-{lane.queue}", daemon=True)

    # -- calls from other parts ------------------------------------------------------------------------

    def start(self) -> None:
        """Start fetching."""
        self._wake.set()
        self._thread.start()

    def wake(self) -> None:
        """Wake the thread: there is a claim to settle, room to fetch, or a reason to stop."""
        if not self._wake.is_set():
            self._wake.set()

    def work_is_due(self) -> None:
        """The waker has seen a due job in this queue."""
        self._lane.due = True
        self.wake()

    def fetch_now(self) -> None:
        """Like `work_is_due`, but the waker takes the turn itself, so that a single job does not wait for a thread."""
        self._lane.due = True
        if self._taking.acquire(blocking=False):
            try:
                if not self._stopping:
                    self.round()
            except BaseException as error:
                self._fatal(error)
            finally:
                self._taking.release()
        if self._goes_on() or not self._ends_soon():
            self.wake()  # the fetcher's own thread continues

    @property
    def name(self) -> str:
        """Its name for `Outage` when it waits for the broker."""
        return self._lane.queue

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self._lane.queue

    @property
    def served(self) -> list[int] | None:
        """The shards that it may claim from. None: all, or not known while the queue is being resharded."""
        return None if self._shards.resharding else self._share.served

    @property
    def asked_at(self) -> float | None:
        """Since when it has been waiting for the broker; None: it is not waiting."""
        return self._turns.asked_at

    @property
    def processed(self) -> int:
        """How many of the keys that it has settled were done, at least in part."""
        return self._settled.processed

    @property
    def failed(self) -> int:
        """How many of the keys that it has settled have failed."""
        return self._settled.failed

    @property
    def hungry(self) -> bool:
        """Whether it has room and would fetch if a job were due."""
        return not self._lane.due and not self._stopping and not self._shards.rests_until and self._wanted() > 0

    def stop(self) -> None:
        """Stop fetching and give back claims that have not started. Runs that finish are still settled."""
        self._stopping = self._gathering.at_once = True
        self.wake()

    def finish(self) -> None:
        """Settle the finished claims that are left, and end. Do not wait for a broker that is away."""
        self._gathering.at_once = True
        self._quit.set()
        self.wake()

    def join(self, timeout_s: float) -> bool:
        """Wait until the thread has ended. False: a claim is left unsettled.

        Other workers take it over, at the latest when the lease has run out.
        """
        self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive() and not self.holdings

    def forget(self) -> None:
        """Drop everything that was claimed under a lost id: it no longer belongs to this worker."""
        self._lane.waiting.clear()
        self.holdings.forget()
        self.work_is_due()

    # -- the thread ------------------------------------------------------------------------------------

    def _main(self) -> None:
        try:
            while True:
                self._wait()
                with self._taking:
                    if not self.round():
                        return
        except BaseException as error:
            # Without its fetcher the queue would stand still, and no part would report it.
            self._fatal(error)

    def round(self) -> bool:
        """Settle finished claims, and claim as many jobs as there is room for. False: the fetcher is done."""
        lane, shards = self._lane, self._shards
        if self._stopping:
            self._return_waiting()
        finished = self._gathering.take()
        wanted = max(0, self._wanted())
        helping = shards.resharding and not self._stopping
        if finished or helping or (lane.due and wanted):
            self._turn(finished, wanted)
            lane.in_turn = 0
        if shards.resharding and not self._stopping and shards.help():
            self.work_is_due()
        return bool(not self._quit.is_set() or lane.finished or lane.waiting)

    def _wait(self) -> None:
        """Wait for something to do. Give back the waiting claims if no runner has taken one for a while."""
        lane = self._lane
        if self._goes_on():
            self._wake.clear()
            return
        self._wake_runners()
        if self.hungry:
            if self._ends_soon():
                self._wake.clear()
                return
            self.on_idle(self)
        if lane.capacity > 1 and len(lane.waiting) > lane.capacity // 2 and not self._stopping:
            self._quit.wait(GATHER_S)
        while not self._wake.wait(self._patience_s()):
            if self._stall.due_in() == 0:
                # All runners are busy with slow jobs, and other workers may be free.
                lane.stalled(STALL_S)
                self._return_waiting()
                return
            if self._shards.is_rested() or self._room.is_over() or self._gathering.due_in() == 0:
                return
        self._wake.clear()

    def _ends_soon(self) -> bool:
        """Leave the processor to the jobs of the last turn. True: the fetcher was woken meanwhile, as when one ends."""
        brought, self._brought = self._brought, False
        return brought and self._wake.wait(SOON_S)

    def _goes_on(self) -> bool:
        """Whether the next turn is taken at once.

        If so, idle runners are woken only when the turn is on its way. If they were woken earlier, they would keep this
        thread from sending it until they are done, and would have nothing to do while the broker works on it.
        """
        lane = self._lane
        if not self._overlaps or self._stopping or self._shards.rests_until or len(lane.waiting) > lane.capacity // 2:
            return False
        return self._gathering.ready() or (lane.due and self._wanted() > 0)

    def _patience_s(self) -> float | None:
        """Seconds until there is something to do without a call of `wake`; None: never."""
        times = (self._stall.due_in(), self._shards.rest_s(), self._room.due_in(), self._gathering.due_in())
        return min((seconds for seconds in times if seconds is not None), default=None)

    def _wanted(self) -> int:
        if self._stopping or (self._may_begin is not None and not self._may_begin()):
            return 0
        lane = self._lane
        room = self._room.units()
        if self._full > 1 and room < min(self._full, max(1, lane.capacity * 3 // 4)):
            return 0  # there are jobs to run meanwhile, and a request for a few jobs costs as much as a full one
        return room

    def _return_waiting(self) -> None:
        lane = self._lane
        while lane.waiting:
            try:
                unit = lane.waiting.pop()
            except IndexError:
                return  # a runner took it first
            lane.finished.extend([(released(claim), None) for claim in claims_of(unit)])

    def _wake_runners(self) -> None:
        """Wake the runners for the units that wait."""
        self._bus.wake_runners(self._lane)

    # -- turns -----------------------------------------------------------------------------------------

    def _turn(self, settlements: list[Settlement], wanted: int) -> None:
        """Take one turn, however long the broker is away, and process its answer."""
        self.holdings.ask()
        taken = self._turns.take(settlements, wanted)
        if taken is not None:
            self._take_in(*taken)

    def _rest(self, seconds: float) -> None:
        """Wait before a failed turn is repeated. Meanwhile other lanes need not leave a runner to this one."""
        self._lane.fails = True
        self._bus.turned(self._lane)
        self._quit.wait(seconds)

    def _take_in(self, turn: Turn, answer: Answer) -> None:
        # False: the worker was declared dead since the turn was taken. These claims are given back with all its claims.
        mine = turn.worker == self._held_under()
        for claim in answer.claims:
            claim.worker = turn.worker
        self.holdings.take_in(turn.settlements, answer, keep=mine)
        self._lane.due = len(answer.claims) >= turn.limit
        self._lane.fails = False
        self._room.taken()
        self._brought = bool(answer.claims)
        self._lane.in_turn = 0
        units = self._share.units(answer.claims)
        self._lane.most = self._share.learn(self._lane.typical_s)
        self._bus.put(self._lane, units if mine else ())
        if not self._goes_on():
            self._wake_runners()
        self._bus.turned(self._lane)
        if mine and turn.worker != self._held_under():
            self.forget()  # lost in between: the thread that noticed may have cleared the lane too early
        if self._shards.take_in(turn, answer):
            self.work_is_due()
        if self._stopping:
            self.wake()  # the claims of this turn are given back as well
        self._settled.take_in(turn.settlements, answer.refused, answer.stayed)
