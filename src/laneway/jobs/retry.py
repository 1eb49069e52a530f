"""What follows from a failure: run again, and when, or the morgue. Pure functions."""

from __future__ import annotations

import random
from collections.abc import Callable

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
