"""Names and options of tasks, collecting tasks and workers, with a sentence for each wrong value.

`Options` classes are frozen. Their `validate()` returns every problem at once. URLs are in `urls.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, get_args

from .errors import ConfigError, EnqueueError
from .jobs.data import Debounce, Kind
from .jobs.delay import seconds
from .jobs.merge import MAX_PAYLOADS
from .jobs.settlement import DEFAULT_MAX_RETRY_COUNT, KEYED_MAX_RETRY_COUNT, RetryIn, default_retry_in
from .jobs.shards import DEFAULT_SHARDS, MAX_SHARDS

if TYPE_CHECKING:
    from .jobs.data import JobView

DEFAULT_QUEUE = "default"

#: The most payloads of a key that a claim may hold.
MOST_PAYLOADS = 100_000
#: Of one worker process.
MAX_CONCURRENCY = 10_000

#: How a task's runs are kept apart from the worker's process.
Isolation = Literal["process", "fresh"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")


def name_problem(what: str, name: object) -> str | None:
    """A sentence, if `name` cannot be the name of a queue or an event."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return None
    return f"{what} must be 1 to 80 letters, digits, '_' or '-', not {name!r}."


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """How a task is declared."""

    #: The queue of its jobs; None leaves it open: `default`, or the queue of the job that enqueues it.
    queue: str | None = None
    #: More names under which stored tickets find it.
    aliases: tuple[str, ...] = ()
    #: A job runs once, and then this many times more while it fails. None: as many as its kind has, see `retries`.
    max_retry_count: int | None = None
    #: Seconds before retry n, counted from 0.
    retry_in: RetryIn = default_retry_in
    #: Exceptions that are never retried: the job goes straight to the morgue.
    bury_on: tuple[type[Exception], ...] = ()
    #: Called with the jobs just buried, after that is stored.
    retries_exhausted: Callable[[list[JobView]], object] | None = None
    #: The calls, or payloads, of a key in one claim. None: as many as the broker thinks right.
    max_payloads: int | None = None
    #: Seconds that a run may take. An async task is cancelled then; a sync one runs in a process that is ended.
    time_limit: float | timedelta | None = None
    #: "process": runs in another process, one of a few that are used again. "fresh": in one of its own each time.
    isolation: Isolation | None = None

    def retries(self, kind: Kind) -> int:
        """How often a failed job of this kind is run again."""
        if self.max_retry_count is not None:
            return self.max_retry_count
        return KEYED_MAX_RETRY_COUNT if kind is Kind.KEYED else DEFAULT_MAX_RETRY_COUNT

    @property
    def limit_s(self) -> float | None:
        """The time limit in seconds."""
        return None if self.time_limit is None else seconds(self.time_limit, "time_limit")

    def isolated(self, is_async: bool) -> Isolation | None:
        """How its runs are kept apart: the limit of what cannot be cancelled needs a process that can be ended."""
        return self.isolation or (None if self.time_limit is None or is_async else "process")

    def validate(self) -> list[str]:
        """Every problem, a sentence each."""
        problems = []
        if self.queue is not None and (problem := name_problem("queue", self.queue)):
            problems.append(problem)
        if self.max_retry_count is not None and not _whole(self.max_retry_count, 0):
            problems.append(f"max_retry_count must be a whole number from 0 on, not {self.max_retry_count!r}.")
        if self.max_payloads is not None and not _whole(self.max_payloads, 1, MOST_PAYLOADS):
            problems.append(
                f"max_payloads must be a whole number from 1 to {MOST_PAYLOADS}, not {self.max_payloads!r}."
            )
        if not callable(self.retry_in):
            problems.append(f"retry_in must be a function of the retry's number, not {self.retry_in!r}.")
        if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in self.bury_on):
            problems.append(f"bury_on must be a list of exception types, not {self.bury_on!r}.")
        if self.retries_exhausted is not None and not callable(self.retries_exhausted):
            problems.append(f"retries_exhausted must be a function, not {self.retries_exhausted!r}.")
        if self.time_limit is not None and not (_duration(self.time_limit) and self.limit_s):
            problems.append(
                f"time_limit must be more than 0 seconds or a timedelta, 100 years at most, not {self.time_limit!r}."
            )
        if self.isolation not in (None, *get_args(Isolation)):
            problems.append(f"isolation must be 'process', 'fresh' or None, not {self.isolation!r}.")
        return problems


@dataclass(frozen=True, slots=True)
class CollectOptions(TaskOptions):
    """How a collecting task is declared."""

    #: The shards that its queue is made with.
    shards: int = DEFAULT_SHARDS
    #: The keys that a run is handed at most.
    batch_size: int = 1
    max_payloads: int | None = MAX_PAYLOADS[Kind.COLLECTING]
    #: Seconds without another payload before a key is due; None does not wait.
    grace: float | timedelta | None = None
    #: The most that a key's first payload waits so.
    max_wait: float | timedelta | None = None
    #: Payloads with which a key is due at once.
    max_size: int | None = None
    #: The key of a payload, and its score: for those enqueued without.
    key: Callable[[Any], object] | None = None
    score: Callable[[Any], float] | None = None

    def validate(self) -> list[str]:
        """Every problem, a sentence each."""
        problems = TaskOptions.validate(self)
        if not _whole(self.shards, 1) or self.shards > MAX_SHARDS:
            problems.append(f"shards must be a whole number from 1 to {MAX_SHARDS}, not {self.shards!r}.")
        if not _whole(self.batch_size, 1):
            problems.append(f"batch_size must be a whole number from 1 on, not {self.batch_size!r}.")
        if self.max_payloads is None:
            problems.append(f"max_payloads must be a whole number from 1 to {MOST_PAYLOADS}, not None.")
        for what, time in (("grace", self.grace), ("max_wait", self.max_wait)):
            if time is not None and not _duration(time):
                problems.append(f"{what} must be 0 or more seconds or a timedelta, 100 years at most, not {time!r}.")
        if self.max_size is not None and not _whole(self.max_size, 1):
            problems.append(f"max_size must be a whole number from 1 on, not {self.max_size!r}.")
        for what, given in (("max_wait", self.max_wait), ("max_size", self.max_size)):
            if given is not None and self.grace is None:
                problems.append(f"{what} ends a wait for quiet, and there is none without grace; give grace too.")
        for what, function in (("key", self.key), ("score", self.score)):
            if function is not None and not callable(function):
                problems.append(f"{what} must be a function of a payload, not {function!r}.")
        return problems

    @property
    def quiet(self) -> Debounce | None:
        """How a key waits for quiet, as the broker takes it."""
        if self.grace is None:
            return None
        max_wait_s = None if self.max_wait is None else seconds(self.max_wait, "max_wait")
        return Debounce(seconds(self.grace, "grace"), max_wait_s, self.max_size)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How a worker process runs."""

    #: Jobs running at once, sync and async together.
    concurrency: int = 5
    #: Processes that a supervisor starts and looks after. A worker of its own, in a program's threads, is always one.
    processes: int = 1
    #: The queues to serve; None means those of the app's tasks.
    queues: Sequence[str] | None = None
    #: The names of the listeners to serve, if not all, and of those not to; tasks are served in any case.
    include: Sequence[str] = ()
    exclude: Sequence[str] = ()
    #: Whether subscriptions of those that it serves are written; not so to drain a queue that was unsubscribed.
    subscribe: bool = True
    #: End when no job that the worker may claim is due or running.
    until_empty: bool = False
    #: Seconds that running jobs get to finish when the worker is told to stop.
    shutdown_timeout_s: float = 25.0
    #: Seconds after which a silent worker counts as dead.
    lease_s: float = 30.0
    #: A process is replaced, without haste, after so many jobs, at this age, or when it has grown to so many bytes;
    #: each of them draws its own limit, up to a fifth more, so that not all are replaced at once.
    max_jobs: int | None = None
    max_age_s: float | None = None
    max_memory: int | None = None
    #: Seconds that a process may be silent, because code of a job does not let go of the interpreter, before the
    #: supervisor ends it.
    hang_limit_s: float = 300.0
    #: Jobs that a process for isolated tasks runs before another takes its place.
    isolated_jobs: int = 100
    #: Runs that take longer than this many seconds are logged.
    slow_s: float = 10.0
    #: Log every run, not only failures and slow ones.
    verbose: bool = False
    #: Chooses among the shards of a queue, instead of the app's; see `laneway.worker.fetch.shards`.
    scheduler: Callable[[str, Mapping[int, float]], Sequence[int]] | None = None
    #: Chooses which shards of a queue this process serves, instead of the app's; see `laneway.worker.fetch.shards`.
    splitter: Callable[[str, int], Iterable[int]] | None = None

    def validate(self) -> list[str]:
        """Every problem, a sentence each."""
        problems = []
        if (
            isinstance(self.concurrency, bool)
            or not isinstance(self.concurrency, int)
            or not (1 <= self.concurrency <= MAX_CONCURRENCY)
        ):
            problems.append(
                f"concurrency must be a whole number from 1 to {MAX_CONCURRENCY}, not {self.concurrency!r}."
            )
        if isinstance(self.queues, str):
            problems.append(f"queues must be a list of names, not the text {self.queues!r}.")
        else:
            problems += [problem for queue in self.queues or () if (problem := name_problem("queue", queue))]
        for what, names in (("include", self.include), ("exclude", self.exclude)):
            if isinstance(names, str):
                problems.append(f"{what} must be a list of names of listeners, not the text {names!r}.")
        if not _at_least(self.shutdown_timeout_s, 0):
            problems.append(f"shutdown_timeout_s must be 0 or more seconds, not {self.shutdown_timeout_s!r}.")
        if not _at_least(self.lease_s, 0.1):
            problems.append(f"lease_s must be at least 0.1 seconds, not {self.lease_s!r}.")
        if not _whole(self.processes, 1, 1_000):
            problems.append(f"processes must be a whole number from 1 to 1000, not {self.processes!r}.")
        for what, number in (("max_jobs", self.max_jobs), ("max_memory", self.max_memory)):
            if number is not None and not _whole(number, 1):
                problems.append(f"{what} must be a whole number from 1 on, not {number!r}.")
        if self.max_age_s is not None and not _at_least(self.max_age_s, 1):
            problems.append(f"max_age_s must be at least 1 second, not {self.max_age_s!r}.")
        if not _at_least(self.hang_limit_s, 1):
            problems.append(f"hang_limit_s must be at least 1 second, not {self.hang_limit_s!r}.")
        if not _whole(self.isolated_jobs, 1):
            problems.append(f"isolated_jobs must be a whole number from 1 on, not {self.isolated_jobs!r}.")
        if not _at_least(self.slow_s, 0):
            problems.append(f"slow_s must be 0 or more seconds, not {self.slow_s!r}.")
        for what, function in (("scheduler", self.scheduler), ("splitter", self.splitter)):
            if function is not None and not callable(function):
                problems.append(f"{what} must be a function, not {function!r}.")
        return problems


@dataclass(frozen=True, slots=True)
class StatusPorts:
    """Where a supervisor shows over HTTP how it is; None: not at all."""

    health: int | None = None
    metrics: int | None = None
    host: str = "127.0.0.1"


def _whole(value: object, least: int, most: float = float("inf")) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _duration(value: Any) -> bool:
    try:
        seconds(value, "it")
    except EnqueueError:
        return False
    return (value.total_seconds() if isinstance(value, timedelta) else float(value)) >= 0


def _at_least(value: object, least: float) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= least


def raise_problems(problems: Sequence[str], error: type[Exception] = ConfigError, about: str = "") -> None:
    """Raise all problems as one error, if there are any."""
    if problems:
        raise error(" ".join(f"{about}{problem}" for problem in problems))
