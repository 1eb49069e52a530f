"""Decides which messages a settlement sends, deletes and hides, and in which order. Pure functions.

SQS cannot change a message. So a plain job that is retried is sent as a new message, which carries its counts, and
the old message is deleted. A keyed call stays at the head of its group: it is hidden until its time, and its retry
state is stored beside it. A postponed plain job stays hidden, too, unless SQS would not hide or keep it long enough.
So does a plain job whose message has no room for its counts. Nothing is deleted before it is stored in its next
place.

A message ages from the moment it was sent, hidden or not, and SQS deletes it when its queue's retention is over. SQS
also moves a message that was received too often to the dead letters. A job that would reach either limit is sent as
a new message, or buried with a sentence that gives the reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from ....jobs.data import Kind
from ....jobs.settlement import Settlement
from ...shared import again_at, storable
from ..dynamodb.job_history import HistoryRow
from ..dynamodb.retry_state import RetryState
from .inflight import LONGEST_S, ClaimMessages, HeldMessage
from .message import Message, OutgoingMessage, as_it_came, fitted, resend_of, size_of
from .queues import QueueLimits
from .send import TimedMessage
from .visibility import MessageChange

#: Seconds after which a job that could not be buried is tried again.
UNBURIED_S = 900.0
_DAY_S = 86_400.0
#: This part of the retention, and at least one lease, must be left when a message that cannot be resent is run.
_MARGIN = 0.05
#: Receives that are kept in reserve for deliveries without a run.
_SPARE = 2


class SettlementPlan(msgspec.Struct, eq=False):
    """The steps that settle one claim. A finished step is removed or marked."""

    claimed: ClaimMessages
    #: Retry state for the retry store: that of messages that stay.
    states: dict[str, RetryState] = {}
    #: Jobs that are sent as new messages, to run again.
    copies: list[TimedMessage] = []
    #: Messages for the dead-letter queue.
    dead_letters: list[OutgoingMessage] = []
    #: Ids whose retry state is deleted: of jobs that are sent as new messages, and of jobs that have ended.
    moved: list[str] = []
    ended: list[str] = []
    #: How jobs ended, for the job history.
    records: dict[str, HistoryRow] = {}
    #: Deletes, and the hiding of a head; then the messages behind a head, which is hidden by then.
    first: list[MessageChange] = []
    then: list[MessageChange] = []
    #: Versions that must not run again.
    over: list[Message] = []
    #: Messages that were not begun and wait for the next turn.
    kept: list[HeldMessage] = []
    #: The messages of the group behind the claim, which are given back with it.
    behind: list[HeldMessage] = []
    #: Whether the claim was lost. Its key is then reported as refused.
    is_refused: bool = False
    #: Whether a message could not be sent to its next place, and stays.
    stays: bool = False
    #: Sentences to log.
    remarks: list[str] = []

    def leaving(self) -> list[HeldMessage]:
        """The messages that this process no longer holds once the claim is settled."""
        kept = {id(held) for held in self.kept}
        return [held for held in [*self.claimed.held, *self.behind] if id(held) not in kept]

    def late(self) -> list[Message]:
        """Duplicates that have arrived since the plan was made, such as the copy that it has sent."""
        known = {change.message.message_id for change in [*self.first, *self.then]}
        return [each for held in self.leaving() for each in held.duplicates if each.message_id not in known]


def plan(
    claimed: ClaimMessages,
    settlement: Settlement,
    now: float,
    monotonic: float,
    limit: int,
    limits: QueueLimits | None = None,
) -> SettlementPlan:
    """The steps of a settlement. `limit` is the largest message. Messages behind the claim are taken if they go."""
    made = SettlementPlan(claimed)
    verdict = settlement.verdict
    done = _done(claimed, settlement)
    for held in claimed.held[:done]:
        _end(made, held, now)
    rest = claimed.held[done:]
    if not rest:
        return made
    if verdict == "bury":
        buried = 1 if claimed.group is None else max(settlement.buried, 0)
        for number, held in enumerate(rest[:buried]):
            _bury(made, held, settlement, now, limit, died=settlement.died and not number)
        made.kept = rest[buried:]
    elif verdict == "release":
        if done:
            made.kept = rest
        else:
            made.first += [MessageChange(held.message, 0) for held in [*rest, *_behind(made)]]
    else:
        _again(made, rest[0], settlement, now, monotonic, limit, limits or QueueLimits())
        made.then += [MessageChange(held.message, 0) for held in [*rest[1:], *_behind(made)]]
    for held in made.leaving()[done:]:
        _duplicates(made, held)
    return made


def _done(claimed: ClaimMessages, settlement: Settlement) -> int:
    """How many of a claim's messages are finished."""
    count = len(claimed.held)
    if settlement.verdict == "done":
        return count
    if claimed.claim.kind is Kind.PLAIN:
        return 0  # it is one payload
    return min(max(settlement.done, 0), count)


def needs_limits(claimed: ClaimMessages, settlement: Settlement, now: float, limit: int) -> bool:
    """Whether a message may be hidden for long, so that it matters how long SQS keeps it."""
    rest = claimed.held[_done(claimed, settlement) :]
    if not rest or settlement.verdict not in ("retry", "postpone"):
        return False
    return rest[0].is_keyed or settlement.verdict == "postpone" or not _fits(rest[0], settlement, now, limit)


def in_time(
    claimed: ClaimMessages, settlement: Settlement, now: float, limit: int, limits: QueueLimits, lease_s: float
) -> Settlement:
    """The settlement itself; or a burial, if the message cannot be resent and SQS would not keep it that long."""
    held = claimed.held[_done(claimed, settlement)]
    why = _why_bury(held, limits, now, again_at(now, settlement.delay_s) - now, lease_s)
    if why is None or (not held.is_keyed and _fits(held, settlement, now, limit)):
        return settlement
    error = settlement.error or held.error
    error = f"{error.rstrip()}\n{why}" if error else why
    return msgspec.structs.replace(settlement, verdict="bury", buried=1, error=error)


def keep_in_place(made: SettlementPlan, outgoing: OutgoingMessage, now: float, monotonic: float) -> None:
    """SQS refuses the message for a job's next place: the job stays, hidden for a while, and so do all behind it."""
    held = next(each for each in made.claimed.held if each.id == outgoing.note.id)
    message, note = held.message, outgoing.note
    hide_s = min(int(UNBURIED_S), _room_s(held, monotonic))
    deaths = max(0, note.deaths - message.note.deaths)
    made.states[held.id] = RetryState(note.retry_count, note.attempt, deaths, note.error, now + hide_s)
    made.records.pop(held.id, None)
    made.over = [each for each in made.over if each is not message]
    made.moved = [id for id in made.moved if id != held.id]
    made.ended = [id for id in made.ended if id != held.id]
    made.first = [each for each in made.first if each.message is not message]
    made.first.append(MessageChange(message, hide_s))
    made.stays = True
    kept, made.kept = made.kept, []
    for each in kept:
        _duplicates(made, each)
    before = len(made.behind)
    made.then += [MessageChange(each.message, 0) for each in [*kept, *_behind(made)[before:]]]


def refusal(claimed: ClaimMessages, monotonic: float) -> SettlementPlan:
    """The steps for a settlement that came too late: the messages that are still ours are given back."""
    made = SettlementPlan(claimed)
    made.is_refused = True
    ours = [held for held in [*claimed.held, *_behind(made)] if held.is_ours(monotonic)]
    made.first = [MessageChange(held.message, 0) for held in ours]
    return made


def _end(made: SettlementPlan, held: HeldMessage, now: float) -> None:
    made.records[held.id] = HistoryRow("done", now)
    made.first.append(MessageChange(held.message))
    made.first += [MessageChange(each) for each in held.duplicates]
    made.over += held.messages
    if held.has_state:
        made.ended.append(held.id)


def _duplicates(made: SettlementPlan, held: HeldMessage) -> None:
    """Delete duplicates of a job that goes on. A later version of it is given back instead."""
    for duplicate in held.duplicates:
        same = (duplicate.note.attempt, duplicate.note.hop) == (held.message.note.attempt, held.message.note.hop)
        made.first.append(MessageChange(duplicate, None if same else 0))


def _bury(
    made: SettlementPlan, held: HeldMessage, settlement: Settlement, now: float, limit: int, *, died: bool
) -> None:
    error = storable(settlement.error)
    letter = resend_of(
        held.message,
        retry_count=settlement.retry_count,
        attempt=held.attempt + 1,
        deaths=held.deaths + died,
        error=error,
        buried_at=now,
        queue=held.message.sqs_queue.queue,
    )
    letter = fitted(letter, limit)
    if size_of(letter) > limit:
        # There is hardly room for the ticket: bury the message as it came, which did fit.
        letter = as_it_came(held.message, letter)
        made.remarks.append(
            f"the job {held.id} of the queue {held.message.sqs_queue.queue} is buried as it came, because its message "
            f"has no room for its error: {error}"
        )
    made.dead_letters.append(letter)
    made.records[held.id] = HistoryRow("dead", now)
    made.first.append(MessageChange(held.message))
    made.over.append(held.message)
    if held.has_state:
        made.ended.append(held.id)


def _again(
    made: SettlementPlan,
    held: HeldMessage,
    settlement: Settlement,
    now: float,
    monotonic: float,
    limit: int,
    limits: QueueLimits,
) -> None:
    """Retry or postpone the first payload that is not finished."""
    known = _known(held, settlement, now)
    delay_s = max(0.0, known.not_before - now)
    room_s = _room_s(held, monotonic)
    resend = settlement.verdict == "retry" or delay_s > room_s or _should_resend(held, limits, now, delay_s)
    if resend and not held.is_keyed and _fits(held, settlement, now, limit):
        copy = fitted(_copy(held.message, known), limit)
        made.copies.append(TimedMessage(held.message.sqs_queue.queue, False, copy, known.not_before))
        made.first.append(MessageChange(held.message))
        made.over.append(held.message)
        if held.has_state:
            made.moved.append(held.id)
        return
    known.deaths -= held.message.note.deaths
    made.states[held.id] = known
    made.first.append(MessageChange(held.message, min(math.ceil(delay_s), room_s)))


def _known(held: HeldMessage, settlement: Settlement, now: float) -> RetryState:
    """The retry state of a job that runs again."""
    return RetryState(
        retry_count=settlement.retry_count,
        attempt=held.attempt + 1,
        deaths=held.deaths + settlement.died,
        error=storable(settlement.error) if settlement.verdict == "retry" or settlement.error else held.error,
        not_before=again_at(now, settlement.delay_s),
    )


def _room_s(held: HeldMessage, monotonic: float) -> int:
    """How much longer SQS can hide a message."""
    return max(0, math.floor(held.hideable_until - monotonic))


def _fits(held: HeldMessage, settlement: Settlement, now: float, limit: int) -> bool:
    """Whether a job can be resent, if need be without its error. If not, there is hardly room for the ticket."""
    copy = _copy(held.message, _known(held, settlement, now))
    copy.note.error = copy.note.more = None
    return size_of(copy) <= limit


def _copy(message: Message, known: RetryState) -> OutgoingMessage:
    """The new message of a job that runs again."""
    return resend_of(
        message,
        retry_count=known.retry_count,
        attempt=known.attempt,
        deaths=known.deaths,
        error=known.error,
        due=known.not_before,
    )


def _behind(made: SettlementPlan) -> Sequence[HeldMessage]:
    """Take the messages of the group behind the claim: none may run before those that precede it."""
    group = made.claimed.group
    if group is not None:
        made.behind += group.clear()
    return made.behind


def postpone_burial(settlement: Settlement) -> Settlement:
    """The settlement instead of a burial, if there is no dead-letter queue: the job is tried again later."""
    return msgspec.structs.replace(settlement, verdict="postpone", delay_s=UNBURIED_S, buried=0)


def _left_s(message: Message, limits: QueueLimits, now: float) -> float:
    """Seconds after which SQS deletes a message."""
    return (message.sent_at or now) + limits.retention_s - now


def _should_resend(held: HeldMessage, limits: QueueLimits, now: float, delay_s: float) -> bool:
    """Whether a job that could be hidden is better resent, while there is much time."""
    if limits.max_receives is not None and held.message.receive_count >= limits.max_receives - _SPARE:
        return True
    return delay_s > _left_s(held.message, limits, now) / 2


def _why_bury(held: HeldMessage, limits: QueueLimits, now: float, delay_s: float, lease_s: float) -> str | None:
    """Why a job that cannot be resent is buried instead of hidden, in a sentence; None: it can be hidden."""
    message, name = held.message, held.message.sqs_queue.name
    margin_s = max(limits.retention_s * _MARGIN, lease_s)
    if delay_s > _left_s(message, limits, now) - margin_s:
        return (
            f"SQS keeps the messages of {name} no longer than {limits.retention_s / _DAY_S:.3g} days from when they "
            "were sent, and would have deleted this one before, or soon after, it is to be run again; set the "
            "queue's MessageRetentionPeriod to 14 days (1209600), and do not wait longer than that."
        )
    if limits.max_receives is not None:
        receives = message.receive_count + max(1, math.ceil(delay_s / LONGEST_S))
        if receives > limits.max_receives - min(_SPARE, limits.max_receives // 3):
            return (
                f"SQS has handed it out {message.receive_count} times, and moves a message of {name} away by itself "
                f"after {limits.max_receives}; set the maxReceiveCount of the queue's redrive policy to 1000."
            )
    return None
