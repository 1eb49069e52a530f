"""Dead letters in somebody's hand: received one after the other, hidden from others meanwhile, and given back.

SQS has no way to look into a queue but to receive from it. So a hand holds what it has seen until it is through, lest
it sees the same again, and makes it visible again when it ends; if it cannot, SQS does within `HIDDEN_S`. It sees
`MOST` messages at most, and of those that others have put into one group of a FIFO queue the first 10, because SQS
hands out no more of a group at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

import msgspec

from ....clock import Clock
from ....errors import BrokerAwayError, BrokerError
from ..clients import Clients
from .message import Channel, Message, read

#: Messages that are looked at in one go.
MOST = 10_000
#: Seconds for which they are hidden; no more are received when half of them have gone by.
HIDDEN_S = 90
#: Seconds that are kept in reserve before they are visible again.
RESERVE_S = 10.0
#: Seconds that a receive waits: SQS then asks all its servers, so that nothing means that there is nothing.
WAIT_S = 1
#: Entries of one request.
TEN = 10
#: The message was deleted, or has been received by somebody else since.
GONE = frozenset({"ReceiptHandleIsInvalid", "InvalidParameterValue", "MessageNotInflight"})


class Letter(msgspec.Struct, eq=False):
    """A dead letter."""

    message: Message
    #: The ARN of the SQS queue from which SQS itself has moved it here, after too many receives.
    moved_from: str = ""
    #: More of the same job: it was buried twice, because an answer was lost.
    copies: list[Letter] = []

    @property
    def key(self) -> str:
        """The key of its job: a plain job's is its id."""
        return self.message.note.key or self.message.note.id

    @property
    def died_at(self) -> float:
        """When it was buried; what others have put there does not say, so that it is as old as the message."""
        return self.message.note.buried_at or self.message.sent_at


class Hand:
    """What was received from one dead-letter queue. To be used in a `with`, whose end gives it all back."""

    def __init__(self, clients: Clients, letters: Channel, clock: Clock, *, wait_s: int = WAIT_S) -> None:
        self._clients = clients
        self._letters = letters
        self._clock = clock
        self._wait_s = min(wait_s, WAIT_S)
        self._held: dict[str, Letter] = {}
        self._began = clock.monotonic()
        #: Whether `take` has seen all that there is, and did not end because it was enough.
        self.is_through = False

    def __enter__(self) -> Hand:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()

    def take(self) -> Iterator[Letter]:
        """One letter after the other, until there are no more, or it has been enough."""
        while len(self._held) < MOST and self._age() < HIDDEN_S / 2:
            now = self._clock.monotonic()
            answer = self._clients.sqs(
                "receive_message",
                QueueUrl=self._letters.url,
                MaxNumberOfMessages=TEN,
                VisibilityTimeout=HIDDEN_S,
                WaitTimeSeconds=self._wait_s,
                AttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
            received: list[dict[str, Any]] = answer.get("Messages", [])
            fresh = [raw for raw in received if raw["MessageId"] not in self._held]
            for raw in received:
                letter = Letter(
                    read(self._letters, raw, now, HIDDEN_S),
                    raw.get("Attributes", {}).get("DeadLetterQueueSourceArn", ""),
                )
                self._held[letter.message.message_id] = letter
            for raw in fresh:
                yield self._held[raw["MessageId"]]
            if not fresh:
                self.is_through = True
                return

    def is_safe(self) -> bool:
        """Whether all that is held stays hidden long enough for it to be sent elsewhere and deleted here."""
        return self._age() < HIDDEN_S - RESERVE_S

    def delete(self, letters: Sequence[Letter]) -> None:
        """Delete letters for good. What is gone already is no mistake."""
        left = self._batch("delete_message_batch", letters, {})
        if left:
            left = self._batch("delete_message_batch", left, {})
        if left:
            raise BrokerAwayError(
                f"SQS did not delete {len(left)} of the dead letters in {self._letters.name} though it was asked "
                "twice; what was revived of them is there still, and may be deleted later."
            )

    def _give_back(self) -> None:
        try:
            self._batch("change_message_visibility_batch", list(self._held.values()), {"VisibilityTimeout": 0})
        except BrokerError:
            pass  # they are visible again by themselves before long

    def _batch(self, operation: str, letters: Sequence[Letter], more: dict[str, Any]) -> list[Letter]:
        """Do something to letters, in tens. Returns those to which it was not done, though they are there."""
        failed: list[Letter] = []
        for start in range(0, len(letters), TEN):
            part = letters[start : start + TEN]
            entries = [
                {"Id": str(number), "ReceiptHandle": letter.message.receipt, **more}
                for number, letter in enumerate(part)
            ]
            answer = self._clients.sqs(operation, QueueUrl=self._letters.url, Entries=entries)
            wrong = {int(entry["Id"]) for entry in answer.get("Failed", []) if entry.get("Code") not in GONE}
            failed += [letter for number, letter in enumerate(part) if number in wrong]
            if operation == "delete_message_batch":
                for number, letter in enumerate(part):
                    if number not in wrong:
                        self._held.pop(letter.message.message_id, None)
        return failed

    def _age(self) -> float:
        return self._clock.monotonic() - self._began
