"""`laneway dev`: a worker for one's own terminal."""

from __future__ import annotations

import sys
from typing import Any

import click

from ..config import DEFAULT_QUEUE, without_secrets
from ..logs import Format
from ..worker.link import Link
from . import options
from .output import clean, count
from .run_options import run_options, status_ports
from .serving import Remembering, early_signals, serve
from .target import Target, load
from .worker import make_worker


@click.command(
    cls=Remembering,
    epilog=options.examples(
        "laneway dev shop.py                           jobs in sqlite:///laneway.db, unless the app says otherwise",
        "laneway dev shop:app --url sqlite:////tmp/try.db -c 1",
    ),
)
@options.target
@run_options
@click.pass_context
def dev(ctx: click.Context, /, target: str, url: str | None, **given: Any) -> None:
    """Run the jobs of an app that you work on, and log every one."""
    log_format: Format = given.pop("log_format") or ("rich" if sys.stderr.isatty() else "plain")
    ports = status_ports(given)
    with early_signals() as told:
        link = Link.from_environment()
        found = load(target)
        worker = make_worker(ctx, found, url, {**given, "verbose": True})
        if link is None:
            _greet(found, found.app.url if url is None else without_secrets(url))
        code = serve(ctx, worker, link, log_format, ports, told)
    ctx.exit(code)


def _greet(found: Target, place: str) -> None:
    app = found.app
    tasks: dict[str, list[str]] = {}
    for task in app.registry:
        tasks.setdefault(task.options.queue or DEFAULT_QUEUE, []).append(task.name)
    click.echo(f"Serving {found.text}: {count(len(app.registry), 'task')}, jobs in {place}.", err=True)
    for queue, names in tasks.items():
        click.echo(clean(f"  {queue}: {', '.join(names)}"), err=True)
    click.echo("Ctrl-C stops it.", err=True)
