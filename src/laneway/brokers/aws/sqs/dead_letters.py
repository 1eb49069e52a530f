"""DeadLetterMorgue: the dead-letter queues as a morgue: list, find, revive and delete by key, or empty it.

SQS can neither list nor find a message, so a DeadLetterReceiver receives all of them: at most `MOST`
(`laneway stats` counts all), and only the first 10 of a FIFO group that a third party filled, because SQS hands out
no more of a group at once. It keeps them hidden, so that it sees none twice, and makes them visible again at its
end; if it cannot, SQS does so within `HIDDEN_S`. A second reader at the same time sees only the rest. Messages that
SQS or a third party put there are shown as well. Revived jobs are sent before their letters are deleted: if we die
in between, a job is revived and still in the morgue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from ....broker import EmptyMorgueResult
from ....errors import BrokerAwayError, BrokerError, BrokerRefusedError
from ....jobs.data import JobView, Kind, Payload, Status
from ..settings import BATCH
from .message import Message, OutgoingMessage, SQSQueue, headers_of, read, resend_of
from .queues import SQSQueues
from .send import MessageSender, TimedMessage
from .visibility import in_tens, is_not_ours

if TYPE_CHECKING:
    from ..account import Account

#: The most messages that are read in one go.
MOST = 10_000
#: Seconds for which they are hidden. After half of that time no more are received.
HIDDEN_S = 90
#: Seconds of reserve before they become visible again.
RESERVE_S = 10.0
#: Seconds that a receive waits. SQS then asks all its servers, so an empty answer means an empty queue.
WAIT_S = 1


class DeadLetter(msgspec.Struct, eq=False):
    """A dead letter."""

    message: Message
    #: The ARN of the SQS queue from which SQS itself moved it, after too many receives.
    moved_from: str = ""
    #: Further letters of the same job. It was buried twice, because an answer was lost.
    copies: list[DeadLetter] = []

    @property
    def key(self) -> str:
        """The key of its job: a plain job's is its id."""
        return self.message.note.key or self.message.note.id

    @property
    def died_at(self) -> float:
        """When it was buried. For a letter that SQS or a third party put there, when the message was sent."""
        return self.message.note.buried_at or self.message.sent_at


class DeadLetterReceiver:
    """Receives the letters of one dead-letter queue. Used in a `with`, whose end makes them visible again."""

    def __init__(self, account: Account, dead_letter_queue: SQSQueue) -> None:
        self._account = account
        self._dead_letter_queue = dead_letter_queue
        self._held: dict[str, DeadLetter] = {}
        self._began = account.clock.monotonic()
        #: Whether `take` has seen all letters, and did not stop at a limit.
        self.is_through = False

    def __enter__(self) -> DeadLetterReceiver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()

    def take(self) -> Iterator[DeadLetter]:
        """Yield letters until there are no more, or until a limit is reached."""
        while len(self._held) < MOST and self._age() < HIDDEN_S / 2:
            now = self._account.clock.monotonic()
            answer = self._account.clients.sqs(
                "receive_message",
                QueueUrl=self._dead_letter_queue.url,
                MaxNumberOfMessages=BATCH,
                VisibilityTimeout=HIDDEN_S,
                WaitTimeSeconds=min(self._account.settings.wait_s, WAIT_S),
                AttributeNames=["All"],
                MessageAttributeNames=["All"],
            )
            received: list[dict[str, Any]] = answer.get("Messages", [])
            fresh = [raw for raw in received if raw["MessageId"] not in self._held]
            for raw in received:
                letter = DeadLetter(
                    read(self._dead_letter_queue, raw, now, HIDDEN_S),
                    raw.get("Attributes", {}).get("DeadLetterQueueSourceArn", ""),
                )
                self._held[letter.message.message_id] = letter
            for raw in fresh:
                yield self._held[raw["MessageId"]]
            if not fresh:
                self.is_through = True
                return

    def is_safe(self) -> bool:
        """Whether all held letters stay hidden long enough to be sent elsewhere and deleted here."""
        return self._age() < HIDDEN_S - RESERVE_S

    def delete(self, letters: Sequence[DeadLetter]) -> None:
        """Delete letters for good. A letter that is already gone is not an error."""
        left = self._batch("delete_message_batch", letters)
        left = self._batch("delete_message_batch", left)
        if left:
            raise BrokerAwayError(
                f"SQS did not delete {len(left)} of the dead letters in {self._dead_letter_queue.name} though it was "
                "asked twice; what was revived of them is there still, and may be deleted later."
            )
        for letter in letters:
            self._held.pop(letter.message.message_id, None)

    def _give_back(self) -> None:
        try:
            self._batch("change_message_visibility_batch", list(self._held.values()), VisibilityTimeout=0)
        except BrokerError:
            pass  # SQS makes them visible again before long

    def _batch(self, operation: str, letters: Sequence[DeadLetter], **more: int) -> list[DeadLetter]:
        """Carry out an operation on letters, ten per request. Returns the existing letters for which it failed."""
        failed: list[DeadLetter] = []
        for part in in_tens(letters):
            entries = [
                {"Id": str(number), "ReceiptHandle": letter.message.receipt, **more}
                for number, letter in enumerate(part)
            ]
            answer = self._account.clients.sqs(operation, QueueUrl=self._dead_letter_queue.url, Entries=entries)
            wrong = (entry for entry in answer.get("Failed", ()) if not is_not_ours(entry.get("Code", "")))
            failed += [part[int(entry["Id"])] for entry in wrong]
        return failed

    def _age(self) -> float:
        return self._account.clock.monotonic() - self._began


#: The attributes whose sum is the number of messages in an SQS queue.
COUNTED = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed", "ApproximateNumberOfMessagesNotVisible")
MOVED = (
    "SQS itself moved it here, because it was received more often than the redrive policy allows; no error is known."
)

_log = logging.getLogger("laneway")


class DeadLetterMorgue:
    """The dead jobs of all queues."""

    def __init__(self, account: Account, sender: MessageSender) -> None:
        self._account = account
        self._sender = sender

    # -- reading ---------------------------------------------------------------------------------------

    def count(self, queue: str) -> int:
        """About how many messages are dead, including those that a reader has hidden."""
        return sum(
            sum(int(attributes.get(name, 0)) for name in COUNTED)
            for _, dead_letter_queue in self.places(queue)
            for attributes in [self._account.queues.attributes(dead_letter_queue)]
        )

    def views(self, queue: str) -> Iterator[JobView]:
        """The dead jobs of a queue, as many as can be read in one go."""
        for sqs_queue, dead_letter_queue in self.places(queue):
            with self.receiver(dead_letter_queue) as receiver:
                own = [letter for letter in receiver.take() if is_from(letter, sqs_queue)]
            yield from (_view(queue, sqs_queue, same) for same in _by_key(own).values())

    # -- changing --------------------------------------------------------------------------------------

    def revive(self, queue: str, keys: Collection[str]) -> int:
        """Send jobs to their queue again, due now and with all their retries, then delete the dead letters.

        If we die in between, a job is revived and still in the morgue.
        """
        return sum(self._take_out(place, keys, partial(self.resend, queue)) for place in self.places(queue))

    def resend(self, queue: str, sqs_queue: SQSQueue, letters: Sequence[DeadLetter]) -> None:
        """Send dead jobs to their queue again. The caller deletes their letters."""
        self._sender.dispatch([TimedMessage(queue, sqs_queue.fifo, _revived(letter), None) for letter in letters])
        try:
            self.amend(queue, letters, "queued")
        except BrokerError as error:
            # The jobs have been sent, and this error must not make the caller send them twice. Until they end, their
            # records say that they are dead.
            _log.warning("of revived jobs of the queue %s it is still kept that they are dead: %s", queue, error)

    def delete(self, queue: str, keys: Collection[str]) -> int:
        """Delete dead jobs for good."""

        def over(sqs_queue: SQSQueue, letters: Sequence[DeadLetter]) -> None:
            self.amend(queue, letters, "gone")

        return sum(self._take_out(place, keys, over) for place in self.places(queue))

    def bury(self, sqs_queue: SQSQueue, outgoings: Sequence[OutgoingMessage]) -> None:
        """Send jobs to the dead-letter queue that are in no queue: those of the table."""
        dead_letter_queue = self._account.queues.dead_letter_queue(sqs_queue)
        if dead_letter_queue is None:
            raise no_dead_letters(sqs_queue)
        now = self._account.clock.now()
        for outgoing in outgoings:
            outgoing.note.buried_at = now
        self._sender.send(dead_letter_queue, [(outgoing, 0) for outgoing in outgoings])

    # -- steps -----------------------------------------------------------------------------------------

    def amend(self, queue: str, letters: Sequence[DeadLetter], status: Status) -> None:
        """Record a new status of dead jobs, if the table keeps records."""
        table = self._account.tables.of(queue)
        if table is not None:
            table.history.amend_dead(queue, {letter.message.note.id: letter.died_at for letter in letters}, status)

    def places(self, queue: str) -> Iterator[tuple[SQSQueue, SQSQueue]]:
        """The SQS queues of a queue, each with its dead-letter queue. A queue without one is left out."""
        for sqs_queue in self._account.queues.existing(queue):
            dead_letter_queue = self._account.queues.dead_letter_queue(sqs_queue)
            if dead_letter_queue is not None:
                yield sqs_queue, dead_letter_queue

    def receiver(self, dead_letter_queue: SQSQueue) -> DeadLetterReceiver:
        """A receiver for one dead-letter queue."""
        return DeadLetterReceiver(self._account, dead_letter_queue)

    def _take_out(
        self,
        place: tuple[SQSQueue, SQSQueue],
        keys: Collection[str],
        act: Callable[[SQSQueue, Sequence[DeadLetter]], None],
    ) -> int:
        """Call `act` with the letters of keys, then delete them, ten at a time. Returns the number of keys."""
        sqs_queue, dead_letter_queue = place
        with self.receiver(dead_letter_queue) as receiver:
            found = _by_key(_wanted(receiver, sqs_queue, set(keys)))
            # The letters of a key in the order in which they were sent; the keys in the order of their burials.
            ordered = [letter for same in sorted(found.values(), key=_last_death) for letter in same]
            for start in range(0, len(ordered), BATCH):
                if not receiver.is_safe():
                    raise BrokerRefusedError(
                        f"SQS was too slow: {len(ordered) - start} of {len(ordered)} dead letters in "
                        f"{dead_letter_queue.name} were left as they are; do it again for those."
                    )
                part = ordered[start : start + BATCH]
                act(sqs_queue, part)
                receiver.delete([copy for letter in part for copy in (letter, *letter.copies)])
            return len(found)


def no_dead_letters(sqs_queue: SQSQueue) -> BrokerError:
    """The error for a burial from a queue without a dead-letter queue."""
    return BrokerRefusedError(
        f"The SQS queue {sqs_queue.name} has no dead-letter queue, so that nothing of it can be buried; "
        "make one with laneway aws create TARGET."
    )


def _wanted(receiver: DeadLetterReceiver, sqs_queue: SQSQueue, keys: set[str]) -> Iterator[DeadLetter]:
    """The letters of keys. A plain job has one letter, so on a standard queue the search ends when all are found."""
    left = set(keys)
    for letter in receiver.take():
        if letter.key in keys and is_from(letter, sqs_queue):
            yield letter
            left.discard(letter.key)
            if not left and not sqs_queue.fifo:
                return


def is_from(letter: DeadLetter, sqs_queue: SQSQueue) -> bool:
    """Whether a letter belongs to a queue. Queues may share a dead-letter queue. A letter without a source fits all."""
    source = letter.moved_from.rpartition(":")[2]
    return letter.message.note.queue in ("", sqs_queue.queue) and source in ("", sqs_queue.name)


def is_ownerless(letter: DeadLetter, sqs_queue: SQSQueue, dead_letter_queue: SQSQueue) -> bool:
    """Whether a letter's queue is unknown: not from its note, nor from SQS, nor from the dead-letter queue's name."""
    is_own = dead_letter_queue.name == SQSQueues.dead_name_of(sqs_queue.name)
    return not is_own and not letter.message.note.queue and not letter.moved_from


def _by_key(letters: Iterable[DeadLetter]) -> dict[str, list[DeadLetter]]:
    """The letters of each key in the order of its calls. If a call was buried twice, the later letter is kept and the
    earlier one becomes its copy."""
    found: dict[str, dict[str, DeadLetter]] = {}
    for letter in letters:
        same = found.setdefault(letter.key, {})
        other = same.get(letter.message.note.id)
        if other is not None:
            first, letter = sorted((other, letter), key=lambda each: each.died_at)
            letter.copies = [*letter.copies, first, *first.copies]
            first.copies = []
        same[letter.message.note.id] = letter
    return {key: sorted(same.values(), key=_order) for key, same in found.items()}


def _order(letter: DeadLetter) -> tuple[float, float, int]:
    message = letter.message
    return message.note.due or 0.0, message.sent_at, message.sequence


def _last_death(letters: Sequence[DeadLetter]) -> float:
    return max(letter.died_at for letter in letters)


def _revived(letter: DeadLetter) -> OutgoingMessage:
    """The message that revives a job. It keeps its error until it succeeds."""
    return resend_of(letter.message, retry_count=-1, deaths=0, due=None, buried_at=None, queue="")


def _view(queue: str, sqs_queue: SQSQueue, letters: Sequence[DeadLetter]) -> JobView:
    """The view of a dead job from the letters of its key."""
    last = max(letters, key=lambda letter: letter.died_at)
    message, note = last.message, last.message.note
    kind = Kind.KEYED if sqs_queue.fifo else Kind.PLAIN
    return JobView(
        queue=queue,
        key=last.key,
        status="dead",
        shard=0,
        payloads=[_payload(letter, kind) for letter in letters],
        perform_at=message.sent_at if note.due is None else note.due,
        retry_count=note.retry_count,
        attempt=note.attempt,
        kind=kind,
        size=len(letters),
        deaths=note.deaths,
        error=note.error if note.error is not None or not last.moved_from else MOVED,
        updated_at=last.died_at,
    )


def _payload(letter: DeadLetter, kind: Kind) -> Payload:
    message, note = letter.message, letter.message.note
    if kind is Kind.PLAIN:
        return Payload(message.body)
    due = message.sent_at if note.due is None else note.due
    return Payload(message.body, due, note.id, note.attempt, headers_of(message), note.deaths)


class MorgueEmptier:
    """One run over the dead letters of a queue, ten at a time, however many there are.

    A listing holds all its letters and so sees 10,000 at most; this class keeps only ids. It comes to an end even if
    jobs die again meanwhile: letters that were sent after it began are left. If several queues share the dead-letter
    queue, it touches only letters that are known to belong to this queue. Letters are sent before they are deleted, so
    an interruption loses none; at worst ten letters are in both places. Only for standard queues: the jobs of FIFO
    queues are revived by key, in order.
    """

    def __init__(self, account: Account, morgue: DeadLetterMorgue, queue: str, *, revive: bool) -> None:
        self._morgue = morgue
        self._queue = queue
        self._revive = revive
        self._began = account.clock.now()
        #: The jobs that are done, each with the version of its letter. If a job is found again, another version means
        #: that it has died again; the same version is the same death.
        self._done: dict[str, tuple[int, int]] = {}
        #: The messages that were there when it began, by SQS's own ids; and those that were left because their queue is
        #: unknown.
        self._seen: set[str] = set()
        self._ownerless: set[str] = set()

    def steps(self, most: int) -> Generator[int, None, EmptyMorgueResult]:
        """Handle up to `most` letters. Yields the number of each step. Closing it between two steps ends it early."""
        for sqs_queue, dead_letter_queue in self._morgue.places(self._queue):
            if not sqs_queue.fifo:
                for count in self._empty(sqs_queue, dead_letter_queue, most):
                    most -= count
                    yield count
        return EmptyMorgueResult(len(self._seen), len(self._ownerless), HIDDEN_S)

    def _empty(self, sqs_queue: SQSQueue, dead_letter_queue: SQSQueue, most: int) -> Generator[int, None, None]:
        """Handle the letters with one receiver after another. Each also holds letters that must not be touched, and has
        to make them visible again in time."""
        left = most
        while left > 0:
            before = left
            with self._morgue.receiver(dead_letter_queue) as receiver:
                wanted = self._wanted(receiver, sqs_queue, dead_letter_queue)
                while left > 0 and (part := list(islice(wanted, min(BATCH, left)))) and receiver.is_safe():
                    self._carry_out(sqs_queue, receiver, part)
                    left -= len(part)
                    yield len(part)
                if receiver.is_through:
                    return
            if left == before:
                return  # only letters that must not be touched are left

    def _wanted(
        self, receiver: DeadLetterReceiver, sqs_queue: SQSQueue, dead_letter_queue: SQSQueue
    ) -> Iterator[DeadLetter]:
        """The letters of this queue that were there when it began. The receiver keeps the rest hidden until its end."""
        pending: dict[str, DeadLetter] = {}
        for letter in receiver.take():
            if letter.message.sent_at > self._began:
                continue
            self._seen.add(letter.message.message_id)
            if is_ownerless(letter, sqs_queue, dead_letter_queue):
                self._ownerless.add(letter.message.message_id)
                continue
            if not is_from(letter, sqs_queue):
                continue
            name = _name(letter)
            if name in self._done:
                if not self._revive or self._done[name] == _version(letter):
                    receiver.delete([letter])  # the answer to its burial or deletion was lost
            elif name in pending:
                pending[name].copies.append(letter)
            else:
                pending[name] = letter
                yield letter

    def _carry_out(self, sqs_queue: SQSQueue, receiver: DeadLetterReceiver, part: Sequence[DeadLetter]) -> None:
        if self._revive:
            self._morgue.resend(self._queue, sqs_queue, part)
        else:
            self._morgue.amend(self._queue, part, "gone")
        for letter in part:
            # Under both names: when a bare message is sent again, it has our note.
            self._done[_name(letter)] = self._done[letter.message.note.id] = _version(letter)
        receiver.delete([each for letter in part for each in (letter, *letter.copies)])


def _name(letter: DeadLetter) -> str:
    """The name of a letter's job. A message without our note is known only by SQS's own id."""
    return letter.message.message_id if letter.message.is_bare else letter.message.note.id


def _version(letter: DeadLetter) -> tuple[int, int]:
    """The version of a letter: it differs for each death of its job."""
    return letter.message.note.attempt, letter.message.note.hop
