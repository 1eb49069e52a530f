"""The options of the commands that run jobs."""

from __future__ import annotations

import re
from typing import Any

import click

from ..config import StatusPorts, WorkerOptions
from ..logs import FORMATS
from . import options

DEFAULTS = WorkerOptions()


UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


class Size(click.ParamType[int]):
    """Bytes, as one writes them: 300M, 1.5G."""

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
    """Where the command line wants to have its state shown; taken out of `given`."""
    return StatusPorts(given.pop("health_port"), given.pop("metrics_port"), given.pop("status_host"))
