"""A worker at the command line: as a supervisor or as its child, with its log on the terminal."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from .. import logs
from ..config import StatusPorts
from ..errors import ConfigError
from ..logs import Format
from ..worker.observe.counters import Tally
from ..worker.process.channel import Link
from ..worker.signals import handle_signals, restore_signals

if TYPE_CHECKING:
    from ..worker import Worker


class Remembering(click.Command):
    """Keeps its arguments as they were given: a supervisor starts its processes with the same ones."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)


ARGUMENTS = "laneway.arguments"


@contextmanager
def early_signals() -> Iterator[list[int]]:
    """Note what would stop a worker while its code is being imported, which may take long: nothing is lost by it."""
    told: list[int] = []

    def stop(number: int) -> None:
        if told and number == signal.SIGINT:
            raise KeyboardInterrupt  # somebody cannot wait
        told.append(number)

    before = handle_signals(stop, lambda: None)
    try:
        yield told
    finally:
        restore_signals(before)


def serve(
    ctx: click.Context, worker: Worker, link: Link | None, log_format: Format, ports: StatusPorts, told: Sequence[int]
) -> int:
    """Run a worker as the child of a supervisor, or as the supervisor, with its log on the terminal.

    `told` are signals that came before.
    """
    process = str(link.number) if link and link.processes > 1 else None
    with log_on_terminal(worker.app.logger, log_format, process):
        if link is None and worker.app.broker.shared:
            from ..worker.observe.status import shown
            from ..worker.supervisor.supervisor import Supervisor

            supervisor = Supervisor(worker.app, worker.options, _command(ctx))
            with shown(supervisor, ports):
                return supervisor.run(told)
        if told:
            return 0
        worker.told = told  # and what still comes before it listens
        if link is not None:
            if ports.metrics is not None:
                tally = Tally(worker.app.telemetry)
                tally.start()
                link.counted = tally.snapshot
            worker.supervised_by(link)
        elif worker.options.processes > 1 or ports.health is not None or ports.metrics is not None:
            raise ConfigError(
                f"{worker.app.url} is in the memory of one process, so there can be no other: leave out --processes, "
                "--health-port and --metrics-port, or give another --url."
            )
        return worker.run()


def _command(ctx: click.Context) -> list[str]:
    """What starts a child: this command again. Not from this folder: files of the user's may be named as ours are."""
    warnings = [f"-W{option}" for option in sys.warnoptions]
    optimised = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
    given = ctx.meta[ARGUMENTS]
    return [sys.executable, *warnings, *optimised, "-P", "-m", "laneway", ctx.info_name or "worker", *given]


@contextmanager
def log_on_terminal(logger: logging.Logger, log_format: Format, process: str | None = None) -> Iterator[None]:
    """Show a logger's lines on stderr, unless the program itself has them shown already; and in the same format what
    Python would write there for others.

    `process` says on every line which of several processes it is from.
    """
    handler = logs.handler(log_format, sys.stderr, process=process)
    level = logger.level
    if level == logging.NOTSET:
        logger.setLevel(logging.INFO)
    # With a handler of ours the root's would show every line twice, if one of them writes to the terminal.
    shown = _writes_to_terminal(logger)
    undo = None
    if not shown:
        logger.addHandler(handler)
        undo = logs.write_others(handler)
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
