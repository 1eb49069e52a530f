"""How a run ended, and what is to be recorded of it. The core decides here; brokers only store.

A Settlement is the decision for one claim. Times in it are delays, so that the broker's clock is the only one.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .job import Claim, NewJob
from .retry import exhausted

#: done: gone from the queue · retry: again later, counted · bury: into the morgue ·
#: postpone: again later, not counted · release: given back as it was, never started.
Verdict = Literal["done", "retry", "bury", "postpone", "release"]

#: A run enqueues this many jobs at most.
OUTBOX_LIMIT = 10_000


class Settlement(msgspec.Struct):
    """What becomes of a claim. `outbox` is stored in the same step, and only if the claim still holds."""

    claim: Claim
    verdict: Verdict
    delay_s: float = 0.0
    retry_count: int = -1
    error: str | None = None
    outbox: list[NewJob] | None = None


def done(claim: Claim, outbox: list[NewJob] | None = None) -> Settlement:
    """The run succeeded; what it enqueued is sent."""
    return Settlement(claim, "done", 0.0, -1, None, outbox or None)


def failed(claim: Claim, error: str, max_retry_count: int, retry_in_s: float) -> Settlement:
    """The run failed: again in `retry_in_s`, or to the morgue when its retries are used up."""
    retry_count = claim.retry_count + 1
    if exhausted(retry_count, max_retry_count):
        return Settlement(claim, "bury", 0.0, retry_count, error)
    return Settlement(claim, "retry", retry_in_s, retry_count, error)


def buried(claim: Claim, error: str) -> Settlement:
    """The run asked for the morgue outright."""
    return Settlement(claim, "bury", 0.0, claim.retry_count + 1, error)


def postponed(claim: Claim, delay_s: float) -> Settlement:
    """The run asked to be repeated later: not a failure, and nothing that it enqueued is sent."""
    return Settlement(claim, "postpone", delay_s, claim.retry_count)


def released(claim: Claim) -> Settlement:
    """The claim was never started: it goes back as it was."""
    return Settlement(claim, "release", 0.0, claim.retry_count)
