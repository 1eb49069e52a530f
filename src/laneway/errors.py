"""Every error that Laneway raises, and the signals that a handler may raise.

    LanewayError
    ├── ConfigError          an option, a URL or a target is wrong
    ├── DeclarationError     a task is declared in a way that cannot work
    ├── EnqueueError         a job was refused; nothing was stored, or only a part of a list (see `unstored`)
    ├── TicketError          a stored body names no task of this app, or does not fit its task
    │   └── NotATicketError  a stored body is no ticket at all: its job is buried at once
    ├── NotInBatchError      a handler named a key that its batch does not have
    ├── TimeLimitError       a run took longer than its task may
    ├── BrokerError          the broker did not do it
    │   ├── BrokerAwayError     it did not answer; trying again may help
    │   └── BrokerRefusedError  it answered, and refused
    │       └── NoQueueError    it has no such queue; its other queues may exist
    ├── LeaseLost            the broker has declared this worker dead        (signal)
    ├── Retry                a handler asks to be run again later            (signal)
    └── Bury                 a handler sends its job straight to the morgue  (signal)

Messages are one sentence that says what is wrong and what to do. They never hold a job's arguments.

If only a part of a list was stored, `unstored` has the indexes of the items that were not (after a BrokerAwayError:
that may not have been), so that the caller can give them again. The broker counts in the list of jobs that it was
handed; `report_unstored_items` converts that to the list that the caller gave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import groupby, islice
from typing import TYPE_CHECKING

from .jobs.data import NewJob

if TYPE_CHECKING:
    from .tasks.task import AnyTask


def text_of(value: object) -> str:
    """The text of an exception or another value. It never raises, even if the value's own `__str__` does."""
    try:
        return "".join((str(value),))  # a subclass of str may override any method
    except BaseException as broken:
        return f"(its text cannot be shown: {type(broken).__name__})"


class LanewayError(Exception):
    """The base of every Laneway error."""

    #: After a call that stored a part of a list: the indexes, from 0, of the items that it did not store (with a
    #: BrokerAwayError: that it may not have stored). The caller can give them again. None: not known.
    unstored: list[int] | None = None


class ConfigError(LanewayError):
    """An option, a URL or a command line target is wrong."""


class DeclarationError(LanewayError):
    """A task is declared in a way that cannot work."""


class EnqueueError(LanewayError):
    """A job was refused. Nothing was stored, or a part of a list: then `unstored` says which items were not."""

    def __init__(self, message: str, *, place: tuple[str, str] | None = None) -> None:
        super().__init__(message)
        #: The queue and the key of the refused job, if the broker knows them.
        self.place = place


class TicketError(LanewayError):
    """A stored body does not describe a call of a task of this app."""

    def __init__(self, message: str, *, task: AnyTask | None = None) -> None:
        super().__init__(message)
        #: The task, if that much could be read: its options say how often to try again.
        self.task = task


class NotInBatchError(LanewayError, KeyError):
    """A handler named a key that its batch does not have."""

    __str__ = Exception.__str__  # a KeyError would show the sentence in quotes


class TimeLimitError(LanewayError):
    """A run took longer than its task's time_limit."""

    def __init__(self, limit_s: float) -> None:
        super().__init__(f"Its time is up: the task's time_limit is {limit_s:g} s.")
        self.limit_s = limit_s


class BrokerError(LanewayError):
    """The broker did not do what it was asked. It is always one of the two below."""


class BrokerAwayError(BrokerError):
    """The broker did not answer. The call may or may not have been carried out."""


class BrokerRefusedError(BrokerError):
    """The broker answered, and refused. Nothing was carried out."""


class NoQueueError(BrokerRefusedError):
    """The broker has no such queue, and does not make it by itself."""


class LeaseLost(LanewayError):
    """The broker has declared this worker dead. Other workers may hold its jobs now."""


class Retry(LanewayError):
    """Raise it in a handler to be run again `after` seconds; it counts as a failure."""

    def __init__(self, reason: str = "asked to be retried", *, after: float | timedelta | None = None) -> None:
        from .jobs.delay import seconds  # delays raises errors of this module

        super().__init__(reason)
        self.after_s = None if after is None else seconds(after, "Retry(after=…)")


class Bury(LanewayError):
    """Raise it in a handler to send its job straight to the morgue."""

    def __init__(self, reason: str = "asked to be buried") -> None:
        super().__init__(reason)


class NotATicketError(TicketError, Bury):
    """A stored body is no ticket at all. No deploy can mend it, so its job is buried at once."""


#: How many runs of indexes a sentence names.
_NAMED = 6


def item_numbers_text(places: Sequence[int]) -> str:
    """Ascending indexes of a list as a short text: `items 1, 4 and 10 to 24`."""
    # In a run of consecutive indexes, index minus position is constant.
    together = [[place for _, place in run] for _, run in groupby(enumerate(places), lambda each: each[1] - each[0])]
    shown = list(islice(together, _NAMED))
    words = [f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in shown]
    more = len(places) - sum(map(len, shown))
    if more:
        words.append(f"{more:,} more")
    text = words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    return f"{'item' if len(places) == 1 else 'items'} {text}"


def report_unstored_items(error: LanewayError, handed: Sequence[NewJob], items: Mapping[int, int]) -> None:
    """Convert the indexes of an error from the list of jobs that the broker got to the list that the caller gave.

    The two differ: an event may have several jobs, and a middleware may have removed some. `items` has the index of
    each job's item, by the job's `id()`.
    """
    if error.unstored is None:
        return
    jobs = (handed[number] for number in error.unstored)
    given = sorted({items[id(job)] for job in jobs if id(job) in items})
    if given != error.unstored:
        error.unstored = given
        if given:
            error.args = (f"{error} In the list that was given that is {item_numbers_text(given)}.",)
