"""Doing something to jobs by key, one at a time or a whole queue's: what the acting commands have in common.

What can be done is done; what cannot is named in a sentence each, and the exit code says that there was some.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import click

from ..broker import Broker, Listing
from ..errors import ConfigError
from ..job import JobView
from . import GAVE_UP, WRONG
from .looking import find_jobs, gone
from .output import clean, count
from .progress import Bar

#: Jobs handled in one step when all of a queue are meant: short transactions, so that workers get their turns.
PAGE = 500


def act_on_keys(
    broker: Broker, queue: str | None, keys: Sequence[str], *, which: str, act: Callable[[JobView], bool], done: str
) -> None:
    """Do `act` to the job of every key; `which` says what a job must be for it: "queued" or "in the morgue"."""
    succeeded = 0
    complaints = []
    dead = which == "in the morgue"
    with Bar(done, len(keys)) as bar:
        for key in dict.fromkeys(keys):
            jobs = find_jobs(broker, queue, key)
            fitting = [job for job in jobs if (job.status == "dead") is dead and job.status != "running"]
            if len(fitting) > 1:
                queues = ", ".join(job.queue for job in fitting)
                complaints.append(f"The job {key!r} is in several queues ({queues}); say which with --queue.")
            elif fitting and act(fitting[0]):
                succeeded += 1
            elif jobs and not fitting:
                complaints.append(f"The job {key!r} is {jobs[0].status}, not {which}.")
            else:
                complaints.append(gone(key, which))
            bar.advance(1)
    if succeeded:
        click.echo(f"{done} {count(succeeded, 'job')}.")
    for complaint in complaints:
        click.echo(clean(complaint), err=True)
    if complaints:
        raise click.exceptions.Exit(WRONG)


def act_on_all(
    broker: Broker, totals: dict[str, int], which: Listing, *, act: Callable[[str, list[str]], int], done: str
) -> None:
    """Do `act` to page after page of each queue's jobs: as many as `totals` says, oldest first.

    No more than that, because a job that is revived may be buried again before we are through.
    """
    succeeded = 0
    with Bar(done, sum(totals.values())) as bar:
        for queue, left in totals.items():
            after = None
            while left > 0:
                page = broker.listing(queue, which, after=after, limit=min(PAGE, left))
                if page.jobs:
                    succeeded += act(queue, [job.key for job in page.jobs])
                bar.advance(len(page.jobs))
                left -= len(page.jobs)
                after = page.after
                if after is None:
                    break
    click.echo(f"{done} {count(succeeded, 'job')}.")


def check_keys_or_all(keys: Sequence[str], everything: bool) -> None:
    """Either keys or --all: both or neither is a mistake."""
    if bool(keys) is everything:
        raise ConfigError("Give keys or --all, not both." if everything else "Give the keys of jobs, or --all.")


def confirm(question: str, yes: bool) -> None:
    """Ask before something is destroyed; without anybody to ask, refuse."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError("This cannot be undone, and there is no terminal to ask at; say --yes if you mean it.")
    if not click.confirm(question, err=True):
        click.echo("Nothing was done.", err=True)
        raise click.exceptions.Exit(GAVE_UP)
