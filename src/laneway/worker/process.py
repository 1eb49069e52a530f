"""The worker: it puts the parts together, starts them, and stops them in the right order.

waker ─► fetchers (one a queue) ─► bus ─► runner threads, event loop
            ▲                                      │
            └───────────── settlements ◄───────────┘        keeper: the lease
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..clock import Clock, SystemClock
from ..config import WorkerOptions, raise_problems
from ..errors import ConfigError
from ..ids import new_id
from ..job import JobView, WorkerView
from ..outcome import Settlement
from ..shards import DEFAULT_SHARDS
from ..telemetry import LeaseEnded, WorkerStarted, WorkerStopped, WorkerStopping
from .bus import Bus, Lane
from .fetcher import Fetcher
from .lease import Keeper
from .loop import AsyncLoop
from .runner import Run, Runner
from .signals import handle_signals, restore_signals, stacks
from .waker import Waker

if TYPE_CHECKING:
    from ..app import Laneway

#: How long the broker may take to record the last settlements.
LAST_TURN_S = 5.0


class Worker:
    """Runs an app's jobs: as a process with `run`, or in the threads of another program with `start` and `stop`."""

    def __init__(self, app: Laneway, options: WorkerOptions | None = None, *, clock: Clock | None = None) -> None:
        self.app = app
        self.options = options or WorkerOptions()
        self._clock = clock or SystemClock()
        raise_problems(self.options.validate())
        self.id = ""
        self._threads: list[threading.Thread] = []
        self._stop_asked = threading.Event()
        self._give_up = threading.Event()
        self._died: BaseException | None = None
        self._identity = threading.Lock()
        self._hooks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    # -- as a process ----------------------------------------------------------------------------------

    def run(self) -> int:
        """Run until told to stop. 0: everything was finished or given back; 1: jobs were abandoned, or it died."""
        self._stop_asked.clear()
        self._give_up.clear()
        before = handle_signals(self._signalled, self._show_stacks)
        try:
            self.start()
            while not self._stop_asked.wait(0.05 if self.options.until_empty else None):
                if self.is_empty():
                    break
            finished = self.stop()
        finally:
            restore_signals(before)
        return 0 if finished and self._died is None else 1

    def _signalled(self, number: int) -> None:
        if self._stop_asked.is_set() and number == signal.SIGINT:
            self._give_up.set()
        self._stop_asked.set()

    def _show_stacks(self) -> None:
        self.app.logger.warning("stacks of all threads:\n%s", stacks())

    def is_empty(self) -> bool:
        """Whether nothing is due and nothing runs in its queues, here or elsewhere."""
        if self._runner.running or any(lane.waiting or lane.finished for lane in self._lanes):
            return False
        names = [lane.queue for lane in self._lanes]
        if self.app.broker.wait(names, 0):
            return False
        return not any(stats.busy for stats in self.app.broker.stats() if stats.queue in names)

    # -- in threads ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to fetch and run, in threads of this process. After `stop` it may be started again."""
        self.app.load()
        if not len(self.app.registry):
            raise ConfigError(
                "The app has no tasks; declare some with @app.task, or name their modules in imports=[…]."
            )
        queues = list(self.options.queues or self.app.queues())
        for name in queues:
            self.app.broker.declare(name, DEFAULT_SHARDS)
        concurrency = self.options.concurrency
        self._lanes = [Lane(name, concurrency) for name in queues]
        self._bus = Bus(self._lanes, concurrency)
        self._bus.grow = self._start_runner
        self._runner = Runner(self.app, self._die)
        self._loop = AsyncLoop(self._bus, self._runner)
        worker_id = lambda: self.id  # noqa: E731 - it changes when a lease is lost
        self._fetchers = [
            Fetcher(
                self.app,
                lane,
                self._bus,
                worker_id=worker_id,
                lost=self._rejoin,
                buried=self._buried,
                fatal=self._die,
            )
            for lane in self._lanes
        ]
        self._waker = Waker(self.app, self._fetchers)
        self._keeper = Keeper(
            self.app,
            self._clock,
            self._fetchers,
            lease_s=self.options.lease_s,
            worker_id=worker_id,
            lost=self._rejoin,
        )
        self._died = None
        self._threads = []
        self._join()
        self.app.telemetry.emit(WorkerStarted(self.id, queues, concurrency, len(self.app.registry)))
        self._hook_thread = threading.Thread(target=self._run_hooks, name="laneway-hooks", daemon=True)
        self._hook_thread.start()
        for fetcher in self._fetchers:
            fetcher.start()
        self._waker.start()
        self._keeper.start()

    def stop(self, timeout_s: float | None = None) -> bool:
        """Stop fetching, give back what has not started, and let what runs finish. False: some had to be abandoned."""
        deadline = time.monotonic() + (self.options.shutdown_timeout_s if timeout_s is None else timeout_s)
        for fetcher in self._fetchers:
            fetcher.stop()
        running = self._runner.running
        self.app.telemetry.emit(WorkerStopping(self.id, _names(running)))
        while self._unfinished() and time.monotonic() < deadline and not self._give_up.wait(0.005):
            pass
        abandoned = len(running)
        self._bus.close()
        for fetcher in self._fetchers:
            fetcher.finish(LAST_TURN_S)
        self._waker.stop()
        self._keeper.stop()
        self._loop.stop()
        self._hooks.put(None)
        self._hook_thread.join(LAST_TURN_S)
        if not abandoned:
            # What still runs must not be handed out while it does: then the lease is left to run out.
            self._leave()
        processed = sum(fetcher.processed for fetcher in self._fetchers)
        failed = sum(fetcher.failed for fetcher in self._fetchers)
        self.app.telemetry.emit(WorkerStopped(self.id, abandoned, processed, failed))
        return not abandoned

    def _unfinished(self) -> bool:
        """Whether a claim is still waiting, running or unsettled; the one that ended the worker does not count."""
        if self._died is not None:
            return bool(self._runner.running)
        return bool(self._runner.running) or any(fetcher.holds_any for fetcher in self._fetchers)

    # -- its parts' questions --------------------------------------------------------------------------

    def _join(self) -> None:
        self.id = new_id()
        now = self._clock.now()
        self.app.broker.join(
            WorkerView(
                id=self.id,
                host=socket.gethostname(),
                pid=os.getpid(),
                queues=[lane.queue for lane in self._lanes],
                concurrency=self.options.concurrency,
                lease_s=self.options.lease_s,
                started_at=now,
                seen_at=now,
            )
        )

    def _rejoin(self, lost: str) -> None:
        """Go on under a new id after the lease was lost. What waits belongs to others now."""
        with self._identity:
            if self.id != lost:
                return  # another part has noticed it already
            self.app.telemetry.emit(LeaseEnded(lost))
            for fetcher in self._fetchers:
                fetcher.forget()
            self._join()

    def _leave(self) -> None:
        try:
            self.app.broker.leave(self.id)
        except Exception as error:
            self.app.logger.warning("could not say goodbye to the broker (%s); the lease will run out", error)

    def _start_runner(self) -> None:
        with self._identity:
            if len(self._threads) >= self.options.concurrency:
                return
            number = len(self._threads) + 1
            thread = threading.Thread(target=self._run_jobs, name=f"laneway-run-{number}", daemon=True)
            self._threads.append(thread)
        thread.start()

    def _run_jobs(self) -> None:
        bus, runner, holding = self._bus, self._runner, False
        while taken := bus.take(holding):
            holding = True
            run = taken if isinstance(taken, Run) else runner.read(*taken)
            if run is None:
                continue
            if run.call.task.is_async:
                self._loop.submit(run)
                holding = False  # the permit goes with it
            else:
                runner.execute(run)

    def _die(self, error: BaseException) -> None:
        """A handler raised what is not an Exception, or a fetcher broke: the worker ends, its claims are taken back."""
        self.app.logger.critical("%s ends the worker", type(error).__name__, exc_info=error)
        self._died = error
        self._stop_asked.set()

    def _buried(self, settlements: list[Settlement]) -> None:
        for settlement in settlements:
            self._hooks.put(lambda settlement=settlement: self._tell_exhausted(settlement))  # type: ignore[misc]  # mypy cannot infer a lambda with a default

    def _tell_exhausted(self, settlement: Settlement) -> None:
        task = self._runner.task_of(settlement.claim)
        if task is not None and task.options.retries_exhausted is not None:
            task.options.retries_exhausted([_dead(settlement, self._clock.now())])

    def _run_hooks(self) -> None:
        while hook := self._hooks.get():
            try:
                hook()
            except Exception:
                self.app.logger.exception("a hook failed")


def _names(running: dict[int, Run]) -> list[str]:
    return [f"{run.call.task.name} {run.claim.key}" for run in list(running.values())]


def _dead(settlement: Settlement, now: float) -> JobView:
    claim = settlement.claim
    return JobView(
        queue=claim.queue,
        key=claim.key,
        status="dead",
        shard=0,
        payloads=claim.payloads,
        perform_at=claim.perform_at,
        retry_count=settlement.retry_count,
        attempt=claim.attempt,
        deaths=claim.deaths,
        error=settlement.error,
        updated_at=now,
    )
