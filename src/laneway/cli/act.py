"""Acts on jobs: on chosen keys, on all jobs of a queue, or on a queue's whole morgue.

A key that cannot be handled does not stop the rest: each such key gets a sentence, and the exit code is 2.
`act_on_all` and `MorgueBulkAction` go by the number of jobs at the beginning, so they end even if revived jobs are
buried again meanwhile. `MorgueBulkAction` also leaves alone jobs that were buried later. It can be interrupted
between two steps, and then no job is half done.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from threading import Event

import click
import msgspec

from ..broker import Broker, EmptyMorgueResult, Listing
from ..brokers.shared import PAGE
from ..errors import BrokerRefusedError, ConfigError
from ..jobs.data import JobView, Kind
from . import GAVE_UP, WRONG
from .listing import find_jobs, not_found_text
from .output import ProgressBar, clean, count, patience
from .target import known_queues


@dataclass(frozen=True, slots=True)
class JobCondition:
    """What a job must be for something to be done to it, and how that is said."""

    word: str
    clause: str
    holds: Callable[[JobView], bool]


def _is_queued(job: JobView) -> bool:
    return job.status in ("queued", "delayed")


QUEUED = JobCondition("queued", "is queued", _is_queued)
FAILED = JobCondition("failed", "has failed", lambda job: _is_queued(job) and job.retry_count >= 0)
DEAD = JobCondition("in the morgue", "is in the morgue", lambda job: job.status == "dead")


@dataclass(slots=True)
class JobSelection:
    """The jobs that some keys led to, without their payloads, and a sentence for every key that led to none."""

    fit: JobCondition
    jobs: list[JobView] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def payloads(self, job: JobView) -> int:
        """How many of a job's payloads are meant: of a keyed job that failed, the call that did."""
        return 1 if self.fit is FAILED and job.kind is Kind.KEYED else job.size

    def total(self, what: str = "") -> str:
        """`2 dead jobs`, or `2 dead jobs with 30 payloads` where they have more than one each."""
        return in_numbers(len(self.jobs), sum(map(self.payloads, self.jobs)), f"{what} job".lstrip())


def in_numbers(jobs: int, payloads: int, what: str = "job") -> str:
    """So many jobs; and so many payloads, where that is not the same."""
    return count(jobs, what) + (f" with {count(payloads, 'payload')}" if payloads > jobs else "")


def choose(
    broker: Broker, queue: str | None, keys: Sequence[str], fit: JobCondition, *, set_aside: bool = False
) -> JobSelection:
    """Find the jobs of keys. What is set aside beside a run counts as queued only where `set_aside` says so."""
    chosen = JobSelection(fit)
    with patience("Looking"):
        for key in dict.fromkeys(keys):
            try:
                jobs = find_jobs(broker, queue, key)
            except BrokerRefusedError as error:
                chosen.complaints.append(str(error))
                continue
            running = {job.queue for job in jobs if job.status == "running"}
            fitting = [
                job for job in jobs if fit.holds(job) and (set_aside or not _is_queued(job) or job.queue not in running)
            ]
            if len(fitting) == 1:
                chosen.jobs.append(msgspec.structs.replace(fitting[0], payloads=[]))
            elif fitting:
                queues = ", ".join(job.queue for job in fitting)
                chosen.complaints.append(f"The job {key!r} is in several queues ({queues}); say which with --queue.")
            elif jobs:
                chosen.complaints.append(f"The job {key!r} is {jobs[0].status}, not {fit.word}.")
            else:
                chosen.complaints.append(not_found_text(key, fit.clause))
    return chosen


def act_on(chosen: JobSelection, act: Callable[[JobView], object], *, done: str) -> None:
    """Do `act` to each of the chosen jobs, and say what became of them."""
    succeeded = payloads = 0
    complaints = chosen.complaints
    with ProgressBar(done, len(chosen.jobs)) as bar:
        for job in chosen.jobs:
            if act(job):
                succeeded += 1
                payloads += chosen.payloads(job)
            else:
                complaints.append(not_found_text(job.key, chosen.fit.clause))
            bar.advance(1)
    if succeeded:
        click.echo(f"{done} {in_numbers(succeeded, payloads)}.")
    for complaint in complaints:
        click.echo(clean(complaint), err=True)
    if complaints:
        raise click.exceptions.Exit(WRONG)


def counted(broker: Broker, queue: str | None, what: str) -> dict[str, int]:
    """How many jobs of a kind (a field of QueueStats) each queue has."""
    wanted = known_queues(broker, queue)
    return {stats.queue: getattr(stats, what) for stats in broker.inspect.stats() if stats.queue in wanted}


def act_on_all(
    broker: Broker, totals: dict[str, int], which: Listing, act: Callable[[str, list[str]], int], *, done: str
) -> None:
    """Do `act` to page after page of each queue's jobs: as many as `totals` says, oldest first.

    No more than that, because a job that is revived may be buried again before we are through.
    """
    succeeded = 0
    with ProgressBar(done, sum(totals.values())) as bar:
        for queue, left in totals.items():
            after = None
            while left > 0:
                page = broker.inspect.listing(queue, which, after=after, limit=min(PAGE, left))
                if page.jobs:
                    succeeded += act(queue, [job.key for job in page.jobs])
                bar.advance(len(page.jobs))
                left -= len(page.jobs)
                after = page.after
                if after is None:
                    break
    click.echo(f"{done} {count(succeeded, 'job')}.")


def check_keys_or_all(keys: Sequence[str], everything: bool, option: str = "--all") -> None:
    """Either keys or all of them: both or neither is a mistake."""
    if bool(keys) is everything:
        raise ConfigError(f"Give keys or {option}, not both." if everything else f"Give the keys of jobs, or {option}.")


_UNASKED = "This cannot be undone, and there is no terminal to ask at; say --yes if you mean it."


def confirm(question: str, yes: bool, *, unasked: str = _UNASKED) -> None:
    """Ask before something is destroyed; without anybody to ask, refuse with the sentence `unasked`."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(unasked)
    if not click.confirm(question, err=True):
        click.echo("Nothing was done.", err=True)
        raise click.exceptions.Exit(GAVE_UP)


def confirm_deletion(totals: dict[str, int], what: str, yes: bool) -> bool:
    """Ask before all jobs of a kind are deleted; False when there are none to delete."""
    if not sum(totals.values()):
        click.echo(f"There are no {what} jobs.")
        return False
    places = ", ".join(name for name, number in totals.items() if number)
    confirm(f"Delete {count(sum(totals.values()), f'{what} job')} of {places} for good?", yes)
    return True


#: A broker that counts about right may say 0 too early: so many are looked for in any case.
LEAST = 10


class MorgueBulkAction:
    """One run over the morgue of a queue. `done` is right also when an error has ended it."""

    def __init__(self, broker: Broker, queue: str, *, revive: bool, total: int, most: int | None) -> None:
        limit = total if broker.capabilities.has("exact_counts") else max(total, LEAST)
        if most is not None:
            limit = min(limit, most)
        self._total = total
        self._limit = limit
        self._expected = min(total, limit)
        self._steps = broker.operate.empty_morgue(queue, revive=revive, most=limit)
        #: The result, once it has ended.
        self._end: EmptyMorgueResult | None = None
        self.done = 0
        self.interrupted = False

    @property
    def unseen(self) -> int:
        """How many were counted when it began, and not seen, though it did not end because it was enough."""
        if self._end is None or self.done >= self._limit:
            return 0
        return max(0, self._total - self._end.seen)

    @property
    def ownerless(self) -> int:
        """How many were left because nothing says whose they are."""
        return 0 if self._end is None else self._end.ownerless

    @property
    def hidden_s(self) -> int:
        """Seconds for which dead jobs may be hidden."""
        return 0 if self._end is None else self._end.hidden_s

    def carry_out(self, what: str) -> None:
        """Go through it, unless Ctrl-C ends it early; `what` stands before the bar."""
        with _interruptions() as interrupted, ProgressBar(what, self._expected) as bar, closing(self._noted()) as steps:
            for count in steps:
                self.done += count
                bar.update(self.done, max(self._expected, self.done), what)
                if interrupted.is_set():
                    self.interrupted = True
                    return

    def _noted(self) -> Generator[int, None, None]:
        self._end = yield from self._steps


@contextmanager
def _interruptions() -> Iterator[Event]:
    """Note a Ctrl-C, for the end of the step that is under way; a second one does not wait for that."""
    interrupted = Event()

    def interrupt(number: int, frame: object) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
