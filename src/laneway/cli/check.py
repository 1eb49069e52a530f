"""`laneway check`: whether an app could run, and whether its broker is well. Looks, and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import click
import msgspec

from ..app import Laneway
from ..broker import Broker
from ..errors import LanewayError
from ..ticket import Serializer
from . import UNWELL, options
from .opening import database_of, is_missing, open_target
from .output import clean, count, show_json
from .progress import patience
from .target import load_imports
from .times import span
from .views import task_of

#: How many jobs of a queue are looked at for tasks that nobody declares.
SAMPLE = 200


class Finding(msgspec.Struct):
    """A sentence about the app or its broker. Only a problem makes it unwell."""

    level: Literal["ok", "note", "problem"]
    text: str


Findings = Iterator[Finding]


@click.command(
    epilog=options.examples(
        "laneway check shop.py",
        "laneway check shop.jobs:app --url sqlite:////var/lib/shop/jobs.db",
        "laneway check shop --json                     exit code 3 if something is wrong",
    )
)
@options.target
@options.together(options.url, options.as_json)
@click.pass_context
def check(ctx: click.Context, target: str, url: str | None, as_json: bool) -> None:
    """Check an app, its tasks and its broker. Ends with 3 if something is wrong."""
    found = open_target(target, url)
    place = found.app.url
    with patience("Checking"):
        findings = list(examine(found.app, found.text))
    well = all(finding.level != "problem" for finding in findings)
    if as_json:
        show_json({"target": found.text, "url": place, "well": well, "findings": findings})
    else:
        for finding in findings:
            click.echo(f"{finding.level:<8} {clean(finding.text)}")
    found.app.close()
    ctx.exit(0 if well else UNWELL)


def examine(app: Laneway, name: str) -> Findings:
    """All that can be found out about an app."""
    yield from _tasks(app, name)
    yield from _broker(app)


def _tasks(app: Laneway, name: str) -> Findings:
    try:
        load_imports(app)
    except LanewayError as error:
        yield Finding("problem", str(error))
    tasks = [task.name for task in app.registry]
    if tasks:
        yield Finding("ok", f"{name} has {count(len(tasks), 'task')}: {', '.join(tasks)}.")
    else:
        yield Finding("problem", f"{name} has no tasks; declare one with @app.task.")


def _broker(app: Laneway) -> Findings:
    place = app.url
    try:
        broker = app.broker
        if (path := database_of(broker)) and is_missing(path):
            yield _missing_database(path)
            return
        stored = broker.queues()
        yield Finding("ok", f"Jobs are kept in {place}; it can be opened.")
        problems = broker.check()
        yield from (Finding("problem", problem) for problem in problems)
        if not problems:
            yield Finding("ok", "The broker finds nothing wrong with itself.")
        yield from _queues(app, broker, stored)
    except LanewayError as error:
        yield Finding("problem", str(error))


def _missing_database(path: Path) -> Finding:
    folder = path.absolute().parent
    if not folder.is_dir():
        return Finding("problem", f"There is no folder {folder} for the database {path.name}; make it first.")
    if not os.access(folder, os.W_OK):
        return Finding("problem", f"The database {path} cannot be made: the folder {folder} may not be written to.")
    return Finding("ok", f"There is no database {path} yet; a worker or the first job makes it.")


def _queues(app: Laneway, broker: Broker, stored: dict[str, int]) -> Findings:
    declared = app.queues()
    served = {queue for worker in broker.workers() if not worker.dead for queue in worker.queues}
    for queue in broker.stats():
        if queue.queue not in declared and queue.length:
            yield Finding(
                "note",
                f"The queue {queue.queue} holds {count(queue.length, 'job')}, and no task of this app declares it; "
                f"a worker serves it with -Q {queue.queue}.",
            )
        if queue.lag and queue.queue not in served:
            late = f"the oldest is {span(queue.lag)} late"
            yield Finding("note", f"The queue {queue.queue} has jobs that are due and no worker; {late}.")
        if queue.dead:
            yield Finding("note", f"The morgue of {queue.queue} holds {count(queue.dead, 'job')}; see laneway morgue.")
    for name in declared:
        if name not in stored:
            yield Finding("ok", f"The queue {name} does not exist yet; a worker or the first job makes it.")
        elif type(app.serializer) is Serializer:  # another one may read what is no ticket to us
            yield from _strangers(app, broker, name)


def _strangers(app: Laneway, broker: Broker, queue: str) -> Findings:
    """Jobs for tasks that the app does not have: they can only fail."""
    jobs = broker.listing(queue, "queued", limit=SAMPLE).jobs
    names = {name for job in jobs if (name := task_of(job)) and app.registry.find(name) is None}
    for name in sorted(names):
        yield Finding(
            "problem",
            f"The queue {queue} holds jobs for a task {name!r}, which this app does not have; declare it, or give its "
            "successor that name as an alias.",
        )
