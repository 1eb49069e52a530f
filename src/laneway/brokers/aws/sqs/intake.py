"""Intake: sorts messages that have just been received: hold, send on, hide or delete.

Most messages go to the buffer of their queue. A job that this process holds already, or that has ended, is not run
again. A message that arrives before its time is sent on whole, or hidden again. Retry state is looked up only for
messages that were received before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ....errors import BrokerError
from ....jobs.ticket import execute_after
from ..dynamodb.retry_state import RetryState, RetryStore
from .hop_delay import waits_until
from .inflight import LONGEST_S, HeldMessage, Inflight, QueueBuffer
from .message import Message, resend_of
from .send import MessageSender, TimedMessage
from .send_batch import Refusal, Sent, log_refusal, send_one_by_one_if_refused
from .visibility import MessageChange, MessageChanger, in_tens

if TYPE_CHECKING:
    from ..account import Account

#: Without a table no process counts deaths: a job received so often counts as one that has died twice, and runs alone.
SUSPECT_AFTER = 10
SUSPECT_DEATHS = 2
#: Seconds after which a settlement under way has ended.
MOMENT_S = 1


class Intake:
    """Sorts the messages that the receivers of one process receive."""

    def __init__(
        self,
        account: Account,
        inflight: Inflight,
        retry_store: RetryStore,
        sender: MessageSender,
        changer: MessageChanger,
    ) -> None:
        self._account = account
        self._inflight = inflight
        self._retry_store = retry_store
        self._sender = sender
        self._changer = changer

    def take_in(self, buffer: QueueBuffer, messages: Sequence[Message]) -> None:
        """Put new messages into the buffer. If it raises, SQS delivers again what could not be handled."""
        errors: list[BrokerError] = []
        fresh, doubles, others = self._sort(messages)
        now = self._account.clock.now()
        early = [(message, at) for message in fresh if (at := _hops_until(message)) is not None and at > now]
        hopping = {id(message) for message, _ in early}
        self._put(buffer, [message for message in fresh if id(message) not in hopping], errors)
        others += self._sort(doubles)[2]
        if early:
            _try(errors, lambda: self._send_on(early))
        if others:
            _try(errors, lambda: self._changer.carry_out(others))
        if errors:
            raise errors[0]

    def give_back(self, messages: Iterable[Message]) -> None:
        """Make messages visible to all receivers now."""
        self._changer.carry_out([MessageChange(message, 0) for message in messages])

    def _sort(self, messages: Sequence[Message]) -> tuple[list[Message], list[Message], list[MessageChange]]:
        """New messages, duplicates of these, and the changes for the rest."""
        fresh: dict[str, Message] = {}
        doubles: list[Message] = []
        others: list[MessageChange] = []
        #: Keys with a call that is given back, so that no later call may run before it.
        leaving: set[str] = set()
        with self._inflight.changed:
            for message in sorted(messages, key=lambda each: each.sequence):
                held = self._inflight.holding.get(message)
                if held is not None and held.is_leaving:
                    others.append(MessageChange(message, MOMENT_S))  # the settlement under way does not include it
                    leaving.add(message.note.key)
                elif held is not None:
                    held.merge_redelivery(message)
                elif self._inflight.holding.is_ended(message):
                    others.append(MessageChange(message))  # if this fails it comes once more, and is known still
                elif message.sqs_queue.fifo and message.note.key in leaving:
                    others.append(MessageChange(message, 0))  # its group stays blocked: the call before it is hidden
                elif fresh.setdefault(message.note.id, message) is not message:
                    doubles.append(message)
        return list(fresh.values()), doubles, others

    def _send_on(self, early: list[tuple[Message, float]]) -> None:
        """Send on messages that wait hop by hop, then delete them. If we die before the delete, both are sent on."""
        changes: list[MessageChange] = []

        def sent(each: tuple[Message, float]) -> None:
            changes.append(MessageChange(each[0]))
            with self._inflight.changed:
                self._inflight.holding.end(each[0])

        def refused(each: tuple[Message, float], error: Refusal) -> None:
            message, at = each
            log_refusal(self._account, message.sqs_queue, message.note.id, error)
            changes.append(MessageChange(message, min(math.ceil(at - self._account.clock.now()), int(LONGEST_S))))

        for batch in in_tens(early):
            send_one_by_one_if_refused(batch, self._dispatch, sent, refused)
        self._changer.carry_out(changes)

    def _dispatch(self, early: Sequence[tuple[Message, float]], sent: Sent) -> None:
        items = [
            TimedMessage(message.sqs_queue.queue, message.sqs_queue.fifo, resend_of(message), at)
            for message, at in early
        ]
        self._sender.dispatch(items, sent)

    def _put(self, buffer: QueueBuffer, messages: list[Message], errors: list[BrokerError]) -> None:
        """Look up the retry state of messages. Put them into the buffer, or hide them again until they are due."""
        queue = buffer.sqs_queue.queue
        again = [message.note.id for message in messages if message.receive_count > 1]
        states: dict[str, RetryState] = {}
        unknown: set[str] = set()
        if again:
            try:
                states = self._retry_store.of(queue, again)
            except BrokerError as error:
                # Whether they wait for a retry, and how often they have failed, is not known now.
                errors.append(error)
                unknown = set(again)
        back: list[MessageChange] = []
        ready: list[HeldMessage] = []
        #: Keys whose first call cannot run now, so that no later one may.
        resting: set[str] = set()
        for message in sorted(messages, key=lambda each: each.sequence):
            id, key = message.note.id, message.note.key
            state = states.get(id)
            not_before = max(0.0 if state is None else state.not_before, _execute_after(message))
            rest_s = math.ceil(not_before - self._account.clock.now())
            if id in unknown or (message.sqs_queue.fifo and key in resting):
                back.append(MessageChange(message, 0))
            elif rest_s > 0:
                back.append(MessageChange(message, min(rest_s, int(LONGEST_S))))
            else:
                ready.append(self._held(message, state))
                continue
            resting.add(key)
        self._inflight.put(buffer, ready)
        if back:
            _try(errors, lambda: self._changer.carry_out(back))

    def _held(self, message: Message, state: RetryState | None) -> HeldMessage:
        held = HeldMessage(message)
        if state is not None:
            held.has_state = True
            held.deaths += state.deaths
            if state.attempt >= held.attempt:  # else only deaths were counted there
                held.attempt, held.retry_count = state.attempt, state.retry_count
                held.error = state.error or held.error
        if message.receive_count >= SUSPECT_AFTER and not self._retry_store.has_table(message.sqs_queue.queue):
            held.deaths = max(held.deaths, SUSPECT_DEATHS)
        return held


def _hops_until(message: Message) -> float | None:
    return None if message.sqs_queue.fifo else waits_until(message.body, message.note)


def _execute_after(message: Message) -> float:
    """Until when a ticket in a FIFO queue waits. It cannot hop, because it must keep its place: its group waits too."""
    return float(execute_after(message.body) or 0) if message.sqs_queue.fifo and not message.note.value else 0.0


def _try(errors: list[BrokerError], work: Callable[[], None]) -> None:
    try:
        work()
    except BrokerError as error:
        errors.append(error)
