"""Converts `delay` and `perform_at` to seconds, and refuses wrong values with a sentence.

A delay stays a delay until it reaches the broker, because the broker's clock turns it into a time.
"""

from __future__ import annotations

import math
import sys
from datetime import datetime, timedelta

from ..errors import EnqueueError

#: 100 years.
LONGEST_DELAY_S = 100 * 365.25 * 86_400
#: Unix seconds from here on are milliseconds by mistake.
LATEST_TIME = 1e11


def seconds(value: float | timedelta, what: str) -> float:
    """Return a delay in seconds; 0 or less is now."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise EnqueueError(f"{what} must be seconds or a timedelta, not {type(value).__name__}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise EnqueueError(f"{what} must be a finite number of seconds, not {value}.")
    if value > LONGEST_DELAY_S:
        raise EnqueueError(f"{what} is over 100 years; give seconds, not milliseconds.")
    return float(max(0, value))


def unix_time(value: float | datetime, what: str) -> float:
    """Return a point in time as unix seconds; the past is allowed."""
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise EnqueueError(
                f"{what} is a datetime without a time zone; give an aware one, such as datetime.now(UTC)."
            )
        value = value.timestamp()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise EnqueueError(f"{what} must be unix seconds or an aware datetime, not {type(value).__name__}.")
    if isinstance(value, float) and not math.isfinite(value):
        raise EnqueueError(f"{what} must be a finite number of unix seconds, not {value}.")
    if value >= LATEST_TIME:
        raise EnqueueError(f"{what} is later than the year 5138; give unix seconds, not milliseconds.")
    if value < -sys.float_info.max:
        raise EnqueueError(f"{what} is too long ago for a number of unix seconds.")
    return float(value)
