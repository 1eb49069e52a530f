"""Checks and conversions that all brokers use: due times, storable text, filters as text. No state.

It also says how long a broker remembers dead workers and how jobs ended.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec

from ..config import name_problem
from ..errors import BrokerError, BrokerRefusedError, ConfigError, EnqueueError
from ..events.event import FilterPolicy, Subscription
from ..jobs.data import Kind, NewJob
from ..jobs.keys import key_problem, score_problem
from ..jobs.shards import MAX_SHARDS

REMEMBER_DEAD_S = 3_600.0
REMEMBER_ENDED_S = 86_400.0

#: The longest delay after a run: 100 years.
LONGEST_DELAY_S = 100 * 365.25 * 86_400
_PRIORITIES = range(-(2**31), 2**31)
_PLAIN = Kind.PLAIN


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
        if job.kind is not _PLAIN:
            _check_payload(job)


def _check_payload(job: NewJob) -> None:
    """Refuse what is wrong with a job that has a key of its own; the API has seen to it, a middleware may have not."""
    problem = key_problem(job.key)
    if problem:
        raise EnqueueError(f"The key of a job in {job.queue} {problem}.")
    if not job.identity:
        raise EnqueueError(f"The job {job.key!r} has no identity, by which its payload would be told from others.")
    if job.score is not None:
        if job.kind is not Kind.COLLECTING:
            raise EnqueueError(f"The job {job.key!r} has a score, and only payloads of collecting tasks may have one.")
        if problem := score_problem(job.score):
            raise EnqueueError(f"The score of a payload of {job.key!r} {problem}.")
    if job.quiet is not None:
        waits = [job.quiet.grace_s, *([] if job.quiet.max_wait_s is None else [job.quiet.max_wait_s])]
        if job.kind is not Kind.COLLECTING or job.delay_s or job.perform_at is not None:
            raise EnqueueError(
                f"The job {job.key!r} cannot wait for quiet: only a collecting one that has no time of its own can."
            )
        if not all(0 <= wait <= LONGEST_DELAY_S for wait in waits):
            raise EnqueueError(f"The job {job.key!r} must wait for quiet from 0 seconds to 100 years.")


def check_shards(queue: str, shards: int) -> None:
    """Refuse a shard count that a queue cannot have."""
    if not 1 <= shards <= MAX_SHARDS:
        raise ConfigError(f"The queue {queue} needs at least 1 shard and {MAX_SHARDS} at most, not {shards}.")


def storable(error: str | None) -> str | None:
    """An error's text without half characters: file names that are no UTF-8 bring them into messages."""
    return error if error is None else error.encode("utf-8", "backslashreplace").decode()


def unknown_queue(name: str) -> BrokerError:
    """The error for a queue that nobody has declared."""
    return BrokerRefusedError(f"There is no queue {name!r}; declare it first.")


def another_kind(job: NewJob, kind: Kind) -> EnqueueError:
    """The error for a keyed or collecting job whose key belongs to a job of another kind."""
    return EnqueueError(
        f"The key {job.key!r} of the queue {job.queue} belongs to a {kind.name.lower()} job; use another key.",
        place=(job.queue, job.key),
    )


_read = msgspec.json.Decoder(dict[str, list[Any]]).decode


def check_subscription(subscription: Subscription) -> None:
    """Refuse names that no queue and no topic can have."""
    for what, name in (("topic", subscription.topic), ("queue", subscription.queue)):
        if problem := name_problem(f"A subscription's {what}", name):
            raise ConfigError(problem)


def write_filter(subscription: Subscription) -> str | None:
    """A subscription's filter as a text, the same for equal ones; None, for one that wants everything, is none."""
    if not subscription.filter:
        return None
    try:
        return msgspec.json.encode(subscription.filter, order="deterministic").decode()
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{_whose(subscription.topic, subscription.queue)} cannot be written as JSON: {error}."
        ) from None


def read_filter(topic: str, queue: str, text: str | None) -> FilterPolicy | None:
    """A filter from its text; raises BrokerError if somebody has written there what is none."""
    try:
        return None if text is None else _read(text)
    except ValueError as error:  # also what msgspec says of JSON that is something else
        raise BrokerRefusedError(
            f"{_whose(topic, queue)} cannot be read ({error}); subscribe again, with laneway subscribe."
        ) from None


def _whose(topic: str, queue: str) -> str:
    return f"The filter of the queue {queue}, for what it gets of the topic {topic},"
