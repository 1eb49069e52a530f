"""The rules for adding a payload to a key that already has some: scores, due times, debounce.

Pure functions. Memory and SQLite call them; Redis repeats them in `scripts/parts/adding.lua`.
`tests/support/model.py` is the whole model of one key, from its first payload to its last. A broker is right if its
answers do not differ from the model's.
"""

from __future__ import annotations

import math
from hashlib import blake2b

from .data import Debounce, Kind

#: A call that failed or was postponed stands before all others of its key, whatever their due times. Nobody's score
#: may be as small.
HEAD = -1.0e300
#: The largest score, and its negative the smallest, that a payload may be given.
LARGEST_SCORE = 1.0e290

#: Payloads of a key in one claim, unless the turn says otherwise.
MAX_PAYLOADS = {Kind.PLAIN: 1, Kind.KEYED: 100, Kind.COLLECTING: 1_000}


def identity_of(body: str) -> str:
    """What makes two values the same payload: a digest of their encoded bytes."""
    return blake2b(body.encode(), digest_size=16).hexdigest()


def next_score(now: float, largest: float | None) -> float:
    """The score of a payload that was given none: arrival, and larger than the `largest` of its key in any case."""
    if largest is None or largest < now:
        return now
    # A microsecond, or the smallest step that a float of this size can make.
    return largest + max(1e-6, abs(largest) * 2.3e-16)


def smaller(first: float, second: float) -> float:
    """The score of two equal payloads that have become one."""
    return first if first <= second else second


def due_on_arrival(at: float, latest: float | None) -> float:
    """When a keyed call is due that was given no time: now, but not before the `latest` such call of its key, in case
    the clock has stepped back since."""
    return at if latest is None else max(at, latest)


def due_when_queued(kind: Kind, queued_at: float, new_at: float, *, not_before: float | None = None) -> float:
    """When a queued job is due after one more payload, due at `new_at`, was added to it.

    Collecting: enqueueing does not move it. Keyed: with its earliest call, but not before the key has rested.
    """
    if kind is not Kind.KEYED:
        return queued_at
    earliest = min(queued_at, new_at)
    return earliest if not_before is None else max(not_before, earliest)


def quiet_until(now: float, since: float, size: int, quiet: Debounce, due: float | None = None) -> float:
    """When a collecting job is due that waits for quiet since its first payload came; `size` counts the new one.

    `due` is when it was due before that one. A job that has waited long enough keeps its place among the others.
    """
    if due is not None and due <= now:
        return due
    if quiet.max_size is not None and size >= quiet.max_size:
        return now
    latest = math.inf if quiet.max_wait_s is None else since + quiet.max_wait_s
    return min(now + quiet.grace_s, latest)
