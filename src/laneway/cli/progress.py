"""Signs of life for what takes longer than a second. On stderr, and only where there is a terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING

from .output import console

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE_S = 1.0


class Bar:
    """A progress bar that appears when the work turns out to be long."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._began = time.monotonic()
        self._shown: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Bar:
        return self

    def advance(self, steps: int) -> None:
        """Say that `steps` more are done."""
        self.update(self._done + steps, self._total, self._what)

    def update(self, done: int, total: int, what: str) -> None:
        """Say how far it has come, where that is not only a matter of counting up."""
        self._done, self._total, self._what = done, total, what
        if self._shown is None:
            if time.monotonic() - self._began < PATIENCE_S:
                return
            self._shown = self._show()
        progress, task = self._shown
        progress.update(task, completed=done, total=total, description=what)

    def _show(self) -> tuple[Progress, TaskID]:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        output = console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        progress = Progress(*columns, console=output, disable=not output.is_terminal, transient=True)
        progress.start()
        return progress, progress.add_task(self._what, total=self._total)

    def __exit__(self, *_: object) -> None:
        if self._shown is not None:
            self._shown[0].stop()


@contextmanager
def patience(what: str) -> Iterator[None]:
    """A spinner for one step whose length nobody knows, if it takes long."""
    output = console(stderr=True)
    if not output.is_terminal:
        yield
        return
    status = output.status(what)
    timer = Timer(PATIENCE_S, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # it may be starting the spinner at this very moment
        status.stop()
