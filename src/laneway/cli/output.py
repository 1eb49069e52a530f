"""Prints tables for people, JSON for programs and sentences for both; shows progress bars.

Stored text (keys, names, errors) passes through `clean`, so that it can neither move the cursor nor change the
colours of the operator's terminal. Progress appears after a second, on stderr, and only on a terminal. rich is
imported only when it is used.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID
    from rich.table import Table

#: Wide enough that a table that goes into a pipe or a file is never cut.
UNCUT = 1_000
#: Between columns, and what is always left of a column that may be cut.
GAP, CUT_TO = 2, 20


class Column(NamedTuple):
    """A column of a table. What is `cut` gives way when the terminal is narrow."""

    name: str
    right: bool = False
    cut: bool = False


def console(*, stderr: bool = False) -> Console:
    """A console that writes plain text where there is no terminal."""
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not made.is_terminal:
        made.width = UNCUT
    return made


def clean(text: str) -> str:
    """Text without control characters; line breaks stay."""
    return "".join(char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text)


def first_line(text: str | None) -> str:
    """The first line of an error, for a table."""
    return clean((text or "").strip().partition("\n")[0])


def table(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> Table:
    """A table of text; None is shown as a dash."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for column in columns:
        # Rich narrows columns that may wrap before the others; the cells below do not wrap all the same.
        made.add_column(column.name, justify="right" if column.right else "left", no_wrap=not column.cut)
    for row in rows:
        made.add_row(*(Text(_cell(cell), no_wrap=True, overflow="ellipsis") for cell in row))
    return made


def _cell(value: object) -> str:
    """What stands in a table: one line, whatever a key holds."""
    return _text(value).replace("\n", r"\n")


def _text(value: object) -> str:
    return "-" if value is None else clean(str(value))


def show_table(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> None:
    """Print a table. A key that is cut cannot be copied, so a terminal that is too narrow wraps whole lines."""
    from rich.cells import cell_len

    output = console()
    cells = [(column.name, *(_cell(row[number]) for row in rows)) for number, column in enumerate(columns)]
    widths = [CUT_TO if column.cut else max(map(cell_len, cells[number])) for number, column in enumerate(columns)]
    output.width = max(output.width, sum(widths) + GAP * len(widths))
    output.print(table(columns, rows), crop=False)


def show_fields(fields: dict[str, object]) -> None:
    """Print names and values below each other; what has several lines is indented below its name."""
    width = max(map(len, fields))
    for name, value in fields.items():
        text = _text(value).rstrip()
        if "\n" in text:
            text = "\n".join(["", *(f"    {line}" for line in text.splitlines())])
        click.echo(f"{name:<{width}}  {text}")


def show_json(document: Any) -> None:
    """Print one JSON document."""
    import msgspec

    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())


def count(number: int, what: str) -> str:
    """`1 job`, `2,000 jobs`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


PATIENCE_S = 1.0


class ProgressBar:
    """A progress bar that appears when the work turns out to be long."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._began = time.monotonic()
        self._shown: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> ProgressBar:
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
