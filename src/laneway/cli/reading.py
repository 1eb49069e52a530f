"""What an app knows of its jobs that their store does not: whom a queue belongs to, how an error reads.

Without an app a job is shown as it was stored. The task's name is read from the ticket, and nothing else of the
ticket is: whatever a body holds, it cannot get into a table, a JSON document or an error from here.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import msgspec

from ..app import Laneway
from ..errors import ConfigError
from ..events.event import is_copy
from ..jobs.data import JobView, Kind
from .target import load_imports


class _Name(msgspec.Struct):
    name: str = msgspec.field(name="_job_class")


_read_name = msgspec.json.Decoder(_Name).decode


@dataclass(frozen=True, slots=True)
class Seen:
    """A job, and what it means."""

    job: JobView
    #: None when nobody can say: a body that is no ticket, a collecting job or an event without its app.
    task: str | None
    error: str | None
    #: Beside the same key's job that runs.
    aside: bool = False


def task_names(job: JobView) -> list[str | None]:
    """The task of each payload at hand, by its ticket; None for a body that is none. Collected values and those of
    events name no task, whatever they look like."""
    if job.kind is Kind.COLLECTING or (job.kind is Kind.PLAIN and is_copy(job.key, job.queue)):
        return []
    return [_task_name(payload.body) for payload in job.payloads]


def _task_name(body: str) -> str | None:
    try:
        return _read_name(body).name
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None


class Reader:
    """Reads jobs with the help of their app, if there is one."""

    def __init__(self, app: Laneway | None) -> None:
        self._app = app
        self._loaded = False

    def read(self, jobs: list[JobView]) -> list[Seen]:
        """The jobs with what they mean; jobs of one key stand together."""
        running = {(job.queue, job.key) for job in jobs if job.status == "running"}
        return [
            Seen(job, self._task(job), self._error(job.error), _is_queued(job) and (job.queue, job.key) in running)
            for job in jobs
        ]

    def _task(self, job: JobView) -> str | None:
        owner = self._owner(job.queue)
        return owner if owner or job.kind is Kind.COLLECTING else next(iter(task_names(job)), None)

    def _owner(self, queue: str) -> str | None:
        """The collecting task or the listener that a queue belongs to: nothing in its bodies says so."""
        if self._app is None:
            return None
        if not self._loaded:
            self._loaded = True
            with contextlib.suppress(ConfigError):  # what could be loaded is better than nothing; `check` says more
                load_imports(self._app)
        task = self._app.registry.owner_of(queue)
        return None if task is None else task.name

    def _error(self, error: str | None) -> str | None:
        if error is None or self._app is None:
            return error
        try:
            return str(self._app.load_error(error))
        except Exception:
            return error  # a hook of the user's; what was stored is better than nothing


def _is_queued(job: JobView) -> bool:
    return job.status in ("queued", "delayed")
