"""`laneway dev`: a worker for development that restarts when the code changes.

It sets `LANEWAY_DEVELOPMENT`, so that the processes below it create missing AWS resources too.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import click
from click.core import ParameterSource

from ...config import DEFAULT_QUEUE
from ...logs import Format
from ...urls import without_secrets
from ...worker.process.channel import SupervisorLink
from .. import options
from ..output import clean, count
from ..reload import SHUTDOWN_TIMEOUT_S, Reloader, is_below_reloader, places, reloaded, this_command
from ..run import ArgvCommand, early_signals, run_options, serve, status_ports
from ..target import Target, load
from .worker import WorkerStart, make_worker

#: What turns development on, for every app of a process.
DEVELOPMENT = "LANEWAY_DEVELOPMENT"


@click.command(
    cls=ArgvCommand,
    epilog=options.examples(
        "laneway dev shop.py                           jobs in sqlite:///laneway.db, unless the app says otherwise",
        "laneway dev shop:app --url sqlite:////tmp/try.db -c 1",
        "laneway dev shop.py --watch settings.toml --watch ../common",
    ),
)
@options.target
@run_options
@click.option(
    "--reload/--no-reload",
    default=True,
    show_default=True,
    help="Start again when a Python file changes, below this folder or the target's.",
)
@click.option("--watch", metavar="PATH", multiple=True, help="A file, or a folder of Python files, to watch as well.")
@click.pass_context
def dev(
    ctx: click.Context, /, target: str, url: str | None, reload: bool, watch: tuple[str, ...], **given: Any
) -> None:
    """Run the jobs of an app that you work on, and reload it.

    Every job is logged, and when the code changes it starts again. What runs gets 5 seconds to finish then, unless
    --shutdown-timeout says otherwise. Code that cannot be imported is named, and the next change is waited for. With
    --until-empty nothing is reloaded. What is missing on AWS for its queues is made.
    """
    os.environ[DEVELOPMENT] = "1"  # also for the processes below: those of a supervisor, and of isolated tasks
    if reload and not given["until_empty"] and not is_below_reloader():
        ctx.exit(_reload(target, watch, given["shutdown_timeout_s"]))
    log_format: Format = given.pop("log_format") or ("rich" if sys.stderr.isatty() else "plain")
    ports = status_ports(given)
    with early_signals() as signals:
        link = SupervisorLink.from_environment()
        reloader = reloaded()
        if is_below_reloader() and _is_default(ctx, "shutdown_timeout_s"):
            given["shutdown_timeout_s"] = SHUTDOWN_TIMEOUT_S
        found = load(target)
        found.app.development = True
        worker = make_worker(ctx, found, url, {**given, "verbose": True}, WorkerStart(link, log_format, signals))
        if link is None:
            _greet(found, found.app.url if url is None else without_secrets(url))
        if reloader is not None:
            reloader.serving()
        code = serve(ctx, worker, link, log_format, ports, signals)
    ctx.exit(code)


def _reload(target: str, watch: tuple[str, ...], shutdown_timeout_s: float) -> int:
    roots = places(target, watch)
    return Reloader(this_command(), roots, patience_s=shutdown_timeout_s).run()


def _is_default(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is ParameterSource.DEFAULT


def _greet(found: Target, place: str) -> None:
    app = found.app
    tasks: dict[str, list[str]] = {}
    for task in app.registry:
        tasks.setdefault(task.options.queue or DEFAULT_QUEUE, []).append(task.name)
    click.echo(f"Serving {found.text}: {count(len(app.registry), 'task')}, jobs in {place}.", err=True)
    for queue, names in tasks.items():
        click.echo(clean(f"  {queue}: {', '.join(names)}"), err=True)
    again = "It starts again when the code changes. " if is_below_reloader() else ""
    click.echo(f"{again}Ctrl-C stops it.", err=True)
