"""Copies of events in the portions in which they are stored: those of one event are never divided.

An event with more copies than a portion has jobs is a portion by itself. The server does nothing else while it stores
one, and so there is a limit to that.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import EnqueueError
from ...jobs.data import NewJob

#: What the copies of one event may be together.
MOST_COPIES = 10_000
MOST_CHARS = 100_000_000


def undivided(jobs: Sequence[NewJob], most: int, chars: int) -> list[Sequence[NewJob]]:
    """Jobs in portions of so many, or that are full with so many characters; copies of one event stand together."""
    portions: list[Sequence[NewJob]] = []
    portion: list[NewJob] = []
    size = 0
    for unit in _units(jobs):
        if portion and (len(portion) + len(unit) > most or size > chars):
            portions.append(portion)
            portion, size = [], 0
        portion += unit
        size += sum(len(job.body) for job in unit)
    return [*portions, portion] if portion else portions


def _units(jobs: Sequence[NewJob]) -> list[list[NewJob]]:
    """What must be stored together, each where its first job was."""
    units: dict[str | int, list[NewJob]] = {}
    for number, job in enumerate(jobs):
        units.setdefault(job.event or number, []).append(job)
    for unit in units.values():
        _check(unit)
    return list(units.values())


def _check(copies: Sequence[NewJob]) -> None:
    chars = sum(len(job.body) for job in copies) if len(copies) > 1 else 0
    if len(copies) > MOST_COPIES or chars > MOST_CHARS:
        raise EnqueueError(
            f"The event {copies[0].event} has {len(copies):,} copies of {chars:,} characters together. Those of one "
            f"event are stored in one step, so that it may have {MOST_COPIES:,} of {MOST_CHARS:,}: publish less of it, "
            "such as where the rest is found, or have fewer queues subscribe."
        )
