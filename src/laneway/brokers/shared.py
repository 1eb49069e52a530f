"""What all brokers use: checks of new jobs, due times, storable text, filters as text, common findings. No state.

It also says how long a broker remembers dead workers and how jobs ended.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable
from typing import Any

import msgspec

from ..broker import Capabilities, EmptyMorgueResult, Finding, InspectTier, OperateTier
from ..config import name_problem
from ..errors import BrokerRefusedError, ConfigError, EnqueueError, NoQueueError
from ..events.event import FilterPolicy, Subscription
from ..jobs.data import Kind, NewJob
from ..jobs.delay import LONGEST_DELAY_S
from ..jobs.keys import key_problem, score_problem
from ..jobs.shards import MAX_SHARDS

REMEMBER_DEAD_S = 3_600.0
REMEMBER_ENDED_S = 86_400.0

#: The longest timeout of a URL.
MAX_TIMEOUT_S = 3_600
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


def check_jobs(jobs: Iterable[NewJob], capabilities: Capabilities | None = None) -> None:
    """Refuse what cannot be stored, before any of it is. A broker that lacks a kind of job gives its capabilities."""
    for job in jobs:
        if capabilities is not None:
            _check_features(job, capabilities)
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
            raise EnqueueError(f"The job {job.key!r} has lone surrogates in its key, body or headers.") from None
        if job.kind is not _PLAIN:
            _check_payload(job)


def _check_features(job: NewJob, capabilities: Capabilities) -> None:
    reason = capabilities.lacks_kind(job.kind)
    if reason is None and job.priority and not capabilities.has("priorities"):
        reason = capabilities.lacks["priorities"]
    if reason is not None:
        raise EnqueueError(f"The job {job.key!r} cannot be enqueued: {reason}", place=(job.queue, job.key))


def _check_payload(job: NewJob) -> None:
    """Refuse a bad keyed or collecting job. The API makes none, but a middleware may."""
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
    """An error's text without lone surrogates, which come from file names that are not UTF-8."""
    return error if error is None else error.encode("utf-8", "backslashreplace").decode()


def unknown_queue(name: str) -> NoQueueError:
    """The error for a queue that does not exist."""
    return NoQueueError(f"There is no queue {name!r}; declare it first.")


def another_kind(job: NewJob, kind: Kind) -> EnqueueError:
    """The error for a keyed or collecting job whose key belongs to a job of another kind."""
    return EnqueueError(
        f"The key {job.key!r} of the queue {job.queue} belongs to a {kind.name.lower()} job; use another key.",
        place=(job.queue, job.key),
    )


#: The most jobs and characters that are stored in one step. A million jobs at once would stall a server, and neither
#: Redis nor SQLite accepts a gigabyte.
CHUNK = 1_000
CHUNK_CHARS = 16_000_000

#: Jobs of a queue or a morgue that are handled in one step: short transactions, so that workers get their turns.
PAGE = 500

#: How many payloads of a job `find` shows, and how many a listing shows.
SHOWN = 1_000
SHOWN_IN_LISTING = 10


def empty_by_pages(
    inspect: InspectTier, operate: OperateTier, queue: str, *, revive: bool, most: int
) -> Generator[int, None, EmptyMorgueResult]:
    """Empty a morgue that can be listed, the oldest job first.

    The last burial at the beginning says where it ends, by the broker's own clock. So it ends even if revived jobs are
    buried again meanwhile.
    """
    act = operate.revive if revive else operate.delete_dead
    last = [job.updated_at for job in inspect.listing(queue, "dead", reverse=True, limit=1).jobs]
    until = math.inf if not last or last[0] is None else last[0]
    after, seen = None, 0
    while seen < most:
        page = inspect.listing(queue, "dead", after=after, limit=min(PAGE, most - seen))
        keys = [job.key for job in page.jobs if (job.updated_at or 0.0) <= until]
        if keys:
            yield act(queue, keys)
        seen += len(keys)
        after = page.after
        if after is None or len(keys) < len(page.jobs):
            break
    return EmptyMorgueResult(seen)


# -- findings ------------------------------------------------------------------------------------------

CLAIMS_OF_THE_DEAD = Finding(
    "problem", "dead-workers", "There are claims of workers that are dead; start a worker, and it takes them over."
)


def being_resharded(queue: str, shards: int, target: int, total: int, moved: int) -> Finding:
    """The finding for a queue whose shard count is being changed. It is a note: the change ends by itself."""
    return Finding(
        "note",
        "resharding",
        f"The queue {queue} is being resharded from {shards} to {target} ({moved} of {total} jobs have moved), and "
        f"nothing is claimed meanwhile; a worker goes on with it, or laneway reshard {queue} {target}.",
        queue,
    )


def mendable(code: str, number: int, what: str) -> Finding:
    """The finding for something that `repair` mends."""
    return Finding("problem", code, f"{what}: {number}; mend it with laneway check --repair.")


# -- filters -------------------------------------------------------------------------------------------

_read = msgspec.json.Decoder(dict[str, list[Any]]).decode


def check_subscription(subscription: Subscription) -> None:
    """Refuse names that no queue and no topic can have."""
    for what, name in (("topic", subscription.topic), ("queue", subscription.queue)):
        if problem := name_problem(f"A subscription's {what}", name):
            raise ConfigError(problem)


def write_filter(subscription: Subscription) -> str | None:
    """A subscription's filter as text. Equal filters have equal texts. None: the subscription gets every event."""
    if not subscription.filter:
        return None
    try:
        return msgspec.json.encode(subscription.filter, order="deterministic").decode()
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{_whose(subscription.topic, subscription.queue)} cannot be written as JSON: {error}."
        ) from None


def read_filter(topic: str, queue: str, text: str | None) -> FilterPolicy | None:
    """A filter from its text. Raises BrokerRefusedError if the stored text is no filter."""
    try:
        return None if text is None else _read(text)
    except ValueError as error:  # msgspec's ValidationError is one: JSON of another shape
        raise BrokerRefusedError(
            f"{_whose(topic, queue)} cannot be read ({error}); subscribe again, with laneway subscribe."
        ) from None


def _whose(topic: str, queue: str) -> str:
    return f"The filter of the queue {queue}, for what it gets of the topic {topic},"
