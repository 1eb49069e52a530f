"""Decides how a run ends: done, retry, bury, postpone or release. The core decides here; brokers only store.

A `Settlement` is the decision for one claim. Its times are delays, so that only the broker's clock counts. It counts
the claim's payloads from the front: the first `done` are finished, the next `buried` go to the morgue, and the rest
goes back to the queue.

If the process of a run dies, the job runs again: one death may be chance, or the fault of another job in that
process. After the second death the job runs alone in a process of its own. At the third it is buried. So an innocent
job runs to its end, and only the job that kills its process goes to the morgue. The broker counts the deaths.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from typing import Literal

import msgspec

from .data import Claim, Kind, NewJob

RetryIn = Callable[[int], float]

DEFAULT_MAX_RETRY_COUNT = 25
#: For keyed calls: one that fails holds up its key.
KEYED_MAX_RETRY_COUNT = 5


def default_retry_in(retry_count: int) -> float:
    """Seconds before retry number `retry_count`: 15 at first, days in the end, spread by chance."""
    return retry_count**4 + 15 + random.randrange(30) * (retry_count + 1)


def exhausted(retry_count: int, max_retry_count: int) -> bool:
    """Whether a job whose failures have brought it to `retry_count` has no retry left."""
    return retry_count >= max_retry_count


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


#: With so many deaths a job runs alone in a process of its own.
ALONE_AFTER = 2
#: With so many it is buried.
BURIED_AT = 3
#: The exit code of a process that a job has left without its file descriptors. It can say nothing else.
DESCRIPTORS_CLOSED = 76


def deaths_of(claim: Claim, call: int = 0) -> int:
    """How often the process that ran this has died: a claim's, or one call's of a keyed claim."""
    return claim.payloads[call].deaths if claim.kind is Kind.KEYED else claim.deaths


def died(claim: Claim, ending: str, *, done: int = 0, outbox: list[NewJob] | None = None) -> Settlement:
    """The process that ran it, and nothing else, has ended as `ending` says: again at once, or the morgue."""
    deaths = deaths_of(claim, done) + 1
    if deaths >= BURIED_AT:
        settlement = buried(claim, too_many(deaths, ending), done=done, outbox=outbox)
    else:
        settlement = postponed(claim, 0.0, done=done, outbox=outbox)
    settlement.died = True
    return settlement


def too_many(deaths: int, ending: str) -> str:
    """Why such a job is in the morgue."""
    return f"The process that ran it died {deaths} times; the last time it {ending}."


def how_it_ended(status: int) -> str:
    """A process's exit status, negative for a signal as `subprocess` has it, in words that follow "it"."""
    if status == DESCRIPTORS_CLOSED:
        return "ended because a job had closed its file descriptors"
    if status >= 0:
        return f"ended by itself with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name} (signal {-status})" if name.startswith("SIG") else f"was killed by {name}"
