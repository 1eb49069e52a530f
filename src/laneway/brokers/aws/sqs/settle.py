"""Settler: carries out the plans of a turn, step by step, for all its settlements together.

    jobs that the runs enqueued → retry state → copies and dead letters → job history
        → deletes, hidden heads → the rest

So nothing leaves a place before it is stored in the next, wherever this process dies or an answer is lost. Finished
steps are marked: after an error the same turn continues where it stopped. Each stored message is noted at once,
and not sent again when the turn is repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from ....broker import Answer
from ....errors import BrokerError, EnqueueError
from ....jobs.data import Kind, NewJob
from ....jobs.settlement import Settlement
from ...shared import check_jobs
from ..dynamodb.heartbeat import Heartbeat
from ..dynamodb.job_history import record_ended
from ..dynamodb.retry_state import RetryStore
from ..errors import AWSError, DeniedError, MissingError, is_refusal
from .inflight import LEASE_S, ClaimMessages, Inflight
from .message import Message, OutgoingMessage, SQSQueue
from .queues import QueueLimits
from .send import MessageSender, TimedMessage
from .send_batch import Refusal, Sent, log_refusal, send_one_by_one_if_refused
from .settlement_plan import SettlementPlan, in_time, keep_in_place, needs_limits, plan, postpone_burial, refusal
from .visibility import MessageChange, MessageChanger

if TYPE_CHECKING:
    from ..account import Account


_log = logging.getLogger("laneway")


class TurnProgress(msgspec.Struct, eq=False):
    """How far the last turn of a worker on a queue has come. Its repeat continues it, or gets the same answer."""

    seq: int
    settlements: Sequence[Settlement]
    plans: list[tuple[Settlement, SettlementPlan]] | None = None
    #: Keys whose settlement is refused.
    refused: list[str] = []
    #: Keys that were to be buried, and could not be: they stay.
    stayed: list[str] = []
    is_settled: bool = False
    answer: Answer | None = None


class Settler:
    """Settles the claims of one process."""

    def __init__(
        self,
        account: Account,
        inflight: Inflight,
        retry_store: RetryStore,
        sender: MessageSender,
        changer: MessageChanger,
        heartbeat: Heartbeat,
    ) -> None:
        """`heartbeat` counts the settled runs."""
        self._account = account
        self._inflight = inflight
        self._retry_store = retry_store
        self._sender = sender
        self._changer = changer
        self._heartbeat = heartbeat

    def settle(self, queue: str, progress: TurnProgress, worker: str) -> None:
        """Carry out the settlements of a turn, or what is left of them."""
        if progress.plans is None:
            held = self._still_held(progress, worker)
            now = self._account.clock.monotonic()
            self._send_outboxes([each for each in held if _is_ours(each[1], now)])
            progress.plans = self._plans(held)
        plans = [made for _, made in progress.plans]
        self._remember(plans)
        self._send_plans(plans)
        self._remember(plans)  # again: what could not be sent stays, too
        self._record(queue, plans)
        with self._inflight.changed:
            for made in plans:
                ending = {id(change.message) for change in made.first if change.hide_s is None}
                for each in made.leaving():
                    each.is_leaving, each.is_ending = True, id(each.message) in ending
        self._changer.carry_out(change for made in plans for change in made.first)
        self._changer.carry_out(change for made in plans for change in made.then)
        self._conclude(queue, progress)
        progress.is_settled = True

    # -- the steps -------------------------------------------------------------------------------------

    def _still_held(self, progress: TurnProgress, worker: str) -> list[tuple[Settlement, ClaimMessages]]:
        """The settlements whose claim the worker holds, once each. The keys of the rest are refused."""
        held: dict[int, tuple[Settlement, ClaimMessages]] = {}
        progress.refused = []
        for settlement in progress.settlements:
            claim = settlement.claim
            claimed = self._inflight.claims.get(claim.ref)
            known = claimed is not None and claimed.claim.token == claim.token and claimed.worker == worker
            if claimed is None or not known or claim.ref in held:
                progress.refused.append(claim.key)
            else:
                held[claim.ref] = (settlement, claimed)
        return list(held.values())

    def _plans(self, held: Sequence[tuple[Settlement, ClaimMessages]]) -> list[tuple[Settlement, SettlementPlan]]:
        """The plan of each. If a claim was lost, the plan only gives back the rest of it."""
        intents = [self._intent(settlement, claimed) for settlement, claimed in held]
        plans: list[tuple[Settlement, SettlementPlan]] = []
        with self._inflight.changed:
            now, monotonic = self._account.clock.now(), self._account.clock.monotonic()
            for (settlement, claimed), (what, limits, stays) in zip(held, intents, strict=True):
                if _is_ours(claimed, monotonic):
                    made = plan(claimed, what, now, monotonic, self._account.settings.max_body, limits)
                    made.stays = stays
                else:
                    made = refusal(claimed, monotonic)
                plans.append((settlement, made))
        for _, made in plans:
            for remark in made.remarks:
                _log.error(remark)
        return plans

    def _intent(self, settlement: Settlement, claimed: ClaimMessages) -> tuple[Settlement, QueueLimits | None, bool]:
        """The settlement that is carried out, the limits of the SQS queue if they matter, and whether a job that should
        be buried stays."""
        sqs_queue, now, limits = claimed.buffer.sqs_queue, self._account.clock.now(), None
        what = settlement
        if not _is_ours(claimed, self._account.clock.monotonic()):
            return what, None, False
        if needs_limits(claimed, settlement, now, self._account.settings.max_body):
            limits = self._account.queues.limits(sqs_queue)
            lease_s = self._inflight.lease_s() or LEASE_S
            what = in_time(claimed, settlement, now, self._account.settings.max_body, limits, lease_s)
        if what.verdict != "bury":
            return what, limits, False
        if self._dead_letter_queue(sqs_queue) is not None:
            if what is not settlement:
                _log.error("a job of the queue %s (%s) is buried: %s", sqs_queue.queue, claimed.claim.key, what.error)
            return what, limits, False
        return postpone_burial(what), limits or self._account.queues.limits(sqs_queue), True

    def _dead_letter_queue(self, sqs_queue: SQSQueue) -> SQSQueue | None:
        try:
            found, why = self._account.queues.dead_letter_queue(sqs_queue), "there is none"
        except DeniedError as error:
            if not is_refusal(error):
                raise
            found, why = None, str(error)
        if found is None:
            self._account.log_once(
                f"no dead-letter queue {sqs_queue.url}",
                f"a job of the queue {sqs_queue.queue} is to be buried, and {sqs_queue.name} has no dead-letter queue: "
                "such jobs are not buried but tried again every 15 minutes; make one with `laneway aws create` "
                f"({why})",
            )
        return found

    def _remember(self, plans: Sequence[SettlementPlan]) -> None:
        """Store the retry state of messages that stay, before they can be received again."""
        for made in plans:
            queue = made.claimed.claim.queue
            for id, state in list(made.states.items()):
                self._retry_store.save(queue, id, state)
                del made.states[id]

    def _record(self, queue: str, plans: Sequence[SettlementPlan]) -> None:
        """Record how jobs ended, before their messages are deleted. Otherwise a job might seem queued for ever."""
        records = {id: record for made in plans for id, record in made.records.items()}
        if records:
            record_ended(self._account, queue, records)
        for made in plans:
            made.records.clear()

    def _conclude(self, queue: str, progress: TurnProgress) -> None:
        """All steps are done: free the claims, remember ended jobs, and count."""
        processed = failed = 0
        late: list[Message] = []
        for settlement, made in progress.plans or ():
            claimed = made.claimed
            with self._inflight.changed:
                late += made.late()
                for message in made.over:
                    self._inflight.holding.end(message)
                self._inflight.forget(made.leaving())
                refused = made.is_refused or self._is_lost(made)
                self._inflight.freed(claimed, made.kept)
            if made.ended:
                self._forget(claimed.claim.queue, made.ended)
            if refused:
                progress.refused.append(settlement.claim.key)
                continue
            if made.stays and settlement.verdict == "bury":
                progress.stayed.append(settlement.claim.key)
                self._report_not_buried(settlement, made)
            processed += settlement.verdict == "done" or settlement.done > 0
            failed += settlement.verdict in ("retry", "bury")
        if processed or failed:
            self._heartbeat.counted(queue, processed, failed)
        self._give_back(late)

    @staticmethod
    def _report_not_buried(settlement: Settlement, made: SettlementPlan) -> None:
        """The worker has logged by now that it is buried."""
        sqs_queue = made.claimed.buffer.sqs_queue
        _log.warning(
            "the job %s of the queue %s was not buried, for what has been said of %s: it is tried again in 15 minutes, "
            "for as long as SQS keeps it",
            settlement.claim.key,
            sqs_queue.queue,
            sqs_queue.name,
        )

    @staticmethod
    def _is_lost(made: SettlementPlan) -> bool:
        """Whether a FIFO queue refused a delete: another receiver has had the message since.

        A standard queue refuses the same way if the message is already gone, which is no problem.
        """
        fifo = made.claimed.buffer.sqs_queue.fifo
        return fifo and any(change.is_refused and change.hide_s is None for change in made.first)

    def _give_back(self, late: list[Message]) -> None:
        """Give back messages that arrived meanwhile: when they are received again, it is known what they are."""
        now = self._account.clock.monotonic()
        try:
            self._changer.carry_out([MessageChange(message, 0) for message in late if message.hidden_until > now])
        except BrokerError as error:
            _log.debug("%d messages come back only when they are not hidden any longer: %s", len(late), error)

    def _forget(self, queue: str, ids: list[str]) -> None:
        try:
            self._retry_store.forget(queue, ids)
        except BrokerError as error:
            # The jobs have ended. What is left of them has no effect, and expires.
            _log.debug("what was kept of finished jobs of the queue %s is left to expire: %s", queue, error)

    # -- sending ---------------------------------------------------------------------------------------

    def _send_outboxes(self, held: Sequence[tuple[Settlement, ClaimMessages]]) -> None:
        """Send what the runs enqueued, before anything else: if SQS refuses it, no verdict has been carried out."""
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
            # Otherwise the runs of this queue would wait until an operator creates the other queue, or a topic.
            self._report_missing_queue(jobs)
            for number, job in enumerate(jobs):
                stored, at = places[number]
                if job.to_topic and at not in stored:
                    self._send_alone(job, places[number])
            raise
        except AWSError as error:
            if not is_refusal(error):
                raise
            for number, job in enumerate(jobs):
                stored, at = places[number]
                if at not in stored:
                    self._send_alone(job, places[number])

    def _send_alone(self, job: NewJob, place: tuple[set[int], int]) -> None:
        """Send one of several jobs that were refused together. If it is refused again, its run fails."""
        stored, at = place
        try:
            self._sender.enqueue([job], lambda _: stored.add(at))
        except AWSError as error:
            if not isinstance(error, MissingError) and not is_refusal(error):
                raise
            raise EnqueueError(str(error), place=(job.queue, job.key)) from error

    def _report_missing_queue(self, jobs: Sequence[NewJob]) -> None:
        """Raise for a job whose queue does not exist: the run that enqueued it fails."""
        for job in jobs:
            if job.to_topic:
                continue  # only a request to SNS shows whether the topic exists
            try:
                self._account.queues.of(job.queue, job.kind is Kind.KEYED)
            except MissingError as error:
                raise EnqueueError(str(error), place=(job.queue, job.key)) from error

    def _send_plans(self, plans: Sequence[SettlementPlan]) -> None:
        """Send copies and dead letters. A message that SQS refuses for good stays where it is, and blocks no other."""
        self._send_copies(plans)
        self._send_dead_letters(plans)
        for made in plans:
            if made.moved:
                # The copy has their state now, which must not count twice.
                self._retry_store.forget(made.claimed.claim.queue, made.moved)
                made.moved.clear()

    def _send_copies(self, plans: Sequence[SettlementPlan]) -> None:
        def refused(each: tuple[SettlementPlan, TimedMessage], error: Refusal) -> None:
            made, copy = each
            made.copies.remove(copy)
            self._stays(made, copy.outgoing, error)

        waiting = [(made, copy) for made in plans for copy in made.copies]
        if waiting:
            send_one_by_one_if_refused(
                waiting,
                lambda part, sent: self._sender.dispatch([copy for _, copy in part], sent),
                lambda each: each[0].copies.remove(each[1]),
                refused,
            )

    def _send_dead_letters(self, plans: Sequence[SettlementPlan]) -> None:
        def refused(each: tuple[SettlementPlan, OutgoingMessage], error: Refusal) -> None:
            made, letter = each
            made.dead_letters.remove(letter)
            self._stays(made, letter, error)

        waiting: dict[SQSQueue, list[tuple[SettlementPlan, OutgoingMessage]]] = {}
        for made in plans:
            source = made.claimed.buffer.sqs_queue
            sqs_queue = self._account.queues.dead_letter_queue(source) if made.dead_letters else None
            for letter in list(made.dead_letters):
                if sqs_queue is None:
                    gone = MissingError(f"The dead-letter queue of {source.name} is gone; see `laneway aws create`.")
                    refused((made, letter), gone)
                else:
                    waiting.setdefault(sqs_queue, []).append((made, letter))
        for sqs_queue, letters in waiting.items():
            send_one_by_one_if_refused(
                letters,
                partial(self._send_to, sqs_queue),
                lambda each: each[0].dead_letters.remove(each[1]),
                refused,
                gone_too=True,
            )

    def _send_to(
        self, sqs_queue: SQSQueue, letters: Sequence[tuple[SettlementPlan, OutgoingMessage]], sent: Sent
    ) -> None:
        self._sender.send(sqs_queue, [(letter, 0) for _, letter in letters], sent)

    def _stays(self, made: SettlementPlan, outgoing: OutgoingMessage, error: Refusal) -> None:
        """Have a job stay where it is, because it could not be sent."""
        log_refusal(self._account, made.claimed.buffer.sqs_queue, outgoing.note.id, error)
        with self._inflight.changed:
            keep_in_place(made, outgoing, self._account.clock.now(), self._account.clock.monotonic())


def _is_ours(claimed: ClaimMessages, monotonic: float) -> bool:
    return all(held.is_ours(monotonic) for held in claimed.held)
