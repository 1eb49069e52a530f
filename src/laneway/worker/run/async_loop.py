"""`AsyncLoop`: the event loop of async tasks, in one thread; `within`: their time limit.

The thread starts with the first async job. `within` cancels an async task when its time is up. Sync code cannot be
cancelled, so a sync task with a time limit runs in an isolated process, which can be killed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import TimeLimitError
from .decode import FAILURES

if TYPE_CHECKING:
    from ..fetch.bus import Bus
    from .run import Run
    from .runner import Runner

Result = TypeVar("Result")


async def within(limit_s: float, work: Awaitable[Result]) -> Result:
    """Await `work` for so long; raises TimeLimitError if it took longer, whatever it has made of that itself."""
    loop = asyncio.get_running_loop()
    due = loop.time() + limit_s
    timeout = asyncio.timeout_at(due)
    error: BaseException | None = None
    try:
        async with timeout:
            result = await work
    except FAILURES as raised:
        if not timeout.expired():
            raise  # its own error, a TimeoutError or a cancellation of its own too
        error = raised
    else:
        # It may also have kept the loop from telling it.
        if not timeout.expired() and loop.time() < due:
            return result
    # The TimeoutError that stands for the cancellation says nothing; what the handler raised instead may.
    try:
        raise TimeLimitError(limit_s) from (None if isinstance(error, TimeoutError) else error)
    finally:
        del error  # its traceback leads to this frame: else the two would wait for the garbage collector


class AsyncLoop:
    """Runs async jobs, each with the permit that came with it."""

    def __init__(self, bus: Bus, fatal: Callable[[BaseException], None]) -> None:
        self._bus = bus
        self._fatal = fatal
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        #: What runs on the loop; it keeps weak references only.
        self._tasks: dict[asyncio.Task[None], tuple[Run, Runner]] = {}
        #: What runners' threads wait for.
        self._awaited: set[Future[Any]] = set()

    def submit(self, run: Run, runner: Runner) -> None:
        """Run this, and with the same permit whatever async job comes next."""
        try:
            self._started().call_soon_threadsafe(self._spawn, run, runner)
        except RuntimeError:
            if not runner.dead:
                raise
            runner.drop(run)  # the loop was closed when the worker ended

    def wait_for(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the loop and wait for its result, in a runner's thread."""
        future = asyncio.run_coroutine_threadsafe(_outcome(coroutine), self._started())
        self._awaited.add(future)
        try:
            result, error = future.result()
        finally:
            self._awaited.discard(future)
        if error is not None:
            raise error
        return result

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._main, args=(self._loop,), name="laneway-async", daemon=True
                )
                self._thread.start()
            return self._loop

    def _main(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(loop.shutdown_asyncgens())
        except BaseException as error:
            # Something that a job has started on the loop exits, and takes all runs on it along. It cannot be told
            # whose it was: each of them counts a death.
            died = [(run, runner) for run, runner in self._tasks.values() if id(run) in runner.running]
            awaited = [future for future in self._awaited.copy() if not future.done()]
            for run, runner in died:
                runner.die(run, error)
            for future in awaited:
                future.set_exception(error)
            if not died and not awaited:
                self._fatal(error)
        finally:
            loop.close()

    def _spawn(self, run: Run, runner: Runner) -> None:
        assert self._loop is not None
        task = self._loop.create_task(self._go(run, runner))
        self._tasks[task] = run, runner
        task.add_done_callback(self._tasks.pop)

    async def _go(self, run: Run, runner: Runner) -> None:
        try:
            # A job that does not let go of the loop may have kept this one waiting.
            following = await runner.execute_async(run) if runner.still_ours(run) else None
            if following is None:
                self._go_on(runner)
            else:
                self._pass_on(following, runner)
        except GeneratorExit:
            raise  # abandoned with the loop, and being cleared away
        except BaseException as error:
            self._fatal(error)  # what a job raises is dealt with in the runner; this is a mistake of ours

    def _go_on(self, runner: Runner) -> None:
        """Take what comes next with the permit that is free now."""
        while True:
            taken = self._bus.take_nowait()
            if taken is None:
                self._bus.give_back()
                return
            # One that was read already is for a thread, which looks at it again.
            following = runner.read(*taken) if isinstance(taken, tuple) else taken
            if following is not None:
                self._pass_on(following, runner)
                return

    def _pass_on(self, run: Run, runner: Runner) -> None:
        """Have a run that was read on the loop carried out where it belongs."""
        if run.call.task.is_async and run.apart is None:
            # A task of its own, so that no job inherits the context variables of the one before.
            self._spawn(run, runner)
        else:
            self._bus.give_back(run)

    def stop(self) -> None:
        """End the loop; what still runs on it is abandoned."""
        with self._lock:
            if self._loop is None or self._thread is None:
                return
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(1.0)


async def _outcome(coroutine: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """What a coroutine returns or raises. It lets nothing through that is no Exception: asyncio would end the loop, and
    runners that wait for a result from there would wait for ever."""
    try:
        return await coroutine, None
    except BaseException as error:
        return None, error
