"""Inflight: the workers of this process, the messages that it holds, their FIFO groups, and its claims; one lock.

Local memory only: nothing here calls AWS, so the lock is never held for long.

A job may arrive twice, because SQS delivers it again or because it was sent twice. It runs once: while it is held,
the second message shares the settlement of the first. After it has ended, it is remembered for ten minutes. The
messages of a FIFO group are handed out in sequence and never side by side: while a claim of the group is held, the
rest waits.
"""

from __future__ import annotations

import math
import threading
from bisect import insort
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from ....jobs.data import Claim, Kind, Payload, WorkerView
from ....jobs.merge import MAX_PAYLOADS
from ..settings import LONGEST_VISIBILITY_S
from .message import Message, SQSQueue, headers_of

if TYPE_CHECKING:
    from ..account import Account

#: For how long messages are hidden while no worker has joined.
LEASE_S = 30.0
#: How long ended jobs are remembered, and how many of them.
REMEMBER_S = 600.0
REMEMBER = 100_000
#: SQS hides a message for 12 hours at most, counted from its receive. A few seconds less, as our clock may be late.
LONGEST_S = LONGEST_VISIBILITY_S - 5.0


class HeldMessage:
    """A message that this process holds, and the state of its job: from its note, and from the retry store."""

    __slots__ = (
        "attempt",
        "deaths",
        "duplicates",
        "error",
        "has_state",
        "is_ending",
        "is_leaving",
        "message",
        "retry_count",
    )

    def __init__(self, message: Message) -> None:
        note = message.note
        self.message = message
        #: How often the job was handed out before.
        self.attempt = note.attempt
        self.retry_count = note.retry_count
        self.deaths = note.deaths
        self.error = note.error
        #: Whether the retry store has a state of the job.
        self.has_state = False
        #: `is_leaving`: it is being settled or given back, so its visibility is no longer extended. `is_ending`: it is
        #: being deleted. That may take a while, so its visibility is still extended.
        self.is_leaving = self.is_ending = False
        #: Other messages of the same job.
        self.duplicates: list[Message] = []

    @property
    def id(self) -> str:
        return self.message.note.id

    @property
    def messages(self) -> list[Message]:
        """The message and its duplicates."""
        return [self.message, *self.duplicates]

    @property
    def is_keyed(self) -> bool:
        return self.message.kind is Kind.KEYED

    @property
    def hideable_until(self) -> float:
        """Until when SQS can keep it hidden at most, on the monotonic clock."""
        return self.message.received_at + LONGEST_S

    def is_ours(self, now: float) -> bool:
        """Whether no other receiver can have got it."""
        return self.message.hidden_until > now

    @property
    def is_lost(self) -> bool:
        """Whether it is known to be no longer ours."""
        return self.message.hidden_until == -math.inf

    def mark_lost(self) -> None:
        """Note that it is no longer ours: another receiver may have it. If we receive it again, it is ours again."""
        self.message.hidden_until = -math.inf

    def merge_redelivery(self, other: Message) -> None:
        """Note another delivery of the same job."""
        mine = self.message
        if other.message_id != mine.message_id:
            self.duplicates = [*(each for each in self.duplicates if each.message_id != other.message_id), other]
            return
        # Only the newest receipt is valid. The 12 hours start again with this receive.
        mine.receipt, mine.hidden_until = other.receipt, max(mine.hidden_until, other.hidden_until)
        mine.received_at, mine.receive_count = other.received_at, other.receive_count


class HeldMessages:
    """All messages that this process holds, by job. The caller holds the lock of the `Inflight`."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._held: dict[tuple[str, str], HeldMessage] = {}
        self._ended: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[HeldMessage]:
        return iter(list(self._held.values()))

    def get(self, message: Message) -> HeldMessage | None:
        """The held message of the same job."""
        return self._held.get(_place(message))

    def add(self, held: HeldMessage) -> None:
        self._held[_place(held.message)] = held

    def drop(self, held: HeldMessage) -> None:
        """Note that a message is no longer held."""
        place = _place(held.message)
        if self._held.get(place) is held:
            del self._held[place]

    def end(self, message: Message) -> None:
        """Remember that this version of a job has ended, so that a second message with it is not run."""
        now = self._account.clock.monotonic()
        self._ended[version_of(message)] = now
        self._ended.move_to_end(version_of(message))
        while self._ended and (len(self._ended) > REMEMBER or next(iter(self._ended.values())) < now - REMEMBER_S):
            self._ended.popitem(last=False)

    def is_ended(self, message: Message) -> bool:
        """Whether this version of a job has ended. A message that was sent on or revived since is another version."""
        at = self._ended.get(version_of(message))
        return at is not None and at >= self._account.clock.monotonic() - REMEMBER_S


def version_of(message: Message) -> str:
    """The version of a message. If a message was sent twice, both have it; a later message of the job does not."""
    note = message.note
    return f"{message.sqs_queue.name} {note.id}-{note.attempt}-{note.hop}"


def _place(message: Message) -> tuple[str, str]:
    return (message.sqs_queue.url, message.note.id)


class FifoGroup(msgspec.Struct, eq=False):
    """The received messages of one key that are not handed out."""

    key: str
    waiting: list[HeldMessage] = []
    #: Whether a claim of the group is held. Until it is settled, nothing else of the group is handed out.
    is_claimed: bool = False
    #: Whether it is in the buffer, ready to be handed out.
    is_ready: bool = False

    def add(self, held: HeldMessage) -> None:
        """Insert a message by its sequence number, whatever arrived before it."""
        insort(self.waiting, held, key=lambda each: each.message.sequence)

    def take(self, limit: int) -> list[HeldMessage]:
        """The first messages, for a claim."""
        taken, self.waiting = self.waiting[:limit], self.waiting[limit:]
        self.is_claimed = True
        return taken

    def clear(self) -> list[HeldMessage]:
        """Remove and return all waiting messages, to give them back."""
        waiting, self.waiting = self.waiting, []
        return waiting


class Claimable(msgspec.Struct, eq=False):
    """Something to be handed out: a plain job's message, or a group."""

    what: HeldMessage | FifoGroup
    #: Its place in the order of everything that this process has to hand out.
    number: int
    #: Since when it is ready, on the monotonic clock.
    at: float


class QueueBuffer:
    """What is ready to be handed out from one SQS queue, its FIFO groups, and how much is wanted."""

    def __init__(self, sqs_queue: SQSQueue) -> None:
        self.sqs_queue = sqs_queue
        self.ready: deque[Claimable] = deque()
        self.groups: dict[str, FifoGroup] = {}
        #: How many should be ready. No more than that are received.
        self.demand = 0
        #: When a worker last asked for messages, on the monotonic clock.
        self.asked_at = -math.inf
        #: How many callers are waiting for messages.
        self.waits = 0
        #: Why nothing can be received. None after a successful receive.
        self.error: Exception | None = None

    def add(self, held: HeldMessage) -> FifoGroup:
        """Put a message into its group. Returns the group."""
        group = self.groups.setdefault(held.message.note.key, FifoGroup(held.message.note.key))
        group.add(held)
        return group

    def freed(self, group: FifoGroup, kept: Iterable[HeldMessage] = ()) -> bool:
        """End the claim of a group. `kept` are its messages that were not begun. True: it has something to hand out."""
        group.is_claimed = False
        for held in kept:
            group.add(held)
        return self.tidy(group)

    def tidy(self, group: FifoGroup) -> bool:
        """Forget a group that is empty and unclaimed. True: it has something to hand out."""
        if not group.is_claimed and not group.waiting:
            self.groups.pop(group.key, None)
        return bool(group.waiting) and not group.is_claimed


class ClaimMessages(msgspec.Struct, eq=False):
    """A held claim and its messages."""

    claim: Claim
    held: list[HeldMessage]
    buffer: QueueBuffer
    group: FifoGroup | None
    worker: str
    #: The numbers of the jobs that its run enqueued and that are known to be stored.
    sent: set[int] = set()


class Inflight:
    """The workers, buffers and claims of one process."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.restart()

    def restart(self) -> None:
        """Start with nothing held. The child of a fork does the same: the messages belong to its parent."""
        #: Held for every read and every change. Notified when something is ready, is wanted or has ended.
        self.changed = threading.Condition(threading.RLock())
        self.workers: dict[str, WorkerView] = {}
        self.holding = HeldMessages(self._account)
        self.buffers: dict[str, QueueBuffer] = {}
        self.claims: dict[int, ClaimMessages] = {}
        self._numbers = count(1)
        self._refs = count(1)
        self._token = 0

    def lease_s(self) -> float | None:
        """For how long messages are hidden; None if there is no worker."""
        return max((worker.lease_s for worker in self.workers.values()), default=None)

    def wake(self) -> None:
        """Let the receivers and the waits of this process look again, such as after a queue was resumed."""
        with self.changed:
            self.changed.notify_all()

    def buffer(self, sqs_queue: SQSQueue) -> QueueBuffer:
        """The buffer of an SQS queue."""
        with self.changed:
            return self.buffers.setdefault(sqs_queue.url, QueueBuffer(sqs_queue))

    def of(self, queue: str) -> list[QueueBuffer]:
        """The buffers of a queue: one or two."""
        return [buffer for buffer in self.buffers.values() if buffer.sqs_queue.queue == queue]

    # -- in --------------------------------------------------------------------------------------------

    def put(self, buffer: QueueBuffer, arrived: Iterable[HeldMessage]) -> None:
        """Add received messages, to be handed out."""
        with self.changed:
            for held in arrived:
                self.holding.add(held)
                if held.is_keyed:
                    self.offer(buffer, buffer.add(held))
                else:
                    buffer.ready.append(Claimable(held, next(self._numbers), self._account.clock.monotonic()))
            self.changed.notify_all()

    def offer(self, buffer: QueueBuffer, group: FifoGroup) -> None:
        """Put a group into the buffer, if it has something to hand out."""
        if not group.is_ready and buffer.tidy(group):
            group.is_ready = True
            buffer.ready.append(Claimable(group, next(self._numbers), self._account.clock.monotonic()))

    # -- out -------------------------------------------------------------------------------------------

    def token(self) -> int:
        """A token larger than any before. It follows the clock, so that it also grows from process to process."""
        with self.changed:
            self._token = max(self._token + 1, int(self._account.clock.now() * 1e6))
            return self._token

    def take(self, queue: str, limit: int, max_payloads: int | None, worker: str, token: int) -> list[Claim]:
        """Hand out claims, those that have waited longest first."""
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

    def _claim(
        self, buffer: QueueBuffer, what: HeldMessage | FifoGroup, most: int, worker: str, token: int
    ) -> ClaimMessages | None:
        """Make a claim; None if its messages were given back, or waited so long that they are no longer ours."""
        now = self._account.clock.monotonic()
        group = what if isinstance(what, FifoGroup) else None
        if isinstance(what, FifoGroup):
            what.is_ready = False
            if any(not held.is_ours(now) for held in what.waiting):
                self.forget(what.clear())  # another receiver may have its head: nothing may overtake the head
            if not buffer.tidy(what):
                return None
            held = what.take(most)
        else:
            held = [what]
            if not what.is_ours(now):
                self.forget(held)
                return None
        return ClaimMessages(
            _claim_of(buffer.sqs_queue.queue, next(self._refs), token, held), held, buffer, group, worker
        )

    def claim_again(self, ref: int) -> Claim | None:
        """A held claim as it was handed out; None if it is no longer held."""
        with self.changed:
            claimed = self.claims.get(ref)
            if claimed is None:
                return None
            return _claim_of(claimed.claim.queue, ref, claimed.claim.token, claimed.held)

    def freed(self, claimed: ClaimMessages, kept: Iterable[HeldMessage] = ()) -> None:
        """End a claim. `kept` are its messages that were not begun. They are the next of its group."""
        with self.changed:
            self.claims.pop(claimed.claim.ref, None)
            if claimed.group is not None:
                for held in kept:
                    held.is_leaving = False
                claimed.buffer.freed(claimed.group, kept)
                self.offer(claimed.buffer, claimed.group)
            self.changed.notify_all()

    def forget(self, held: Iterable[HeldMessage]) -> None:
        """Note that messages are no longer held."""
        with self.changed:
            for each in held:
                self.holding.drop(each)

    def take_back(self, buffer: QueueBuffer, *, since: float = math.inf) -> list[HeldMessage]:
        """Take out what has been ready since `since` or earlier, to give it back. Messages behind claims stay."""
        with self.changed:
            taken: list[HeldMessage] = []
            while buffer.ready and buffer.ready[0].at <= since:
                what = buffer.ready.popleft().what
                if isinstance(what, FifoGroup):
                    what.is_ready = False
                    taken += what.clear()
                    buffer.tidy(what)
                else:
                    taken.append(what)
            for held in taken:
                held.is_leaving = True
                self.holding.drop(held)
            return taken

    def count(self, queue: str) -> int:
        """The number of held claims of a queue."""
        with self.changed:
            return sum(claimed.claim.queue == queue for claimed in self.claims.values())

    def claims_of(self, worker: str) -> list[ClaimMessages]:
        """The claims that a worker holds, oldest first."""
        with self.changed:
            return [claimed for claimed in self.claims.values() if claimed.worker == worker]

    def running(self, worker: str) -> list[str]:
        """The ids of the jobs and calls that a worker has claimed, oldest first."""
        return [held.id for claimed in self.claims_of(worker) for held in claimed.held]

    def is_claimed(self, queue: str, id: str) -> bool:
        """Whether this process holds a claim on a job, by its id or, for a keyed job, by its key."""
        with self.changed:
            return any(
                id == claimed.claim.key or any(id == held.id for held in claimed.held)
                for claimed in self.claims.values()
                if claimed.claim.queue == queue
            )


def _claim_of(queue: str, ref: int, token: int, held: Sequence[HeldMessage]) -> Claim:
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


def _call_of(held: HeldMessage) -> Payload:
    message = held.message
    return Payload(message.body, _due(held), held.id, held.attempt + 1, headers_of(message), held.deaths)


def _due(held: HeldMessage) -> float:
    due = held.message.note.due
    return held.message.sent_at if due is None else due
