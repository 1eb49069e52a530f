"""The optional features of a broker, and how the core asks for them.

Each feature is an attribute or a method that a broker may have. If a broker lacks it, the functions here return a
default that suits most brokers. Only `derives_ids` is asked for elsewhere, in `ids`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    from .app import Laneway
    from .broker import Broker


class Duty(Protocol):
    """Something that a broker has done again and again while a worker serves queues, in a thread of its own."""

    name: str

    def round(self) -> float:
        """Do it once. Returns the seconds until it is to be done again; an error is told, and it is tried again."""
        ...


@runtime_checkable
class UrgentDuty(Duty, Protocol):
    """A duty that may learn between two rounds that the next must be sooner than it said."""

    #: Whoever runs it puts here what it may call, from any thread: its next round then is within so many seconds.
    sooner: Callable[[float], None]


class SettleBatch(msgspec.Struct, frozen=True):
    """How settlements gather before a turn takes them along, for a broker that counts requests."""

    #: So many at least, unless the first of them has waited for so long. Claims are asked for as many at a time.
    count: int = 1
    seconds: float = 0.0


def duties_of(broker: Broker, queues: Collection[str]) -> Sequence[Duty]:
    """What a worker that serves these queues has to do for its broker; most have nothing to be done."""
    duties: Callable[[Collection[str]], Sequence[Duty]] | None = getattr(broker, "duties", None)
    return () if duties is None else duties(queues)


def gather_of(broker: Broker) -> SettleBatch:
    """How settlements gather; they do not, unless a broker says so in `gather`."""
    gather: SettleBatch = getattr(broker, "gather", SettleBatch())
    return gather


def holders_keep(broker: Broker) -> bool:
    """Whether claims are kept by the very process that holds them, by its `renew`, and by nobody for it.

    So it is on SQS, where a message stays hidden as long as whoever received it says so. A supervisor then renews
    nothing, and goes by what its children tell of their own renewals.
    """
    return getattr(broker, "holders_keep", False)


def makes_queues(broker: Broker) -> bool:
    """Whether a queue that is missing is made by whoever uses it. On SQS it is made by people, who pay for it."""
    return getattr(broker, "makes_queues", True)


def relays(broker: Broker) -> bool:
    """Whether a broker makes the copies of an event itself, as SNS does: it takes jobs with `to_topic`.

    All others are handed one job for each subscription.
    """
    return getattr(broker, "relays", False)


@runtime_checkable
class AutoCreateBroker(Protocol):
    """A broker that makes what is missing only if it is told to, because it costs money."""

    development: bool


def enable_auto_create(broker: object, on: bool) -> None:
    """Tell a broker that cares whether what is missing is to be made by whoever needs it."""
    if isinstance(broker, AutoCreateBroker):
        broker.development = on


def queue_exists(broker: Broker, queue: str) -> bool:
    """Whether there is a queue though `queues` may not name it: a broker that cannot list all has a method `exists`.

    From then on `queues` names it.
    """
    exists: Callable[[str], bool] | None = getattr(broker, "exists", None)
    return exists is not None and exists(queue)


def check_app_on(broker: Broker, app: Laneway) -> list[str]:
    """What is wrong with a broker for this very app, a sentence each: where it says so, by a method `check_app`."""
    check_app: Callable[[Laneway], list[str]] | None = getattr(broker, "check_app", None)
    return [] if check_app is None else check_app(app)


def notes_on(broker: Broker, app: Laneway) -> list[str]:
    """What is worth knowing of a broker for this very app, and no illness: where it says so, by a method `notes`."""
    notes: Callable[[Laneway], list[str]] | None = getattr(broker, "notes", None)
    return [] if notes is None else notes(app)


class AutoCreateNote(msgspec.Struct, frozen=True):
    """What a broker has made in development, in a sentence; or what is there and otherwise than it should be."""

    text: str
    made: bool = True


def provide(broker: Broker, app: Laneway, queues: Collection[str]) -> Sequence[AutoCreateNote]:
    """Have a broker make what is missing for these queues of an app, in development.

    Only one that does not make queues by itself has a method `provide`.
    """
    make: Callable[[Laneway, Collection[str]], Sequence[AutoCreateNote]] | None = getattr(broker, "provide", None)
    return () if make is None else make(app, queues)


class EmptyMorgueResult(msgspec.Struct, frozen=True):
    """What emptying a morgue has come across, when it is through."""

    #: How many dead jobs it has seen that were there when it began, whether or not they were to be touched.
    seen: int
    #: Those among them that were left because the place is shared, and nothing says whose they are.
    ownerless: int = 0
    #: Seconds for which dead jobs may be hidden from it.
    hidden_s: int = 0


class EmptyMorgue(Protocol):
    """How a broker empties a queue's morgue that cannot be listed cheaply; see `emptier_of`."""

    def __call__(self, queue: str, *, revive: bool, most: int) -> Generator[int, None, EmptyMorgueResult]:
        """Revive or delete up to `most` dead jobs that were there when it began. Yields how many each step has done."""
        ...


def emptier_of(broker: Broker) -> EmptyMorgue | None:
    """A broker's own way to empty a morgue, its method `empty_morgue`; None: page by page, by key."""
    empty: EmptyMorgue | None = getattr(broker, "empty_morgue", None)
    return empty


def is_remote(broker: Broker) -> bool:
    """Whether others may reach a broker while this process cannot, if it says so."""
    return getattr(broker, "remote", False)


def is_undelivered(broker: Broker, queues: Collection[str]) -> bool:
    """Whether something is not stored yet that a finished run of these queues has sent, or that was sent to them.

    Only a broker that cannot store it in the step that settles the run has such things, and a method `undelivered`.
    """
    undelivered: Callable[[Collection[str]], bool] | None = getattr(broker, "undelivered", None)
    return undelivered is not None and undelivered(queues)
