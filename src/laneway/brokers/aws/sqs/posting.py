"""What settlements send: the jobs that runs have enqueued, copies of what is run again, and dead letters.

What is known to be stored is noted at once, and not sent again when the turn is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ....errors import EnqueueError
from ....jobs.data import Kind, NewJob
from ....jobs.settlement import Settlement
from ...shared import check_jobs
from ..dynamodb.retry_store import Memory
from ..errors import AWSError, MissingError, is_refusal
from .inflight import Claimed
from .message import Channel, Outgoing
from .queues import Channels
from .send import Dispatch, Sender
from .send_batch import Sent
from .settlement_plan import Plan
from .singly import Complaints, Refusal, send_singly


class Post:
    """Sends for the settlements of one process."""

    def __init__(
        self, memory: Memory, sender: Sender, channels: Channels, stay: Callable[[Plan, Outgoing], None]
    ) -> None:
        self._memory = memory
        self._sender = sender
        self._channels = channels
        #: Has a job stay where it is, because it could not be sent.
        self._stay = stay
        self._complaints = Complaints()

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
            # Else the runs of this queue would wait for somebody to make the other one, or a topic.
            self._blame_for_missing(jobs)
            for number, job in enumerate(jobs):
                stored, at = places[number]
                if job.to_topic and at not in stored:
                    self._send_alone(job, partial(_told_as, sent, number))
            raise
        except AWSError as error:
            if not is_refusal(error):
                raise
            for number, job in enumerate(jobs):
                stored, at = places[number]
                if at not in stored:
                    self._send_alone(job, partial(_told_as, sent, number))

    def _send_alone(self, job: NewJob, sent: Sent) -> None:
        """Send one of several that have been refused together; if it is to blame, so is the run that enqueued it."""
        try:
            self._sender.enqueue([job], sent)
        except AWSError as error:
            if not isinstance(error, MissingError) and not is_refusal(error):
                raise
            raise EnqueueError(str(error), place=(job.queue, job.key)) from error

    def _blame_for_missing(self, jobs: Sequence[NewJob]) -> None:
        """Say which job is for a queue that does not exist: the run that enqueued it has failed."""
        for job in jobs:
            if job.to_topic:
                continue  # SNS only tells when it is published to
            try:
                self._channels.of(job.queue, job.kind is Kind.KEYED)
            except MissingError as error:
                raise EnqueueError(str(error), place=(job.queue, job.key)) from error

    def send(self, plans: Sequence[Plan]) -> None:
        """Send copies and dead letters. What SQS refuses for good stays where it is, and holds up nothing else."""
        self._send_copies(plans)
        self._send_letters(plans)
        for made in plans:
            if made.moved:
                # They travel with the copy now, and must not count twice.
                self._memory.forget(made.claimed.claim.queue, made.moved)
                made.moved.clear()

    def _send_copies(self, plans: Sequence[Plan]) -> None:
        def refused(each: tuple[Plan, Dispatch], error: Refusal) -> None:
            made, copy = each
            made.copies.remove(copy)
            self._stays(made, copy.outgoing, error)

        waiting = [(made, copy) for made in plans for copy in made.copies]
        if waiting:
            send_singly(
                waiting,
                lambda part, sent: self._sender.dispatch([copy for _, copy in part], sent),
                lambda each: each[0].copies.remove(each[1]),
                refused,
            )

    def _send_letters(self, plans: Sequence[Plan]) -> None:
        def refused(each: tuple[Plan, Outgoing], error: Refusal) -> None:
            made, letter = each
            made.letters.remove(letter)
            self._stays(made, letter, error)

        waiting: dict[Channel, list[tuple[Plan, Outgoing]]] = {}
        for made in plans:
            source = made.claimed.buffer.channel
            channel = self._channels.dead_letters(source) if made.letters else None
            for letter in list(made.letters):
                if channel is None:
                    gone = MissingError(f"The dead-letter queue of {source.name} is gone; see `laneway aws create`.")
                    refused((made, letter), gone)
                else:
                    waiting.setdefault(channel, []).append((made, letter))
        for channel, letters in waiting.items():
            send_singly(
                letters,
                partial(self._send_to, channel),
                lambda each: each[0].letters.remove(each[1]),
                refused,
                gone_too=True,
            )

    def _send_to(self, channel: Channel, letters: Sequence[tuple[Plan, Outgoing]], sent: Sent) -> None:
        self._sender.send(channel, [(letter, 0) for _, letter in letters], sent)

    def _stays(self, made: Plan, outgoing: Outgoing, error: Refusal) -> None:
        self._complaints.tell(made.claimed.buffer.channel, outgoing.note.id, error)
        self._stay(made, outgoing)


def _told_as(sent: Sent, number: int, _: int) -> None:
    """What is the only one of its call is one of several for somebody else."""
    sent(number)
