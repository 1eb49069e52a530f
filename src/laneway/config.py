"""Names, URLs and options: what they may be, and the sentence for each that is not.

`Options` classes are frozen; their `validate()` returns every problem at once.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import parse_qsl

from .delays import seconds
from .errors import ConfigError, EnqueueError
from .job import Kind, Quiet
from .retry import DEFAULT_MAX_RETRY_COUNT, KEYED_MAX_RETRY_COUNT, RetryIn, default_retry_in
from .shards import DEFAULT_SHARDS, MAX_SHARDS

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from .broker import Broker
    from .job import JobView

DEFAULT_QUEUE = "default"
DEFAULT_URL = "sqlite:///laneway.db"
#: Where the URL comes from when none is given, in this order.
URL_VARIABLES = ("LANEWAY_URL", "SQS_QUEUE_URL", "REDIS_URL")

#: The most payloads of a key that a claim may hold.
MOST_PAYLOADS = 100_000

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
    max_payloads: int | None = 1_000
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
    def quiet(self) -> Quiet | None:
        """How a key waits for quiet, as the broker takes it."""
        if self.grace is None:
            return None
        max_wait_s = None if self.max_wait is None else seconds(self.max_wait, "max_wait")
        return Quiet(seconds(self.grace, "grace"), max_wait_s, self.max_size)


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How a worker process runs."""

    #: Jobs running at once, sync and async together.
    concurrency: int = 5
    #: Processes that a supervisor starts and looks after. A worker of its own, in a program's threads, is always one.
    processes: int = 1
    #: The queues to serve; None means those of the app's tasks.
    queues: Sequence[str] | None = None
    #: End when nothing is due and nothing runs.
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
    #: Chooses among the shards of a queue, instead of the app's; see `laneway.worker.schedulers`.
    scheduler: Callable[[str, Mapping[int, float]], Sequence[int]] | None = None
    #: Chooses the shards of a queue that this process serves, instead of the app's; see `laneway.worker.splitters`.
    splitter: Callable[[str, int], Iterable[int]] | None = None

    def validate(self) -> list[str]:
        """Every problem, a sentence each."""
        problems = []
        if (
            isinstance(self.concurrency, bool)
            or not isinstance(self.concurrency, int)
            or not (1 <= self.concurrency <= 10_000)
        ):
            problems.append(f"concurrency must be a whole number from 1 to 10000, not {self.concurrency!r}.")
        if isinstance(self.queues, str):
            problems.append(f"queues must be a list of names, not the text {self.queues!r}.")
        else:
            problems += [problem for queue in self.queues or () if (problem := name_problem("queue", queue))]
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


def resolve_url(url: str | None, environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """The broker's URL, and where it came from."""
    if url:
        return url, "the url given"
    for variable in URL_VARIABLES:
        if environ.get(variable):
            return environ[variable], variable
    return DEFAULT_URL, "the default"


@dataclass(frozen=True, slots=True)
class Url:
    """A broker URL in its parts."""

    scheme: str
    #: Whatever stands between the scheme and the question mark; a password may be in it.
    rest: str = field(repr=False)
    options: Mapping[str, str]
    #: Options that stand in it more than once.
    repeated: Sequence[str] = ()

    @classmethod
    def parse(cls, text: str) -> Url:
        scheme, colon, rest = text.partition(":")
        scheme = scheme.lower()
        if scheme not in ("memory", "sqlite", "sqlite3") and _PLACE.fullmatch(text):
            raise ConfigError(
                f"{text!r} is a host and a port, and no broker URL; give redis://{text} for Redis or Valkey, or one "
                f"such as {DEFAULT_URL}."
            )
        if not colon or not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
            raise ConfigError(
                f"{without_secrets(text)!r} is not a broker URL; give one such as {DEFAULT_URL}, redis://host:6379/0 "
                "or memory:."
            )
        rest, _, query = rest.partition("?")
        options = parse_qsl(query, keep_blank_values=True)
        names = [name for name, _ in options]
        return cls(scheme, rest, dict(options), [name for name in dict.fromkeys(names) if names.count(name) > 1])

    def take(self, known: Sequence[str]) -> dict[str, str]:
        """The options, if all of them are known."""
        if unknown := sorted(set(self.options) - set(known)):
            raise ConfigError(
                f"The {self.scheme} broker has no option {unknown[0]!r}; it knows {', '.join(known) or 'none'}."
            )
        if self.repeated:
            raise ConfigError(f"The {self.scheme} URL has the option {self.repeated[0]} more than once; leave one.")
        return dict(self.options)


#: A host and a port without a scheme before them.
_PLACE = re.compile(r"[A-Za-z0-9_.-]+:[0-9]{1,5}(?:/[0-9]*)?")


def without_secrets(url: str) -> str:
    """A URL as it may be printed: without user, password and options, also if it has been mistyped."""
    scheme, slashes, _ = url.partition("://")
    if scheme.lower() in ("sqlite", "sqlite3"):  # what looks like a user is a part of a path
        return url.partition("?")[0]
    # To the last @: a password that was not quoted may hold any of / ? # and @ itself.
    before, at, host = url.rpartition("@")
    if not at and _SQS.match(url):  # a key and its secret that somebody has put into it
        return "sqs://…"
    if not at:
        return url.partition("?")[0]
    known = _SCHEME.match(before)
    shown = f"{scheme}://" if slashes and "@" not in scheme else known[0] if known else ""
    return f"{shown}…@{host.partition('?')[0]}"


#: An sqs: URL with more in it than the name of a queue.
_SQS = re.compile(r"sqs:(?!(?://)?[\w-]*(?:\.fifo)?/?(?:\?|$))", re.IGNORECASE)

#: What a mistyped URL begins with, as far as it cannot be a secret.
_SCHEME = re.compile(r"(?:(?:redis|valkey)s?(?:\+\w+)?|unix|sqs)?")


def _memory(url: Url) -> Broker:
    from .brokers.memory import MemoryBroker

    return MemoryBroker.from_url(url)


def _sqlite(url: Url) -> Broker:
    from .brokers.sqlite import SQLiteBroker

    return SQLiteBroker.from_url(url)


def _redis(url: Url) -> Broker:
    try:
        from .brokers.redis import RedisBroker
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "redis":  # redis-py's name
            raise
        raise ConfigError(f"{url.scheme}: URLs need redis-py; pip install 'laneway[redis]'.") from None
    return RedisBroker.from_url(url)


def _aws(url: Url) -> Broker:
    try:
        from .brokers.aws import AWSBroker
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("boto3", "botocore"):
            raise
        raise ConfigError(f"{url.scheme}: URLs need boto3; pip install 'laneway[aws]'.") from None
    return AWSBroker.from_url(url)


def _aws_settings(url: Url) -> None:
    from .brokers.aws.urls import Settings  # without boto3, which whoever only declares tasks may not have

    Settings.from_url(url)


_BROKERS: dict[str, Callable[[Url], Broker]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "sqlite3": _sqlite,
    **dict.fromkeys(("redis", "rediss", "redis+cluster", "rediss+cluster", "redis+unix", "unix"), _redis),
    **dict.fromkeys(("valkey", "valkeys", "valkey+cluster", "valkeys+cluster", "valkey+unix"), _redis),
    **dict.fromkeys(("sqs", "http", "https"), _aws),
}


def check_url(text: str) -> None:
    """See that a URL can be read, and that what it says is possible. Nothing is opened; a stranger's is left to him."""
    url = Url.parse(text)
    if url.scheme not in _BROKERS:
        _entry_points(url.scheme, "the url given")
    elif _BROKERS[url.scheme] is _redis:
        from .brokers.redis.urls import Settings  # without redis-py, which whoever only declares tasks may not have

        Settings.from_url(url)
    elif _BROKERS[url.scheme] is _aws:
        _aws_settings(url)
    else:
        _BROKERS[url.scheme](url)


def open_broker(text: str, source: str = "the url given") -> Broker:
    """Make the broker for a URL; strangers' schemes come by the entry point group `laneway.brokers`."""
    url = Url.parse(text)
    if url.scheme in _BROKERS:
        return _BROKERS[url.scheme](url)
    *_, entry = _entry_points(url.scheme, source)
    try:
        make = entry.load()
    except Exception as error:
        raise ConfigError(
            f"The broker for {url.scheme!r} URLs ({source}) cannot be loaded from {entry.value}: {error}"
        ) from error
    broker: Broker = make(url)
    return broker


def _entry_points(scheme: str, source: str) -> Iterable[EntryPoint]:
    """What other packages bring for URLs of a scheme; at least one."""
    from importlib import metadata  # a third of what `import laneway` would cost, and rarely needed

    found = metadata.entry_points(group="laneway.brokers", name=scheme)
    if not found:
        raise ConfigError(
            f"No broker for {scheme!r} URLs is installed ({source}); set LANEWAY_URL to one of "
            f"{', '.join(f'{known}:' for known in _BROKERS)} or install the package that brings it."
        )
    return found
