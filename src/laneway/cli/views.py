"""A job as the command line shows it. Arguments stay out of it unless they are asked for.

The task's name is read from the ticket, and nothing else of the ticket is: whatever a body holds, it cannot get
into a table, a JSON document or an error from here.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec

from ..job import JobView
from .output import Column, first_line
from .times import absolute, relative


class _Name(msgspec.Struct):
    name: str = msgspec.field(name="_job_class")


_read_name = msgspec.json.Decoder(_Name).decode

COLUMNS = (
    Column("queue"),
    Column("key"),
    Column("task"),
    Column("status"),
    Column("due", right=True),
    Column("attempt", right=True),
    Column("retry_count", right=True),
    Column("error", cut=True),
)
DEAD_COLUMNS = (
    Column("queue"),
    Column("key"),
    Column("task"),
    Column("buried", right=True),
    Column("attempt", right=True),
    Column("error", cut=True),
)


def task_of(job: JobView) -> str | None:
    """The name of the job's task; None for a body that is no ticket."""
    try:
        return _read_name(job.payloads[0].body).name
    except (IndexError, msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None


def row(job: JobView) -> tuple[object, ...]:
    """A job's line under COLUMNS."""
    due = relative(job.perform_at, time.time())
    return (
        job.queue,
        job.key,
        task_of(job),
        job.status,
        due,
        job.attempt,
        job.retry_count,
        first_line(job.error),
    )


def dead_row(job: JobView) -> tuple[object, ...]:
    """A dead job's line under DEAD_COLUMNS."""
    buried = relative(job.updated_at or 0.0, time.time())
    return (job.queue, job.key, task_of(job), buried, job.attempt, first_line(job.error))


def document(job: JobView, *, full_error: bool = False, body: bool = False) -> dict[str, Any]:
    """A job as JSON: the fields of JobView with the task's name, and the payloads only when asked for."""
    fields: dict[str, Any] = {"queue": job.queue, "key": job.key, "task": task_of(job)}
    fields |= {name: value for name, value in msgspec.structs.asdict(job).items() if name != "payloads"}
    if not full_error and job.error is not None:
        fields["error"] = first_line(job.error)
    if body:
        fields["payloads"] = [{"body": payload.body, "score": payload.score} for payload in job.payloads]
    return fields


def fields(job: JobView, *, body: bool) -> dict[str, object]:
    """A job in full, name by name, as `show` prints it."""
    now = time.time()
    shown: dict[str, object] = {
        "key": job.key,
        "queue": f"{job.queue}, shard {job.shard}",
        "task": task_of(job),
        "status": job.status if job.worker is None else f"{job.status} on {job.worker}",
        "due": f"{absolute(job.perform_at)} ({relative(job.perform_at, now)})",
        "attempt": job.attempt,
        "retry_count": job.retry_count,
    }
    if job.deaths:
        shown["deaths"] = job.deaths
    if job.updated_at is not None:
        shown["buried"] = f"{absolute(job.updated_at)} ({relative(job.updated_at, now)})"
    shown["error"] = job.error
    if body:
        shown["body"] = "\n".join(payload.body for payload in job.payloads)
    return shown
