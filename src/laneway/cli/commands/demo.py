"""`laneway demo`: a small shop at work, live on the terminal, with a table of runs per task.

It uses a temporary SQLite file. Everything that it stores is deleted when it ends.
"""

from __future__ import annotations

import logging
import signal
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, NamedTuple

import click

from ...config import DEFAULT_QUEUE, MAX_CONCURRENCY
from .. import GAVE_UP, options
from ..output import Column, console, count, table
from .stats import stats_table

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table

    from ...app import Laneway
    from ...demo import Books
    from ...worker.observe.counters import RunCounters, Snapshot

COLUMNS = (
    Column("task"),
    Column("queue"),
    Column("running", right=True),
    Column("done", right=True),
    Column("retried", right=True),
    Column("buried", right=True),
    Column("a run takes", right=True),
)


class RunCounts(NamedTuple):
    """How runs ended."""

    done: int
    retried: int
    buried: int


def totals(snapshot: Snapshot) -> RunCounts:
    """The counts of all tasks together."""
    return _counts(snapshot, None)


def task_table(app: Laneway, snapshot: Snapshot) -> Table:
    """A table of the tasks and their counts."""
    running: Counter[str] = Counter()
    for _, task, runs in snapshot.get("running", []):
        running[task] += runs
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


def _counts(snapshot: Snapshot, task: str | None) -> RunCounts:
    found: Counter[str] = Counter()
    for _, name, verdict, runs in snapshot.get("jobs", []):
        if task is None or name == task:
            found[verdict] += runs
    return RunCounts(found["done"], found["retry"], found["bury"])


#: Seconds that the demo runs when there is no terminal from which to end it.
UNWATCHED_S = 10.0


@click.command(epilog=options.examples("laneway demo", "laneway demo --seconds 30", "laneway demo -c 20"))
@click.option(
    "--seconds",
    metavar="N",
    type=click.FloatRange(min=0.1),
    help="How long; until Ctrl-C if not said, and 10 seconds where there is no terminal.",
)
@click.option(
    "-c",
    "--concurrency",
    type=click.IntRange(1, MAX_CONCURRENCY),
    default=5,
    show_default=True,
    help="Jobs running at once.",
)
@click.pass_context
def demo(ctx: click.Context, seconds: float | None, concurrency: int) -> None:
    """Show jobs running, live, in a small shop.

    A worker and its customers, on a temporary SQLite file. The code is the module laneway.demo.
    """
    from ...config import WorkerOptions
    from ...demo import app, books, open_shop
    from ...worker import Worker
    from ...worker.observe.counters import RunCounters

    output = console()
    if seconds is None and not output.is_terminal:
        seconds = UNWATCHED_S
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="laneway-demo-") as folder, _until_told() as stop:
        url = f"sqlite:///{Path(folder) / 'demo.db'}"
        app.use(url)
        tally = RunCounters(app.telemetry)
        tally.start()
        app.logger.addHandler(logging.NullHandler())  # the table shows everything; log lines would break it up
        worker = Worker(app, WorkerOptions(concurrency=concurrency))
        customers = Thread(target=open_shop, args=(stop,), name="customers", daemon=True)
        output.print(f"A small shop. Look at it from another terminal:\n  laneway stats --url {url}\n", soft_wrap=True)
        worker.start()
        customers.start()
        _show(output, lambda: _picture(app, tally), stop, seconds)
        stop.set()
        customers.join()
        finished = worker.stop()
        _sum_up(output, app, tally, books, time.monotonic() - began)
        app.close()
    ctx.exit(0 if finished else GAVE_UP)


@contextmanager
def _until_told() -> Iterator[Event]:
    """An event that INT and TERM set. A second INT ends the demo at once."""
    stop = Event()

    def tell(number: int, frame: object) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(output: Console, picture: Callable[[], Group], stop: Event, seconds: float | None) -> None:
    """Draw the picture until `stop` is set or the time is up: in place on a terminal, else again every second."""
    from rich.live import Live

    began = time.monotonic()
    ends = None if seconds is None else began + seconds

    def wait(pause_s: float) -> bool:
        left = pause_s if ends is None else ends - time.monotonic()
        return not stop.wait(max(0.0, min(pause_s, left))) and (ends is None or time.monotonic() < ends)

    if output.is_terminal:
        with Live(picture(), console=output, auto_refresh=False, transient=True) as live:
            while wait(0.1):
                live.update(picture(), refresh=True)
        return
    while wait(1.0):
        output.print(f"after {time.monotonic() - began:.0f} s")
        output.print(picture())


def _picture(app: Laneway, tally: RunCounters) -> Group:
    from rich.console import Group

    queues = stats_table(app.broker.inspect.stats(), leave_out=("shards", "fresh", "paused"))
    return Group(task_table(app, tally.snapshot()), "", queues, "")


def _sum_up(output: Console, app: Laneway, tally: RunCounters, books: Books, took_s: float) -> None:
    queues = app.broker.inspect.stats()
    waiting = sum(queue.length for queue in queues)
    output.print(_picture(app, tally))
    told = sum(map(len, books.told.values()))
    counts = totals(tally.snapshot())
    output.print(
        f"{count(len(books.told), 'customer')} were told {told:,} times how their order stands, "
        f"{'each in the right order' if books.in_order() else 'and not in the right order'}. "
        f"{books.sold.total():,} articles were sold, and the stock was written {books.written:,} times. "
        f"{count(len(books.packed), 'order')} were packed "
        f"{'once each' if books.packed_once() else 'and not each of them once'}, whoever else heard of them and failed."
    )
    output.print(
        f"In {took_s:.0f} s: {count(counts.done, 'job')} done, {count(counts.retried, 'run')} failed "
        f"and retried, {count(counts.buried, 'job')} in the morgue, {waiting:,} still waiting."
    )
