"""`laneway stats`: shows every queue in numbers, once or every second."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from threading import Event
from typing import TYPE_CHECKING

import click

from ...errors import ConfigError
from ...jobs.data import QueueStats
from .. import options
from ..output import Column, console, patience, show_json, show_table, table
from ..target import open_without_app
from ..times import span

if TYPE_CHECKING:
    from rich.table import Table

    from ...broker import Broker

COUNTS = ("shards", "length", "delayed", "fresh", "retries", "dead", "busy", "processed", "failed")
COLUMNS = (
    Column("queue"),
    *(Column(name, right=True) for name in COUNTS),
    Column("lag", right=True),
    Column("paused"),
)


@click.command(
    epilog=options.examples(
        "laneway stats                                 of LANEWAY_URL, or sqlite:///laneway.db",
        "laneway stats shop.py",
        "laneway stats --url sqlite:///laneway.db --watch",
        "laneway stats --json | jq '.queues[].length'",
    )
)
@options.optional_target
@click.option("--watch", is_flag=True, help="Again every second, until Ctrl-C.")
@options.together(options.url, options.as_json)
def stats(target: str | None, watch: bool, url: str | None, as_json: bool) -> None:
    """Show every queue in numbers.

    Counted are keys. length is what is queued, delayed jobs included and running ones not; it is fresh + retries.
    What is set aside, because its key is being run, counts into length. lag is how late the most overdue job is.
    Nothing of a paused queue begins until laneway resume.
    """
    if watch and as_json:
        raise ConfigError("--json prints one document, so it cannot be watched; leave out one of them.")
    with open_without_app(target, url) as broker:
        if watch:
            _watch(broker)
            return
        with patience("Counting"):
            queues = broker.inspect.stats()
    if as_json:
        show_json({"queues": queues})
    elif queues:
        show_table(COLUMNS, [_row(queue) for queue in queues])
    else:
        click.echo("There are no queues yet.")


def stats_table(queues: Sequence[QueueStats], leave_out: Collection[str] = ()) -> Table:
    """The queues as a table that is not wider than the terminal."""
    kept = [number for number, column in enumerate(COLUMNS) if column.name not in leave_out]
    rows = [_row(queue) for queue in queues]
    return table([COLUMNS[number] for number in kept], [[row[number] for number in kept] for row in rows])


def _row(queue: QueueStats) -> tuple[object, ...]:
    counts = (f"{getattr(queue, name):,}" for name in COUNTS)
    return (queue.queue, *counts, span(queue.lag) if queue.lag else None, "paused" if queue.paused else None)


def _watch(broker: Broker) -> None:
    from rich.live import Live

    output = console()
    leave_out = ("shards",) if output.width < 98 else ()
    pause = Event()
    try:
        if not output.is_terminal:
            while True:
                output.print(stats_table(broker.inspect.stats()))
                pause.wait(1.0)
        with Live(console=output, auto_refresh=False) as live:
            while True:
                live.update(stats_table(broker.inspect.stats(), leave_out), refresh=True)
                pause.wait(1.0)
    except KeyboardInterrupt:
        pass  # that is how watching ends
