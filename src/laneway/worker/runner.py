"""One run, from a claim to how it is to be settled. The pipeline on one page:

    read  →  enter middleware  →  invoke  →  leave middleware  →  decide  →  tell  →  finish

Sync and async tasks go through the same steps; only `invoke` is awaited for the latter. It never talks to the
broker: what it decides is recorded by the fetcher of the lane that the claim came from.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from ..clock import Clock
from ..config import TaskOptions
from ..context import Context
from ..delays import seconds
from ..errors import Bury, Retry, TicketError
from ..job import Claim
from ..middleware import Stack, overriding, surround
from ..outcome import Settlement, buried, done, failed, postponed, released
from ..retry import default_retry_in
from ..telemetry import RunEnded, RunStarted
from ..ticket import Call
from .bus import Lane
from .failure import describe, format_error

if TYPE_CHECKING:
    from ..app import Laneway
    from ..task import AnyTask

#: For a job whose task is not known.
UNKNOWN = TaskOptions()
#: What counts as a failure of the handler. Anything else ends the worker.
FAILURES = (Exception, CancelledError)


class Run:
    """A claim that has been read and is about to be carried out."""

    __slots__ = ("began", "call", "claim", "context", "lane", "stack")

    def __init__(self, lane: Lane, claim: Claim, call: Call, context: Context, stack: Stack | None) -> None:
        self.lane = lane
        self.claim = claim
        self.call = call
        self.context = context
        self.stack = stack
        self.began = 0.0


class Runner:
    """Carries out claims, in whatever thread it is called."""

    def __init__(
        self,
        app: Laneway,
        *,
        fatal: Callable[[BaseException, Run], None],
        wait_for: Callable[[Any], Any],
        clock: Clock,
        valid_until: Callable[[], float],
    ) -> None:
        self._app = app
        self._fatal = fatal
        self._await = wait_for
        self._monotonic = clock.monotonic
        self._valid_until = valid_until
        self._loads = app.serializer.loads
        self._around_deserialization = overriding(app.middleware, "around_deserialization")
        self._around_execution = overriding(app.middleware, "around_execution")
        self._started = app.telemetry.of(RunStarted)
        self._ended = app.telemetry.of(RunEnded)
        #: The runs under way.
        self.running: dict[int, Run] = {}

    def read(self, lane: Lane, claim: Claim) -> Run | None:
        """Make a run of a claim. None: it is settled already, because there is nothing in it that can be run."""
        began = self._monotonic()
        if began >= self._valid_until():
            # This process was stopped or cut off for so long that the claim may be somebody else's by now.
            lane.finish(released(claim), 0.0)
            return None
        try:
            call = self._deserialize(claim)
        except FAILURES as error:
            task = error.task if isinstance(error, TicketError) else None
            self._conclude(lane, claim, task, None, error, began)
            return None
        if call is None:  # the serializer has no use for it
            lane.finish(done(claim), 0.0)
            return None
        context = Context(self._app, claim, call.task)
        stack = None
        if self._around_execution:
            stack = Stack([lambda method=method: method(call, context) for method in self._around_execution])  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        return Run(lane, claim, call, context, stack)

    def execute(self, run: Run) -> None:
        """Carry out a sync task's run."""
        if not self._enter(run):
            return
        result = error = None
        try:
            result = run.call.task.invoke(run.call.params, run.context)
            if isinstance(result, Coroutine):
                # A decorator has hidden that the task is async.
                result = self._await(result)
        except FAILURES as raised:
            error = raised
        except BaseException as raised:
            self._die(run, raised)
            return
        self._leave(run, result, error)

    async def execute_async(self, run: Run) -> None:
        """Carry out an async task's run."""
        if not self._enter(run):
            return
        result = error = None
        try:
            result = await run.call.task.invoke(run.call.params, run.context)
        except GeneratorExit:
            raise  # the loop is gone: the run was abandoned, and is only being cleared away
        except FAILURES as raised:
            error = raised
        except BaseException as raised:
            self._die(run, raised)
            return
        self._leave(run, result, error)

    def task_of(self, claim: Claim) -> AnyTask | None:
        """The task that a claim is for; None if its body cannot be read."""
        try:
            call = self._as_call(self._loads(claim.payloads[0].body))
        except Exception:
            return None
        return None if call is None else call.task

    # -- the steps -------------------------------------------------------------------------------------

    def _deserialize(self, claim: Claim) -> Call | None:
        body = claim.payloads[0].body
        if not body:
            return None
        if not self._around_deserialization:
            return self._as_call(self._loads(body))
        reached, call = surround(self._around_deserialization, (body, claim), lambda: self._as_call(self._loads(body)))
        if not reached:
            self._app.logger.warning("a middleware did not call on: job %s is taken as done", claim.key)
        return call if reached else None

    def _as_call(self, loaded: Any) -> Call | None:
        """What a serializer returned, as a call: it may also be an instance of a task class."""
        if loaded is None or isinstance(loaded, Call):
            return loaded
        task = self._app.registry.of(type(loaded))
        if task is None:
            raise TicketError(f"The serializer returned {type(loaded).__name__}, which is not a task of this app.")
        return Call(task, task.params_of(loaded))

    def _enter(self, run: Run) -> bool:
        """Tell, and enter the middleware. False: the run is over already."""
        self.running[id(run)] = run
        claim = run.claim
        if self._started:
            self._app.telemetry.emit(RunStarted(claim.queue, run.call.task.name, claim.key, claim.attempt))
        run.began = self._monotonic()
        if run.stack is None:
            return True
        try:
            if run.stack.enter():
                return True
            run.context.logger.warning("a middleware did not call on: the run is taken as done")
            error = None
        except FAILURES as raised:
            error = raised
        except BaseException as raised:
            self._die(run, raised)
            return False
        self._leave(run, None, error)
        return False

    def _leave(self, run: Run, result: Any, error: BaseException | None) -> None:
        """Leave the middleware, and conclude with the error that is left."""
        if run.stack is not None:
            try:
                run.stack.leave(result, error)
                error = None
            except FAILURES as raised:
                error = raised
            except BaseException as raised:
                self._die(run, raised)
                return
        del self.running[id(run)]
        self._conclude(run.lane, run.claim, run.call.task, run.context, error, run.began)

    def _conclude(
        self,
        lane: Lane,
        claim: Claim,
        task: AnyTask | None,
        context: Context | None,
        error: BaseException | None,
        began: float,
    ) -> None:
        """Decide what becomes of the claim, tell whoever listens, and hand it to the lane."""
        duration_s = self._monotonic() - began
        options = task.options if task else UNKNOWN
        if context is not None and context.postponed_s is not None:
            settlement = postponed(claim, context.postponed_s)
        elif error is None:
            settlement = done(claim, context.outbox if context else None)
        else:
            settlement = self._failed(claim, options, error)
        if error is not None:
            self._tell_handlers(error, context or Context(self._app, claim, task or _Nameless()))
        if self._ended:
            self._app.telemetry.emit(
                RunEnded(
                    claim.queue,
                    task.name if task else "?",
                    claim.key,
                    claim.attempt,
                    settlement.verdict,
                    duration_s,
                    settlement.delay_s,
                    None if error is None else describe(error),
                    error,
                )
            )
        lane.finish(settlement, duration_s)

    def _failed(self, claim: Claim, options: TaskOptions, error: BaseException) -> Settlement:
        text = format_error(error)
        retries = options.retries(claim.kind)
        if isinstance(error, (Bury, *options.bury_on)):
            return buried(claim, text)
        if isinstance(error, Retry) and error.after_s is not None:
            return failed(claim, text, retries, error.after_s)
        return failed(claim, text, retries, self._retry_in(options, retries, claim.retry_count + 1))

    def _retry_in(self, options: TaskOptions, retries: int, retry_count: int) -> float:
        if retry_count >= retries:
            return 0.0
        try:
            return seconds(options.retry_in(retry_count), "retry_in")
        except Exception:
            self._app.logger.exception("retry_in failed for retry %d; the default is used", retry_count)
            return default_retry_in(retry_count)

    def _tell_handlers(self, error: BaseException, context: Context) -> None:
        for handler in self._app.error_handlers:
            try:
                handler(error, context)
            except Exception:
                context.logger.exception("an error handler failed")

    def _die(self, run: Run, error: BaseException) -> None:
        # The claim stays unsettled: it is taken back when this worker has left, and its retry_count is unchanged.
        self.running.pop(id(run), None)
        self._fatal(error, run)


class _Nameless:
    """Stands for the task of a job whose ticket could not be read."""

    name = "?"
