"""One run, from what a lane holds to how it is to be settled. The pipeline on one page:

    read  →  enter middleware  →  invoke  →  leave middleware  →  decide  →  tell  →  finish, or read the next call

Sync and async tasks go through the same steps; only `invoke` is awaited for the latter. A keyed claim goes round
once for each of its calls, a batch once for all its keys. The runner never talks to the broker: what it decides is
recorded by the fetcher of the lane that the claim came from. Reading is in `units.py`, telling in `telling.py`. What
runs apart, in another process, goes through the same steps there, and comes back by `apart.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from ...clock import Clock
from ...context import Context
from ...failpoints import armed, reach
from ...jobs.settlement import Settlement, died, done, postponed
from ...middleware import Stack, overriding
from .decide import Verdicts
from .decode import FAILURES
from .limits import within
from .report import Teller
from .run import Calls, Gathered, Run, Unit
from .units import Units

if TYPE_CHECKING:
    from ...app import Laneway
    from ...jobs.data import NewJob
    from ..fetch.prefetch import Lane
    from ..isolation.pool import Pool
    from ..process.board import Board


class Runner:
    """Carries out units of work, in whatever thread it is called."""

    def __init__(
        self,
        app: Laneway,
        *,
        fatal: Callable[[BaseException, Run], None],
        wait_for: Callable[[Any], Any],
        clock: Clock,
        held_under: Callable[[], str],
        valid_until: Callable[[], float],
        board: Board | None = None,
        pool: Pool | None = None,
    ) -> None:
        self._app = app
        self._fatal = fatal
        self._await = wait_for
        self._monotonic = clock.monotonic
        #: Where a supervisor finds what was running; none without one.
        self._board = board
        self._around_execution = overriding(app.middleware, "around_execution")
        self.verdicts = Verdicts(app)
        self._tell = Teller(app, clock)
        self._units = Units(
            app,
            clock,
            self.verdicts,
            held_under=held_under,
            valid_until=valid_until,
            pool=pool,
            board=board,
            conclude=self.conclude,
            settle=self.settle,
        )
        self.still_ours, self.drop = self._units.still_ours, self._units.drop
        #: The runs under way.
        self.running: dict[int, Run] = {}
        #: Set when a run, or a part of the worker that broke, has ended the worker: no other run begins.
        self.dead = False

    def stop(self) -> None:
        """The worker is told to stop: the calls of a key that have not begun are given back."""
        self._units.stopping = True

    def read(self, lane: Lane, unit: Unit) -> Run | None:
        """Make a run of a unit of work: `Units.read`. If reading it ends the worker, it is to blame."""
        try:
            return self._units.read(lane, unit)
        except BaseException as raised:
            self.die(self._units.unread(lane, unit), raised)
            return None

    def go_on(self, calls: Calls, outbox: list[NewJob]) -> Run | None:
        """A call of a key has succeeded: read the next one, as `read` does."""
        try:
            return self._units.go_on(calls, outbox)
        except BaseException as raised:
            self.die(self._units.unread(calls.lane, calls.claim, calls), raised)
            return None

    def execute(self, run: Run) -> Run | None:
        """Carry out a sync task's run. Returns the next one of the same claim, if there is one."""
        result = error = None
        if not self.begins(run):
            return None
        try:
            if self._enter(run):
                result = run.call.task.invoke(run.call.params, run.context)
                if result is not None and isinstance(result, Coroutine):
                    # A decorator has hidden that the task is async.
                    result = self._await(result)
        except FAILURES as raised:
            error = raised
        except BaseException as raised:
            self.die(run, raised)
            return None
        try:
            return self._leave(run, result, error)
        finally:
            del error  # its traceback leads to this frame: else the two would wait for the garbage collector

    async def execute_async(self, run: Run) -> Run | None:
        """Carry out an async task's run. Returns the next one of the same claim, if there is one."""
        result = error = None
        if not self.begins(run):
            return None
        loop = asyncio.get_running_loop()
        try:
            if self._enter(run):
                task = run.call.task
                result = task.invoke(run.call.params, run.context)
                if task.options.time_limit is not None:
                    result = within(task.options.limit_s or 0.0, result)
                result = await result
        except FAILURES as raised:
            error = raised
        except BaseException as raised:
            if not loop.is_running():
                raise  # GeneratorExit: the run was abandoned with its loop, and Python is clearing it away
            self.die(run, raised)
            return None
        try:
            return self._leave(run, result, error)
        finally:
            del error  # its traceback leads to this frame: else the two would wait for the garbage collector

    # -- what has had its process die, and what runs apart ---------------------------------------------

    def begin(self, run: Run) -> bool:
        """Begin a run that is carried out apart. It is not on the board: if this process dies, it is not to blame."""
        if not self.begins(run):
            return False
        self._tell.started(run)
        run.began = self._monotonic()
        return True

    def forget(self, run: Run) -> float:
        """Such a run is over; returns the seconds that it took."""
        self.running.pop(id(run), None)
        return self._monotonic() - run.began

    def settle(self, run: Run, settlements: list[Settlement], said: str) -> None:
        """Tell and record what became of a run of which no more is known than `said`."""
        duration_s = self._monotonic() - run.began
        self._tell.ended(run, settlements[0], None, duration_s, len(settlements), said=said)
        used_s = run.calls.used_s if run.calls else 0.0
        run.lane.finish_all(settlements, used_s + duration_s)

    # -- running ---------------------------------------------------------------------------------------

    def begins(self, run: Run) -> bool:
        """Note that a run is under way. False: it is given back, because the worker has ended while it was read.

        A worker that has ended waits for what is noted, and for nothing else, before it leaves. So it is noted first
        and looked at second: a run that began in between would run beside its own repeat.
        """
        self.running[id(run)] = run
        if not self.dead:
            return True
        self.drop(run)
        self.running.pop(id(run), None)
        return False

    def _enter(self, run: Run) -> bool:
        """Tell, and enter the middleware. False: one of them does not want it to be run."""
        self._tell.started(run)
        run.began = self._monotonic()
        if self._around_execution:
            run.stack = Stack([partial(method, run.call, run.context) for method in self._around_execution])
            if not run.stack.enter():
                run.context.logger.warning("a middleware did not call on: the run is taken as done")
                return False
        if armed:
            reach("mid job")
        return True

    def _leave(self, run: Run, result: Any, error: BaseException | None) -> Run | None:
        """Leave the middleware, and conclude with the error that is left."""
        if run.stack is not None:
            try:
                run.stack.leave(result, error)
                error = None
            except FAILURES as raised:
                error = raised
            except BaseException as raised:
                self.die(run, raised)
                return None
        try:
            return self.conclude(run, error)
        finally:
            del error  # as above

    def die(self, run: Run, error: BaseException) -> None:
        """A run has ended the worker. It stays unsettled and counts a death: it is taken back when this worker has
        left, and its retry_count is unchanged."""
        try:
            self._fatal(error, run)  # first, so that nothing is claimed any more when its key is free again
            self._tell.abandoned(run, error)
            if (calls := run.calls) is not None and calls.done:
                # What has succeeded is settled. The death is counted here: the claim is gone when the worker leaves.
                ending = f"ended by {type(error).__name__}"
                run.lane.finish(died(run.claim, ending, done=calls.done, outbox=calls.outbox), calls.used_s)
        finally:
            self.running.pop(id(run), None)  # last, because the worker waits for what runs

    # -- how it ended ----------------------------------------------------------------------------------

    def conclude(self, run: Run, error: BaseException | None) -> Run | None:
        """Decide what becomes of the claim, tell whoever listens, and hand it to its lane or go on with its calls."""
        duration_s, calls = self._monotonic() - run.began, run.calls
        try:
            settled = self._settled(run, error, duration_s)
        except BaseException as raised:  # an error handler that exits, or a mistake of ours
            self.die(run, raised)
            return None
        # Only now: what the app's own code does at the end of a run may end the process, too.
        if self._board is not None:
            self._board.end(run.slot)
        if calls is not None:
            duration_s = calls.used_s = calls.used_s + duration_s
        if isinstance(settled, list):
            run.lane.finish_all(settled, duration_s)
        elif settled is not None:
            run.lane.finish(settled, duration_s)
        self.running.pop(id(run), None)  # last, because a worker that stops waits for what runs
        if settled is None:
            assert calls is not None, "only the calls of a key go on after a success"
            return self.go_on(calls, run.context.outbox)
        return None

    def _settled(
        self, run: Run, error: BaseException | None, duration_s: float
    ) -> Settlement | list[Settlement] | None:
        """Decide what becomes of the claim, or of each key of a batch, and tell; None while the calls of a key
        succeed."""
        if run.gathered is not None:
            return self._settled_batch(run, run.gathered, error, duration_s)
        settlement = self._decide(run, error)
        if error is not None:
            self._tell.handlers(error, run.context)
        self._tell.ended(run, settlement, error, duration_s)
        return settlement

    def _decide(self, run: Run, error: BaseException | None) -> Settlement | None:
        """What becomes of the claim; None while the calls of a key succeed."""
        claim, context, calls = run.claim, run.context, run.calls
        finished, outbox = (calls.done, calls.outbox) if calls else (0, None)
        if context.postponed_s is not None:
            return postponed(claim, context.postponed_s, done=finished, outbox=outbox)
        if error is not None:
            return self.verdicts.failed(claim, run.call.task.options, error, done=finished, outbox=outbox)
        return None if calls else done(claim, context.outbox)

    def _settled_batch(
        self, run: Run, gathered: Gathered, error: BaseException | None, duration_s: float
    ) -> list[Settlement]:
        """The same for a batch: a settlement for each of its keys, all of them recorded in one turn."""
        settlements, failures = self.verdicts.of_batch(gathered, run.context, run.call.task.options, error)
        if error is not None:
            self._tell.handlers(error, run.context)
        failed: dict[str, BaseException] = {}
        for claim, failure in failures:
            self._tell.handlers(failure, Context(self._app, claim, run.call.task))
            failed[claim.key] = failure
        self._tell.batch_ended(run, settlements, failed, error, duration_s)
        return settlements
