"""Listing jobs and showing one: what `jobs`, `delayed` and `morgue` have in common. Reads only."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import click

from ..broker import Broker, Listing, Order
from ..errors import BrokerAwayError, BrokerError, ConfigError
from ..jobs.data import JobView
from . import views
from .opening import known_queues, opening
from .output import clean, show_fields, show_json, show_table
from .progress import patience
from .reading import Reader
from .times import read_time


def list_jobs(
    command: Sequence[str],
    which: Listing,
    *,
    target: str | None,
    url: str | None,
    queue: str | None,
    order: Order | None,
    reverse: bool,
    start: str | None,
    limit: int,
    after: str | None,
    as_json: bool,
) -> None:
    """Print a page of jobs of each queue, and how to get at the next one."""
    if after is not None and queue is None:
        raise ConfigError("--after is a place in one queue; say which with --queue.")
    if after is not None and start is not None:
        raise ConfigError("Give --from or --after, not both: the place after a page is behind what it began with.")
    if which == "running" and order == "retry_count":
        raise ConfigError("Running jobs cannot be sorted by retry_count; sort them by perform_at or by key.")
    value = None if start is None else _starting_value(order, start)
    jobs: list[JobView] = []
    more: dict[str, str] = {}
    unseen: dict[str, BrokerError] = {}
    with opening(target, url) as place, patience("Reading"):
        names = known_queues(place.broker, queue)
        for name in names:
            try:
                page = place.broker.listing(
                    name, which, order=order, reverse=reverse, start=value, after=after, limit=limit
                )
            except BrokerAwayError:
                raise
            except BrokerError as error:  # one queue may be listed, and another not
                unseen[name] = error
                continue
            jobs += page.jobs
            if page.after is not None:
                more[name] = page.after
        seen = Reader(place.app).read(jobs)
    if unseen and len(unseen) == len(names):
        raise next(iter(unseen.values()))
    for sentence in dict.fromkeys(map(str, unseen.values())):
        click.echo(clean(sentence), err=True)
    if as_json:
        show_json({"which": which, "jobs": [views.document(job) for job in seen], "after": more})
        return
    if seen:
        show_table(*views.job_table(seen, dead=which == "dead"))
    else:
        click.echo("There are no more." if after else f"There are no {which} jobs{' from there on' if start else ''}.")
    for name, position in more.items():
        words = ["laneway", *command, *([target] if target else []), *(["--url", url] if url else [])]
        words += [*(["--by", order] if order else []), *(["--reverse"] if reverse else [])]
        words += ["--queue", name, "--limit", str(limit), "--after", position]
        click.echo(f"There may be more: {shlex.join(words)}", err=True)


def _starting_value(order: Order | None, text: str) -> float | str:
    """What `--from` means, by what the listing is sorted by."""
    if order == "key":
        return text
    if order == "retry_count":
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{text!r} is not a retry_count; give a whole number: -1 before any failure.") from None
    return read_time(text)


def find_jobs(broker: Broker, queue: str | None, key: str) -> list[JobView]:
    """A key's job, wherever it is: in any queue or morgue; empty when it is gone.

    Raises what the broker says if it is nowhere to be seen, and the broker does not see everything.
    """
    jobs: list[JobView] = []
    unseen: BrokerError | None = None
    for name in known_queues(broker, queue):
        try:
            jobs += broker.find(name, key)
        except BrokerAwayError:
            raise
        except BrokerError as error:
            unseen = unseen or error
    if unseen is not None and not jobs:
        raise unseen
    return jobs


def show_jobs(
    key: str, *, dead_only: bool, target: str | None, url: str | None, queue: str | None, body: bool, as_json: bool
) -> None:
    """Print all that is known of a key's job: of the one that runs, the one that is queued, and the dead one."""
    with opening(target, url) as place:
        found = [job for job in find_jobs(place.broker, queue, key) if job.status == "dead" or not dead_only]
        seen = Reader(place.app).read(found)
    if not seen:
        raise ConfigError(gone(key, "is in the morgue" if dead_only else "is queued, running or dead"))
    if as_json:
        show_json({"jobs": [views.document(job, full_error=True, body=body) for job in seen]})
        return
    for number, job in enumerate(seen):
        if number:
            click.echo()
        show_fields(views.fields(job, body=body))


def gone(key: str, where: str) -> str:
    """The sentence for a key that is nowhere."""
    return f"There is no job {key!r} that {where}; it may be done by now."
