"""What `laneway check` finds out about an app and its broker. Looks, and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ..app import Laneway
from ..broker import Broker
from ..capabilities import check_app_on, makes_queues, notes_on
from ..errors import BrokerAwayError, BrokerError, LanewayError
from ..jobs.data import Kind, QueueStats, WorkerView
from ..jobs.ticket import Serializer
from .findings import Finding, Findings
from .listening import Hearing, living
from .opening import database_of, find_queues, is_missing
from .output import count
from .reading import task_names
from .target import load_imports
from .times import span

#: How many jobs of a queue are looked at for tasks that nobody declares.
SAMPLE = 200


def examine(app: Laneway, name: str) -> Findings:
    """All that can be found out about an app."""
    yield from _tasks(app, name)
    yield from _broker(app, name)


def _tasks(app: Laneway, name: str) -> Findings:
    try:
        load_imports(app)
    except LanewayError as error:
        yield Finding("problem", str(error))
    listeners = [listener.name for listener in app.listeners()]
    tasks = [task.name for task in app.registry if task not in app.listeners()]
    if tasks:
        yield Finding("ok", f"{name} has {count(len(tasks), 'task')}: {', '.join(tasks)}.")
    if listeners:
        yield Finding("ok", f"{name} has {count(len(listeners), 'listener')}: {', '.join(listeners)}.")
    if tasks or listeners:
        return
    if app.name:
        yield Finding(
            "ok", f"{name} has no tasks and no listeners: it can publish, and has nothing for a worker to run."
        )
    else:
        yield Finding("problem", f"{name} has no tasks and no listeners; declare one with @app.task or @app.listener.")


def _broker(app: Laneway, name: str) -> Findings:
    place = app.url
    try:
        broker = app.broker
        if (path := database_of(broker)) and is_missing(path):
            yield _missing_database(path)
            return
        find_queues(app, broker)
        stored = broker.queues()
        yield Finding("ok", f"Jobs are kept in {place}; it can be opened.")
        said = [*broker.check(), *check_app_on(broker, app)]
        # Being resharded takes its time; it is no illness.
        changing = {queue: text for text in said for queue in stored if text.startswith(_being_resharded(queue))}
        yield from (Finding("note" if text in changing.values() else "problem", text) for text in said)
        yield from (Finding("note", text) for text in notes_on(broker, app))
        if len(changing) == len(said):
            yield Finding("ok", "The broker finds nothing wrong with itself.")
        workers = living(broker)
        hearing = Hearing(app, broker, workers)
        stats = broker.stats()
        yield from _queues(app, stats, workers, hearing.named)
        yield from _bodies(app, broker, stored)
        yield from hearing.findings(name, stats)
        yield from _shards(app, {queue: shards for queue, shards in stored.items() if queue not in changing})
    except LanewayError as error:
        yield Finding("problem", str(error))


def _being_resharded(queue: str) -> str:
    """How a broker's sentence about such a queue begins."""
    return f"The queue {queue} is being resharded "


def _missing_database(path: Path) -> Finding:
    folder = path.absolute().parent
    if not folder.is_dir():
        return Finding("problem", f"There is no folder {folder} for the database {path.name}; make it first.")
    if not os.access(folder, os.W_OK):
        return Finding("problem", f"The database {path} cannot be made: the folder {folder} may not be written to.")
    return Finding("ok", f"There is no database {path} yet; a worker or the first job makes it.")


def _queues(app: Laneway, stats: list[QueueStats], workers: list[WorkerView] | None, named: set[str]) -> Findings:
    """What there is to be said of each queue; whose those are that are `named` is said elsewhere."""
    declared = {*app.queues(), *named}
    served = {queue for worker in workers or () for queue in worker.queues}
    for queue in stats:
        if queue.queue not in declared and queue.length:
            yield Finding(
                "note",
                f"The queue {queue.queue} holds {count(queue.length, 'job')}, and no task of this app declares it; "
                f"a worker serves it with -Q {queue.queue}.",
            )
        late = f"the oldest is {span(queue.lag)} late"
        if queue.paused and queue.lag:  # somebody has said so; it is no illness
            yield Finding(
                "note",
                f"The queue {queue.queue} is paused and has jobs that are due; {late}. It goes on with "
                f"laneway resume {queue.queue}.",
            )
        elif queue.lag and workers is not None and queue.queue not in served:
            yield Finding("note", f"The queue {queue.queue} has jobs that are due and no worker; {late}.")
        if queue.dead:
            yield Finding("note", f"The morgue of {queue.queue} holds {count(queue.dead, 'job')}; see laneway morgue.")
        yield from _unserved(queue.queue, queue.shards, workers or ())


def _bodies(app: Laneway, broker: Broker, stored: dict[str, int]) -> Findings:
    for name in app.queues():
        if name not in stored:
            if makes_queues(broker):  # else its absence is among what the broker has said
                yield Finding("ok", f"The queue {name} does not exist yet; a worker or the first job makes it.")
        elif type(app.serializer) is Serializer:  # another one may read what is no ticket to us
            yield from _strangers(app, broker, name)


def _unserved(queue: str, shards: int, workers: Iterable[WorkerView]) -> Findings:
    """Shards that nobody serves, though others of their queue are served: a splitter has left them out."""
    serving = [worker for worker in workers if queue in worker.queues]
    if not serving or any(queue not in worker.shards for worker in serving):
        return
    left_out = sorted(set(range(shards)).difference(*(worker.shards[queue] for worker in serving)))
    if left_out:
        names = ("shard " if len(left_out) == 1 else "shards ") + ", ".join(map(str, left_out))
        yield Finding(
            "problem",
            f"No worker serves {names} of the queue {queue}, though others are served; start one for every node "
            "(LANEWAY_NODES, LANEWAY_NODE), or see to your splitter.",
        )


def _shards(app: Laneway, stored: dict[str, int]) -> Findings:
    """Declared shard counts that are not the stored ones: those in the broker are the truth."""
    for queue, shards in stored.items():
        task = app.registry.collector_of(queue)
        if task is not None and task.options.shards != shards:
            yield Finding(
                "note",
                f"The task {task.name} declares {count(task.options.shards, 'shard')} and its queue {queue} has "
                f"{shards}, which is what counts; change it with laneway reshard {queue} {task.options.shards}, or "
                "declare what it has.",
            )


def _strangers(app: Laneway, broker: Broker, queue: str) -> Findings:
    """Jobs for tasks that the app does not have: they can only fail."""
    try:
        jobs = broker.listing(queue, "queued", limit=SAMPLE).jobs
    except BrokerAwayError:
        raise
    except BrokerError:
        return  # it does not show what is queued
    if app.registry.listener_of(queue):
        return  # what it holds are values, whatever they look like
    names = {name for job in jobs for name in task_names(job) if name and app.registry.find(name) is None}
    for name in sorted(names):
        yield Finding(
            "problem",
            f"The queue {queue} holds jobs for a task {name!r}, which this app does not have; declare it, or give its "
            "successor that name as an alias.",
        )
    if any(job.kind is Kind.COLLECTING for job in jobs) and app.registry.collector_of(queue) is None:
        yield Finding(
            "problem",
            f"The queue {queue} holds collecting jobs, and this app has no collecting task for it; declare one with "
            f"@app.collect(queue={queue!r}).",
        )
