"""`laneway delayed`: lists jobs that are not due yet; runs, shows, reschedules and cancels them."""

from __future__ import annotations

from typing import Any

import click

from .. import options
from ..listing import list_jobs
from . import jobs


@click.group(
    cls=options.ListByDefault,
    epilog=options.examples(
        "laneway delayed                               the jobs that wait, the next one first",
        "laneway delayed shop.py --queue mail --json",
        "laneway delayed --from 2030-01-31T12:00:00Z   those that wait until then or longer",
        "laneway delayed run 019a8b…                   now rather than later",
        "laneway delayed reschedule 019a8b… --at 2030-01-31T12:00:00Z",
        "laneway delayed cancel 019a8b…",
    ),
)
def delayed() -> None:
    """List, run, reschedule and cancel jobs that are not due yet.

    `list` may be left out: its options follow `laneway delayed` directly.
    """


@delayed.command(
    "list",
    epilog=options.examples(
        "laneway delayed list", "laneway delayed list --queue mail -n 10", "laneway delayed list --by key"
    ),
)
@options.optional_target
@options.listing("perform_at", "key", "retry_count")
def list_(target: str | None, **given: Any) -> None:
    """List jobs that are not due yet, the next one first."""
    list_jobs(["delayed"], "delayed", target=target, **given)


delayed.add_command(jobs.run)
delayed.add_command(jobs.show)
delayed.add_command(jobs.cancel)
delayed.add_command(jobs.reschedule)
