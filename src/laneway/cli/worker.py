"""`laneway worker`: run jobs until told to stop."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from .. import logs
from ..app import Laneway
from ..config import WorkerOptions, raise_problems
from ..errors import BrokerAwayError, ConfigError
from ..logs import FORMATS, Format
from ..worker.link import Link
from ..worker.signals import handle_signals, restore_signals
from . import options
from .opening import unknown_queue
from .target import Target, load, load_imports

if TYPE_CHECKING:
    from ..worker import Worker

DEFAULTS = WorkerOptions()


class Size(click.ParamType[int]):
    """Bytes, as one writes them: 300M, 1.5G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        number, unit = re.fullmatch(r"([\d.]*)(.*)", value.strip(), re.DOTALL).groups()  # type: ignore[union-attr]  # it matches any text
        power = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3}.get(unit.strip().lower().removesuffix("ib"))
        try:
            return int(float(number) * 1024 ** (power if power is not None else -1))
        except (ValueError, TypeError):
            self.fail(f"{value!r} is not a size; write it as 300M or 1.5G.", param, ctx)


class Remembering(click.Command):
    """Keeps its arguments as they were given: a supervisor starts its processes with the same ones."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)


ARGUMENTS = "laneway.arguments"

run_options = options.together(
    click.option(
        "-c",
        "--concurrency",
        type=click.IntRange(1, 10_000),
        default=DEFAULTS.concurrency,
        show_default=True,
        help="Jobs running at once, sync and async together.",
    ),
    click.option(
        "-w",
        "--processes",
        type=click.IntRange(1, 1_000),
        default=DEFAULTS.processes,
        show_default=True,
        help="Processes that run jobs, so many at once each.",
    ),
    click.option(
        "-Q",
        "--queues",
        metavar="QUEUE,...",
        multiple=True,
        help="The queues to serve, if not all of the app's tasks; several with commas, or -Q again.",
    ),
    click.option("--until-empty", is_flag=True, help="End when nothing is due and nothing runs."),
    click.option(
        "--shutdown-timeout",
        "shutdown_timeout_s",
        metavar="SECONDS",
        type=click.FloatRange(min=0),
        default=DEFAULTS.shutdown_timeout_s,
        show_default=True,
        help="What running jobs get to finish when the worker is told to stop.",
    ),
    click.option(
        "--lease",
        "lease_s",
        metavar="SECONDS",
        type=click.FloatRange(min=0.1),
        default=DEFAULTS.lease_s,
        show_default=True,
        help="After so long a silence others take its jobs over.",
    ),
    click.option(
        "--hang-limit",
        "hang_limit_s",
        metavar="SECONDS",
        type=click.FloatRange(min=1),
        default=DEFAULTS.hang_limit_s,
        show_default=True,
        help="A process that is silent for so long is ended: code of a job does not let go of the interpreter.",
    ),
    click.option("--max-jobs", metavar="N", type=click.IntRange(1), help="Replace a process after so many jobs."),
    click.option(
        "--max-age",
        "max_age_s",
        metavar="SECONDS",
        type=click.FloatRange(min=1),
        help="Replace a process when it is so old.",
    ),
    click.option(
        "--max-memory", metavar="SIZE", type=Size(), help="Replace a process that has grown to this: 300M, 1G."
    ),
    click.option(
        "--isolated-jobs",
        metavar="N",
        type=click.IntRange(1),
        default=DEFAULTS.isolated_jobs,
        show_default=True,
        help="Jobs that a process for isolated tasks runs before another takes its place.",
    ),
    click.option(
        "--slow",
        "slow_s",
        metavar="SECONDS",
        type=click.FloatRange(min=0),
        default=DEFAULTS.slow_s,
        show_default=True,
        help="Log runs that take longer.",
    ),
    click.option(
        "--scheduler",
        type=click.Choice(["lag", "seq"]),
        help="The shards to take from first: the most overdue (lag, the default), or one after the other (seq).",
    ),
    click.option(
        "--log-format",
        type=click.Choice(FORMATS),
        envvar="LANEWAY_LOG_FORMAT",
        help="Lines to read (plain), in colour with tracebacks (rich), or a JSON document each (json).",
    ),
    click.option("--nodes", metavar="N", type=int, help="Deal the shards of every queue to N processes."),
    click.option(
        "--node", metavar="I", type=int, help="Which of them this is, from 0 on. [or LANEWAY_NODES, LANEWAY_NODE]"
    ),
    options.url,
)


@click.command(
    cls=Remembering,
    epilog=options.examples(
        "laneway worker shop                           the module shop in this folder",
        "laneway worker shop.jobs:app -c 20",
        "laneway worker shop -w 4 --max-memory 500M    four processes, each replaced when it has grown too large",
        "laneway worker path/to/shop.py -Q mail,images --until-empty",
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
    with early_signals() as stop_asked:
        link = Link.from_environment()
        made = make_worker(ctx, load(target), url, given)
    ctx.exit(0 if stop_asked else serve(ctx, made, link, log_format))


@contextmanager
def early_signals() -> Iterator[list[int]]:
    """Note what would stop a worker while its code is being imported, which may take long: nothing is lost by it."""
    told: list[int] = []
    before = handle_signals(told.append, lambda: None)
    try:
        yield told
    finally:
        restore_signals(before)


def serve(ctx: click.Context, worker: Worker, link: Link | None, log_format: Format) -> int:
    """Run a worker as the child of a supervisor, or as the supervisor, with its log on the terminal."""
    process = str(link.number) if link and link.processes > 1 else None
    with log_on_terminal(worker.app.logger, log_format, process):
        if link is not None:
            worker.supervised_by(link)
        elif worker.app.broker.shared:
            from ..worker.supervisor import Supervisor

            return Supervisor(worker.app, worker.options, _command(ctx)).run()
        elif worker.options.processes > 1:
            raise ConfigError(f"{worker.app.url} is in the memory of one process; give -w 1, or another --url.")
        return worker.run()


def _command(ctx: click.Context) -> list[str]:
    """What starts a child: this command again. Not from this folder: files of the user's may be named as ours are."""
    warnings = [f"-W{option}" for option in sys.warnoptions]
    optimised = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
    given = ctx.meta[ARGUMENTS]
    return [sys.executable, *warnings, *optimised, "-P", "-m", "laneway", ctx.info_name or "worker", *given]


def make_worker(ctx: click.Context, target: Target, url: str | None, given: dict[str, Any]) -> Worker:
    """The worker for a target and the options of the command line."""
    from ..worker import Worker

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
        check_queues(target.app, ())
        target.worker.options = replace(target.worker.options, verbose=verbose or target.worker.options.verbose)
        return target.worker
    queues = [name for text in given.pop("queues") for name in text.split(",")]
    shards = _shard_options(given.pop("scheduler"), given.pop("nodes"), given.pop("node"))
    made = WorkerOptions(**given, **shards, verbose=verbose, queues=list(dict.fromkeys(queues)) or None)
    raise_problems(made.validate())
    check_queues(target.app, queues)
    return (target.worker or Worker)(target.app, made)


def _shard_options(scheduler: str | None, nodes: int | None, node: int | None) -> dict[str, Any]:
    from ..worker import schedulers, splitters

    made: dict[str, Any] = {}
    if scheduler is not None:
        made["scheduler"] = schedulers.lag if scheduler == "lag" else schedulers.seq
    if nodes is not None and node is not None:
        made["splitter"] = splitters.by_node(nodes, node)
    elif nodes is not None or node is not None:
        raise ConfigError("--nodes and --node go together: how many processes there are, and which of them this is.")
    return made


def _was_given(ctx: click.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name != "DEFAULT"


def prepare(target: Target) -> None:
    """Load all tasks of an app; without any there is nothing to run."""
    load_imports(target.app)
    if not len(target.app.registry):
        raise ConfigError(
            f"{target.text} has no tasks; declare one with @app.task, or name the modules that do in "
            "Laneway(imports=[…])."
        )


def check_queues(app: Laneway, wanted: Iterable[str]) -> None:
    """Open the broker, and see that the wanted queues exist in it or in the app."""
    known = app.queues()
    try:
        known += [name for name in app.broker.queues() if name not in known]
    except BrokerAwayError:
        return  # the worker says so and goes on when it is back
    for name in wanted:
        if name not in known:
            raise ConfigError(unknown_queue(name, known))


@contextmanager
def log_on_terminal(logger: logging.Logger, log_format: Format, process: str | None = None) -> Iterator[None]:
    """Show a logger's lines on stderr, unless the program itself has them shown already.

    `process` says on every line which of several processes it is from.
    """
    handler = logs.handler(log_format, sys.stderr, process=process)
    level = logger.level
    if level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    # With a handler of ours the root's would show every line twice, if one of them writes to the terminal.
    shown = _writes_to_terminal(logger)
    if not shown:
        logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def _writes_to_terminal(logger: logging.Logger | None) -> bool:
    while logger is not None:
        for handler in logger.handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stderr, sys.stdout):
                return True
        logger = logger.parent if logger.propagate else None
    return False
