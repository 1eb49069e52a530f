"""MorgueEmptier: revives or deletes a whole dead-letter queue, ten letters at a time, however many there are.

A listing holds all its letters and so sees 10,000 at most; this file keeps only ids. It comes to an end even if jobs
die again meanwhile: letters that were sent after it began are left. If several queues share the dead-letter queue,
it touches only letters that are known to belong to this queue. Letters are sent before they are deleted, so an
interruption loses none; at worst ten letters are in both places. Only for standard queues: the jobs of FIFO queues
are revived by key, in order (`dead_letters`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from ....broker import EmptyMorgueResult
from ..settings import BATCH
from .dead_letters import HIDDEN_S, DeadLetter, DeadLetterMorgue, DeadLetterReceiver, is_from, is_ownerless
from .message import SQSQueue

if TYPE_CHECKING:
    from ..account import Account


class MorgueEmptier:
    """One run over the dead letters of a queue."""

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
