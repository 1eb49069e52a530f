"""Runs counted by task, from what the worker tells: the table of `laneway demo`."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from ..app import Laneway
from ..config import DEFAULT_QUEUE
from ..telemetry import RunEnded, RunStarted
from .output import Column, table

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = (
    Column("task"),
    Column("queue"),
    Column("running", right=True),
    Column("done", right=True),
    Column("retried", right=True),
    Column("buried", right=True),
    Column("last run", right=True),
)


@dataclass(slots=True)
class Counts:
    """How a task's runs ended."""

    running: int = 0
    done: int = 0
    retried: int = 0
    buried: int = 0
    last_s: float | None = None


class Tally:
    """Listens to an app's runs and counts them."""

    def __init__(self, app: Laneway) -> None:
        self._app = app
        self._lock = Lock()
        self._counts: dict[str, Counts] = defaultdict(Counts)
        app.telemetry.subscribe(RunStarted, self._started)
        app.telemetry.subscribe(RunEnded, self._ended)

    def _started(self, event: RunStarted) -> None:
        with self._lock:
            self._counts[event.task].running += 1

    def _ended(self, event: RunEnded) -> None:
        with self._lock:
            counts = self._counts[event.task]
            counts.running -= 1
            counts.done += event.verdict == "done"
            counts.retried += event.verdict == "retry"
            counts.buried += event.verdict == "bury"
            counts.last_s = event.duration_s

    def total(self, what: str) -> int:
        """A count summed over all tasks."""
        with self._lock:
            return sum(getattr(counts, what) for counts in self._counts.values())

    def table(self) -> Table:
        """The tasks and their counts."""
        with self._lock:
            return table(COLUMNS, [self._row(task.name, task.options.queue) for task in self._app.registry])

    def _row(self, task: str, queue: str | None) -> tuple[object, ...]:
        counts = self._counts[task]
        took = None if counts.last_s is None else f"{counts.last_s * 1000:,.1f} ms"
        return (
            task,
            queue or DEFAULT_QUEUE,
            counts.running or None,
            counts.done,
            counts.retried,
            counts.buried,
            took,
        )
