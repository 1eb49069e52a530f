"""`laneway workers`: lists live workers, and workers that died within the last hour."""

from __future__ import annotations

import time

import click

from ...jobs.data import WorkerView
from .. import options
from ..output import Column, show_json, show_table
from ..target import open_without_app
from ..times import relative, span

COLUMNS = (
    Column("worker"),
    Column("host"),
    Column("pid", right=True),
    Column("state"),
    Column("queues"),
    Column("busy", right=True),
    Column("concurrency", right=True),
    Column("up for", right=True),
    Column("seen", right=True),
)


@click.command(epilog=options.examples("laneway workers", "laneway workers shop.py", "laneway workers --json"))
@options.optional_target
@options.together(options.url, options.as_json)
def workers(target: str | None, url: str | None, as_json: bool) -> None:
    """List the workers, the dead ones of the last hour included.

    Where a worker serves some shards of a queue only, they stand behind its name.
    """
    with open_without_app(target, url) as broker:
        found = broker.inspect.workers()
    if as_json:
        show_json({"workers": found})
        return
    if not found:
        click.echo("There are no workers; start one with laneway worker TARGET.")
        return
    now = time.time()
    show_table(
        COLUMNS,
        [
            (
                worker.id,
                worker.host,
                worker.pid,
                "dead" if worker.dead else "alive",
                ", ".join(_served(worker, queue) for queue in worker.queues),
                worker.busy,
                worker.concurrency,
                span(max(0.0, worker.seen_at - worker.started_at if worker.dead else now - worker.started_at)),
                relative(worker.seen_at, now),
            )
            for worker in found
        ],
    )


def _served(worker: WorkerView, queue: str) -> str:
    shards = worker.shards.get(queue)
    return queue if shards is None else f"{queue}[{','.join(map(str, shards))}]"
