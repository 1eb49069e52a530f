"""MessageSender: sends messages to a queue, to the table or to a topic, depending on when they are due.

Decides where a delayed message waits: in its SQS queue, in the table, or by hops of 15 minutes. If some messages
could not be stored, the error names them (SendProgress). A message may be stored twice if the answer to its sending
is lost. Both have the same id, and a FIFO queue drops the second.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ....errors import BrokerAwayError, BrokerError, EnqueueError, item_numbers_text
from ....jobs.data import Kind, NewJob
from ....jobs.ticket import execute_after
from ..dynamodb.items import DelayedItem
from ..dynamodb.tables import Table
from ..errors import BatchRefusedError, MissingError
from ..settings import LONGEST_DELAY_S
from ..sns.publish import LARGEST, Numbered, SNSPublisher
from ..unsupported import LARGEST_WAITING, check_new, check_size, needs_table, too_large_to_wait
from .hop_delay import carries_time, with_execute_after
from .message import OutgoingMessage, SQSQueue, entry_of, fitted, group_of, outgoing_of, size_of
from .send_batch import Sent, rounds, send_batch, split

if TYPE_CHECKING:
    from ....broker import HealthTier
    from ..account import Account

#: How many jobs an error names.
_NAMED = 3


class SendProgress:
    """Tracks which messages of a call are stored. An error that ends the call names the messages that are not.

    `by_place`: they are the caller's own list, and are named by their positions, since the caller knows no keys. `verb`
    says what happens to them: stored or published.
    """

    def __init__(self, keys: Sequence[str], sent: Sent | None, *, by_place: bool = False, verb: str = "stored") -> None:
        self._keys = keys
        self._by_place = by_place
        self._verb = verb
        self._sent = sent
        self._stored: set[int] = set()

    def stored(self, number: int) -> None:
        self._stored.add(number)
        if self._sent is not None:
            self._sent(number)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, (BrokerError, EnqueueError)):
            partial = copy.copy(error)
            left = [number for number in range(len(self._keys)) if number not in self._stored]
            partial.args = (self._text(error, left),)
            if self._by_place and len(self._keys) > 1:
                partial.unstored = left
            raise partial from None

    def _text(self, error: BrokerError | EnqueueError, left: Sequence[int]) -> str:
        text, total = str(error), len(self._keys)
        if isinstance(error, BatchRefusedError):
            text = f"{error.service} does not take {self._named(error.entries)} ({text})."
        if total == 1 or not left:
            return text
        unsure = (
            "may not have been" if isinstance(error, BrokerAwayError) else "was not" if len(left) == 1 else "were not"
        )
        named = self._named(left)
        if self._by_place:
            return f"{named[0].upper()}{named[1:]} of {total:,} {unsure} {self._verb}: {text}"
        return f"{len(left):,} of {total:,} jobs {unsure} {self._verb}, {named}: {text}"

    def _named(self, numbers: Sequence[int]) -> str:
        if self._by_place and len(self._keys) > 1:
            return item_numbers_text(sorted(numbers))
        if self._by_place and self._verb == "published":
            return "the event"
        keys = [self._keys[number] for number in numbers]
        more = f" and {len(keys) - _NAMED:,} more" if len(keys) > _NAMED else ""
        return ("the job " if len(keys) == 1 else "the jobs ") + ", ".join(map(repr, keys[:_NAMED])) + more


#: Items per request to the table.
_ITEMS = 25


class TimedMessage(msgspec.Struct):
    """A message to be stored, with its due time."""

    queue: str
    fifo: bool
    outgoing: OutgoingMessage
    #: Unix seconds. None, or a time that has passed, means now.
    due: float | None
    #: It must be cancellable until then, so it has to wait in the table.
    cancellable: bool = False
    #: `queue` is the name of a topic. Topics have no delays: it is published now.
    to_topic: bool = False


class _Routes(msgspec.Struct):
    """Messages by destination, with their numbers in the call."""

    direct: dict[SQSQueue, list[tuple[int, OutgoingMessage, int]]] = {}
    waiting: dict[Table, list[tuple[int, DelayedItem]]] = {}
    events: dict[str, list[Numbered]] = {}


class MessageSender:
    """Sends messages. Safe to call from several threads."""

    def __init__(self, account: Account, health: HealthTier) -> None:
        """`health` knows whether a missing topic is created."""
        self._account = account
        self._publisher = SNSPublisher(account, health)
        self._limit = account.settings.max_body

    def enqueue(self, jobs: Sequence[NewJob], sent: Sent | None = None) -> None:
        """Store new jobs. All are checked, and their queues and tables looked up, before the first is stored.

        Without `sent` they are the caller's own list, and an error midway names them by their positions.
        """
        check_new(jobs)
        now = self._account.clock.now()
        items = []
        for job in jobs:
            due = now + job.delay_s if job.perform_at is None and job.delay_s > 0 else job.perform_at
            outgoing = outgoing_of(job, due)
            check_size(job, outgoing, min(self._limit, LARGEST) if job.to_topic else self._limit)
            cancellable = job.hints is not None and job.hints.cancellable
            items.append(TimedMessage(job.queue, job.kind is Kind.KEYED, outgoing, due, cancellable, job.to_topic))
        try:
            self.dispatch(items, sent, by_place=sent is None)
        except BatchRefusedError as error:
            blamed = items[error.entries[0]]
            refused = EnqueueError(str(error), place=(blamed.queue, blamed.outgoing.key))
            refused.unstored = error.unstored
            raise refused from None

    def dispatch(self, items: Sequence[TimedMessage], sent: Sent | None = None, *, by_place: bool = False) -> None:
        """Store messages, each where it waits until it is due. `sent` gets the number of each message that is stored.

        If a queue or a needed table is missing, nothing is stored. A missing topic is noticed only by publishing, so
        events are published first. If storing fails midway, the error names the messages that were not stored. A
        BatchRefusedError has the numbers of the messages that are wrong.
        """
        found = self._sort(items)
        verb = "published" if all(item.to_topic for item in items) else "stored"
        progress = SendProgress([item.outgoing.key for item in items], sent, by_place=by_place, verb=verb)
        with progress:
            for topic, events in found.events.items():
                self._publisher.publish(topic, events, progress.stored)
            for table, waiting in found.waiting.items():
                for first in range(0, len(waiting), _ITEMS):
                    self._put(table, waiting[first : first + _ITEMS], progress.stored)
            for sqs_queue, messages in found.direct.items():
                self._send(sqs_queue, messages, progress.stored)

    def send(self, sqs_queue: SQSQueue, items: Sequence[tuple[OutgoingMessage, int]], sent: Sent | None = None) -> None:
        """Send messages to an SQS queue, each with its DelaySeconds. They keep their order; on a FIFO queue, within a
        group. If it fails, no message has been sent that comes after one that was not."""
        numbered = [(number, outgoing, delay_s) for number, (outgoing, delay_s) in enumerate(items)]
        progress = SendProgress([outgoing.key for outgoing, _ in items], sent)
        with progress:
            self._send(sqs_queue, numbered, progress.stored)

    def _put(self, table: Table, waiting: Sequence[tuple[int, DelayedItem]], sent: Sent) -> None:
        try:
            table.delayed.put([each for _, each in waiting])
        except MissingError as error:
            raise MissingError(
                f"The table {table.name} is gone; create it with `laneway aws create`.", code=error.code
            ) from None
        for number, _ in waiting:
            sent(number)

    def _send(self, sqs_queue: SQSQueue, messages: Sequence[tuple[int, OutgoingMessage, int]], sent: Sent) -> None:
        try:
            for part in self._rounds(sqs_queue, messages):
                ready = [(number, fitted(outgoing, self._limit), delay_s) for number, outgoing, delay_s in part]
                for batch in split([size_of(outgoing) for _, outgoing, _ in ready], self._limit):
                    entries = {
                        number: entry_of(outgoing, str(number), sqs_queue, delay_s)
                        for number, outgoing, delay_s in ready[batch.start : batch.stop]
                    }
                    send_batch(self._account.clients, sqs_queue.url, entries, sent)
        except MissingError as error:
            self._account.queues.forget(sqs_queue)
            raise MissingError(
                f"The SQS queue {sqs_queue.name} is gone; create it with `laneway aws create`.", code=error.code
            ) from None

    @staticmethod
    def _rounds(
        sqs_queue: SQSQueue, messages: Sequence[tuple[int, OutgoingMessage, int]]
    ) -> Iterable[Sequence[tuple[int, OutgoingMessage, int]]]:
        """Messages in parts. Those of one part may share a request."""
        if not sqs_queue.fifo:
            return [messages]
        groups = [group_of(outgoing.key) for _, outgoing, _ in messages]
        return ([messages[n] for n in numbers] for numbers in rounds(groups))

    # -- where a message waits -------------------------------------------------------------------------

    def _sort(self, items: Sequence[TimedMessage]) -> _Routes:
        """Find the destination of every message, before any is sent."""
        found, now = _Routes(), self._account.clock.now()
        for number, item in enumerate(items):
            if item.to_topic:
                found.events.setdefault(item.queue, []).append((number, item.outgoing))
                continue
            sqs_queue = self._account.queues.of(item.queue, item.fifo)
            wait_s = 0.0 if item.due is None else max(0.0, item.due - now)
            table = None if self._waits_in_queue(item, wait_s) else self._table(item)
            outgoing = _timed(item, now, is_hop=wait_s > LONGEST_DELAY_S and table is None)
            if table is None or item.due is None:
                delay_s = min(math.ceil(wait_s), LONGEST_DELAY_S)
                found.direct.setdefault(sqs_queue, []).append((number, outgoing, delay_s))
            else:
                waiting = DelayedItem(
                    job_id=outgoing.note.id,
                    perform_at=item.due,
                    queue=item.queue,
                    fifo=item.fifo,
                    outgoing=fitted(outgoing, self._limit),
                    cancellable=item.cancellable,
                )
                found.waiting.setdefault(table, []).append((number, waiting))
        return found

    @staticmethod
    def _waits_in_queue(item: TimedMessage, wait_s: float) -> bool:
        """Whether SQS itself can keep a message until it is due. A FIFO queue cannot delay single messages."""
        return wait_s <= (0 if item.fifo or item.cancellable else LONGEST_DELAY_S)

    def _table(self, item: TimedMessage) -> Table | None:
        """The table that a message waits in; None: it waits by hops of 15 minutes."""
        hops = not item.fifo and not item.cancellable
        table = self._account.tables.of(item.queue)
        if table is None and not hops:
            raise needs_table(item.queue, item.outgoing.key, item.outgoing.body, item.fifo)
        size = size_of(item.outgoing)
        if size <= LARGEST_WAITING:
            return table
        if not hops:
            raise too_large_to_wait(item.queue, item.outgoing.key, item.outgoing.body, size)
        return None


def _timed(item: TimedMessage, now: float, *, is_hop: bool) -> OutgoingMessage:
    """The message with its due time. The caller's message is not changed, so that the call may be repeated."""
    body, note = item.outgoing.body, item.outgoing.note
    if item.due is not None:
        note = msgspec.structs.replace(note, due=item.due)
    carried = execute_after(body)
    if (is_hop or carried is not None) and not carries_time(body, note):
        pass  # a body that is not a ticket has its due time in its note
    elif is_hop and item.due is not None:
        body = with_execute_after(body, math.ceil(item.due))
    elif carried is not None and carried > math.ceil(max(now, item.due or now)):
        body = with_execute_after(body, None)  # the due time has become earlier
    return msgspec.structs.replace(item.outgoing, body=body, note=note)
