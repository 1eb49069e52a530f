"""`laneway worker`: runs jobs until it is stopped.

`make_worker` builds the worker for `dev` too. It does not fail if the broker is away: the worker reports that and
waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from ...app import Laneway
from ...config import WorkerOptions, raise_problems
from ...errors import BrokerAwayError, ConfigError
from ...logs import Format
from ...worker.deadline import call_with_deadline
from ...worker.process.channel import SupervisorLink
from ...worker.queues import queues_served
from .. import options
from ..run import ArgvCommand, early_signals, log_on_terminal, run_options, serve, status_ports
from ..target import Target, load, load_imports, unknown_queue

if TYPE_CHECKING:
    from ...worker import Worker


@click.command(
    cls=ArgvCommand,
    epilog=options.examples(
        "laneway worker shop                           the module shop in this folder",
        "laneway worker shop.jobs:app -c 20",
        "laneway worker shop -w 4 --max-memory 500M    four processes, each replaced when it has grown too large",
        "laneway worker path/to/shop.py -Q mail,images --until-empty",
        "laneway worker shop --include bill --include ship    of the listeners these two",
        "laneway worker shop -Q QUEUE --no-subscribe --until-empty    drain what was unsubscribed",
        "laneway worker shop --url sqlite:////var/lib/shop/jobs.db -v",
    ),
)
@options.target
@run_options
@click.option("-v", "--verbose", is_flag=True, help="Log every job, not only failures and slow ones.")
@click.pass_context
def worker(ctx: click.Context, /, target: str, url: str | None, **given: Any) -> None:
    """Run the jobs of an app.

    It starts processes that run them, and looks after those: when one ends, another takes its place.

    TERM, INT or USR1 stop it: it takes no more jobs, gives back what it has not begun, waits for what runs and
    ends with 0. A second INT, or the shutdown timeout, makes it give up with 1; others then run what it left. USR2 or
    TTIN writes the stacks of all threads to the log.
    """
    log_format: Format = given.pop("log_format") or "plain"
    ports = status_ports(given)
    with early_signals() as signals:
        link = SupervisorLink.from_environment()
        made = make_worker(ctx, load(target), url, given, WorkerStart(link, log_format, signals))
        code = serve(ctx, made, link, log_format, ports, signals)
    ctx.exit(code)


@dataclass(frozen=True, slots=True)
class WorkerStart:
    """How a worker is being started."""

    link: SupervisorLink | None
    log_format: Format
    #: Signals that arrived during the start.
    signals: Sequence[int]


def make_worker(
    ctx: click.Context, target: Target, url: str | None, given: dict[str, Any], start: WorkerStart
) -> Worker:
    """Build the worker for a target from the options of the command line."""
    from ...worker import Worker

    ctx.call_on_close(target.app.close)
    verbose = given.pop("verbose")
    if isinstance(target.worker, Worker):
        named = [f"--{name.removesuffix('_s').replace('_', '-')}" for name in given if _was_given(ctx, name)]
        if url is not None or named:
            raise ConfigError(
                f"{target.text} is a worker with options of its own, so {', '.join(named) or '--url'} cannot be given; "
                "change it there, or name the app instead."
            )
    elif url is not None:
        target.app.use(url)
    prepare(target)
    if isinstance(target.worker, Worker):
        queues_served(target.app, target.worker.options)
        check_queues(target.app, (), start)
        target.worker.options = replace(target.worker.options, verbose=verbose or target.worker.options.verbose)
        return target.worker
    queues = [name for text in given.pop("queues") for name in text.split(",")]
    shards = _shard_options(given.pop("scheduler"), given.pop("nodes"), given.pop("node"))
    given["subscribe"] = not given.pop("no_subscribe")
    made = WorkerOptions(**given, **shards, verbose=verbose, queues=list(dict.fromkeys(queues)) or None)
    raise_problems(made.validate())
    queues_served(target.app, made)
    check_queues(target.app, queues, start)
    if target.worker is None:
        return Worker(target.app, made)
    try:
        return target.worker(target.app, made)
    except TypeError as error:
        raise ConfigError(f"{target.text} cannot be made of an app and its options ({error}).") from error


def _shard_options(scheduler: str | None, nodes: int | None, node: int | None) -> dict[str, Any]:
    from ...worker.fetch.shards import by_node, lag, seq

    made: dict[str, Any] = {}
    if scheduler is not None:
        made["scheduler"] = lag if scheduler == "lag" else seq
    if nodes is not None and node is not None:
        made["splitter"] = by_node(nodes, node)
    elif nodes is not None or node is not None:
        raise ConfigError("--nodes and --node go together: how many processes there are, and which of them this is.")
    return made


def _was_given(ctx: click.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def prepare(target: Target) -> None:
    """Load all tasks of an app; raises ConfigError if there are none to run."""
    load_imports(target.app)
    if not len(target.app.registry):
        raise ConfigError(
            f"{target.text} has no tasks and no listeners; declare one with @app.task or @app.listener, or name the "
            "modules that do in Laneway(imports=[…])."
        )


def check_queues(app: Laneway, wanted: Iterable[str], start: WorkerStart) -> None:
    """Open the broker, and raise ConfigError if a wanted queue exists neither in it nor in the app.

    Does not check if the broker is away, or if a signal stops the worker first.
    """
    known = app.queues()
    broker = app.broker

    def say() -> None:
        if start.link is None:  # else the supervisor has logged it
            with log_on_terminal(app.logger, start.log_format):
                app.logger.info("waiting for the broker at %s", app.url)

    if not broker.capabilities.has("inspect"):
        return  # the broker cannot list its queues
    try:
        found = call_with_deadline(broker.inspect.queues, unless=lambda: bool(start.signals), say=say)
    except BrokerAwayError:
        return  # the worker logs that, and continues when the broker is back
    known += [name for name in found if name not in known]
    for name in wanted:
        if name not in known:
            raise ConfigError(unknown_queue(name, known))
