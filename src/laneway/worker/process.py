"""The worker: it puts the parts together, starts them, and stops them in the right order.

waker ─► fetchers (one a queue) ─► bus ─► runner threads, event loop
            ▲                                      │
            └───────────── settlements ◄───────────┘        keeper: the lease
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..broker import is_remote, is_undelivered
from ..clock import Clock, SystemClock
from ..config import WorkerOptions, raise_problems
from ..errors import BrokerAwayError, ConfigError, LanewayError
from ..job import Started
from ..logs import EventLog
from ..logs.sentences import what_was_lost
from ..telemetry import BrokerAway, BrokerBack, WorkerStarted, WorkerStopped, WorkerStopping, WorkerWaiting
from . import schedulers, splitters
from .apart import Apart
from .asking import answer_of
from .bus import Bus, Lane
from .crew import Crew
from .failure import describe
from .fetcher import LONGEST_BACKOFF_S, Fetcher
from .hooks import Hooks
from .isolation import Pool, see_not_isolated
from .lease import Keeper
from .link import Beat, Joined, Leaving, Link
from .loop import AsyncLoop
from .membership import Membership, is_forgotten
from .outage import Outage
from .pulse import Pulse
from .run import Run
from .runner import Runner
from .share import Share
from .signals import handle_signals, restore_signals, stacks
from .stopping import FIRST_SAY_S, Stopping
from .waker import Waker

if TYPE_CHECKING:
    from ..app import Laneway

#: How long the broker may take to record the last settlements; and if it is known to be away.
LAST_TURN_S, LAST_TURN_AWAY_S = 5.0, 1.0
#: How long it may take to note that a worker leaves, if a supervisor will say so anyway, or it seems to be away.
GOODBYE_S = 2.0
#: How long the parts that wait for it are waited for; then it counts as silent.
SILENT_S = 1.0


class Worker:
    """Runs an app's jobs: as a process with `run`, or in the threads of another program with `start` and `stop`."""

    def __init__(self, app: Laneway, options: WorkerOptions | None = None, *, clock: Clock | None = None) -> None:
        self.app = app
        self.options = options or WorkerOptions()
        self._clock = clock or SystemClock()
        raise_problems(self.options.validate())
        self._membership: Membership | None = None
        self._started = False
        self._stopping = Stopping()
        self._died: BaseException | None = None
        #: The runs that ended the worker.
        self._blamed: list[Started] = []
        self._link: Link | None = None
        #: A job may end the worker before it has quite started.
        self._lifecycle = threading.RLock()
        self._in_process = False
        #: Signals that came before `run` could handle them.
        self.told: Sequence[int] = ()

    @property
    def id(self) -> str:
        """What the broker knows it by; empty before the first start, and another one when a lease was lost."""
        return self._membership.id if self._membership else ""

    def supervised_by(self, link: Link) -> None:
        """Be a child: a supervisor renews the lease too, and ends this process when it must not go on."""
        self._link = link
        link.on_retire = self._stopping.retire
        link.on_give_up = self._stopping.give_up

    # -- as a process ----------------------------------------------------------------------------------

    def run(self) -> int:
        """Run until told to stop. 0: everything was finished or given back; 1: jobs were abandoned, or it died."""
        arm_failpoints()
        before = handle_signals(self._stopping.signalled, self._show_stacks)
        for number in self.told:
            self._stopping.signalled(number)
        self._in_process = True
        try:
            self.start()
            # Not without a timeout: a signal that another thread receives does not end the main thread's waiting.
            while not self._stopping.asked.wait(0.05 if self.options.until_empty else 0.5):
                if self.options.until_empty and self.is_empty():
                    break
            finished = self.stop()
        finally:
            self._in_process = False
            self._stopping.reset()
            restore_signals(before)
        return 0 if finished and self._died is None else 1

    def _show_stacks(self) -> None:
        self.app.logger.warning("stacks of all threads:\n%s", stacks())
        if self._started:
            self._pool.show_stacks()

    def is_empty(self) -> bool:
        """Whether nothing is due or runs in its queues, here or elsewhere, and all that runs have sent is stored."""
        names = {lane.queue for lane in self._lanes}
        try:
            before = self._idle(names)
            # What was in one shard when the others were looked at may have got into another one since, by a run.
            return before is not None and not is_undelivered(self.app.broker, names) and before == self._idle(names)
        except LanewayError:
            return False  # the fetchers say that it is away

    def _idle(self, names: set[str]) -> list[tuple[int, int]] | None:
        """How many runs of its queues have ended, and how many of them failed, if there is nothing to be done now."""
        if self._unfinished():
            return None
        queues = [stats for stats in self.app.broker.stats() if stats.queue in names]
        if any(stats.busy or not (stats.paused or stats.length == stats.delayed) for stats in queues):
            return None
        return [(stats.processed, stats.failed) for stats in queues]

    # -- in threads ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to fetch and run, in threads of this process. After `stop` it may be started again."""
        with self._lifecycle:
            see_not_isolated()
            if self._started:
                raise ConfigError("The worker is running already; stop it first, or make another one.")
            if self.options.processes > 1 and self._link is None:
                raise ConfigError(
                    f"A worker inside a program is one process, and processes is {self.options.processes}; leave it "
                    "out, or run `laneway worker` with -w."
                )
            try:
                self._start()
            except BaseException as error:
                self._say_last_words(error)
                raise

    def stop(self, timeout_s: float | None = None) -> bool:
        """Stop fetching, give back what has not started, and let what runs finish. False: some had to be abandoned."""
        self._stopping.asked.set()  # also for a start that waits for the broker
        with self._lifecycle:
            try:
                return self._stop(timeout_s)
            finally:
                if not self._in_process:
                    self._stopping.asked.clear()

    def _start(self) -> None:
        self.app.load()
        if not len(self.app.registry):
            raise ConfigError(
                "The app has no tasks; declare some with @app.task, or name their modules in imports=[…]."
            )
        self._pool = Pool(self.app, self.options)
        self._pool.check()
        queues = list(self.options.queues or self.app.queues())
        concurrency = self.options.concurrency
        splitter = self.options.splitter or self.app.splitter or splitters.from_environment() or splitters.default
        scheduler = self.options.scheduler or self.app.scheduler or schedulers.lag
        shares = {name: Share(self.app, name, splitter, scheduler) for name in queues}
        self._lanes = [Lane(name, concurrency) for name in queues]
        self._bus = Bus(self._lanes, concurrency)
        self._bus.on_room = self._wake_fetchers
        self._loop = AsyncLoop(self._bus, self._die)
        self._outage = Outage(self.app.telemetry, self._tell_beat)
        membership = self._membership = Membership(self.app, self.options, self._clock, shares, self._outage)
        worker_id = lambda: membership.id  # noqa: E731 - it changes when a lease is lost
        held_under = lambda: membership.held_under  # noqa: E731 - and so does this
        self._fetchers = [
            Fetcher(
                self.app,
                lane,
                self._bus,
                self._outage,
                shares[lane.queue],
                worker_id=worker_id,
                held_under=held_under,
                lost=self._lease_lost,
                told_buried=lambda settlements: self._hooks.told_buried(settlements),
                counted=self._counted,
                fatal=self._die,
                moved=membership.tell_shards,
            )
            for lane in self._lanes
        ]
        self._waker = Waker(self.app, self._fetchers, self._outage)
        self._keeper = Keeper(
            self.app,
            self._clock,
            self._fetchers,
            self._outage,
            lease_s=self.options.lease_s,
            worker_id=worker_id,
            lost=self._lease_lost,
            sweeps=self._link is None,
            ended_in_time=self._link is not None and is_remote(self.app.broker),
        )
        self._pulse = Pulse(
            self._clock, [*self._fetchers, self._keeper], self._outage, self.options.lease_s, self._tell_beat
        )
        membership.forget = self._forget
        membership.joined = self._joined
        self._runner = Runner(
            self.app,
            fatal=self._die,
            wait_for=self._loop.wait_for,
            clock=self._clock,
            held_under=held_under,
            valid_until=lambda: self._keeper.valid_until,
            board=self._link.board if self._link else None,
            pool=self._pool,
        )
        apart = Apart(self.app, self._runner, self._pool)
        self._bus.grow = Crew(self._bus, self._runner, self._loop, apart, self._die, concurrency).grow
        self._hooks = Hooks(self.app, self._clock)
        self._died = None
        self._blamed = []
        # That the broker is away a supervisor says, once for all.
        unsaid = (BrokerAway, BrokerBack) if self._link else ()
        self._log = EventLog(self.app, verbose=self.options.verbose, slow_s=self.options.slow_s, unsaid=unsaid)
        self._log.start()
        try:
            self._call_on_start()
            self._insist(membership.join)
        except BaseException:
            self._log.stop()
            raise
        self._started = True
        self.app.telemetry.emit(WorkerStarted(self.id, queues, concurrency, len(self.app.registry)))
        self._hooks.start()
        for fetcher in self._fetchers:
            fetcher.start()
        self._waker.start()
        self._keeper.start()
        self._pulse.start()

    def _stop(self, timeout_s: float | None) -> bool:
        if not self._started:
            return True
        self._started = False
        timeout_s = self.options.shutdown_timeout_s if timeout_s is None else timeout_s
        self._runner.stop()
        for fetcher in self._fetchers:
            fetcher.stop()
        running = self._runner.running
        self.app.telemetry.emit(WorkerStopping(self.id, _names(running)))
        self._stopping.wait(
            self._unfinished,
            timeout_s,
            lambda left_s: self.app.telemetry.emit(WorkerWaiting(self.id, _names(running), left_s)),
        )
        abandoned = len(running)
        self._bus.close()
        self._end_isolated()
        for fetcher in self._fetchers:
            fetcher.finish()
        settled = self._join_fetchers()
        if self._died is None:  # the claim that ended the worker is unsettled too, but nothing runs it any more
            unsettled = (
                len(each.holdings) or 1
                for each, is_settled in zip(self._fetchers, settled, strict=True)
                if not is_settled
            )
            abandoned = max(abandoned, sum(unsettled))
        idle = [part.stop(0.0 if self._outage else SILENT_S) for part in (self._waker, self._keeper)]
        self._loop.stop()
        self._hooks.stop(LAST_TURN_S)
        self._pulse.stop()
        self._tell_beat()
        if self._link is not None:
            self._link.tell(Leaving(self._blamed, finished=not abandoned and self._died is None))
        if not abandoned or (not running and all(settled)):
            # What still runs must not be handed out while it does: that is left to the supervisor, who knows when this
            # process is gone, or the lease to run out.
            self._say_goodbye(silent=not all(idle))
        processed = sum(fetcher.processed for fetcher in self._fetchers)
        failed = sum(fetcher.failed for fetcher in self._fetchers)
        self.app.telemetry.emit(WorkerStopped(self.id, abandoned, processed, failed))
        if self._died is not None:
            self._say_last_words(self._died)
        self._log.stop()
        return not abandoned

    def _join_fetchers(self) -> list[bool]:
        """Have the fetchers settle what is left; whether each has."""
        deadline = time.monotonic() + (LAST_TURN_AWAY_S if self._outage else LAST_TURN_S)
        say_at = min(time.monotonic() + FIRST_SAY_S, deadline)
        settled = [fetcher.join(say_at - time.monotonic()) for fetcher in self._fetchers]
        if not all(settled) and say_at <= time.monotonic() < deadline - 0.1:
            self.app.telemetry.emit(WorkerWaiting(self.id, [], deadline - time.monotonic()))
            settled = [fetcher.join(deadline - time.monotonic()) for fetcher in self._fetchers]
        return settled

    def _say_goodbye(self, silent: bool) -> None:
        assert self._membership is not None, "it was started"
        if self._link is None:
            self._membership.leave(self._blamed, GOODBYE_S if silent else LAST_TURN_S, "The lease will run out.")
        elif not silent and not self._outage:  # else it is left to the supervisor, who says it for whoever has ended
            self._membership.leave(self._blamed, GOODBYE_S, "The supervisor tries again.")

    def _end_isolated(self) -> None:
        """End what runs in other processes, so that nothing runs on; their claims are given back."""
        self._pool.close()
        given_back = time.monotonic() + LAST_TURN_S
        while any(run.apart for run in list(self._runner.running.values())) and time.monotonic() < given_back:
            time.sleep(0.001)

    def _unfinished(self) -> bool:
        """Whether a claim is still waiting, running or unsettled; the one that ended the worker does not count."""
        if self._died is not None:
            return bool(self._runner.running)
        return bool(self._runner.running) or any(fetcher.holdings for fetcher in self._fetchers)

    # -- its parts' questions --------------------------------------------------------------------------

    def _insist(self, step: Callable[[], None]) -> None:
        """Carry out a step, however long the broker is away, unless the worker is told to stop."""
        backoff_s = 0.05
        while True:
            try:
                answer_of(step, unless=self._stopping.asked.is_set)
                break
            except BrokerAwayError as error:
                self._outage.away("worker", error)
                if self._stopping.asked.wait(backoff_s * (0.5 + random.random())):
                    raise
                backoff_s = min(backoff_s * 2, LONGEST_BACKOFF_S)
        self._outage.back("worker")

    def _call_on_start(self) -> None:
        try:
            if self.app.on_start is not None:
                self.app.on_start()
        except BaseException as error:
            self.app.logger.critical("on_start failed, so the worker does not start: %s", describe(error))
            raise

    def _joined(self, began: float) -> None:
        self._keeper.joined(began)
        if self._link is not None:
            # Before anything is claimed: a supervisor that has not heard of the id could not give its claims back.
            self._link.tell(Joined(self.id, began))

    def _lease_lost(self, lost: str) -> None:
        """Others have what was claimed under this id, or will: go on under another one, unless something runs."""
        assert self._membership is not None, "it was started"
        if self._link is not None and self._runner.running and self._membership.id == lost:
            # It may be running elsewhere by now. The supervisor starts another process in place of this one.
            forgotten = is_forgotten(self.app.broker, lost)
            why = "nothing that it runs can be settled" if forgotten else "others may run its jobs"
            self.app.logger.error("%s; it ends at once, because %s", what_was_lost(lost, forgotten), why)
            self._link.tell(Leaving(finished=False))
            self._log.stop()
            os._exit(1)
        self._membership.rejoin(lost)

    def _tell_beat(self) -> None:
        if self._link is not None:
            processed = sum(fetcher.processed for fetcher in self._fetchers)
            failed = sum(fetcher.failed for fetcher in self._fetchers)
            away = self._outage.error if self._outage else ""
            running, counted, renewed_at = len(self._runner.running), self._link.counted(), self._keeper.renewed_at
            self._link.tell(Beat(processed, failed, running, away, self._outage.refused, counted, renewed_at))

    def _counted(self) -> None:
        """Tell at once when another process is to take this one's place: a second is many jobs, if they are small."""
        link = self._link
        if link is None or not link.tell_at:
            return
        if sum(fetcher.processed + fetcher.failed for fetcher in self._fetchers) >= link.tell_at:
            link.tell_at = 0
            self._tell_beat()

    def _forget(self) -> None:
        for fetcher in self._fetchers:
            fetcher.forget()

    def _wake_fetchers(self) -> None:
        for fetcher in self._fetchers:
            fetcher.wake()

    def _say_last_words(self, error: BaseException) -> None:
        if self.app.last_words is None:
            return
        try:
            self.app.last_words(error)
        except Exception:
            self.app.logger.exception("last_words failed")

    def _die(self, error: BaseException, run: Run | None = None) -> None:
        """A handler raised what is not an Exception, or a part of the worker broke: the worker ends.

        The claim stays unsettled and is taken back, its retry_count unchanged; of a key's calls, those that had not
        succeeded. Nothing is claimed from here on.
        """
        self._runner.stop()
        for fetcher in self._fetchers:
            fetcher.stop()
        job = f" in {run.call.task.name} {run.claim.key}" if run else ""
        self.app.logger.critical("%s%s ends the worker", type(error).__name__, job, exc_info=error)
        first, self._died = self._died is None, error
        self._blamed += run.started() if run else []
        if self._in_process:
            self._stopping.asked.set()
        elif first:
            # Inside another program nobody waits for it: it stops itself. Not in this thread, which it waits for.
            threading.Thread(target=self.stop, name="laneway-stop", daemon=True).start()


def arm_failpoints() -> None:
    """Have things happen at named places, if the environment asks for it: for tests that kill whole processes."""
    if os.environ.get("LANEWAY_FAILPOINTS"):
        from ..testing.failpoints import arm_from_environment  # nobody else needs it

        arm_from_environment(os.environ)


def _names(running: dict[int, Run]) -> list[str]:
    return [f"{run.call.task.name} {run.claim.key}" for run in list(running.values())]
