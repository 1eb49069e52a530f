"""The command line: `laneway COMMAND …`. This file finds the commands and shows errors to the user.

A command is imported when it is used, and loads rich and the worker only when it runs. Every mistake of a user ends
in one sentence on stderr and an exit code. A traceback means a bug in Laneway.

- `commands/`: one file per command, named after it
- `target`: loads TARGET; opens its app or its broker
- `options`: options and arguments that commands share
- `run`: options of `worker` and `dev`; runs a worker on the terminal
- `reload`: watches files and restarts a command
- `listing`: lists and shows jobs, decoded with the app's help
- `act`: acts on chosen jobs, a whole queue or a whole morgue
- `findings`: the checks of `laneway check`: app, broker, bodies, listeners
- `output`: tables, JSON, sentences, progress bars
- `times`: times and durations as people write them
"""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from typing import Any

import click

from .. import __version__
from ..errors import BrokerAwayError, LanewayError

#: Exit codes. 0: all is well. 3 is for what looks whether all is well: `check`, `subscribe`, `aws create`.
GAVE_UP, WRONG, UNWELL = 1, 2, 3

#: In the order of `laneway --help`. The module `cli/commands/NAME.py` holds the command NAME.
COMMANDS = (
    *("worker", "dev", "demo", "stats", "jobs", "delayed", "morgue", "workers"),
    *("subscribe", "unsubscribe", "subscriptions", "deadletter"),
    *("pause", "resume", "reshard", "check", "aws"),
)

EPILOG = """
\b
Try it:
  laneway demo                     jobs running, live, on a temporary SQLite file
  laneway dev shop.py              run your own, every job logged
  laneway stats --url sqlite:///laneway.db

TARGET is where your app is: a module (shop), an app in one (shop.jobs:app) or a file (path/to/shop.py).

\b
Exit codes:
  0  all is well
  1  gave up: jobs were abandoned, the broker did not answer, or you said no
  2  wrong usage or input
  3  unwell (check, subscribe, aws create)
"""


class InputError(click.ClickException):
    """An error as the user sees it: its sentence, and nothing else."""

    exit_code = WRONG

    def show(self, file: Any = None) -> None:
        click.echo(self.message, file=file, err=file is None)


class UnavailableError(InputError):
    """Nothing is wrong with what was asked for; it could not be done now."""

    exit_code = GAVE_UP


class Commands(click.Group):
    """Loads a command when it is wanted, and turns Laneway's errors into sentences."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"{__name__}.commands.{cmd_name}"), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokerAwayError as error:
            raise UnavailableError(str(error)) from error
        except LanewayError as error:
            raise InputError(str(error)) from error


@click.group(
    cls=Commands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="laneway", message="%(prog)s %(version)s")
def cli() -> None:
    """Background jobs for Python programs: run them, look at them, act on them."""


def main() -> None:
    """The script `laneway`."""
    _open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        # A task or an error may be named in any script; a terminal that lacks it shows escapes, not a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    cli(prog_name="laneway")


def _open_standard_streams() -> None:
    """Have the descriptors 0 to 2 be open: what is opened next would take a closed one's place, and be printed to."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
