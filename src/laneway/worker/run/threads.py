"""`RunnerThreads`: the threads that run jobs. Each takes unit after unit of work from the bus.

A thread is started when there is work for it, up to the worker's concurrency. It passes async runs to the event loop,
together with its permit, and waits for isolated runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..fetch.bus import Bus
from ..isolation.execute import IsolatedExecutor
from .async_loop import AsyncLoop
from .run import Run
from .runner import Runner


class RunnerThreads:
    """A worker's runner threads: at most as many as it runs jobs at once."""

    def __init__(
        self,
        bus: Bus,
        runner: Runner,
        loop: AsyncLoop,
        apart: IsolatedExecutor,
        fatal: Callable[[BaseException], None],
        most: int,
    ) -> None:
        self._bus = bus
        self._runner = runner
        self._loop = loop
        self._apart = apart
        self._fatal = fatal
        self._most = most
        self._growing = threading.Lock()
        self._threads: list[threading.Thread] = []

    def grow(self) -> None:
        """Start one more, if there may be one."""
        with self._growing:
            if len(self._threads) >= self._most:
                return
            number = len(self._threads) + 1
            thread = threading.Thread(target=self._main, name=f"laneway-run-{number}", daemon=True)
            self._threads.append(thread)
        thread.start()

    def _main(self) -> None:
        try:
            self._take_jobs()
        except BaseException as error:
            # What a job raises is dealt with in the runner; this is a mistake of ours. A runner that is gone, and a
            # claim that no runner settles, must not go unseen.
            self._fatal(error)

    def _take_jobs(self) -> None:
        bus, runner, holding = self._bus, self._runner, False
        while taken := bus.take(holding):
            holding = True
            if isinstance(taken, Run):  # it has waited since it was read
                run = taken if runner.still_ours(taken) else None
            else:
                run = runner.read(*taken)
            while run is not None:
                if run.apart is not None:
                    bus.call_for_help()
                    run = self._apart.execute(run)
                elif run.call.task.is_async:
                    self._loop.submit(run, runner)
                    holding = False  # the permit goes with it
                    break
                else:
                    bus.call_for_help()
                    run = runner.execute(run)
