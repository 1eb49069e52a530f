"""`ProcessPool`: starts, reuses, replaces and ends the isolated processes of a worker.

A run has its process to itself. Isolation "process" reuses a process that has run other jobs. Isolation "fresh" takes
a process that has run nothing and ends it afterwards; some are started ahead, so that not every such run waits for a
start. One thread starts and ends all processes. A process that stays idle is ended.
"""

from __future__ import annotations

import queue
import signal
import sys
import threading
import time
from concurrent.futures import Future
from functools import cached_property, partial
from typing import TYPE_CHECKING

from ...config import Isolation, WorkerOptions
from ...errors import ConfigError
from ...logs import installed_last_resort
from ...origin import Origin, origin_of
from ..process.channel import LoadRequest, RunRequest, RunResult
from ..process.isolated_child import IsolatedProcess, StartError, handle_line

if TYPE_CHECKING:
    from ...app import Laneway
    from ...tasks.task import AnyTask

#: A process that no run has needed for this many seconds is ended.
IDLE_S = 60.0
#: Seconds that a process has to end by itself; and when the worker itself ends.
END_S = 5.0
CLOSE_S = 1.0
#: Seconds from a failed start to the next try: at first, and at most.
BACKOFF_S = (1.0, 60.0)
#: How many processes a run is offered to, if each is gone before the run begins.
OFFERS = 3


class NoProcessError(Exception):
    """No process can be started for now. The run has not begun."""

    def __init__(self, again_in_s: float) -> None:
        super().__init__("no process can be had for it now")
        self.again_in_s = again_in_s


class RunKilledError(Exception):
    """The worker has given up and ended the process, maybe in the middle of the run."""

    def __init__(self) -> None:
        super().__init__("the worker gave up, and ended it")


class ProcessPool:
    """A worker's isolated processes."""

    def __init__(self, app: Laneway, options: WorkerOptions) -> None:
        self._app = app
        self._options = options
        self._lock = threading.Lock()
        #: Every process that has not ended, including those that this pool is ending.
        self._all: set[IsolatedProcess] = set()
        #: The processes that wait for a run, unused ones first.
        self._idle: list[IsolatedProcess] = []
        self._ending: list[tuple[IsolatedProcess, float]] = []
        #: How many runs that need a fresh process are under way, and how many processes are ordered ahead.
        self._fresh = 0
        self._ordered_ahead = 0
        #: Orders of runs that wait for a process to be started. None: start one ahead, or tidy up.
        self._orders: queue.SimpleQueue[Future[IsolatedProcess] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._backoff_s = 0.0
        self._not_before = 0.0

    # -- whether it can be done ------------------------------------------------------------------------

    @cached_property
    def _origin(self) -> Origin | None:
        return origin_of(self._app) if self._app.broker.capabilities.shared else None

    @property
    def possible(self) -> bool:
        """Whether another process can load the app and reach its broker."""
        return self._origin is not None

    def check(self) -> None:
        """Raise ConfigError if a task is to be isolated and cannot be. On a broker inside this process, warn instead.

        Such a broker is for tests and trials, and an app must run there without being rewritten.
        """
        tasks = [task for task in self._app.registry if task.isolation]
        if not tasks or self.possible:
            return
        if not self._app.broker.capabilities.shared:
            self._app.logger.warning(
                "the jobs of %s are inside this process, so the worker does not enforce isolation and the time limits "
                "of sync tasks: %s %s in its threads; to enforce them, use another broker, such as "
                "sqlite:///laneway.db",
                self._app.url,
                ", ".join(task.name for task in tasks),
                "runs" if len(tasks) == 1 else "run",
            )
            return
        task = tasks[0]
        raise ConfigError(
            f"Task {task.name} {_why(task)}, and that could not load the app, because no module has it as a global; "
            "make it one, as in app = Laneway(…) at the top of a module."
        )

    # -- running ---------------------------------------------------------------------------------------

    def carry_out(self, work: RunRequest, isolation: Isolation, limit_s: float | None) -> RunResult:
        """Carry out a run in an isolated process.

        Raises ProcessDeathError if the process died, TimeLimitError if the time was up, NoProcessError if the run could
        not begin, and RunKilledError if the worker has given up.
        """
        fresh = isolation == "fresh"
        with self._lock:
            self._fresh += fresh
        try:
            return self._offer(work, fresh, limit_s)
        finally:
            with self._lock:
                self._fresh -= fresh

    def _offer(self, work: RunRequest, fresh: bool, limit_s: float | None) -> RunResult:
        problem = StartError("")
        for _ in range(OFFERS):
            process = self._get(fresh)
            try:
                ended = process.carry_out(work, limit_s, self._options.hang_limit_s)
            except StartError as error:
                self._drop(process)
                problem = error
            except BaseException:
                self._drop(process)
                raise
            else:
                self._give_back(process, fresh)
                return ended
        raise self._failed(problem)

    def _get(self, fresh: bool) -> IsolatedProcess:
        """A process that is ready for a run."""
        process = self._idle_one(fresh)
        if process is None:
            left_s = self._not_before - time.monotonic()
            if left_s > 0:
                raise NoProcessError(left_s)
            try:
                process = self._started()
            except StartError as error:
                raise self._failed(error) from None
        if fresh:
            self._start_ahead()
        try:
            process.get_ready()
        except StartError as error:
            self._drop(process)
            raise self._failed(error) from None
        self._backoff_s = 0.0
        return process

    def _idle_one(self, fresh: bool) -> IsolatedProcess | None:
        with self._lock:
            if self._closed:
                raise RunKilledError
            while self._idle and not (fresh and self._idle[0].runs):
                process = self._idle.pop(0 if fresh else -1)
                if process.is_alive:
                    return process
                self._ending.append((process, 0.0))
            return None

    def _give_back(self, process: IsolatedProcess, fresh: bool) -> None:
        most = self._options.max_memory
        worn = process.runs >= self._options.isolated_jobs or (most is not None and process.resident > most)
        process.idle_since = time.monotonic()
        if fresh or worn:
            process.request_end()
        with self._lock:
            closed = self._closed
            if not closed and (fresh or worn):
                self._ending.append((process, process.idle_since + END_S))
            elif not closed:
                self._idle.append(process)
        if closed:
            process.close()
        elif fresh or worn:
            self._orders.put(None)

    def _drop(self, process: IsolatedProcess) -> None:
        """End a process that cannot be used again. Raises RunKilledError if the pool is closed: the pool killed it."""
        process.close()
        with self._lock:
            self._all.discard(process)
            if self._closed:
                raise RunKilledError from None

    def _failed(self, error: StartError) -> NoProcessError:
        """Log why there is no process, and start none for a while."""
        least, most = BACKOFF_S
        self._backoff_s = min(max(least, self._backoff_s * 2), most)
        self._not_before = time.monotonic() + self._backoff_s
        self._app.logger.error(
            "an isolated process cannot be had: %s; its jobs are given back, and it is tried again in %g s",
            error,
            self._backoff_s,
        )
        return NoProcessError(self._backoff_s)

    def show_stacks(self) -> None:
        """Make every process write its stacks to the log."""
        with self._lock:
            processes = list(self._all)
        for process in processes:
            process.signal(signal.SIGUSR2)

    # -- the thread that starts and ends them ----------------------------------------------------------

    def _started(self) -> IsolatedProcess:
        """Order a process and wait until it is started. It is not ready yet."""
        order: Future[IsolatedProcess] = Future()
        self._order(order)
        return order.result()

    def _start_ahead(self) -> None:
        """Order one unused process for each fresh run under way, so that the next fresh runs need not wait."""
        with self._lock:
            unused = sum(not process.runs for process in self._idle) + self._ordered_ahead
            short = max(0, min(self._fresh, self._options.concurrency) - unused)
            self._ordered_ahead += short
        if short:
            self._order(None)

    def _order(self, order: Future[IsolatedProcess] | None) -> None:
        with self._lock:
            if self._closed:
                raise RunKilledError
            self._orders.put(order)
            if self._thread is None:
                self._thread = threading.Thread(target=self._main, name="laneway-isolation", daemon=True)
                self._thread.start()

    def _main(self) -> None:
        while not self._closed:
            try:
                order = self._orders.get(timeout=self._patience_s())
            except queue.Empty:
                order = None
            if order is not None:
                self._start(order)
            while self._ordered_ahead and not self._closed and self._orders.empty():  # runs that wait come first
                self._start(None)
            self._tidy()
        self._close()

    def _patience_s(self) -> float:
        with self._lock:
            if self._ending:
                return 0.05
            oldest = min((process.idle_since for process in self._idle), default=None)
        if oldest is None:
            return IDLE_S  # a process that becomes idle meanwhile does not wake this thread
        return max(0.05, oldest + IDLE_S - time.monotonic())

    def _start(self, order: Future[IsolatedProcess] | None) -> None:
        """Start a process: for the run that waits for it, or ahead."""
        with self._lock:
            self._ordered_ahead -= order is None
        try:
            process = IsolatedProcess(self._hello(), partial(handle_line, self._app.logger))
        except OSError as error:  # no more processes, memory or descriptors
            if order is not None:
                order.set_exception(StartError(str(error)))
            return
        with self._lock:
            self._all.add(process)
            if order is None:
                self._idle.insert(0, process)
        if order is not None:
            order.set_result(process)

    def _hello(self) -> LoadRequest:
        origin = self._origin
        assert origin is not None, "nothing is run apart if it is not possible"
        level = self._app.logger.getEffectiveLevel()
        ours = installed_last_resort()
        others = None if ours is None else (ours.kind, ours.process_name)
        return LoadRequest(origin.target, origin.url, origin.path, origin.modules, level, others)

    def _tidy(self) -> None:
        """Ask long idle processes to end. Close those that have ended, and kill those whose time to end is up."""
        now = time.monotonic()
        with self._lock:
            tired = [process for process in self._idle if now - process.idle_since >= IDLE_S]
            self._idle = [process for process in self._idle if process not in tired]
            self._ending += [(process, now + END_S) for process in tired]
            gone = [process for process, until in self._ending if now >= until or not process.is_alive]
            self._ending = [(process, until) for process, until in self._ending if process not in gone]
        for process in tired:
            process.request_end()
        for process in gone:
            process.close()
        with self._lock:
            self._all.difference_update(gone)

    def close(self) -> None:
        """End all processes. Idle ones may end by themselves. Runs that are under way are given up at once."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._orders.put(None)
        if thread is not None:
            thread.join()

    def _close(self) -> None:
        """End all processes, in the thread that started them."""
        while not self._orders.empty():
            if (order := self._orders.get()) is not None:
                order.set_exception(RunKilledError())
        with self._lock:
            spare = [*self._idle, *(process for process, _ in self._ending)]
            running = self._all.difference(spare)
            self._idle, self._ending = [], []
        for process in running:
            process.kill()  # the thread that runs a job in it closes it
        for process in spare:
            process.request_end()
        until = time.monotonic() + CLOSE_S
        while any(process.is_alive for process in spare) and time.monotonic() < until:
            time.sleep(0.005)
        for process in spare:
            process.close()


def ensure_not_isolated() -> None:
    """Raise ConfigError in an isolated process: the program's file was imported there and starts another worker."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name == "laneway.worker.isolation.main":
        raise ConfigError(
            "The module that has the app starts a worker when it is imported, and isolated tasks are run by importing "
            "it; put that behind if __name__ == '__main__'."
        )


def _why(task: AnyTask) -> str:
    if task.options.isolation is None:
        return "has a time_limit, for which it runs in another process"
    return f'runs in another process, because of isolation="{task.options.isolation}"'
