"""What the brokers do alike before they store: times, texts and for how long to remember. No state."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ..errors import BrokerError, EnqueueError
from ..job import NewJob

REMEMBER_DEAD_S = 3_600.0
REMEMBER_ENDED_S = 86_400.0

#: The longest delay after a run: 100 years.
LONGEST_DELAY_S = 100 * 365.25 * 86_400
_PRIORITIES = range(-(2**31), 2**31)


def due_at(now: float, delay_s: float, perform_at: float | None) -> float:
    """When a job is due."""
    at = now + delay_s if perform_at is None else perform_at
    if not math.isfinite(at):
        raise EnqueueError(f"A job cannot be due at {at}; give it a finite time.")
    return at


def again_at(now: float, delay_s: float) -> float:
    """When a job that has run is due again. A delay that is no number must not keep the run from being settled."""
    if math.isnan(delay_s):
        return now
    return now + min(max(delay_s, -LONGEST_DELAY_S), LONGEST_DELAY_S)


def check_jobs(jobs: Iterable[NewJob]) -> None:
    """Refuse what cannot be stored, before any of it is."""
    for job in jobs:
        due_at(0.0, job.delay_s, job.perform_at)
        if job.priority not in _PRIORITIES:
            raise EnqueueError(
                f"The priority {job.priority} of job {job.key!r} is out of range; use -2**31 to 2**31-1."
            )
        try:
            job.key.encode()
            job.body.encode()
            for name, text in job.headers.items() if job.headers else ():
                name.encode()
                text.encode()
        except UnicodeEncodeError:
            raise EnqueueError(
                f"The job {job.key!r} has half characters (lone surrogates) in its key, body or headers."
            ) from None


def storable(error: str | None) -> str | None:
    """An error's text without half characters: file names that are no UTF-8 bring them into messages."""
    return error if error is None else error.encode("utf-8", "backslashreplace").decode()


def unknown_queue(name: str) -> BrokerError:
    """The error for a queue that nobody has declared."""
    return BrokerError(f"There is no queue {name!r}; declare it first.")
