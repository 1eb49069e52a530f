"""Listing jobs and showing one: what `jobs`, `delayed` and `morgue` have in common. Reads only."""

from __future__ import annotations

import shlex

import click

from ..broker import Broker, Listing
from ..errors import ConfigError
from ..job import JobView
from . import views
from .opening import known_queues, looking
from .output import show_fields, show_json, show_table
from .progress import patience


def list_jobs(
    command: str,
    which: Listing,
    *,
    target: str | None,
    url: str | None,
    queue: str | None,
    limit: int,
    after: str | None,
    as_json: bool,
) -> None:
    """Print a page of jobs of each queue, and how to get at the next one."""
    if after is not None and queue is None:
        raise ConfigError("--after is a place in one queue; say which with --queue.")
    jobs: list[JobView] = []
    more: dict[str, str] = {}
    with looking(target, url) as broker, patience("Reading"):
        for name in known_queues(broker, queue):
            page = broker.listing(name, which, after=after, limit=limit)
            jobs += page.jobs
            if page.after is not None:
                more[name] = page.after
    if as_json:
        show_json({"which": which, "jobs": [views.document(job) for job in jobs], "after": more})
        return
    if not jobs:
        click.echo("There are no more." if after else f"There are no {which} jobs.")
    elif which == "dead":
        show_table(views.DEAD_COLUMNS, [views.dead_row(job) for job in jobs])
    else:
        show_table(views.COLUMNS, [views.row(job) for job in jobs])
    for name, position in more.items():
        place = [target] if target else []
        place += ["--url", url] if url else []
        words = ["laneway", command, *place, "--queue", name, "--after", position]
        click.echo(f"There may be more: {shlex.join(words)}", err=True)


def find_jobs(broker: Broker, queue: str | None, key: str) -> list[JobView]:
    """A key's job, wherever it is: in any queue or morgue; empty when it is gone."""
    return [job for name in known_queues(broker, queue) for job in broker.find(name, key)]


def show_jobs(
    key: str, *, dead_only: bool, target: str | None, url: str | None, queue: str | None, body: bool, as_json: bool
) -> None:
    """Print all that is known of a key's job."""
    with looking(target, url) as broker:
        jobs = [job for job in find_jobs(broker, queue, key) if job.status == "dead" or not dead_only]
    if not jobs:
        raise ConfigError(gone(key, "in the morgue" if dead_only else "queued, running or dead"))
    if as_json:
        show_json({"jobs": [views.document(job, full_error=True, body=body) for job in jobs]})
        return
    for number, job in enumerate(jobs):
        if number:
            click.echo()
        show_fields(views.fields(job, body=body))


def gone(key: str, where: str) -> str:
    """The sentence for a key that is nowhere."""
    return f"There is no job {key!r} that is {where}; it may be done by now."
