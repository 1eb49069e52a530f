"""Sending so that what SQS refuses for good holds up nothing but itself, and what is said of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from ....errors import BrokerError, EnqueueError
from ..errors import DeniedError, MissingError, is_refusal
from .message import Channel
from .send_batch import Sent

#: So many refusals are remembered, so that each is told once.
_REMEMBER = 10_000

_T = TypeVar("_T")
_log = logging.getLogger("laneway")

#: What a refusal is told as.
Refusal = BrokerError | EnqueueError


def send_singly(
    items: Sequence[_T],
    send: Callable[[Sequence[_T], Sent], None],
    sent: Callable[[_T], None],
    refused: Callable[[_T, Refusal], None],
    *,
    gone_too: bool = False,
) -> None:
    """Send items together and, if SQS refuses that, what is left of them one by one.

    `sent` and `refused` are told of each. Raises as soon as it is not an item's own fault. `gone_too`: a place that
    does not exist any more counts as a refusal, too.
    """
    left = dict(enumerate(items))

    def stored(number: int) -> None:
        sent(left.pop(number))

    try:
        send(items, stored)
        return
    except (BrokerError, EnqueueError) as error:
        if not _is_final(error, gone_too):
            raise
        if len(items) == 1 and left:
            refused(items[0], error)
            return
    for item in list(left.values()):
        send_singly([item], send, sent, refused, gone_too=gone_too)


def _is_final(error: Refusal, gone_too: bool) -> bool:
    return is_refusal(error) or (gone_too and isinstance(error, MissingError))


class Complaints:
    """Says once of each job, or of a queue if it is no job's own fault, that SQS refuses it."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def tell(self, channel: Channel, id: str, error: Refusal) -> None:
        """A job of a channel cannot be sent, and stays where it is."""
        general = isinstance(error, (DeniedError, MissingError))
        about = (channel.url, type(error).__name__ if general else f"job {id}")
        if about in self._told:
            return
        if len(self._told) >= _REMEMBER:
            self._told.clear()
        self._told.add(about)
        _log.error(
            "the job %s of the queue %s has to be sent on, and cannot be%s. It stays in %s, and is tried again for as "
            "long as SQS keeps it; mend what is wrong, or delete it there: %s",
            id,
            channel.queue,
            ", nor can others like it" if general else "",
            channel.name,
            error,
        )
