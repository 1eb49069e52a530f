"""How a run ended, and what is to be recorded of it. The core decides here; brokers only store.

A Settlement is the decision for one claim. Times in it are delays, so that the broker's clock is the only one.
A claim's payloads are in order, and what became of them is told from the front: the first `done` are finished, the
next `buried` go to the morgue, and the rest goes back to the queue.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .data import Claim, Kind, NewJob
from .retry import exhausted

#: done: all of it is gone from the queue · retry: again later, counted · bury: into the morgue ·
#: postpone: again later, not counted · release: given back as it was, never started.
Verdict = Literal["done", "retry", "bury", "postpone", "release"]

#: A run enqueues this many jobs at most.
OUTBOX_LIMIT = 10_000


class Settlement(msgspec.Struct, gc=False):
    """What becomes of a claim. `outbox` is stored in the same step, and only if the claim still holds."""

    claim: Claim
    verdict: Verdict
    delay_s: float = 0.0
    retry_count: int = -1
    error: str | None = None
    outbox: list[NewJob] | None = None
    #: How many payloads, from the front, are finished; with the verdict `done` all are.
    done: int = 0
    #: With the verdict `bury`: how many of the payloads behind those go to the morgue.
    buried: int = 0
    #: The process that ran it has died: a death is counted, of a keyed job at the first call that is not finished.
    died: bool = False
    #: Settlements with the same number, unless it is 0, are of one run: what it enqueued goes with one of them.
    run: int = 0


def done(claim: Claim, outbox: list[NewJob] | None = None) -> Settlement:
    """The run succeeded; what it enqueued is sent."""
    return Settlement(claim, "done", 0.0, -1, None, outbox or None, len(claim.payloads))


def failed(
    claim: Claim,
    error: str,
    max_retry_count: int,
    retry_in_s: float,
    *,
    done: int = 0,
    outbox: list[NewJob] | None = None,
) -> Settlement:
    """A run failed after `done` of the claim's payloads were finished: again in `retry_in_s`, or, when its retries are
    used up, one payload to the morgue: the first that is not finished."""
    retry_count = retry_count_after(claim, done) + 1
    if exhausted(retry_count, max_retry_count):
        return Settlement(claim, "bury", 0.0, retry_count, error, outbox or None, done, 1)
    return Settlement(claim, "retry", retry_in_s, retry_count, error, outbox or None, done)


def buried(claim: Claim, error: str, *, done: int = 0, outbox: list[NewJob] | None = None) -> Settlement:
    """The run asked for the morgue outright: for its call, or for everything that a collecting run was given."""
    count = len(claim.payloads) - done if claim.kind is Kind.COLLECTING else 1
    return Settlement(
        claim, "bury", 0.0, retry_count_after(claim, done) + 1, error, outbox or None, done, max(count, 1)
    )


def postponed(claim: Claim, delay_s: float, *, done: int = 0, outbox: list[NewJob] | None = None) -> Settlement:
    """The run asked to be repeated later: not a failure. `outbox` is what the `done` calls before it enqueued."""
    return Settlement(claim, "postpone", delay_s, retry_count_after(claim, done), None, outbox or None, done)


def released(claim: Claim, *, done: int = 0, outbox: list[NewJob] | None = None) -> Settlement:
    """What is left of the claim was never started: it goes back as it was."""
    return Settlement(claim, "release", 0.0, retry_count_after(claim, done), None, outbox or None, done)


def retry_count_after(claim: Claim, done: int) -> int:
    """The retry_count of the first payload that is not finished: a success resets it."""
    return -1 if done else claim.retry_count
