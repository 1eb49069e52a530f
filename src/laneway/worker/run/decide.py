"""What an error makes of a claim: retry, and when, or the morgue, and with which text. Never talks to a broker.

What an app's own functions get wrong here (`retry_in`, `format_error`, `dump_error`, `load_error`) is logged, and
the default taken instead: a failure must always be recorded.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from ...config import TaskOptions
from ...errors import Bury, LanewayError, Retry
from ...jobs.data import Claim, NewJob
from ...jobs.delay import seconds
from ...jobs.settlement import Settlement, buried, default_retry_in, done, failed, postponed, retry_count_after
from .failure import format_error
from .run import Gathered

if TYPE_CHECKING:
    from ...app import Laneway
    from ...context import Context


class Verdicts:
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
        self, gathered: Gathered, context: Context, options: TaskOptions, error: BaseException | None
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
