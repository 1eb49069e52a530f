"""The stock: what this process has received and not handed out yet, and the claims that it has handed out.

Owns the one lock of all that. Local memory only: nothing here calls AWS, so the lock is never held for long.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import count

from ....clock import Clock
from ....jobs.data import Claim, Kind, Payload
from ....jobs.merge import MAX_PAYLOADS
from .groups import Group, Groups
from .holding import Held, Holding
from .message import Channel, headers_of


class Ready:
    """Something to be handed out: a plain job's message, or a group."""

    __slots__ = ("at", "number", "what")

    def __init__(self, what: Held | Group, number: int, at: float) -> None:
        self.what = what
        #: Its place among all that this process has to hand out.
        self.number = number
        #: Since when, on the monotonic clock.
        self.at = at


class Buffer:
    """What is ready to be handed out of one channel, and how much more is wanted."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.ready: deque[Ready] = deque()
        self.groups = Groups()
        #: So much is to be ready; nothing is received beyond that.
        self.demand = 0
        #: When somebody last asked for something, on the monotonic clock.
        self.asked_at = -math.inf
        #: How many wait for something just now.
        self.waits = 0
        #: Why nothing can be received; None as soon as it could.
        self.error: Exception | None = None


class Claimed:
    """A claim that is held, with the messages that it was made of."""

    __slots__ = ("buffer", "claim", "group", "held", "sent", "worker")

    def __init__(self, claim: Claim, held: list[Held], buffer: Buffer, group: Group | None, worker: str) -> None:
        self.claim = claim
        self.held = held
        self.buffer = buffer
        self.group = group
        self.worker = worker
        #: Which of the jobs that its run enqueued are known to be stored, by their numbers.
        self.sent: set[int] = set()


class Stock:
    """All buffers and claims of one process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Held for every look and every change; notified when something is ready, wanted or over.
        self.changed = threading.Condition(threading.RLock())
        self.holding = Holding(clock)
        self.buffers: dict[str, Buffer] = {}
        self.claims: dict[int, Claimed] = {}
        self._numbers = count(1)
        self._refs = count(1)
        self._token = 0

    def buffer(self, channel: Channel) -> Buffer:
        """The buffer of a channel."""
        with self.changed:
            return self.buffers.setdefault(channel.url, Buffer(channel))

    def of(self, queue: str) -> list[Buffer]:
        """The buffers of a queue: one or two."""
        return [buffer for buffer in self.buffers.values() if buffer.channel.queue == queue]

    # -- in --------------------------------------------------------------------------------------------

    def put(self, buffer: Buffer, arrived: Iterable[Held]) -> None:
        """Messages that were received wait to be handed out."""
        with self.changed:
            for held in arrived:
                self.holding.add(held)
                if held.is_keyed:
                    self.offer(buffer, buffer.groups.add(held))
                else:
                    buffer.ready.append(Ready(held, next(self._numbers), self._clock.monotonic()))
            self.changed.notify_all()

    def offer(self, buffer: Buffer, group: Group) -> None:
        """Have a group be handed out, if it can be."""
        if not group.is_ready and buffer.groups.tidy(group):
            group.is_ready = True
            buffer.ready.append(Ready(group, next(self._numbers), self._clock.monotonic()))

    # -- out -------------------------------------------------------------------------------------------

    def token(self) -> int:
        """A token larger than any before; it grows with the clock, so that it still grows in another process."""
        with self.changed:
            self._token = max(self._token + 1, int(self._clock.now() * 1e6))
            return self._token

    def take(self, queue: str, limit: int, max_payloads: int | None, worker: str, token: int) -> list[Claim]:
        """Hand out what has waited longest."""
        most = MAX_PAYLOADS[Kind.KEYED] if max_payloads is None else max(max_payloads, 1)
        claims: list[Claim] = []
        with self.changed:
            while len(claims) < limit:
                waiting = [buffer for buffer in self.of(queue) if buffer.ready]
                if not waiting:
                    break
                buffer = min(waiting, key=lambda each: each.ready[0].number)
                what = buffer.ready.popleft().what
                claimed = self._claim(buffer, what, most, worker, token)
                if claimed is not None:
                    self.claims[claimed.claim.ref] = claimed
                    claims.append(claimed.claim)
        return claims

    def _claim(self, buffer: Buffer, what: Held | Group, most: int, worker: str, token: int) -> Claimed | None:
        """A claim; None if what waited has been given back, or has waited for so long that it is ours no more."""
        now = self._clock.monotonic()
        group = what if isinstance(what, Group) else None
        if isinstance(what, Group):
            what.is_ready = False
            if any(not held.is_ours(now) for held in what.waiting):
                self.forget(what.clear())  # its head may be somebody else's: nothing behind it may overtake that
            if not buffer.groups.tidy(what):
                return None
            held = what.take(most)
        else:
            held = [what]
            if not what.is_ours(now):
                self.forget(held)
                return None
        return Claimed(_claim_of(buffer.channel.queue, next(self._refs), token, held), held, buffer, group, worker)

    def freed(self, claimed: Claimed, kept: Iterable[Held] = ()) -> None:
        """A claim is over. `kept` is left of it, was not begun, and is the next of its group."""
        with self.changed:
            self.claims.pop(claimed.claim.ref, None)
            if claimed.group is not None:
                for held in kept:
                    held.is_leaving = False
                claimed.buffer.groups.freed(claimed.group, kept)
                self.offer(claimed.buffer, claimed.group)
            self.changed.notify_all()

    def forget(self, held: Iterable[Held]) -> None:
        """Messages are in our hands no more."""
        with self.changed:
            for each in held:
                self.holding.drop(each)

    def take_back(self, buffer: Buffer, *, since: float = math.inf) -> list[Held]:
        """Take out what is ready since before `since`, to be given back. Nothing behind claims is touched."""
        with self.changed:
            taken: list[Held] = []
            while buffer.ready and buffer.ready[0].at <= since:
                what = buffer.ready.popleft().what
                if isinstance(what, Group):
                    what.is_ready = False
                    taken += what.clear()
                    buffer.groups.tidy(what)
                else:
                    taken.append(what)
            for held in taken:
                held.is_leaving = True
                self.holding.drop(held)
            return taken

    def count(self, queue: str) -> int:
        """How many claims of a queue are held."""
        with self.changed:
            return sum(claimed.claim.queue == queue for claimed in self.claims.values())


def _claim_of(queue: str, ref: int, token: int, held: Sequence[Held]) -> Claim:
    first, note = held[0], held[0].message.note
    claim = Claim(
        queue=queue,
        ref=ref,
        key=note.id,
        token=token,
        perform_at=_due(first),
        retry_count=first.retry_count,
        attempt=first.attempt + 1,
        deaths=first.deaths,
        payloads=[Payload(first.message.body)],
        error=first.error,
        headers=headers_of(first.message),
    )
    if first.is_keyed:
        claim.key, claim.kind, claim.headers, claim.deaths = note.key, Kind.KEYED, None, 0
        claim.payloads = [_call_of(each) for each in held]
    return claim


def _call_of(held: Held) -> Payload:
    message = held.message
    return Payload(message.body, _due(held), held.id, held.attempt + 1, headers_of(message), held.deaths)


def _due(held: Held) -> float:
    due = held.message.note.due
    return held.message.sent_at if due is None else due
