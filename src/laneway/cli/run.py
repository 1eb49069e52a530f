"""Options of `worker` and `dev`; runs a worker as supervisor or as child, with its log on the terminal.

`ArgvCommand` keeps the arguments as given, because a supervisor starts its children with the same arguments. With a
broker in the memory of this process there is no supervisor.
"""

from __future__ import annotations

import logging
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from .. import logs
from ..config import MAX_CONCURRENCY, StatusPorts, WorkerOptions
from ..errors import ConfigError
from ..logs import FORMATS, Format
from ..worker.observe.counters import RunCounters
from ..worker.process.channel import SupervisorLink
from ..worker.signals import handle_signals, restore_signals
from . import options

if TYPE_CHECKING:
    from ..worker import Worker

DEFAULTS = WorkerOptions()


UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


class Size(click.ParamType[int]):
    """A number of bytes, written as 300M or 1.5G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmg]?)(?:i?b)?", value.strip(), re.IGNORECASE)
        if found is None:
            self.fail(f"{value!r} is not a size; write it as 300M or 1.5G.", param, ctx)
        return int(float(found[1]) * UNITS[found[2].lower()])


run_options = options.together(
    click.option(
        "-c",
        "--concurrency",
        type=click.IntRange(1, MAX_CONCURRENCY),
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
    click.option("--include", metavar="NAME", multiple=True, help="A listener to serve, if not all; repeat it."),
    click.option("--exclude", metavar="NAME", multiple=True, help="A listener not to serve; repeat it."),
    click.option(
        "--no-subscribe", is_flag=True, help="Write no subscriptions: to drain the queue of one that was ended."
    ),
    click.option("--until-empty", is_flag=True, help="End when no job that this worker may claim is due or running."),
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
    click.option(
        "--health-port", metavar="PORT", type=click.IntRange(0, 65_535), help="Serve /live and /ready over HTTP."
    ),
    click.option(
        "--metrics-port", metavar="PORT", type=click.IntRange(0, 65_535), help="Serve /metrics for Prometheus."
    ),
    click.option(
        "--status-host",
        metavar="ADDRESS",
        default="127.0.0.1",
        show_default=True,
        help="The address of those ports; 0.0.0.0 is any.",
    ),
    options.url,
)


def status_ports(given: dict[str, Any]) -> StatusPorts:
    """The status ports of the command line, which are removed from `given`."""
    return StatusPorts(given.pop("health_port"), given.pop("metrics_port"), given.pop("status_host"))


class ArgvCommand(click.Command):
    """A command that keeps its arguments as given: a supervisor starts its processes with the same arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)


ARGUMENTS = "laneway.arguments"


@contextmanager
def early_signals() -> Iterator[list[int]]:
    """Collect the signals that stop a worker while its code is being imported, which may take long. None is lost."""
    signals: list[int] = []

    def stop(number: int) -> None:
        if signals and number == signal.SIGINT:
            raise KeyboardInterrupt  # the user does not want to wait
        signals.append(number)

    before = handle_signals(stop, lambda: None)
    try:
        yield signals
    finally:
        restore_signals(before)


def serve(
    ctx: click.Context,
    worker: Worker,
    link: SupervisorLink | None,
    log_format: Format,
    ports: StatusPorts,
    signals: Sequence[int],
) -> int:
    """Run a worker as the child of a supervisor, or as the supervisor, with its log on the terminal.

    `signals` arrived before.
    """
    process = str(link.number) if link and link.processes > 1 else None
    with log_on_terminal(worker.app.logger, log_format, process):
        if link is None and worker.app.broker.capabilities.shared:
            from ..worker.observe.status import shown
            from ..worker.supervisor.supervisor import Supervisor

            supervisor = Supervisor(worker.app, worker.options, _command(ctx))
            with shown(supervisor, ports):
                return supervisor.run(signals)
        if signals:
            return 0
        worker.signals = signals  # signals may still be added until the worker handles them itself
        if link is not None:
            if ports.metrics is not None:
                tally = RunCounters(worker.app.telemetry)
                tally.start()
                link.counted = tally.snapshot
            worker.supervised_by(link)
        elif worker.options.processes > 1 or ports.health is not None or ports.metrics is not None:
            raise ConfigError(
                f"{worker.app.url} is not shared between processes, so there can be no other: leave out --processes, "
                "--health-port and --metrics-port, or give another --url."
            )
        return worker.run()


def _command(ctx: click.Context) -> list[str]:
    """The command that starts a child: this command again.

    -P keeps the current folder off the path: a file of the user may have the name of a module that Laneway imports.
    """
    warnings = [f"-W{option}" for option in sys.warnoptions]
    optimised = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
    given = ctx.meta[ARGUMENTS]
    return [sys.executable, *warnings, *optimised, "-P", "-m", "laneway", ctx.info_name or "worker", *given]


@contextmanager
def log_on_terminal(logger: logging.Logger, log_format: Format, process: str | None = None) -> Iterator[None]:
    """Show a logger's lines on stderr, unless the program itself shows them already.

    Then warnings of other loggers and of Python, which Python would write to stderr, get the same format. `process`
    names the process on every line, if there are several.
    """
    handler = logs.handler(log_format, sys.stderr, process=process)
    level = logger.level
    if level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    # If a handler of the program writes to the terminal already, a second handler would show every line twice.
    shown = _writes_to_terminal(logger)
    undo = None
    if not shown:
        logger.addHandler(handler)
        undo = logs.install_last_resort(handler)
    try:
        yield
    finally:
        if undo is not None:
            undo()
        logger.removeHandler(handler)
        logger.setLevel(level)


def _writes_to_terminal(logger: logging.Logger | None) -> bool:
    while logger is not None:
        for handler in logger.handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stderr, sys.stdout):
                return True
        logger = logger.parent if logger.propagate else None
    return False
