"""Formats and parses times and durations as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import click

from ..errors import ConfigError, EnqueueError
from ..jobs.delay import seconds, unix_time

_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def span(duration_s: float) -> str:
    """0.2 s, 95 s, 3 min, 2 h 5 min, 4 d 3 h."""
    if duration_s < 10:
        return f"{duration_s:.1f} s"
    whole = round(duration_s)
    if whole < 120:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min"
    larger, unit, smaller, part = (whole // 86_400, "d", whole % 86_400 // 3_600, "h")
    if whole < 86_400:
        larger, unit, smaller, part = (whole // 3_600, "h", whole % 3_600 // 60, "min")
    return f"{larger} {unit}" + (f" {smaller} {part}" if smaller else "")


def relative(at: float, now: float) -> str:
    """In 3 min, or 3 min ago."""
    return f"in {span(at - now)}" if at > now else f"{span(now - at)} ago"


def absolute(at: float) -> str:
    """A time in full; those that no calendar has (they are allowed) as the number they are."""
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"


def duration(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    """Read an option: seconds, or a number with a unit: 90, 15m, 2h, 7d."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip())
    if not found or found[2] not in _UNITS:
        raise click.BadParameter(f"{text!r} is not a duration; give seconds, or a number with s, m, h, d or w.")
    try:
        return seconds(float(found[1]) * _UNITS[found[2]], text)
    except EnqueueError as error:
        raise click.BadParameter(str(error)) from None


def moment(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    """Read an option: ISO 8601 with a time zone, or unix seconds."""
    if text is None:
        return None
    try:
        return read_time(text)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from None


def read_time(text: str) -> float:
    """Read a time: ISO 8601 with a time zone, or unix seconds."""
    try:
        at: float | datetime = float(text)
    except ValueError:
        at = _date(text)
    try:
        return unix_time(at, text)
    except EnqueueError as error:
        raise ConfigError(str(error)) from None


def _date(text: str) -> datetime:
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not a time; give one such as 2030-01-31T12:00:00Z, or unix seconds.") from None
    if date.tzinfo is None:
        raise ConfigError(f"{text!r} has no time zone; add one, as in 2030-01-31T12:00:00Z.")
    return date
