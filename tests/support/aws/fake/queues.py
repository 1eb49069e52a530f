"""One SQS queue: the life of a message from send to delete, with every error that AWS raises on the way."""

from __future__ import annotations

import base64
import binascii
import hashlib
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from tests.support.aws.fake import messages
from tests.support.aws.fake.attributes import NUMBERS, redrive_of
from tests.support.aws.fake.delivery_order import FifoLine, StandardLine
from tests.support.aws.fake.faults import Expired, Faults, Refusal, invalid, invalid_value
from tests.support.aws.fake.messages import Message

#: For so long SQS knows a deduplication id and a receive's attempt id.
MEMORY_S = 300.0
MAX_VISIBILITY_S = 43_200
_FIRST_SEQUENCE = 18_849_496_460_467_696_128
#: Two queues of one name, one after the other, do not know each other's receipts.
_generations = count()


@dataclass(frozen=True)
class Counts:
    visible: int
    in_flight: int
    delayed: int

    @property
    def all(self) -> int:
        return self.visible + self.in_flight + self.delayed


class Queue:
    """Standard, or FIFO if its name says so. `now` tells the time; `find` knows other queues by their ARN."""

    def __init__(
        self, name: str, arn: str, now: Callable[[], float], faults: Faults, find: Callable[[str], Queue | None]
    ) -> None:
        self.name, self.arn, self.fifo = name, arn, name.endswith(".fifo")
        self.attributes: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.created_at = self.modified_at = now()
        self.purged_at: float | None = None
        self._now, self._faults, self._find = now, faults, find
        self._generation = next(_generations)
        self._receipts, self._sequences = count(), count()
        #: Who waits for something to receive, to be told that there may be something.
        self.waiting: list[Callable[[], None]] = []
        self.clear()

    def clear(self) -> None:
        """Forget all messages, but not which deduplication ids there were."""
        self._line: StandardLine | FifoLine = FifoLine() if self.fifo else StandardLine(self._faults)
        self._messages: dict[str, Message] = {}
        if not hasattr(self, "_sent"):
            self._sent: dict[tuple[str | None, str], tuple[float, Message]] = {}
            self._sent_order: deque[tuple[float, tuple[str | None, str]]] = deque()
        self._attempts: dict[str, tuple[float, list[tuple[Message, str, float]]]] = {}

    # -- looking, for tests ----------------------------------------------------------------------------

    @property
    def messages(self) -> list[Message]:
        """All that is there, visible or not, in the order of arrival."""
        now = self._now()
        return [message for message in list(self._messages.values()) if not self._expired(message, now)]

    @property
    def bodies(self) -> list[str]:
        return [message.body for message in self.messages]

    @property
    def counts(self) -> Counts:
        now, visible, in_flight, delayed = self._now(), 0, 0, 0
        for message in self.messages:
            if message.visible_at <= now:
                visible += 1
            elif message.handles:
                in_flight += 1
            else:
                delayed += 1
        return Counts(visible, in_flight, delayed)

    def number(self, name: str) -> int:
        return int(self.attributes.get(name, NUMBERS[name][2]))

    # -- sending ---------------------------------------------------------------------------------------

    def check(self, entry: dict[str, Any]) -> None:
        content_based = self.attributes.get("ContentBasedDeduplication") == "true"
        limit = self.number("MaximumMessageSize")
        messages.check(entry, fifo=self.fifo, content_based=content_based, max_size=limit)

    def check_group(self, entry: dict[str, Any]) -> None:
        """Refuse an entry of a batch that lacks what a FIFO queue needs of every message."""
        if self.fifo:
            try:
                messages.check_group(entry, content_based=self.attributes.get("ContentBasedDeduplication") == "true")
            except Refusal as refusal:
                raise invalid_value(refusal.message) from None

    def send(self, entry: dict[str, Any]) -> Message:
        """Store a message; on a FIFO queue the one that it repeats, if there was one within five minutes."""
        self.check(entry)
        now = self._now()
        delay = entry.get("DelaySeconds")
        delay = self.number("DelaySeconds") if delay is None or self.fifo else delay
        if not self.fifo:
            return self._store(Message(str(uuid.uuid4()), entry, now, now + delay))
        id = entry.get("MessageDeduplicationId") or hashlib.sha256(entry["MessageBody"].encode()).hexdigest()
        by_group = self.attributes.get("DeduplicationScope") == "messageGroup"
        key = (entry["MessageGroupId"] if by_group else None, id)
        while self._sent_order and self._sent_order[0][0] <= now - MEMORY_S:
            del self._sent[self._sent_order.popleft()[1]]
        if known := self._sent.get(key):
            return known[1]
        message = Message(str(uuid.uuid4()), entry | {"MessageDeduplicationId": id}, now, now + delay)
        self._sent[key] = now, message
        self._sent_order.append((now, key))
        return self._store(message)

    def _store(self, message: Message) -> Message:
        if self.fifo:
            message.sequence = _FIRST_SEQUENCE + 256 * next(self._sequences)
        self._messages[message.id] = message
        self._line.place(message, self._now())
        return message

    # -- receiving -------------------------------------------------------------------------------------

    def receive(self, most: int, hidden_s: int, attempt: str | None = None) -> list[tuple[Message, str]]:
        """Up to `most` messages with their receipts; they are hidden for `hidden_s`."""
        now = self._now()
        if attempt is not None and (same := self._same(attempt, now, hidden_s)):
            return same
        received: list[tuple[Message, str]] = []

        def deliver(message: Message, again: bool) -> bool:
            if self._expired(message, now) or (not again and self._buried(message)):
                self._forget(message)
                return False
            if not message.stored:  # deleted, but a copy of it was not
                message.stored = True
                self._messages[message.id] = message
            handle = self._handle(message)
            # Both deliveries of a message that is delivered twice at once can be deleted.
            message.handles = message.handles | {handle} if again else {handle}
            message.visible_at = now + hidden_s
            message.received_at = now
            message.first_received_at = message.first_received_at or now
            message.receives += 1
            received.append((message, handle))
            return True

        self._line.receive(now, most, deliver)
        if attempt is not None and received:
            self._attempts[attempt] = now, [(message, handle, message.visible_at) for message, handle in received]
        return received

    def _same(self, attempt: str, now: float, hidden_s: int) -> list[tuple[Message, str]]:
        """What that attempt got, hidden anew, if nothing of it has been touched since."""
        at, got = self._attempts.pop(attempt, (0.0, []))
        for message, handle, until in got:
            if not message.stored or handle not in message.handles or message.visible_at != until or until <= now:
                return []
        if not got or now - at >= MEMORY_S:
            return []
        for message, _, _ in got:
            message.visible_at = now + hidden_s
            self._line.place(message, now)
        self._attempts[attempt] = at, [(message, handle, message.visible_at) for message, handle, _ in got]
        return [(message, handle) for message, handle, _ in got]

    def _buried(self, message: Message) -> bool:
        """Move it to the dead-letter queue if it was received too often; this receive does not get it."""
        redrive = redrive_of(self.attributes.get("RedrivePolicy", ""))
        if redrive is None or message.receives < redrive[1] or (target := self._find(redrive[0])) is None:
            return False
        entry: dict[str, Any] = {
            "MessageBody": message.body,
            "MessageAttributes": message.attributes,
            "MessageSystemAttributes": message.system,
            "MessageGroupId": message.group,
            "MessageDeduplicationId": message.deduplication_id,
        }
        now = self._now()
        moved = Message(message.id, entry, now if self.fifo else message.sent_at, now)
        moved.receives, moved.first_received_at = message.receives, message.first_received_at
        moved.dead_letter_of = self.arn
        target._store(moved)
        target.wake()
        return True

    def next_at(self) -> float | None:
        return self._line.next_at(self._now())

    def wake(self) -> None:
        """Something may be there to be received."""
        for tell in self.waiting:
            tell()

    # -- settling --------------------------------------------------------------------------------------

    def delete(self, handle: str) -> None:
        """Delete by receipt. What is deleted already, or was received again since, is no error on a standard queue."""
        message = self._messages.get(self._id_of(handle))
        if message is None:
            return
        if self.fifo and (handle not in message.handles or message.visible_at <= self._now()):
            raise Expired(handle)
        if handle in message.handles:
            self._forget(message)
            self._line.removed(message)

    def change(self, handle: str, hidden_s: int) -> None:
        """Hide for `hidden_s` from now what is in flight, up to 12 hours after it was received.

        On a standard queue nothing happens, and nobody is told, if it has become visible in the meantime.
        """
        if not 0 <= hidden_s <= MAX_VISIBILITY_S:
            raise invalid("VisibilityTimeout", hidden_s, "Must be between 0 and 43200.")
        message, now = self._messages.get(self._id_of(handle)), self._now()
        if message is None or handle not in message.handles:
            gone = "Message does not exist or is not available for visibility timeout change."
            raise invalid("ReceiptHandle", handle, gone)
        if message.visible_at <= now:
            if self.fifo:
                raise Expired(handle)
            return  # AWS answers that all is well, and does nothing
        if now + hidden_s > message.received_at + MAX_VISIBILITY_S:
            reason = "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]"
            raise invalid("VisibilityTimeout", hidden_s, reason)
        message.visible_at = now + hidden_s
        self._line.place(message, now)

    def _handle(self, message: Message) -> str:
        return base64.b64encode(f"{self._generation} {message.id} {next(self._receipts)}".encode()).decode()

    def _id_of(self, handle: str) -> str:
        try:
            generation, id, _ = base64.b64decode(handle, validate=True).decode().split(" ")
        except (binascii.Error, ValueError):
            generation = id = ""
        if generation != str(self._generation):
            message = f'The input receipt handle "{handle}" is not a valid receipt handle.'
            raise Refusal("ReceiptHandleIsInvalid", message)
        return id

    def _expired(self, message: Message, now: float) -> bool:
        return now - message.sent_at > self.number("MessageRetentionPeriod")

    def _forget(self, message: Message) -> None:
        message.stored = False
        message.handles = set()
        self._messages.pop(message.id, None)
