"""One run, from what a lane holds to how it is to be settled. The pipeline on one page:

    read  →  enter middleware  →  invoke  →  leave middleware  →  decide  →  tell  →  finish, or read the next call

Sync and async tasks go through the same steps; only `invoke` is awaited for the latter. A keyed claim goes round
once for each of its calls, a batch once for all its keys. The runner never talks to the broker: what it decides is
recorded by the fetcher of the lane that the claim came from. What runs apart, in another process, goes through the same
steps there, and comes back by `apart.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from ..clock import Clock
from ..context import Context
from ..errors import TicketError
from ..failpoints import armed, reach
from ..job import Claim, Kind, NewJob
from ..middleware import Stack, overriding
from ..outcome import OUTBOX_LIMIT, Settlement, Verdict, buried, done, postponed, released
from ..poison import ALONE_AFTER, BURIED_AT, deaths_of, died, too_many
from ..telemetry import RunAbandoned, RunEnded, RunStarted, next_run
from ..ticket import Call
from .bus import Lane
from .failure import describe
from .limits import within
from .reading import FAILURES, UNREADABLE, Reader
from .run import Calls, Gathered, Run, Unit
from .verdicts import Verdicts

if TYPE_CHECKING:
    from ..app import Laneway
    from ..config import Isolation
    from ..job import Payload
    from ..task import AnyTask
    from .board import Board
    from .isolation import Pool

#: A keyed claim is given back when its calls have run for so long: it bounds what a crash repeats, and keeps a key
#: with many calls from holding a runner.
SLICE_S = 0.05


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
        self._now = clock.now
        #: The id whose claims are ours.
        self._held_under = held_under
        self._valid_until = valid_until
        #: Where a supervisor finds what was running; none without one.
        self._board = board
        #: Where runs are carried out apart; none inside such a process.
        self._pool = pool
        self._isolates = pool is not None and any(task.isolation for task in app.registry)
        self._around_execution = overriding(app.middleware, "around_execution")
        self._started = app.telemetry.of(RunStarted)
        self._ended = app.telemetry.of(RunEnded)
        self._abandoned = app.telemetry.of(RunAbandoned)
        self.verdicts = Verdicts(app)
        self._reader = Reader(app)
        self._read = self._reader.call
        #: The runs under way.
        self.running: dict[int, Run] = {}
        #: Set when the worker is told to stop: the calls of a key that have not begun are given back.
        self.stopping = False

    def read(self, lane: Lane, unit: Unit) -> Run | None:
        """Make a run of a unit of work. None: there is nothing in it to be run, and it is settled if it is still ours.

        A unit that was claimed under an id that is lost is dropped: the broker has given it to somebody else, or will.
        """
        if isinstance(unit, list):
            return self._read_batch(lane, unit)
        if unit.worker != self._held_under():
            return None
        if unit.kind:
            if unit.kind == Kind.COLLECTING:
                return self._read_batch(lane, [unit])
            return self._read_call(Calls(lane, unit))
        began = self._monotonic()
        if began >= self._valid_until():
            # This process was stopped or cut off for so long that the claim may be somebody else's by now.
            lane.finish(released(unit), None)
            return None
        apart = None
        try:
            if unit.deaths or self._isolates:
                if unit.deaths >= BURIED_AT:
                    self._bury(lane, unit, None, began)
                    return None
                call, apart = self._read_placed(unit.payloads[0], unit, unit.deaths)
            else:
                call = self._read(unit.payloads[0], unit)
        except FAILURES as error:
            return self._unreadable(lane, unit, None, error, began)
        if call is None:
            lane.finish(done(unit), 0.0)
            return None
        return Run(lane, unit, call, Context(self._app, unit, call.task), began, None, None, apart)

    def execute(self, run: Run) -> Run | None:
        """Carry out a sync task's run. Returns the next one of the same claim, if there is one."""
        result = error = None
        try:
            if self._enter(run):
                result = run.call.task.invoke(run.call.params, run.context)
                if isinstance(result, Coroutine):
                    # A decorator has hidden that the task is async.
                    result = self._await(result)
        except FAILURES as raised:
            error = raised
        except BaseException as raised:
            self._die(run, raised)
            return None
        return self._leave(run, result, error)

    async def execute_async(self, run: Run) -> Run | None:
        """Carry out an async task's run. Returns the next one of the same claim, if there is one."""
        result = error = None
        try:
            if self._enter(run):
                task = run.call.task
                result = task.invoke(run.call.params, run.context)
                if task.options.time_limit is not None:
                    result = within(task.options.limit_s or 0.0, result)
                result = await result
        except GeneratorExit:
            raise  # the loop is gone: the run was abandoned, and is only being cleared away
        except FAILURES as raised:
            error = raised
        except BaseException as raised:
            self._die(run, raised)
            return None
        return self._leave(run, result, error)

    def still_ours(self, run: Run) -> bool:
        """Whether a run that was read a while ago may begin. If not, it is dropped or given back, as if read now."""
        calls, claims = run.calls, run.gathered.claims if run.gathered else [run.claim]
        lost = run.claim.worker != self._held_under()
        if not lost and self._monotonic() < self._valid_until():
            return True
        if calls is not None and calls.done:
            self._give_back_rest(calls)
        elif not lost:
            run.lane.finish_all([released(claim) for claim in claims], None)
        return False

    # -- reading ---------------------------------------------------------------------------------------

    def _read_call(self, calls: Calls) -> Run | None:
        """Make a run of the next call of a key. None: the claim is settled, or what is left of it given back."""
        lane, claim = calls.lane, calls.claim
        while calls.done < len(claim.payloads):
            began = self._monotonic()
            if not self._may_go_on(calls, began):
                self._give_back_rest(calls)
                return None
            payload, apart = calls.current, None
            try:
                if payload.deaths or self._isolates:
                    if payload.deaths and calls.done:
                        # It is to be the head of a claim, so that what has run before it is settled if it dies again.
                        self._give_back_rest(calls)
                        return None
                    calls.suspect = payload.deaths > 0
                    if payload.deaths >= BURIED_AT:
                        self._bury(lane, claim, calls, began)
                        return None
                    call, apart = self._read_placed(payload, claim, payload.deaths)
                else:
                    call = self._read(payload, claim)
            except FAILURES as error:
                return self._unreadable(lane, claim, calls, error, began)
            if call is not None:
                context = Context(self._app, claim, call.task, calls.done)
                return Run(lane, claim, call, context, began, calls, None, apart)
            calls.done += 1
        lane.finish(done(claim, calls.outbox), calls.used_s)
        return None

    def _may_go_on(self, calls: Calls, now: float) -> bool:
        return (
            not self.stopping
            and not calls.suspect
            and now < self._valid_until()
            and calls.claim.worker == self._held_under()
            and calls.used_s < SLICE_S
            and len(calls.outbox) < OUTBOX_LIMIT
        )

    def _give_back_rest(self, calls: Calls) -> None:
        """Settle the calls that are finished, and leave the others to whoever claims the key next."""
        settlement = released(calls.claim, done=calls.done, outbox=calls.outbox)
        calls.lane.finish(settlement, calls.used_s if calls.done else None)

    def _read_batch(self, lane: Lane, claims: list[Claim]) -> Run | None:
        """Make one run of a batch; a key that cannot be read fails alone. None: there is none that can be run."""
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
                return Run(lane, first, Call(task, {}), context, began, None, Gathered(claims, None), apart)
        gathered, broken = self._reader.batch(claims)
        for claim, error in broken:
            self._unreadable(lane, claim, None, error, began)
        if not gathered.batch:  # a middleware has kept back whatever could be read
            lane.finish_all([done(claim) for claim in gathered.claims], 0.0)
            return None
        first = gathered.claims[0]
        collector = self._reader.collector_of(first.queue)
        call = Call(collector, {"batch": gathered.batch})
        return Run(lane, first, call, Context(self._app, first, collector), began, None, gathered)

    def _unreadable(
        self, lane: Lane, claim: Claim, calls: Calls | None, error: BaseException, began: float
    ) -> Run | None:
        """Conclude the run that there would have been, if its body could be read."""
        task: Any = error.task if isinstance(error, TicketError) else None
        if task is None and claim.kind == Kind.COLLECTING:
            task = self._reader.task_of(claim, claim.payloads[0])
        call = Call(task or UNREADABLE, {})
        context = Context(self._app, claim, call.task, calls.done if calls else 0)
        return self.conclude(Run(lane, claim, call, context, began, calls), error)

    # -- what has had its process die, and what runs apart ---------------------------------------------

    def _read_placed(self, payload: Payload, claim: Claim, deaths: int) -> tuple[Call | None, Isolation | None]:
        """Read a call that may have to be run apart; then its arguments matter only there."""
        if self._reader.is_surrounded:
            task = self._reader.task_of(claim, payload)
            if task is not None and (apart := self._place(task, deaths)):
                return Call(task, {}), apart
        call = self._read(payload, claim)
        return call, None if call is None else self._place(call.task, deaths)

    def _place(self, task: AnyTask, deaths: int) -> Isolation | None:
        """How a run is kept apart: as its task says, and in a process of its own if it may be what ends processes."""
        if self._pool is None:
            return None
        if deaths >= ALONE_AFTER and self._pool.possible:
            return "fresh"
        return task.isolation

    def _bury(self, lane: Lane, claim: Claim, calls: Calls | None, began: float) -> None:
        """Send to the morgue, without running it, what has ended its process too often."""
        task = self._reader.task_of(claim, claim.payloads[0]) or UNREADABLE
        text = too_many(deaths_of(claim), "took its worker along")
        run = Run(lane, claim, Call(task, {}), Context(self._app, claim, task), began, calls)
        self.settle(run, [buried(claim, self.verdicts.text(text))], text)

    def begin(self, run: Run) -> None:
        """Note a run that is carried out apart. It is not on the board: if this process dies, it is not to blame."""
        self.running[id(run)] = run
        if self._started:
            self._tell_started(run)
        run.began = self._monotonic()

    def forget(self, run: Run) -> float:
        """Such a run is over; returns the seconds that it took."""
        self.running.pop(id(run), None)
        return self._monotonic() - run.began

    def settle(self, run: Run, settlements: list[Settlement], said: str) -> None:
        """Tell and record what became of a run of which no more is known than `said`."""
        duration_s = self._monotonic() - run.began
        if self._ended:
            self._tell_ended(run, settlements[0], None, duration_s, len(settlements), said=said)
        used_s = run.calls.used_s if run.calls else 0.0
        run.lane.finish_all(settlements, used_s + duration_s)

    # -- running ---------------------------------------------------------------------------------------

    def _enter(self, run: Run) -> bool:
        """Tell, and enter the middleware. False: one of them does not want it to be run."""
        self.running[id(run)] = run
        if self._board is not None:
            run.slot = self._board.begin(run.started())
        if self._started:
            self._tell_started(run)
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
                self._die(run, raised)
                return None
        del self.running[id(run)]
        if self._board is not None:
            self._board.end(run.slot)
        return self.conclude(run, error)

    def _die(self, run: Run, error: BaseException) -> None:
        # The call stays unsettled: it is taken back when this worker has left, and its retry_count is unchanged.
        try:
            self._fatal(error, run)  # first, so that nothing is claimed any more when its key is free again
            if self._abandoned:
                self._tell_abandoned(run, error)
            if (calls := run.calls) is not None and calls.done:
                # What has succeeded is settled. The death is counted here: the claim is gone when the worker leaves.
                ending = f"ended by {type(error).__name__}"
                run.lane.finish(died(run.claim, ending, done=calls.done, outbox=calls.outbox), calls.used_s)
        finally:
            self.running.pop(id(run), None)  # last, because the worker waits for what runs

    # -- how it ended ----------------------------------------------------------------------------------

    def conclude(self, run: Run, error: BaseException | None) -> Run | None:
        """Decide what becomes of the claim, tell whoever listens, and hand it to its lane or go on with its calls."""
        duration_s = self._monotonic() - run.began
        if run.gathered is not None:
            self._conclude_batch(run, run.gathered, error, duration_s)
            return None
        calls = run.calls
        settlement = self._decide(run, error)
        if error is not None:
            self._tell_handlers(error, run.context)
        if self._ended:
            self._tell_ended(run, settlement, error, duration_s)
        if calls is not None:
            duration_s = calls.used_s = calls.used_s + duration_s
        if settlement is not None:
            run.lane.finish(settlement, duration_s)
            return None
        assert calls is not None, "only the calls of a key go on after a success"
        return self.go_on(calls, run.context.outbox)

    def go_on(self, calls: Calls, outbox: list[NewJob]) -> Run | None:
        """A call of a key has succeeded and enqueued this: read the next one."""
        calls.done += 1
        calls.outbox += outbox
        return self._read_call(calls)

    def _decide(self, run: Run, error: BaseException | None) -> Settlement | None:
        """What becomes of the claim; None while the calls of a key succeed."""
        claim, context, calls = run.claim, run.context, run.calls
        finished, outbox = (calls.done, calls.outbox) if calls else (0, None)
        if context.postponed_s is not None:
            return postponed(claim, context.postponed_s, done=finished, outbox=outbox)
        if error is not None:
            return self.verdicts.failed(claim, run.call.task.options, error, done=finished, outbox=outbox)
        return None if calls else done(claim, context.outbox)

    def _conclude_batch(self, run: Run, gathered: Gathered, error: BaseException | None, duration_s: float) -> None:
        """The same for a batch: a settlement for each of its keys, all of them recorded in one turn."""
        settlements, failures = self.verdicts.of_batch(gathered, run.context, run.call.task.options, error)
        if error is not None:
            self._tell_handlers(error, run.context)
        for claim, failure in failures:
            self._tell_handlers(failure, Context(self._app, claim, run.call.task))
        if self._ended:
            self._tell_batch_ended(
                run, settlements, {claim.key: failure for claim, failure in failures}, error, duration_s
            )
        run.lane.finish_all(settlements, duration_s)

    def _tell_batch_ended(
        self,
        run: Run,
        settlements: list[Settlement],
        failures: dict[str, BaseException],
        error: BaseException | None,
        duration_s: float,
    ) -> None:
        """Once for the keys that ended alike, and once for each that its handler said has failed."""
        alike: dict[Verdict, list[Settlement]] = {}
        ends: list[tuple[Settlement, BaseException | None, int]] = []
        for settlement in settlements:
            failure = failures.get(settlement.claim.key)
            if failure is None:
                alike.setdefault(settlement.verdict, []).append(settlement)
            else:
                ends.append((settlement, failure, 1))
        ends += [(several[0], error, len(several)) for several in alike.values()]
        for left, (settlement, failure, keys) in zip(range(len(ends) - 1, -1, -1), ends, strict=True):
            self._tell_ended(run, settlement, failure, duration_s, keys, more=left > 0)

    def _tell_started(self, run: Run) -> None:
        claim, due_at = run.claim, run.claim.perform_at
        if run.calls is not None:  # a call behind the first may have been due later
            due_at = max(due_at, run.calls.current.score)
        run.number = next_run()
        self._app.telemetry.emit(
            RunStarted(
                claim.queue,
                run.call.task.name,
                claim.key,
                run.attempt,
                run.id,
                run.keys,
                run.number,
                max(0.0, self._now() - due_at),
                run.context.headers or None,
            )
        )

    def _tell_abandoned(self, run: Run, error: BaseException) -> None:
        claim, duration_s = run.claim, self._monotonic() - run.began
        self._app.telemetry.emit(
            RunAbandoned(
                claim.queue,
                run.call.task.name,
                claim.key,
                run.attempt,
                duration_s,
                describe(error),
                error,
                run.id,
                run.number,
            )
        )

    def _tell_ended(
        self,
        run: Run,
        settlement: Settlement | None,
        error: BaseException | None,
        duration_s: float,
        keys: int = 1,
        *,
        more: bool = False,
        said: str | None = None,
    ) -> None:
        claim = run.claim if run.gathered is None or settlement is None else settlement.claim
        self._app.telemetry.emit(
            RunEnded(
                claim.queue,
                run.call.task.name,
                claim.key,
                run.attempt if claim is run.claim else claim.attempt,
                settlement.verdict if settlement else "done",
                duration_s,
                settlement.delay_s if settlement else 0.0,
                said if error is None else describe(error),
                error,
                run.id,
                keys,
                run.number,
                more,
            )
        )

    def _tell_handlers(self, error: BaseException, context: Context) -> None:
        for handler in self._app.error_handlers:
            try:
                handler(error, context)
            except Exception:
                context.logger.exception("an error handler failed")
