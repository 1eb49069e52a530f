"""QueueLimits: how long SQS keeps a hidden message, and how often it may be received. Pure functions.

A message ages from the moment it was sent, hidden or not, and SQS deletes it when its queue's retention is over. SQS
also moves a message that was received too often to the dead letters. A job that would reach either limit is sent as
a new message (`should_resend`), or buried with a sentence that gives the reason (`why_bury`). Apart from
`settlement_plan`, because `queues` needs it, too.
"""

from __future__ import annotations

import math

import msgspec

from .inflight import LONGEST_S, HeldMessage
from .message import Message

_DAY_S = 86_400.0
#: This part of the retention, and at least one lease, must be left when a message that cannot be resent is run.
_MARGIN = 0.05
#: Receives that are kept in reserve for deliveries without a run.
_SPARE = 2


class QueueLimits(msgspec.Struct, frozen=True):
    """What an SQS queue says of its messages; or, if it may not be asked, what SQS gives a queue by itself."""

    retention_s: float = 4 * _DAY_S
    #: None: it may be received without end.
    max_receives: int | None = None


def left_s(message: Message, limits: QueueLimits, now: float) -> float:
    """Seconds after which SQS deletes a message."""
    return (message.sent_at or now) + limits.retention_s - now


def should_resend(held: HeldMessage, limits: QueueLimits, now: float, delay_s: float) -> bool:
    """Whether a job that could be hidden is better resent, while there is much time."""
    if limits.max_receives is not None and held.message.receive_count >= limits.max_receives - _SPARE:
        return True
    return delay_s > left_s(held.message, limits, now) / 2


def why_bury(held: HeldMessage, limits: QueueLimits, now: float, delay_s: float, lease_s: float) -> str | None:
    """Why a job that cannot be resent is buried instead of hidden, in a sentence; None: it can be hidden."""
    message, name = held.message, held.message.sqs_queue.name
    margin_s = max(limits.retention_s * _MARGIN, lease_s)
    if delay_s > left_s(message, limits, now) - margin_s:
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
