"""The fetcher of one queue: a thread that takes turns with the broker.

A turn records what has finished and brings what is next, so that a busy worker makes one transaction for many
jobs. The fetcher never runs a job, and only it settles the claims of its queue. While the queue's shard count is
being changed it helps with that, because nothing is claimed until it is done.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..broker import Answer, Turn, is_remote
from ..errors import BrokerError, EnqueueError, LanewayError, LeaseLost
from ..failpoints import armed, reach
from ..outcome import Settlement, released
from ..telemetry import JobsEnqueued, SettlementRefused
from .holdings import Holdings
from .refusals import without_refused
from .run import claims_of

if TYPE_CHECKING:
    from ..app import Laneway
    from .bus import Bus, Lane
    from .outage import Outage
    from .run import Unit
    from .share import Share

#: While the runners have enough to do, so much time is left between two turns for settlements to gather.
GATHER_S = 0.003
#: So long nothing else is done in this process, so that what has just been fetched can begin.
SOON_S = 0.000_5
#: Without any claim taken for so long, what waits is given back for other workers to take.
STALL_S = 0.25
LONGEST_BACKOFF_S = 2.0
#: How long it rests when the queue has due jobs and none of them is for this process: at first, and at most.
IN_VAIN_S = (0.005, 0.1)
#: Between two steps of a change of the shard count: while there is something to move, and when what runs must end.
STEP_S = (0.001, 0.02)


class Fetcher:
    """Fetches and settles one queue for one worker."""

    def __init__(
        self,
        app: Laneway,
        lane: Lane,
        bus: Bus,
        outage: Outage,
        share: Share,
        *,
        worker_id: Callable[[], str],
        held_under: Callable[[], str],
        lost: Callable[[str], None],
        told_buried: Callable[[list[Settlement]], None],
        counted: Callable[[], None],
        fatal: Callable[[BaseException], None],
        moved: Callable[[], None],
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self._app = app
        self._lane = lane
        self._bus = bus
        self._outage = outage
        self._share = share
        self._worker_id = worker_id
        #: The id whose claims are ours: none from when it is known to be lost until there is another.
        self._held_under = held_under
        self._lost = lost
        self._told_buried = told_buried
        #: Told when it has counted what a turn has settled.
        self._counted = counted
        self._fatal = fatal
        #: Tells the worker that this process serves other shards now.
        self._moved = moved
        self._wake = threading.Event()
        self._quit = threading.Event()
        self._pause = pause or self._quit.wait
        self._stopping = False
        #: Held by whoever takes turns: this thread, or the waker on its behalf.
        self._taking = threading.Lock()
        self._seq = 0
        #: Since when it waits for the broker.
        self.asked_at: float | None = None
        #: Whether turns are carried out elsewhere, so that runners can work meanwhile.
        self._overlaps = is_remote(app.broker)
        self._enqueued = app.telemetry.of(JobsEnqueued)
        #: False when the last turn brought all there was; the waker sets it again.
        self.due = True
        #: Tells the waker to look out for this queue.
        self.on_idle: Callable[[Fetcher], None] = lambda fetcher: None
        self.holdings = Holdings()
        self.processed = 0
        self.failed = 0
        self._head: Unit | None = None
        self._head_since = 0.0
        #: Until then, on the monotonic clock, it does not look for work by itself; 0: it does.
        self._rests_until = 0.0
        self._in_vain_s = 0.0
        #: Whether the last turn has brought something, until it has been given time to begin.
        self._brought = False
        #: The shard count that the queue is being changed to; 0 when it is not.
        self._resharding = 0
        self._complained = False
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

    def fetch_now(self) -> None:
        """The same, and the waker takes the turn itself: a job that comes alone need not wait for another thread."""
        self.due = True
        if self._taking.acquire(blocking=False):
            try:
                if not self._stopping:
                    self.round()
            except BaseException as error:
                self._fatal(error)
            finally:
                self._taking.release()
        if self._goes_on() or not self._ends_soon():
            self.wake()  # our own thread goes on from there

    @property
    def name(self) -> str:
        """What it is called when it waits for the broker."""
        return self._lane.queue

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self._lane.queue

    @property
    def hungry(self) -> bool:
        """Whether it has room and would fetch, if there were something due."""
        return not self.due and not self._stopping and not self._rests_until and self._wanted() > 0

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
            while True:
                self._wait()
                with self._taking:
                    if not self.round():
                        return
        except BaseException as error:
            # Without its fetcher a queue would stand still and nobody would know.
            self._fatal(error)

    def round(self) -> bool:
        """Settle what is finished and claim what there is room for. False: it has come to its end."""
        lane = self._lane
        if self._stopping:
            self._return_waiting()
        finished = self._collect()
        wanted = max(0, self._wanted())
        helping = self._resharding and not self._stopping
        if finished or helping or (self.due and wanted):
            self._turn(finished, wanted)
            lane.in_turn = 0
        if self._resharding and not self._stopping:
            self._help_resharding()
        return bool(not self._quit.is_set() or lane.finished or lane.waiting)

    def _wait(self) -> None:
        """Wait for something to do; give back what waits when nobody has taken any of it for a while."""
        lane = self._lane
        if self._goes_on():
            self._wake.clear()
            return
        self._summon()
        if self.hungry:
            if self._ends_soon():
                self._wake.clear()
                return
            self.on_idle(self)
        if lane.capacity > 1 and len(lane.waiting) > lane.capacity // 2 and not self._stopping:
            self._quit.wait(GATHER_S)
        while not self._wake.wait(self._patience_s()):
            if self._stalls_in() == 0:
                # All runners are busy with slow jobs, and other workers may be free.
                lane.stalled(STALL_S)
                self._return_waiting()
                return
            if self._rests_until and time.monotonic() >= self._rests_until:
                self._rests_until = 0.0
                return
        self._wake.clear()

    def _ends_soon(self) -> bool:
        """Leave the processor to what the last turn has brought; whether something of it has ended meanwhile."""
        brought, self._brought = self._brought, False
        return brought and self._wake.wait(SOON_S)

    def _goes_on(self) -> bool:
        """Whether the next turn is taken at once. Idle runners are woken when it is on its way: woken before, they keep
        this thread from sending it until they are done, and have nothing to do while the broker has."""
        lane = self._lane
        if not self._overlaps or self._stopping or self._rests_until or len(lane.waiting) > lane.capacity // 2:
            return False
        return bool(lane.finished) or (self.due and self._wanted() > 0)

    def _patience_s(self) -> float | None:
        """Seconds until there is something to do unasked; None: never."""
        stalls_in = self._stalls_in()
        if not self._rests_until:
            return stalls_in
        rest_s = max(0.0, self._rests_until - time.monotonic())
        return rest_s if stalls_in is None else min(stalls_in, rest_s)

    def _rest(self, seconds: float) -> None:
        self._rests_until = time.monotonic() + seconds

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
        lane.in_turn = len(lane.finished)  # before they are taken out: counted twice is better than not at all
        for _ in range(lane.in_turn):
            settlement, duration_s = lane.finished.popleft()
            settlements.append(settlement)
            if duration_s is not None:
                durations.append(duration_s)
        if durations:
            lane.learn(durations)
        return settlements

    def _return_waiting(self) -> None:
        lane = self._lane
        while lane.waiting:
            try:
                unit = lane.waiting.pop()
            except IndexError:
                return  # a runner was quicker
            lane.finished.extend([(released(claim), None) for claim in claims_of(unit)])

    def _turn(self, settlements: list[Settlement], wanted: int) -> None:
        """Take one turn, however long the broker is away; the repeat of a lost one gets the same answer."""
        self.holdings.ask()
        turn = self._next(settlements, wanted)
        backoff_s = 0.05
        while True:
            try:
                answer = self._ask(turn)
                break
            except LeaseLost:
                self._lost(turn.worker)
                if self._worker_id() == turn.worker:  # no new id to be had yet
                    backoff_s = self._back_off(backoff_s)
                # Under the new id these settlements are refused: the claims went with the old one.
                turn = self._next(settlements, wanted)
            except EnqueueError as error:
                # The broker refuses what a run has enqueued, and will again: that run has failed.
                self._app.logger.error("%s: what a run enqueued cannot be stored: %s", self.queue, error)
                settlements = without_refused(settlements, error)
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
        turn = Turn(self._worker_id(), self._lane.queue, self._seq, settlements)
        self._share.ask(turn, wanted)
        turn.on_sent = self._summon
        return turn

    def _summon(self) -> None:
        """Have the runners take what waits."""
        self._bus.summon(self._lane)

    def _ask(self, turn: Turn) -> Answer:
        if armed and turn.settlements:
            reach("before settle")
        self.asked_at = time.monotonic()
        try:
            answer = self._app.broker.turn(turn)
        finally:
            self.asked_at = None
            self._summon()  # unless the broker has had it done, and whatever became of the turn
        if armed and turn.settlements:
            reach("after settle")
        if armed and answer.claims:
            reach("after claim")
        return answer

    def _back_off(self, pause_s: float) -> float:
        """Wait a while, spread by chance; returns how long to wait the next time."""
        self._pause(pause_s * (0.5 + random.random()))
        return min(pause_s * 2, LONGEST_BACKOFF_S)

    def _take_in(self, turn: Turn, answer: Answer) -> None:
        # Or else declared dead since the turn was taken: its claims are given back with all the others.
        mine = turn.worker == self._held_under()
        for claim in answer.claims:
            claim.worker = turn.worker
        self.holdings.take_in(turn.settlements, answer, keep=mine)
        self.due = len(answer.claims) >= turn.limit
        self._brought = bool(answer.claims)
        self._lane.in_turn = 0
        units = self._share.units(answer.claims)
        self._lane.most = self._share.learn(self._lane.typical_s)
        self._bus.put(self._lane, units if mine else ())
        if not self._goes_on():
            self._summon()
        if mine and turn.worker != self._held_under():
            self.forget()  # lost in between: whoever noticed it may have looked here before there was anything
        self._look_at_shards(turn, answer)
        if self._stopping:
            self.wake()  # what this turn brought goes back as well
        if answer.refused:
            self._app.telemetry.emit(SettlementRefused(self.queue, answer.refused))
        refused = set(answer.refused)
        self._count(turn.settlements, refused)
        if self._enqueued:
            held = [each for each in turn.settlements if each.outbox and each.claim.key not in refused]
            self._app.tell_enqueued(job for settlement in held for job in settlement.outbox or ())

    def _look_at_shards(self, turn: Turn, answer: Answer) -> None:
        """Take in what an answer says of the queue's shards, and rest if none of what is due is ours."""
        self._resharding = answer.resharding
        self._rests_until = 0.0
        if answer.claims or not turn.limit or not self._share.partial:
            self._in_vain_s = 0.0
        else:
            # Somebody else's jobs may be due, and then waiting for due jobs ends at once, again and again.
            least, most = IN_VAIN_S
            self._in_vain_s = min(max(least, self._in_vain_s * 2), most)
            self._rest(self._in_vain_s)
        before = self._share.epoch
        if self._share.told(answer):
            self._moved()
        if self._share.epoch != before:  # now it is known what to ask for
            self._rests_until = 0.0
            self.due = True
            self.wake()

    def _help_resharding(self) -> None:
        """Take a step of changing the shard count: just after a turn has told that it is under way."""
        try:
            step = self._app.broker.reshard(self.queue, self._resharding)
        except Exception as error:
            # The next turn tells what has become of it, or that the broker is away.
            if not isinstance(error, LanewayError) and not self._complained:
                self._complained = True
                self._app.logger.exception("a step of changing the shards of the queue %s failed", self.queue)
            self._rest(STEP_S[1])
            return
        if step.done:
            self._resharding, self._rests_until = 0, 0.0
            self.due = True
            self.wake()
        else:
            self._rest(STEP_S[step.moved >= step.total])

    def _count(self, settlements: Sequence[Settlement], refused: set[str]) -> None:
        exhausted = []
        for settlement in settlements:
            if settlement.claim.key in refused:
                continue
            if settlement.verdict == "done" or settlement.done:
                self.processed += 1
            if settlement.verdict in ("retry", "bury"):
                self.failed += 1
                if settlement.verdict == "bury":
                    exhausted.append(settlement)
        if exhausted:
            self._told_buried(exhausted)
        if settlements:
            self._counted()
