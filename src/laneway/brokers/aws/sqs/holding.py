"""What this process holds: messages that it has received and not settled yet. Local memory only; it never calls AWS.

A job may come twice, because SQS delivers again or because somebody has sent it twice. It is run once: while it is
held, the second is a twin of the first and shares its fate; when it has ended, it is remembered for ten minutes.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator

from ....clock import Clock
from ....jobs.data import Kind
from .message import Message

#: For so long, and so many of them, ended jobs are remembered.
REMEMBER_S = 600.0
REMEMBER = 100_000
#: SQS hides a message for 12 hours at most, counted from when it was received; less what our clock may be late.
LONGEST_S = 12 * 3_600.0 - 5.0


class Held:
    """A message in our hands, and what is known of its job: the note that came with it, and the state beside that."""

    __slots__ = (
        "attempt",
        "deaths",
        "error",
        "has_state",
        "is_ending",
        "is_leaving",
        "message",
        "retry_count",
        "twins",
    )

    def __init__(self, message: Message) -> None:
        note = message.note
        self.message = message
        #: How often it was handed out before.
        self.attempt = note.attempt
        self.retry_count = note.retry_count
        self.deaths = note.deaths
        self.error = note.error
        #: Whether something is kept of it beside the message.
        self.has_state = False
        #: Whether it is being settled or given back: from then on it is not kept hidden any longer, unless it is to be
        #: deleted, and that may take a while.
        self.is_leaving = self.is_ending = False
        #: Other messages with the same job.
        self.twins: list[Message] = []

    @property
    def id(self) -> str:
        return self.message.note.id

    @property
    def is_keyed(self) -> bool:
        return self.message.kind is Kind.KEYED

    @property
    def hideable_until(self) -> float:
        """SQS keeps it hidden no longer than this, on the monotonic clock."""
        return self.message.received_at + LONGEST_S

    def is_ours(self, now: float) -> bool:
        """Whether nobody else can have got it."""
        return self.message.hidden_until > now

    @property
    def is_lost(self) -> bool:
        """Whether it is known to be ours no more."""
        return self.message.hidden_until == -math.inf

    def lose(self) -> None:
        """It is somebody else's, or nobody's; if we get it again before that is noticed, it is ours again."""
        self.message.hidden_until = -math.inf

    def meet(self, other: Message) -> None:
        """The same job has come once more."""
        mine = self.message
        if other.message_id != mine.message_id:
            self.twins = [*(twin for twin in self.twins if twin.message_id != other.message_id), other]
            return
        # The newest receipt is the one that counts, and from this receive on the 12 hours count anew.
        mine.receipt, mine.hidden_until = other.receipt, max(mine.hidden_until, other.hidden_until)
        mine.received_at, mine.receive_count = other.received_at, other.receive_count


class Holding:
    """All that this process holds, by job. Whoever uses it holds the lock of the stock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[tuple[str, str], Held] = {}
        self._ended: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Held]:
        return iter(list(self._held.values()))

    def get(self, message: Message) -> Held | None:
        """What is held of the same job."""
        return self._held.get(_place(message))

    def add(self, held: Held) -> None:
        self._held[_place(held.message)] = held

    def drop(self, held: Held) -> None:
        """It is not in our hands any more."""
        place = _place(held.message)
        if self._held.get(place) is held:
            del self._held[place]

    def end(self, message: Message) -> None:
        """Remember that what this message says has been done: a second one that says the same is not run."""
        now = self._clock.monotonic()
        self._ended[version_of(message)] = now
        self._ended.move_to_end(version_of(message))
        while self._ended and (len(self._ended) > REMEMBER or next(iter(self._ended.values())) < now - REMEMBER_S):
            self._ended.popitem(last=False)

    def is_ended(self, message: Message) -> bool:
        """Whether exactly this has been done already; what was sent on or revived since is another version."""
        at = self._ended.get(version_of(message))
        return at is not None and at >= self._clock.monotonic() - REMEMBER_S


def version_of(message: Message) -> str:
    """What tells a message that was sent twice from a later one about the same job."""
    note = message.note
    return f"{message.channel.name} {note.id}-{note.attempt}-{note.hop}"


def _place(message: Message) -> tuple[str, str]:
    return (message.channel.url, message.note.id)
