"""`laneway jobs`: what is queued or running, and what can be done about it."""

from __future__ import annotations

import click

from ..broker import Listing
from ..errors import ConfigError
from . import options
from .acting import act_on_keys
from .looking import list_jobs, show_jobs
from .opening import looking
from .times import duration, moment

when = options.together(
    click.option("--delay", callback=duration, metavar="DURATION", help="So long from now: seconds, or 15m, 2h, 7d."),
    click.option("--at", callback=moment, metavar="TIME", help="Then: ISO 8601 with a time zone, or unix seconds."),
)


@click.group(
    cls=options.ListByDefault,
    epilog=options.examples(
        "laneway jobs                                  the jobs that are queued",
        "laneway jobs shop.py --which running          ... that are running, of this app",
        "laneway jobs --queue mail --limit 5 --json",
        "laneway jobs show 019a8b…",
        "laneway jobs cancel 019a8b… 019a8c…",
        "laneway jobs reschedule 019a8b… --delay 2h",
    ),
)
def jobs() -> None:
    """List, show, cancel and reschedule jobs. Arguments are never shown unless you ask with --body.

    `list` may be left out: its options follow `laneway jobs` directly.
    """


@jobs.command(
    "list",
    epilog=options.examples("laneway jobs list", "laneway jobs list --which retries --url sqlite:///laneway.db"),
)
@options.optional_target
@click.option(
    "--which",
    type=click.Choice(["queued", "delayed", "retries", "running"]),
    default="queued",
    show_default=True,
    help="delayed and retries are parts of queued.",
)
@options.together(options.queue, options.limit, options.after, options.url, options.as_json)
def list_(
    target: str | None,
    which: Listing,
    queue: str | None,
    limit: int,
    after: str | None,
    url: str | None,
    as_json: bool,
) -> None:
    """List jobs, by the time they are due."""
    command = "jobs" if which == "queued" else f"jobs --which {which}"
    list_jobs(command, which, target=target, url=url, queue=queue, limit=limit, after=after, as_json=as_json)


@jobs.command(epilog=options.examples("laneway jobs show 019a8b…", "laneway jobs show 019a8b… --body --json"))
@click.argument("key")
@options.together(options.body, options.queue, options.app, options.url, options.as_json)
def show(key: str, body: bool, queue: str | None, target: str | None, url: str | None, as_json: bool) -> None:
    """Show a job in full, with its whole error."""
    show_jobs(key, dead_only=False, target=target, url=url, queue=queue, body=body, as_json=as_json)


@jobs.command(epilog=options.examples("laneway jobs cancel 019a8b… 019a8c…"))
@options.keys
@options.together(options.queue, options.app, options.url)
def cancel(keys: tuple[str, ...], queue: str | None, target: str | None, url: str | None) -> None:
    """Remove jobs that have not begun."""
    with looking(target, url) as broker:
        act_on_keys(
            broker,
            queue,
            keys,
            which="queued",
            act=lambda job: broker.cancel(job.queue, job.key),
            done="Cancelled",
        )


@jobs.command(
    epilog=options.examples(
        "laneway jobs reschedule 019a8b… --delay 15m",
        "laneway jobs reschedule 019a8b… --at 2030-01-31T12:00:00+01:00",
    )
)
@options.keys
@when
@options.together(options.queue, options.app, options.url)
def reschedule(
    keys: tuple[str, ...],
    delay: float | None,
    at: float | None,
    queue: str | None,
    target: str | None,
    url: str | None,
) -> None:
    """Move jobs that have not begun to another time."""
    if (delay is None) is (at is None):
        raise ConfigError("Give --delay or --at, not both." if at is not None else "Say when, with --delay or --at.")
    with looking(target, url) as broker:
        act_on_keys(
            broker,
            queue,
            keys,
            which="queued",
            act=lambda job: broker.reschedule(job.queue, job.key, delay_s=delay or 0.0, perform_at=at),
            done="Rescheduled",
        )
