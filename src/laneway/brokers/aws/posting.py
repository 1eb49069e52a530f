"""What settlements send: the jobs that runs have enqueued, copies of what is run again, and dead letters.

What is known to be stored is noted at once, and not sent again when the turn is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import EnqueueError
from ...job import Kind, NewJob
from ...outcome import Settlement
from ..common import check_jobs
from .channels import Channels
from .messages import Channel, Outgoing
from .planning import Plan
from .remembering import Memory
from .sending import Sender
from .stock import Claimed
from .trouble import AWSError, MissingError


class Post:
    """Sends for the settlements of one process."""

    def __init__(self, memory: Memory, sender: Sender, channels: Channels) -> None:
        self._memory = memory
        self._sender = sender
        self._channels = channels

    def send_outboxes(self, held: Sequence[tuple[Settlement, Claimed]]) -> None:
        """Send what the runs enqueued, before anything else: then no verdict has been carried out if it is refused."""
        places: list[tuple[set[int], int]] = []
        jobs: list[NewJob] = []
        for settlement, claimed in held:
            for number, job in enumerate(settlement.outbox or ()):
                if number not in claimed.sent:
                    places.append((claimed.sent, number))
                    jobs.append(job)

        def sent(number: int) -> None:
            stored, at = places[number]
            stored.add(at)

        if not jobs:
            return
        check_jobs(jobs)
        try:
            self._sender.enqueue(jobs, sent)
        except MissingError:
            # Else the runs of this queue would wait for somebody to make the other one.
            self._blame_for_missing(jobs)
            raise

    def _blame_for_missing(self, jobs: Sequence[NewJob]) -> None:
        """Say which job is for a queue that does not exist: the run that enqueued it has failed."""
        for job in jobs:
            try:
                self._channels.of(job.queue, job.kind is Kind.KEYED)
            except MissingError as error:
                raise EnqueueError(str(error), place=(job.queue, job.key)) from error

    def send(self, plans: Sequence[Plan]) -> None:
        """Send copies and dead letters. What SQS refuses cannot be mended by blaming the run: it is tried again."""
        try:
            self._send_copies(plans)
            self._send_letters(plans)
        except EnqueueError as error:
            raise AWSError(f"What is to be run again, or buried, cannot be sent. {error}") from error
        for made in plans:
            if made.moved:
                # They travel with the copy now, and must not count twice.
                self._memory.forget(made.claimed.claim.queue, made.moved)
                made.moved.clear()

    def _send_copies(self, plans: Sequence[Plan]) -> None:
        waiting = [(made, copy) for made in plans for copy in made.copies]

        def sent(number: int) -> None:
            made, copy = waiting[number]
            made.copies.remove(copy)

        if waiting:
            self._sender.dispatch([copy for _, copy in waiting], sent)

    def _send_letters(self, plans: Sequence[Plan]) -> None:
        waiting: dict[Channel, list[tuple[Plan, Outgoing]]] = {}
        for made in plans:
            if made.letters:
                source = made.claimed.buffer.channel
                channel = self._channels.dead_letters(source)
                if channel is None:
                    raise MissingError(f"The dead-letter queue of {source.name} is gone; see `laneway aws create`.")
                waiting.setdefault(channel, []).extend((made, letter) for letter in made.letters)
        for channel, letters in waiting.items():

            def sent(number: int, letters: list[tuple[Plan, Outgoing]] = letters) -> None:
                made, letter = letters[number]
                made.letters.remove(letter)

            self._sender.send(channel, [(letter, 0) for _, letter in letters], sent)
