"""`Worker`: starts the parts of a worker, handles their failures and stops them.

`run` runs it as a process; `start` and `stop` run it in threads of another program. A worker that loses its lease
continues under a new id. A supervised worker that loses it while jobs run exits at once instead, because another
worker may run them; its supervisor starts a new process. If a task raises `SystemExit` or the like, or a part breaks,
the worker ends. The claim stays unsettled and is taken back, and its retry_count is unchanged.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..clock import Clock, SystemClock
from ..config import WorkerOptions, raise_problems
from ..errors import BrokerAwayError, ConfigError
from ..logs.sentences import what_was_lost
from ..telemetry import WorkerStarted
from .assembly import Assembly
from .deadline import call_with_deadline
from .fetch.fetcher import FIRST_BACKOFF_S, LONGEST_BACKOFF_S
from .isolation.pool import ensure_not_isolated
from .member import is_forgotten
from .process.channel import LeaveMessage, SupervisorLink
from .run.decide import describe
from .run.run import Run
from .shutdown import StopState, check_until_empty, end, is_empty, look_s
from .signals import handle_signals, restore_signals, show_stacks

if TYPE_CHECKING:
    from ..app import Laneway


class Worker:
    """Runs an app's jobs: as a process with `run`, or in the threads of another program with `start` and `stop`."""

    def __init__(self, app: Laneway, options: WorkerOptions | None = None, *, clock: Clock | None = None) -> None:
        self.app = app
        self.options = options or WorkerOptions()
        self._clock = clock or SystemClock()
        raise_problems(self.options.validate())
        #: The parts of the last start.
        self._parts: Assembly | None = None
        self._started = False
        self._stopping = StopState()
        self._link: SupervisorLink | None = None
        #: Guards start and stop: a job may end the worker before its start is complete.
        self._lifecycle = threading.RLock()
        self._in_process = False
        #: Signals that came before `run` could handle them.
        self.signals: Sequence[int] = ()

    @property
    def id(self) -> str:
        """The id under which the broker knows it; empty before the first start. It changes when a lease is lost."""
        return self._parts.membership.id if self._parts else ""

    def supervised_by(self, link: SupervisorLink) -> None:
        """Run as a child: a supervisor renews the lease too, and ends this process if it must not go on."""
        self._link = link
        link.on_retire = self._stopping.retire
        link.on_give_up = self._stopping.give_up

    # -- as a process ----------------------------------------------------------------------------------

    def run(self) -> int:
        """Run until told to stop. 0: everything was finished or given back; 1: jobs were abandoned, or it died.

        With `until_empty` it raises BrokerRefusedError, after it has stopped, if it may not look whether it is empty.
        """
        check_until_empty(self.app.broker, self.options)
        arm_failpoints()
        before = handle_signals(self._stopping.signalled, self._show_stacks)
        for number in self.signals:
            self._stopping.signalled(number)
        self._in_process = True
        try:
            self.start()
            try:
                # With a timeout, because a signal that another thread receives does not end the main thread's wait.
                while not self._stopping.asked.wait(look_s(self.app.broker) if self.options.until_empty else 0.5):
                    if self.options.until_empty and self.is_empty():
                        break
            finally:
                finished = self.stop()
        finally:
            self._in_process = False
            self._stopping.reset()
            restore_signals(before)
        return 0 if finished and self._running.died is None else 1

    def _show_stacks(self) -> None:
        show_stacks(self.app.logger, "stacks of all threads:")
        if self._started:
            self._running.pool.show_stacks()

    def is_empty(self) -> bool:
        """Whether no job that it may claim is due, or running on any worker, and all jobs sent by runs are stored."""
        return is_empty(self._running)

    # -- in threads ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start fetching and running jobs, in threads of this process. After `stop` it may be started again."""
        with self._lifecycle:
            ensure_not_isolated()
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
                self._report_crash(error)
                raise

    def stop(self, timeout_s: float | None = None) -> bool:
        """Stop fetching, give back claims that have not started, and let runs finish. False: some were abandoned."""
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
                "The app has no tasks and no listeners; declare some with @app.task or @app.listener, or name their "
                "modules in imports=[…]."
            )
        parts = self._parts = Assembly(
            self.app, self.options, self._clock, self._link, die=self._die, lease_lost=self._lease_lost
        )
        parts.log.start()
        try:
            self._call_on_start()
            self._insist(parts.membership.join)
            parts.subscribe(self._stopping.asked.is_set)
        except BaseException:
            parts.log.stop()
            raise
        self._started = True
        emit, tasks = self.app.telemetry.emit, len(self.app.registry)
        emit(WorkerStarted(self.id, parts.queues, self.options.concurrency, tasks))
        parts.start()

    def _stop(self, timeout_s: float | None) -> bool:
        if not self._started:
            return True
        self._started = False
        parts = self._running
        finished = end(parts, self._stopping, self.options.shutdown_timeout_s if timeout_s is None else timeout_s)
        if parts.died is not None:
            self._report_crash(parts.died)
        parts.log.stop()
        return finished

    @property
    def _running(self) -> Assembly:
        assert self._parts is not None, "it was started"
        return self._parts

    # -- calls from its parts --------------------------------------------------------------------------

    def _insist(self, step: Callable[[], None]) -> None:
        """Repeat a step until it succeeds, however long the broker is away, until the worker is stopping."""
        outage, backoff_s = self._running.outage, FIRST_BACKOFF_S
        while True:
            try:
                call_with_deadline(step, unless=self._stopping.asked.is_set)
                break
            except BrokerAwayError as error:
                outage.away("worker", error)
                if self._stopping.asked.wait(backoff_s * (0.5 + random.random())):
                    raise
                backoff_s = min(backoff_s * 2, LONGEST_BACKOFF_S)
        outage.back("worker")

    def _call_on_start(self) -> None:
        try:
            if self.app.on_start is not None:
                self.app.on_start()
        except BaseException as error:
            self.app.logger.critical("on_start failed, so the worker does not start: %s", describe(error))
            raise

    def _lease_lost(self, lost: str) -> None:
        """Join again under a new id, because other workers have the claims of the lost id, or will have them.

        If a supervised worker runs jobs, it exits instead.
        """
        parts = self._running
        if self._link is not None and parts.runner.running and parts.membership.id == lost:
            # Another worker may run these jobs by now. The supervisor starts another process in place of this one.
            forgotten = is_forgotten(self.app.broker, lost)
            why = "nothing that it runs can be settled" if forgotten else "others may run its jobs"
            self.app.logger.error("%s; it ends at once, because %s", what_was_lost(lost, forgotten), why)
            self._link.send(LeaveMessage(finished=False))
            parts.log.stop()
            os._exit(1)
        parts.membership.rejoin(lost)

    def _report_crash(self, error: BaseException) -> None:
        if self.app.last_words is None:
            return
        try:
            self.app.last_words(error)
        except Exception:
            self.app.logger.exception("last_words failed")

    def _die(self, error: BaseException, run: Run | None = None) -> None:
        """End the worker: a task raised an error that is not an `Exception`, or a part of the worker broke.

        The claim stays unsettled and is taken back, and its retry_count is unchanged. Of a key's calls, only those that
        had not succeeded are taken back. From here on no job is claimed.
        """
        parts = self._running
        parts.stop_fetching()
        parts.runner.dead = True
        parts.blamed += run.started() if run else []  # first: the worker may be ending already
        job = f" in {run.call.task.name} {run.claim.key}" if run else ""
        self.app.logger.critical("%s%s ends the worker", type(error).__name__, job, exc_info=error)
        first, parts.died = parts.died is None, error
        if self._in_process:
            self._stopping.asked.set()
        elif first:
            # Inside another program no thread waits for `asked`, so the worker stops itself. It does so in another
            # thread, because `stop` waits for this one.
            threading.Thread(target=self.stop, name="laneway-stop", daemon=True).start()


def arm_failpoints() -> None:
    """Arm the failpoints that the environment names, for tests that kill whole processes."""
    if os.environ.get("LANEWAY_FAILPOINTS"):
        from ..failpoints import arm_from_environment  # only such tests need it

        arm_from_environment(os.environ)
