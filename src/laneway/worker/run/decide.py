"""Decides how a failed run settles: retry and when, or morgue and with which text. Never calls a broker.

If the app's `retry_in`, `format_error`, `dump_error` or `load_error` fails, `FailureDecider` logs that and uses the
default, because a failure must always be recorded. `OutboxRefusals`: a run whose outbox the broker refuses has failed
after all. It finds the run to blame, and for a key the call, and applies the task's own retry rule: a later run may
enqueue something else, or the cause may be fixed. `format_error` writes a line that names the error, then code
locations, never values.
"""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...brokers.shared import check_jobs
from ...config import TaskOptions
from ...context import Context
from ...errors import Bury, EnqueueError, LanewayError, Retry, text_of
from ...jobs.data import Claim, Kind, NewJob
from ...jobs.delay import seconds
from ...jobs.settlement import Settlement, buried, default_retry_in, done, failed, postponed, retry_count_after
from ...telemetry import OutboxRefused
from .decode import UNREADABLE, RunDecoder
from .run import BatchClaims, RunOutbox

if TYPE_CHECKING:
    from ...app import Laneway

LONGEST = 8_000
FRAMES = 20

_OURS = str(Path(__file__).parent.parent.parent)


def describe(error: BaseException) -> str:
    """The error in one line."""
    text = " ".join(text_of(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def format_error(error: BaseException) -> str:
    """The error as it is kept with its job."""
    lines = [describe(error)[:LONGEST]]
    try:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_OURS)]
    except BaseException:  # where the code is comes from its loader, which may be the user's own
        frames = []
    lines += [f"  {frame.filename}:{frame.lineno} in {frame.name}" for frame in frames[-FRAMES:]]
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        lines.append(f"caused by {describe(cause)}")
    return "\n".join(lines)[: 2 * LONGEST]


class FailureDecider:
    """Decides for an app what becomes of claims whose run has failed."""

    def __init__(self, app: Laneway) -> None:
        self._app = app
        self._batches = itertools.count(1)

    def failed(
        self,
        claim: Claim,
        options: TaskOptions,
        error: BaseException | str,
        *,
        done: int = 0,
        outbox: list[NewJob] | None = None,
    ) -> Settlement:
        """A run failed after `done` of the claim's payloads were finished, which have enqueued `outbox`."""
        return self._failed(claim, options, error, self.text(error), done, outbox)

    def of_batch(
        self, gathered: BatchClaims, context: Context, options: TaskOptions, error: BaseException | None
    ) -> tuple[list[Settlement], list[tuple[Claim, BaseException]]]:
        """What becomes of each key of a batch, and the keys of which the handler itself said that they failed.

        What it enqueued goes with the first settlement: they are all recorded in one step.
        """
        claims = gathered.claims
        if context.postponed_s is not None:
            return [postponed(claim, context.postponed_s) for claim in claims], []
        if error is not None:
            text = self.text(error)
            return [self._failed(claim, options, error, text, 0, None) for claim in claims], []
        said = gathered.batch.failures
        if not said and not context.outbox:
            return [done(claim) for claim in claims], []
        settlements = [
            self.failed(claim, options, said[claim.key]) if claim.key in said else done(claim) for claim in claims
        ]
        if context.outbox:
            settlements[0].outbox = context.outbox
            number = self.run_number()
            for settlement in settlements:
                settlement.run = number
        return settlements, [(claim, _raisable(said[claim.key])) for claim in claims if claim.key in said]

    def run_number(self) -> int:
        """A number for the settlements of one batch."""
        return next(self._batches)

    def _failed(
        self,
        claim: Claim,
        options: TaskOptions,
        error: BaseException | str,
        text: str,
        done: int,
        outbox: list[NewJob] | None,
    ) -> Settlement:
        if isinstance(error, (Bury, *options.bury_on)):
            return buried(claim, text, done=done, outbox=outbox)
        most = options.retries(claim.kind)
        if isinstance(error, Retry) and error.after_s is not None:
            again_in_s = error.after_s
        else:
            again_in_s = self._retry_in(options, retry_count_after(claim, done) + 1, most)
        return failed(claim, text, most, again_in_s, done=done, outbox=outbox)

    def _retry_in(self, options: TaskOptions, retry_count: int, most: int) -> float:
        if retry_count >= most:
            return 0.0
        try:
            return seconds(options.retry_in(retry_count), "retry_in")
        except Exception:
            self._app.logger.exception("retry_in failed for retry %d; the default is used", retry_count)
            return default_retry_in(retry_count)

    def text(self, error: BaseException | str) -> str:
        """The error as it is kept with its job."""
        app = self._app
        try:
            text = error if isinstance(error, str) else (app.format_error or format_error)(error)
            return _checked(app.dump_error(text))
        except BaseException:  # formatting an error never ends a worker
            app.logger.exception("format_error or dump_error failed; the error is kept as it is")
            return error if isinstance(error, str) else format_error(error)

    def readable(self, text: str | None) -> str | None:
        """A kept error as a person may read it."""
        if text is None:
            return None
        try:
            return _checked(self._app.load_error(text))
        except BaseException:
            self._app.logger.exception("load_error failed; the error is shown as it is kept")
            return text


def _raisable(error: BaseException | str) -> BaseException:
    """An error as error handlers expect it: an exception, also when the handler gave only a text."""
    return LanewayError(error) if isinstance(error, str) else error


def _checked(text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"it must return text, not {type(text).__name__}")
    return text


#: Hands an error to the app's error handlers, in a thread where they hold up nobody.
Tell = Callable[[BaseException, Context], None]


class OutboxRefusals:
    """Decides for an app what becomes of runs whose outbox is refused. Never talks to a broker."""

    def __init__(self, app: Laneway, tell: Tell) -> None:
        self._app = app
        self._tell = tell
        self._reader = RunDecoder(app)
        self._verdicts = FailureDecider(app)

    def fail(self, settlements: list[Settlement], error: EnqueueError) -> list[Settlement]:
        """The same settlements, but those runs have failed whose outbox is to blame; all, if that cannot be told.

        Of a batch all keys: what it enqueued was for all of them.
        """
        sending = [each for each in settlements if each.outbox]
        blamed = [each for each in sending if _unstorable(each.outbox or [], error.place)] or sending
        refused = EnqueueError(f"What the run sent was refused: {error}", place=error.place)
        refused.__cause__ = error.__cause__
        runs: dict[tuple[str, int], list[Settlement]] = {_run_of(each): [] for each in blamed}
        found: list[Settlement] = []
        for settlement in settlements:
            failed = runs.get(_run_of(settlement))
            if failed is None:
                found.append(settlement)
            else:
                failed.append(self._failed(settlement, refused))
                found.append(failed[-1])
        for failed in runs.values():
            self._report(failed, refused)
        return found

    def _failed(self, settlement: Settlement, refused: EnqueueError) -> Settlement:
        """What becomes of a claim, one of whose runs has failed after all. Calls behind that one are run again, too:
        they must not overtake it."""
        claim, outbox, call = settlement.claim, settlement.outbox, 0
        before: list[NewJob] | None = None
        if isinstance(outbox, RunOutbox):
            call = next((n for n in range(outbox.calls) if _unstorable(outbox.of(n), refused.place)), 0)
            before = outbox.before(call)
        task = self._reader.task_of(claim, claim.payloads[call]) or UNREADABLE
        return self._verdicts.failed(claim, task.options, refused, done=call, outbox=before)

    def _report(self, failed: list[Settlement], refused: EnqueueError) -> None:
        """Tell of one run."""
        first = failed[0]
        claim, call = first.claim, first.done
        task = self._reader.task_of(claim, claim.payloads[call]) or UNREADABLE
        context = Context(self._app, claim, task, call)
        self._app.telemetry.emit(
            OutboxRefused(
                claim.queue,
                task.name,
                claim.key,
                context.attempt,
                first.verdict,
                first.delay_s,
                describe(refused),
                refused,
                context.id if claim.kind is Kind.KEYED else "",
                len(failed),
            )
        )
        self._tell(refused, context)


def _run_of(settlement: Settlement) -> tuple[str, int]:
    """Settlements of one run have the same; a run of one claim is known by its settlement."""
    return ("batch", settlement.run) if settlement.run else ("alone", id(settlement))


def _unstorable(outbox: list[NewJob], place: tuple[str, str] | None) -> bool:
    if any((job.queue, job.key) == place for job in outbox):
        return True
    try:
        check_jobs(outbox)
    except EnqueueError:
        return True
    return False
