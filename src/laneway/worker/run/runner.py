"""Runs one unit of work: `RunPreparer` makes runs of it, `Runner` executes them and decides how they settle.

    read  →  enter middleware  →  invoke  →  leave middleware  →  decide  →  report  →  finish, or read the next call

Sync and async tasks take the same steps; only `invoke` is awaited for async tasks. A keyed claim repeats them for
each call; a batch takes them once for all keys. `RunPreparer` runs no task. It drops lost claims, settles unreadable
bodies, and buries jobs that ended their process too often. The runner never calls the broker: the fetcher of the
claim's lane records its decisions. An isolated run takes the same steps in another process and comes back through
`isolation/execute.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from ...clock import Clock
from ...context import Context
from ...errors import TicketError
from ...failpoints import armed, reach
from ...jobs.data import Claim, Kind, NewJob, StartedRun
from ...jobs.settlement import (
    ALONE_AFTER,
    BURIED_AT,
    OUTBOX_LIMIT,
    Settlement,
    buried,
    deaths_of,
    died,
    done,
    postponed,
    released,
    too_many,
)
from ...jobs.ticket import Call
from ...middleware import MiddlewareStack, overriding
from ..fetch.prefetch import Lane
from .async_loop import within
from .decide import FailureDecider
from .decode import FAILURES, UNREADABLE, RunDecoder
from .report import RunReporter
from .run import BatchClaims, KeyedCalls, Run, Unit, claims_of, started_of

if TYPE_CHECKING:
    from ...app import Laneway
    from ...config import Isolation
    from ...jobs.data import Payload
    from ...tasks.task import AnyTask
    from ..isolation.pool import ProcessPool
    from ..process.board import Board

#: A keyed claim is given back when its calls have run for this many seconds. This bounds what a crash repeats, and
#: keeps a key with many calls from holding a runner.
SLICE_S = 0.05


class RunPreparer:
    """Makes runs of units of work."""

    def __init__(
        self,
        app: Laneway,
        clock: Clock,
        verdicts: FailureDecider,
        *,
        held_under: Callable[[], str],
        valid_until: Callable[[], float],
        pool: ProcessPool | None,
        board: Board | None,
        conclude: Callable[[Run, BaseException], Run | None],
        settle: Callable[[Run, list[Settlement], str], None],
    ) -> None:
        self._app = app
        self._monotonic = clock.monotonic
        self._verdicts = verdicts
        #: The id whose claims are ours.
        self._held_under = held_under
        self._valid_until = valid_until
        #: The pool for isolated runs; None inside an isolated process.
        self._pool = pool
        #: Where the supervisor finds the jobs that are being read or run; None without a supervisor.
        self._board = board
        self._isolates = pool is not None and any(task.isolation for task in app.registry) and pool.possible
        self._conclude = conclude
        self._settle = settle
        self._reader = RunDecoder(app)
        self._read = self._reader.call
        #: Set when the worker begins to stop: the runner then gives back the calls of a key that have not begun.
        self.stopping = False

    def read(self, lane: Lane, unit: Unit) -> Run | None:
        """Make a run of a unit of work. None: there is nothing to run, and the unit is settled if it is still ours.

        A unit that was claimed under a lost id is dropped: the broker has given it to another worker, or will.
        """
        if isinstance(unit, list):
            return self._read_batch(lane, unit)
        if unit.worker != self._held_under():
            return None
        if unit.kind:
            if unit.kind == Kind.COLLECTING:
                return self._read_batch(lane, [unit])
            return self._read_call(KeyedCalls(lane, unit))
        began = self._monotonic()
        if began >= self._valid_until():
            # This process was stopped or cut off for so long that the claim may be another worker's by now.
            lane.finish(released(unit), None)
            return None
        if unit.deaths == ALONE_AFTER and (run := self._alone(lane, unit, None, began)):
            return run
        slot, apart = self._note(unit), None
        try:
            if unit.deaths or self._isolates:
                if unit.deaths >= BURIED_AT:
                    self._bury(lane, unit, None, began)
                    self._clear(slot)
                    return None
                call, apart = self._read_placed(unit.payloads[0], unit, unit.deaths)
            else:
                call = self._read(unit.payloads[0], unit)
        except FAILURES as error:
            return self._unreadable(lane, unit, None, error, began, slot)
        if call is None:
            lane.finish(done(unit), 0.0)
            self._clear(slot)
            return None
        return self._make_run(
            Run(lane, unit, call, Context(self._app, unit, call.task), began, None, None, apart), slot
        )

    def still_ours(self, run: Run) -> bool:
        """Whether a run that was read a while ago may begin. If not, it is dropped or given back, as if read now."""
        if run.claim.worker == self._held_under() and self._monotonic() < self._valid_until():
            return True
        self.drop(run)
        return False

    def drop(self, run: Run) -> None:
        """Give back a run that was read and must not begin. If it is no longer ours, only drop it."""
        calls = run.calls
        self._clear(run.slot)
        if calls is not None and calls.done:
            self._give_back_rest(calls)
        elif run.claim.worker == self._held_under():
            claims = run.gathered.claims if run.gathered else [run.claim]
            run.lane.finish_all([released(claim) for claim in claims], None)

    def go_on(self, calls: KeyedCalls, outbox: list[NewJob]) -> Run | None:
        """Read the next call of a key after a call has succeeded and left this outbox."""
        calls.finished(outbox)
        return self._read_call(calls)

    # -- calls and batches -----------------------------------------------------------------------------

    def _read_call(self, calls: KeyedCalls) -> Run | None:
        """Make a run of the next call of a key. None: the claim is settled, or the rest of it is given back."""
        lane, claim = calls.lane, calls.claim
        while calls.done < len(claim.payloads):
            began = self._monotonic()
            if not self._may_go_on(calls, began):
                self._give_back_rest(calls)
                return None
            payload, apart = calls.current, None
            if payload.deaths and calls.done:
                # It must be the first call of a claim: the calls before it are then settled if its process dies again.
                self._give_back_rest(calls)
                return None
            if payload.deaths == ALONE_AFTER and (run := self._alone(lane, claim, calls, began)):
                calls.suspect = True
                return run
            slot = self._note(claim, payload.identity)
            try:
                if payload.deaths or self._isolates:
                    calls.suspect = payload.deaths > 0
                    if payload.deaths >= BURIED_AT:
                        self._bury(lane, claim, calls, began)
                        self._clear(slot)
                        return None
                    call, apart = self._read_placed(payload, claim, payload.deaths)
                else:
                    call = self._read(payload, claim)
            except FAILURES as error:
                return self._unreadable(lane, claim, calls, error, began, slot)
            if call is not None:
                context = Context(self._app, claim, call.task, calls.done)
                return self._make_run(Run(lane, claim, call, context, began, calls, None, apart), slot)
            self._clear(slot)
            calls.finished()
        lane.finish(done(claim, calls.outbox), calls.used_s)
        return None

    def _may_go_on(self, calls: KeyedCalls, now: float) -> bool:
        return (
            not self.stopping
            and not calls.suspect
            and now < self._valid_until()
            and calls.claim.worker == self._held_under()
            and calls.used_s < SLICE_S
            and len(calls.outbox) < OUTBOX_LIMIT
        )

    def _give_back_rest(self, calls: KeyedCalls) -> None:
        """Settle the finished calls, and leave the rest to the worker that claims the key next."""
        settlement = released(calls.claim, done=calls.done, outbox=calls.outbox)
        calls.lane.finish(settlement, calls.used_s if calls.done else None)

    def _read_batch(self, lane: Lane, claims: list[Claim]) -> Run | None:
        """Make one run of a batch. A key that cannot be read fails alone. None: no key can be run."""
        if claims[0].worker != self._held_under():
            return None
        began = self._monotonic()
        if began >= self._valid_until():
            lane.finish_all([released(claim) for claim in claims], None)
            return None
        first = claims[0]
        if first.deaths or self._isolates:
            if first.deaths >= BURIED_AT:  # with deaths it is alone in its batch
                self._bury(lane, first, None, began)
                return None
            task = self._reader.task_of(first, first.payloads[0])
            if task is not None and (apart := self._place(task, first.deaths)):
                context = Context(self._app, first, task)
                return Run(lane, first, Call(task, {}), context, began, None, BatchClaims(claims, None), apart)
        slot = -1 if self._board is None else self._board.begin(started_of(claims))
        gathered, broken = self._reader.batch(claims)
        for claim, error in broken:
            self._unreadable(lane, claim, None, error, began)
        if not gathered.batch:  # a middleware has dropped every key that could be read
            lane.finish_all([done(claim) for claim in gathered.claims], 0.0)
            self._clear(slot)
            return None
        first = gathered.claims[0]
        collector = self._reader.collector_of(first.queue)
        call = Call(collector, {"batch": gathered.batch})
        return self._make_run(Run(lane, first, call, Context(self._app, first, collector), began, None, gathered), slot)

    def unread(self, lane: Lane, unit: Unit, calls: KeyedCalls | None = None) -> Run:
        """Make a placeholder run for a unit of work if reading the unit has ended the worker."""
        claims = claims_of(unit)
        first, gathered = claims[0], None
        if first.kind is Kind.COLLECTING:
            gathered = BatchClaims(claims, None)
        elif first.kind is Kind.KEYED and calls is None:
            calls = KeyedCalls(lane, first)
        context = Context(self._app, first, UNREADABLE, calls.done if calls else 0)
        return Run(lane, first, Call(UNREADABLE, {}), context, self._monotonic(), calls, gathered)

    def _unreadable(
        self, lane: Lane, claim: Claim, calls: KeyedCalls | None, error: BaseException, began: float, slot: int = -1
    ) -> Run | None:
        """Conclude, with this error, the run of a job whose body cannot be read."""
        task: Any = error.task if isinstance(error, TicketError) else None
        if task is None and self._app.registry.owner_of(claim.queue):
            task = self._reader.task_of(claim, claim.payloads[0])
        call = Call(task or UNREADABLE, {})
        context = Context(self._app, claim, call.task, calls.done if calls else 0)
        run = Run(lane, claim, call, context, began, calls)
        run.slot = slot
        return self._conclude(run, error)

    # -- the board -------------------------------------------------------------------------------------

    def _note(self, claim: Claim, identity: str = "") -> int:
        """Note a job on the board before it is read and run, because reading it may end the process."""
        if self._board is None:
            return -1
        return self._board.begin([StartedRun(claim.queue, claim.key, claim.token, identity)])

    def _clear(self, slot: int) -> None:
        if self._board is not None:
            self._board.end(slot)

    def _make_run(self, run: Run, slot: int) -> Run:
        """Give the run its slot. An isolated run leaves the board: if this process dies, the run is not to blame."""
        if run.apart is not None:
            self._clear(slot)
        else:
            run.slot = slot
        return run

    # -- jobs whose process has died, and isolated runs ------------------------------------------------

    def _alone(self, lane: Lane, claim: Claim, calls: KeyedCalls | None, began: float) -> Run | None:
        """Make the run of a job that must run alone, without reading the job.

        While it was read, another run might end this process. The job would be on the board then, and be buried for it.
        None: the job has to be read here, or it cannot run in another process.
        """
        if self._pool is None or not self._pool.possible:
            return None
        task = self._reader.task_named(claim, calls.current if calls else claim.payloads[0])
        if task is None:
            return None
        context = Context(self._app, claim, task, calls.done if calls else 0)
        return Run(lane, claim, Call(task, {}), context, began, calls, None, "fresh")

    def _read_placed(self, payload: Payload, claim: Claim, deaths: int) -> tuple[Call | None, Isolation | None]:
        """Read a call that may have to run in another process. In that case its arguments are needed only there."""
        if self._reader.is_surrounded:
            task = self._reader.task_of(claim, payload)
            if task is not None and (apart := self._place(task, deaths)):
                return Call(task, {}), apart
        call = self._read(payload, claim)
        return call, None if call is None else self._place(call.task, deaths)

    def _place(self, task: AnyTask, deaths: int) -> Isolation | None:
        """The isolation of a run: as its task says, or a fresh process if the run may be what ends processes.

        On a broker inside this process no run is isolated; `ProcessPool.check` has warned of that."""
        if self._pool is None or not self._pool.possible:
            return None
        return "fresh" if deaths >= ALONE_AFTER else task.isolation

    def _bury(self, lane: Lane, claim: Claim, calls: KeyedCalls | None, began: float) -> None:
        """Send a job that has ended its process too often to the morgue, without running it."""
        task = self._reader.task_named(claim, claim.payloads[0]) or UNREADABLE  # reading it may end the process
        text = too_many(deaths_of(claim), "took its worker along")
        run = Run(lane, claim, Call(task, {}), Context(self._app, claim, task), began, calls)
        self._settle(run, [buried(claim, self._verdicts.text(text))], text)


class Runner:
    """Carries out units of work in the thread that calls it."""

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
        pool: ProcessPool | None = None,
    ) -> None:
        self._app = app
        self._fatal = fatal
        self._await = wait_for
        self._monotonic = clock.monotonic
        #: Where the supervisor finds the jobs that are being run; None without a supervisor.
        self._board = board
        self._around_execution = overriding(app.middleware, "around_execution")
        self.verdicts = FailureDecider(app)
        self._tell = RunReporter(app, clock)
        self._units = RunPreparer(
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
        """Give back the calls of a key that have not begun, because the worker is stopping."""
        self._units.stopping = True

    def read(self, lane: Lane, unit: Unit) -> Run | None:
        """Make a run of a unit of work by `RunPreparer.read`. If reading ends the worker, the unit is to blame."""
        try:
            return self._units.read(lane, unit)
        except BaseException as raised:
            self.die(self._units.unread(lane, unit), raised)
            return None

    def go_on(self, calls: KeyedCalls, outbox: list[NewJob]) -> Run | None:
        """Read the next call of a key after a call has succeeded. Errors are handled as in `read`."""
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
            del error  # its traceback refers to this frame: the cycle would wait for the garbage collector

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
            del error  # its traceback refers to this frame: the cycle would wait for the garbage collector

    # -- jobs whose process has died, and isolated runs ------------------------------------------------

    def begin(self, run: Run) -> bool:
        """Begin an isolated run. It is not on the board: if this process dies, the run is not to blame."""
        if not self.begins(run):
            return False
        self._tell.started(run)
        run.began = self._monotonic()
        return True

    def forget(self, run: Run) -> float:
        """Remove an isolated run that is over. Returns the seconds that it took."""
        self.running.pop(id(run), None)
        return self._monotonic() - run.began

    def settle(self, run: Run, settlements: list[Settlement], said: str) -> None:
        """Report and record the end of a run about which only the text `said` is known."""
        duration_s = self._monotonic() - run.began
        self._tell.ended(run, settlements[0], None, duration_s, len(settlements), said=said)
        used_s = run.calls.used_s if run.calls else 0.0
        run.lane.finish_all(settlements, used_s + duration_s)

    # -- running ---------------------------------------------------------------------------------------

    def begins(self, run: Run) -> bool:
        """Add a run to `running`. False: the run is given back, because the worker has died while the run was read.

        Before a dead worker leaves, it waits for the runs in `running` and for nothing else. So the run is added first,
        and `dead` is checked second. In the other order a run could begin in between, and run beside its own repeat.
        """
        self.running[id(run)] = run
        if not self.dead:
            return True
        self.drop(run)
        self.running.pop(id(run), None)
        return False

    def _enter(self, run: Run) -> bool:
        """Report the start and enter the middleware. False: a middleware does not let the job run."""
        self._tell.started(run)
        run.began = self._monotonic()
        if self._around_execution:
            run.stack = MiddlewareStack([partial(method, run.call, run.context) for method in self._around_execution])
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
        """End the worker because of a run. The claim stays unsettled and counts a death. It is taken back when this
        worker has left, and its retry_count is unchanged."""
        try:
            self._fatal(error, run)  # first, so that this worker claims nothing more when the key is free again
            self._tell.abandoned(run, error)
            if (calls := run.calls) is not None and calls.done:
                # Calls that succeeded are settled. The death is counted here: the claim is gone when the worker leaves.
                ending = f"ended by {type(error).__name__}"
                run.lane.finish(died(run.claim, ending, done=calls.done, outbox=calls.outbox), calls.used_s)
        finally:
            self.running.pop(id(run), None)  # last, because the worker waits for what runs

    # -- the end of a run ------------------------------------------------------------------------------

    def conclude(self, run: Run, error: BaseException | None) -> Run | None:
        """Decide how the claim settles and report it. Then hand it to its lane, or go on with the key's calls."""
        duration_s, calls = self._monotonic() - run.began, run.calls
        try:
            settled = self._settled(run, error, duration_s)
        except BaseException as raised:  # an error handler that exits, or a bug of ours
            self.die(run, raised)
            return None
        # Not earlier: the app's own code at the end of a run may end the process, too.
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
        """Decide how the claim, or each key of a batch, settles, and report it. None while the calls of a key
        succeed."""
        if run.gathered is not None:
            return self._settled_batch(run, run.gathered, error, duration_s)
        settlement = self._decide(run, error)
        if error is not None:
            self._tell.handlers(error, run.context)
        self._tell.ended(run, settlement, error, duration_s)
        return settlement

    def _decide(self, run: Run, error: BaseException | None) -> Settlement | None:
        """Decide how the claim settles. None while the calls of a key succeed."""
        claim, context, calls = run.claim, run.context, run.calls
        finished, outbox = (calls.done, calls.outbox) if calls else (0, None)
        if context.postponed_s is not None:
            return postponed(claim, context.postponed_s, done=finished, outbox=outbox)
        if error is not None:
            return self.verdicts.failed(claim, run.call.task.options, error, done=finished, outbox=outbox)
        return None if calls else done(claim, context.outbox)

    def _settled_batch(
        self, run: Run, gathered: BatchClaims, error: BaseException | None, duration_s: float
    ) -> list[Settlement]:
        """The same for a batch: one settlement for each of its keys. One turn records all of them."""
        settlements, failures = self.verdicts.of_batch(gathered, run.context, run.call.task.options, error)
        if error is not None:
            self._tell.handlers(error, run.context)
        failed: dict[str, BaseException] = {}
        for claim, failure in failures:
            self._tell.handlers(failure, Context(self._app, claim, run.call.task))
            failed[claim.key] = failure
        self._tell.batch_ended(run, settlements, failed, error, duration_s)
        return settlements
