"""Lists jobs and shows single jobs, for `jobs`, `delayed` and `morgue`. Reads only.

`JobReader` uses the app, if there is one, to name the task that owns a queue and to make errors readable; without an
app a job is shown as stored. From a ticket only the task's name is decoded. Payloads hold the job's arguments, so
they are shown only with `--body`, and never in a listing.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click
import msgspec

from ..app import Laneway
from ..broker import Broker, Listing, Order
from ..brokers.page_cursor import check_order
from ..errors import BrokerError, BrokerRefusedError, ConfigError
from ..events.event import is_copy
from ..jobs.data import JobView, Kind, Payload
from .output import Column, clean, first_line, patience, show_fields, show_json, show_table
from .target import known_queues, load_imports, open_with_app
from .times import absolute, read_time, relative


class _Name(msgspec.Struct):
    name: str = msgspec.field(name="_job_class")


_read_name = msgspec.json.Decoder(_Name).decode


@dataclass(frozen=True, slots=True)
class DecodedJob:
    """A job with the name of its task and its readable error."""

    job: JobView
    #: None if the task is not known: a body that is no ticket, or a collecting job or an event without its app.
    task: str | None
    error: str | None
    #: Whether the job is set aside while a job with the same key runs.
    aside: bool = False


def task_names(job: JobView) -> list[str | None]:
    """The task of each payload in the view, from its ticket; None for a body that is no ticket.

    Collected values and the values of events name no task, even if they look like tickets.
    """
    if job.kind is Kind.COLLECTING or (job.kind is Kind.PLAIN and is_copy(job.key, job.queue)):
        return []
    return [_task_name(payload.body) for payload in job.payloads]


def _task_name(body: str) -> str | None:
    try:
        return _read_name(body).name
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None


class JobReader:
    """Decodes jobs, with the help of their app if there is one."""

    def __init__(self, app: Laneway | None) -> None:
        self._app = app
        self._loaded = False

    def read(self, jobs: list[JobView]) -> list[DecodedJob]:
        """The decoded jobs, in the same order. A queued job counts as set aside if `jobs` has its key running too."""
        running = {(job.queue, job.key) for job in jobs if job.status == "running"}
        return [
            DecodedJob(
                job, self._task(job), self._error(job.error), _is_queued(job) and (job.queue, job.key) in running
            )
            for job in jobs
        ]

    def _task(self, job: JobView) -> str | None:
        owner = self._owner(job.queue)
        return owner if owner or job.kind is Kind.COLLECTING else next(iter(task_names(job)), None)

    def _owner(self, queue: str) -> str | None:
        """The collecting task or the listener that a queue belongs to. The bodies in the queue do not name it."""
        if self._app is None:
            return None
        if not self._loaded:
            self._loaded = True
            with contextlib.suppress(ConfigError):  # some tasks are better than none; `check` reports the error
                load_imports(self._app)
        task = self._app.registry.owner_of(queue)
        return None if task is None else task.name

    def _error(self, error: str | None) -> str | None:
        if error is None or self._app is None:
            return error
        try:
            return str(self._app.load_error(error))
        except Exception:
            return error  # a hook of the user has failed; the stored text is better than nothing


def _is_queued(job: JobView) -> bool:
    return job.status in ("queued", "delayed")


Cell = Callable[[DecodedJob], object]

_FIRST: tuple[tuple[Column, Cell], ...] = (
    (Column("queue"), lambda seen: seen.job.queue),
    (Column("key"), lambda seen: seen.job.key),
    (Column("task"), lambda seen: seen.task),
)
_PAYLOADS: tuple[Column, Cell] = (Column("payloads", right=True), lambda seen: f"{seen.job.size:,}")
_ATTEMPT: tuple[Column, Cell] = (Column("attempt", right=True), lambda seen: seen.job.attempt)
_ERROR: tuple[Column, Cell] = (Column("error", cut=True), lambda seen: first_line(seen.error))


def job_table(jobs: Sequence[DecodedJob], *, dead: bool) -> tuple[list[Column], list[list[object]]]:
    """Columns and rows for jobs, dead or not. The number of payloads is a column unless all jobs are plain."""
    now = time.time()
    columns = list(_FIRST)
    if any(seen.job.kind is not Kind.PLAIN for seen in jobs):
        columns.append(_PAYLOADS)
    if dead:
        columns.append((Column("buried", right=True), lambda seen: relative(seen.job.updated_at or 0.0, now)))
        columns.append(_ATTEMPT)
    else:
        columns.append((Column("status"), lambda seen: seen.job.status))
        columns.append((Column("due", right=True), lambda seen: relative(seen.job.perform_at, now)))
        columns.append(_ATTEMPT)
        columns.append((Column("retry_count", right=True), lambda seen: seen.job.retry_count))
    columns.append(_ERROR)
    return [column for column, _ in columns], [[cell(seen) for _, cell in columns] for seen in jobs]


def document(seen: DecodedJob, *, full_error: bool = False, body: bool = False) -> dict[str, Any]:
    """A job as JSON: the fields of JobView with the task's name, and the payloads only with `body`."""
    job = seen.job
    fields: dict[str, Any] = {"queue": job.queue, "key": job.key, "task": seen.task, "kind": kind_of(seen)}
    for name, value in msgspec.structs.asdict(job).items():
        if name != "payloads":
            fields.setdefault(name, value)
    fields["error"] = seen.error if full_error or seen.error is None else first_line(seen.error)
    if body:
        fields["payloads"] = [_payload(job.kind, payload) for payload in job.payloads]
    return fields


def kind_of(seen: DecodedJob) -> str:
    """The kind of a job as a word: plain, keyed or collecting."""
    return seen.job.kind.name.lower()


def _payload(kind: Kind, payload: Payload) -> dict[str, Any]:
    shown: dict[str, Any] = {"body": payload.body, "score": payload.score}
    if kind is Kind.KEYED:
        shown |= {"id": payload.identity, "attempt": payload.attempt, "deaths": payload.deaths}
    return shown


def fields(seen: DecodedJob, *, body: bool) -> dict[str, object]:
    """All fields of a job by name, as `show` prints them."""
    now = time.time()
    job = seen.job
    shown: dict[str, object] = {"key": job.key, "queue": f"{job.queue}, shard {job.shard}", "task": seen.task}
    if job.kind is not Kind.PLAIN:
        shown["kind"] = kind_of(seen)
        shown["payloads"] = f"{job.size:,}"
    shown["status"] = _status(seen)
    shown["due"] = f"{absolute(job.perform_at)} ({relative(job.perform_at, now)})"
    shown["attempt"] = job.attempt
    shown["retry_count"] = job.retry_count
    if job.deaths:
        shown["deaths"] = job.deaths
    if job.updated_at is not None:
        shown["buried"] = f"{absolute(job.updated_at)} ({relative(job.updated_at, now)})"
    shown["error"] = seen.error
    if body:
        shown["body"] = "\n".join(_bodies(seen))
    return shown


def _status(seen: DecodedJob) -> str:
    if seen.job.worker is not None:
        return f"{seen.job.status} on {seen.job.worker}"
    return f"{seen.job.status}, set aside until the run has ended" if seen.aside else seen.job.status


def _bodies(seen: DecodedJob) -> list[str]:
    """A line for each payload in the view: what the payload is ordered by, and its body."""
    job = seen.job
    if job.kind is Kind.PLAIN:
        return [payload.body for payload in job.payloads]
    if job.kind is Kind.KEYED:
        lines = [
            f"{payload.identity}  due {absolute(payload.score)}  "
            f"{f'deaths {payload.deaths}  ' if payload.deaths else ''}{payload.body}"
            for payload in job.payloads
        ]
    else:
        lines = [f"{payload.score!r}  {payload.body}" for payload in job.payloads]
    if (hidden := job.size - len(job.payloads)) > 0:
        lines.append(f"… and {hidden:,} more")
    return lines


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
    """Print a page of jobs of each queue, and the command for the next page."""
    if after is not None and queue is None:
        raise ConfigError("--after is a place in one queue; say which with --queue.")
    if after is not None and start is not None:
        raise ConfigError("Give --from or --after, not both: the place after a page is behind what it began with.")
    check_order(which, order)
    value = None if start is None else _starting_value(order, start)
    jobs: list[JobView] = []
    more: dict[str, str] = {}
    unseen: dict[str, BrokerError] = {}
    with open_with_app(target, url) as place, patience("Reading"):
        names = known_queues(place.broker, queue)
        for name in names:
            try:
                page = place.broker.inspect.listing(
                    name, which, order=order, reverse=reverse, start=value, after=after, limit=limit
                )
            except BrokerRefusedError as error:  # the broker may list one queue and not another
                unseen[name] = error
                continue
            jobs += page.jobs
            if page.after is not None:
                more[name] = page.after
        seen = JobReader(place.app).read(jobs)
    if unseen and len(unseen) == len(names):
        raise next(iter(unseen.values()))
    for sentence in dict.fromkeys(map(str, unseen.values())):
        click.echo(clean(sentence), err=True)
    if as_json:
        show_json({"which": which, "jobs": [document(job) for job in seen], "after": more})
        return
    if seen:
        show_table(*job_table(seen, dead=which == "dead"))
    else:
        click.echo("There are no more." if after else f"There are no {which} jobs{' from there on' if start else ''}.")
    for name, position in more.items():
        words = ["laneway", *command, *([target] if target else []), *(["--url", url] if url else [])]
        words += [*(["--by", order] if order else []), *(["--reverse"] if reverse else [])]
        words += ["--queue", name, "--limit", str(limit), "--after", position]
        click.echo(f"There may be more: {shlex.join(words)}", err=True)


def _starting_value(order: Order | None, text: str) -> float | str:
    """The value of `--from`, parsed according to the order of the listing."""
    if order == "key":
        return text
    if order == "retry_count":
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{text!r} is not a retry_count; give a whole number: -1 before any failure.") from None
    return read_time(text)


def find_jobs(broker: Broker, queue: str | None, key: str) -> list[JobView]:
    """The jobs of a key, in any queue or morgue; empty if there are none.

    Raises the broker's error if no job was found and the broker could not search every queue.
    """
    jobs: list[JobView] = []
    unseen: BrokerError | None = None
    for name in known_queues(broker, queue):
        try:
            jobs += broker.inspect.find(name, key)
        except BrokerRefusedError as error:
            unseen = unseen or error
    if unseen is not None and not jobs:
        raise unseen
    return jobs


def show_jobs(
    key: str, *, dead_only: bool, target: str | None, url: str | None, queue: str | None, body: bool, as_json: bool
) -> None:
    """Print everything about the jobs of a key: the running one, the queued one and the dead one."""
    with open_with_app(target, url) as place:
        found = [job for job in find_jobs(place.broker, queue, key) if job.status == "dead" or not dead_only]
        seen = JobReader(place.app).read(found)
    if not seen:
        raise ConfigError(not_found_text(key, "is in the morgue" if dead_only else "is queued, running or dead"))
    if as_json:
        show_json({"jobs": [document(job, full_error=True, body=body) for job in seen]})
        return
    for number, job in enumerate(seen):
        if number:
            click.echo()
        show_fields(fields(job, body=body))


def not_found_text(key: str, where: str) -> str:
    """The sentence for a key that has no such job."""
    return f"There is no job {key!r} that {where}; it may be done by now."
