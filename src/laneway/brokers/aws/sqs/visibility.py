"""Deletes messages or changes their visibility, in batches of ten; extends held messages.

MessageChanger sends several batches at once and decides nothing: the caller chooses each change. Finished changes
are marked, so that after an error the same changes continue where they stopped. Its lock `visibility` is held while
visibility is changed: otherwise a renewal under way could hide a message again that is being given back.
VisibilityExtender keeps messages hidden while this process holds them, up to the 12 hours that SQS allows.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ....errors import BrokerAwayError
from ..errors import AWSError
from ..settings import BATCH
from .inflight import HeldMessage, Inflight
from .message import Message

if TYPE_CHECKING:
    from ..account import Account

#: Parallel batches. boto3 does not get faster with more.
PARALLEL = 4
#: Seconds before each new try for an entry that AWS could not carry out. It is then sent alone.
PAUSES_S = (0.05, 0.2, 0.5)
#: The codes of AWS for a receipt that is invalid or expired: its receiver no longer holds the message.
_NOT_OURS = ("ReceiptHandleIsInvalid", "MessageNotInflight", "InvalidParameterValue", "InvalidIdFormat")

_T = TypeVar("_T")


class MessageChange(msgspec.Struct, eq=False):
    """A change to a message: delete it, or hide it for some seconds from now. 0 gives it back at once."""

    message: Message
    #: None: delete it.
    hide_s: int | None = None
    is_done: bool = False
    #: Whether AWS said that the message is no longer ours.
    is_refused: bool = False


class MessageChanger:
    """Carries out the message changes of one process."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        #: Held while visibility is changed. Otherwise a renewal under way could hide a message again, and for long,
        #: that is being given back meanwhile.
        self.visibility = threading.RLock()

    def carry_out(self, changes: Iterable[MessageChange]) -> None:
        """Carry out the changes that are not done yet. If some fail, raises after all have been tried."""
        left = [change for change in changes if not change.is_done]
        if any(change.hide_s is not None for change in left):
            with self.visibility:
                self._carry_out(left)
        elif left:
            self._carry_out(left)

    def close(self) -> None:
        """End the threads. They are started again when they are needed."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="laneway-sqs")
            return self._pool

    def _carry_out(self, changes: list[MessageChange]) -> None:
        kinds: dict[tuple[str, bool], list[MessageChange]] = {}
        for change in changes:
            kinds.setdefault((change.message.sqs_queue.url, change.hide_s is None), []).append(change)
        batches = [batch for kind in kinds.values() for batch in in_tens(kind)]
        if len(batches) == 1:
            self._send(batches[0])
            return
        errors = [error for error in self._threads().map(self._error_of, batches) if error]
        if errors:
            # Callers expect that a broker may be away. That error must not hide any other.
            raise min(errors, key=lambda error: isinstance(error, BrokerAwayError))

    def _error_of(self, batch: Sequence[MessageChange]) -> Exception | None:
        try:
            self._send(batch)
        except Exception as error:
            return error
        return None

    def _send(self, batch: Sequence[MessageChange]) -> None:
        """Carry out one batch. Entries that AWS could not carry out are tried again, one by one."""
        left = self._ask(batch)
        for pause_s in PAUSES_S:
            if not left:
                return
            time.sleep(pause_s)
            left = [change for each in left for change in self._ask([each])]
        if left:
            verb = "delete" if left[0].hide_s is None else "change the visibility of"
            ids = ", ".join(change.message.note.id for change in left)
            raise BrokerAwayError(f"SQS could not {verb} messages of {left[0].message.sqs_queue.name}: {ids}.")

    def _ask(self, batch: Sequence[MessageChange]) -> list[MessageChange]:
        """Make one request. Returns the entries that have to be tried again."""
        began = self._account.clock.monotonic()
        try:
            answer = self._request(batch)
        except AWSError as error:
            if not is_not_ours(error.code):
                raise
            if len(batch) > 1:
                return list(batch)  # AWS does not say which entry is wrong
            batch[0].is_done = batch[0].is_refused = True
            return []
        failed = {int(entry["Id"]): entry for entry in answer.get("Failed", ())}
        left = []
        for number, change in enumerate(batch):
            entry = failed.get(number)
            if entry is None:
                change.is_done = True
                # A standard queue accepts a change that comes too late, and ignores it.
                if change.hide_s is not None and self._account.clock.monotonic() < change.message.hidden_until:
                    change.message.hidden_until = began + change.hide_s
            elif is_not_ours(entry.get("Code", "")):
                change.is_done = change.is_refused = True
            elif entry.get("SenderFault"):
                raise AWSError(
                    f"SQS refused a change of the message {change.message.note.id} of {change.message.sqs_queue.name}: "
                    f"{entry.get('Code')}: {entry.get('Message', '')}",
                    code=entry.get("Code", ""),
                )
            else:
                left.append(change)
        return left

    def _request(self, batch: Sequence[MessageChange]) -> dict[str, Any]:
        url = batch[0].message.sqs_queue.url
        entries: list[dict[str, Any]] = [
            {"Id": str(number), "ReceiptHandle": change.message.receipt} for number, change in enumerate(batch)
        ]
        if batch[0].hide_s is None:
            return self._account.clients.sqs("delete_message_batch", QueueUrl=url, Entries=entries)
        for entry, change in zip(entries, batch, strict=True):
            entry["VisibilityTimeout"] = change.hide_s
        return self._account.clients.sqs("change_message_visibility_batch", QueueUrl=url, Entries=entries)


def in_tens(items: Sequence[_T]) -> list[Sequence[_T]]:
    """Items in order, in batches of ten."""
    return [items[at : at + BATCH] for at in range(0, len(items), BATCH)]


def is_not_ours(code: str) -> bool:
    """Whether this code of AWS means that a receipt is not valid. Codes come with and without a prefix."""
    return code.rpartition(".")[2] in _NOT_OURS


#: A message that was hidden for a full lease is not extended again within this part of the lease.
FRESH = 1 / 6

_log = logging.getLogger("laneway")


class VisibilityExtender:
    """Extends the visibility timeouts of the messages that one process holds."""

    def __init__(self, account: Account, inflight: Inflight, changer: MessageChanger) -> None:
        self._account = account
        self._inflight = inflight
        self._changer = changer

    def extend(self, lease_s: float) -> None:
        """Hide all held messages for another lease. Raises if SQS did not accept all changes.

        When it returns, held messages stay hidden for at least five sixths of the lease. The exceptions are messages
        at the end of their 12 hours, and messages that are no longer ours: settling those is refused.
        """
        with self._changer.visibility:
            changes = self._changes_of(max(1, math.ceil(lease_s)), lease_s)
            try:
                self._changer.carry_out(change for _, change in changes)
            finally:
                self._mark_lost(changes)

    def _changes_of(self, hide_s: int, lease_s: float) -> list[tuple[HeldMessage, MessageChange]]:
        now = self._account.clock.monotonic()
        changes: list[tuple[HeldMessage, MessageChange]] = []
        with self._inflight.changed:
            for held in self._inflight.holding:
                left_s = math.floor(held.hideable_until - now)
                if (held.is_leaving and not held.is_ending) or held.is_lost:
                    continue
                if left_s < 1:
                    self._give_up(held)
                if not held.is_ours(now):
                    continue
                for message in held.messages:
                    if message.hidden_until - now < lease_s * (1 - FRESH):
                        changes.append((held, MessageChange(message, min(hide_s, left_s))))
        return changes

    def _mark_lost(self, changes: list[tuple[HeldMessage, MessageChange]]) -> None:
        """Note which messages are no longer ours, as SQS says: they were deleted, or their visibility timeout ended."""
        with self._inflight.changed:
            for held, change in changes:
                if not change.is_refused or held.is_leaving:
                    continue
                if change.message is held.message:
                    held.mark_lost()
                else:
                    held.duplicates = [duplicate for duplicate in held.duplicates if duplicate is not change.message]

    def _give_up(self, held: HeldMessage) -> None:
        held.mark_lost()
        _log.error(
            "the job %s of the queue %s has been held for 12 hours, and SQS keeps a message hidden no longer: it is "
            "given up, what it does is not recorded, and it will be run again; have it enqueue a part of its work",
            held.id,
            held.message.sqs_queue.queue,
        )
