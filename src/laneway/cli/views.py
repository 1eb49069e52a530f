"""A job as the command line shows it. Arguments stay out of it unless they are asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ..jobs.data import Kind, Payload
from .output import Column, first_line
from .reading import Seen
from .times import absolute, relative

Cell = Callable[[Seen], object]

_FIRST: tuple[tuple[Column, Cell], ...] = (
    (Column("queue"), lambda seen: seen.job.queue),
    (Column("key"), lambda seen: seen.job.key),
    (Column("task"), lambda seen: seen.task),
)
_PAYLOADS: tuple[Column, Cell] = (Column("payloads", right=True), lambda seen: f"{seen.job.size:,}")
_ATTEMPT: tuple[Column, Cell] = (Column("attempt", right=True), lambda seen: seen.job.attempt)
_ERROR: tuple[Column, Cell] = (Column("error", cut=True), lambda seen: first_line(seen.error))


def job_table(jobs: Sequence[Seen], *, dead: bool) -> tuple[list[Column], list[list[object]]]:
    """Columns and rows for jobs, dead or not. How many payloads each has is shown where it need not be 1."""
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


def document(seen: Seen, *, full_error: bool = False, body: bool = False) -> dict[str, Any]:
    """A job as JSON: the fields of JobView with the task's name, and the payloads only when asked for."""
    job = seen.job
    fields: dict[str, Any] = {"queue": job.queue, "key": job.key, "task": seen.task, "kind": kind_of(seen)}
    for name, value in msgspec.structs.asdict(job).items():
        if name != "payloads":
            fields.setdefault(name, value)
    fields["error"] = seen.error if full_error or seen.error is None else first_line(seen.error)
    if body:
        fields["payloads"] = [_payload(job.kind, payload) for payload in job.payloads]
    return fields


def kind_of(seen: Seen) -> str:
    """plain, keyed or collecting."""
    return seen.job.kind.name.lower()


def _payload(kind: Kind, payload: Payload) -> dict[str, Any]:
    shown: dict[str, Any] = {"body": payload.body, "score": payload.score}
    if kind is Kind.KEYED:
        shown |= {"id": payload.identity, "attempt": payload.attempt, "deaths": payload.deaths}
    return shown


def fields(seen: Seen, *, body: bool) -> dict[str, object]:
    """A job in full, name by name, as `show` prints it."""
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


def _status(seen: Seen) -> str:
    if seen.job.worker is not None:
        return f"{seen.job.status} on {seen.job.worker}"
    return f"{seen.job.status}, set aside until the run has ended" if seen.aside else seen.job.status


def _bodies(seen: Seen) -> list[str]:
    """A line for each payload at hand: what orders it, and itself."""
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
