"""Runs counted by task, as the table of `laneway demo`."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from ...config import DEFAULT_QUEUE
from ..output import Column, table

if TYPE_CHECKING:
    from rich.table import Table

    from ...app import Laneway
    from ...worker.observe.counters import Snapshot

COLUMNS = (
    Column("task"),
    Column("queue"),
    Column("running", right=True),
    Column("done", right=True),
    Column("retried", right=True),
    Column("buried", right=True),
    Column("a run takes", right=True),
)


class Counts(NamedTuple):
    """How runs ended."""

    done: int
    retried: int
    buried: int


def totals(snapshot: Snapshot) -> Counts:
    """Summed over all tasks."""
    return _counts(snapshot, None)


def task_table(app: Laneway, snapshot: Snapshot) -> Table:
    """The tasks and their counts."""
    running: Counter[str] = Counter()
    for _, task, count in snapshot.get("running", []):
        running[task] += count
    took: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for _, task, values in snapshot.get("duration_s", []):
        took[task][0] += values[-1]
        took[task][1] += sum(values[:-1])
    rows = []
    for task in app.registry:
        seconds, runs = took[task.name]
        mean = f"{seconds / runs * 1000:,.1f} ms" if runs else None
        counts = _counts(snapshot, task.name)
        rows.append((task.name, task.options.queue or DEFAULT_QUEUE, running[task.name] or None, *counts, mean))
    return table(COLUMNS, rows)


def _counts(snapshot: Snapshot, task: str | None) -> Counts:
    found: Counter[str] = Counter()
    for _, name, verdict, count in snapshot.get("jobs", []):
        if task is None or name == task:
            found[verdict] += count
    return Counts(found["done"], found["retry"], found["bury"])
