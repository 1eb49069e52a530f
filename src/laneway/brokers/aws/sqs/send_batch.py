"""Sends a batch to SQS or SNS; if it is refused, resends the rest one by one.

A request holds at most ten messages and a limited number of bytes. AWS may take some entries of a request and not
the rest, and a message must not overtake an earlier one of its FIFO group. So a request holds one message per group,
and the next message of a group is sent when that one is stored. A message that SQS refuses for good blocks no other
message; `log_refusal` reports it once. Apart from `send`, which needs the poller: the poller sends through this file.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ....errors import BrokerAwayError, BrokerError, EnqueueError
from ..errors import BatchRefusedError, DeniedError, MissingError, is_refusal, is_transient
from ..settings import BATCH
from .message import SQSQueue

if TYPE_CHECKING:
    from ..account import Account
    from ..clients import Clients

#: Seconds, or up to half less, before each further try for entries that SQS did not take although they are right.
PAUSES_S = (0.1, 0.2, 0.4, 0.8, 1.6)

#: Called with the number of each entry as soon as it is known to be stored.
Sent = Callable[[int], None]


class EntryFailure(msgspec.Struct):
    """An entry that AWS did not take."""

    number: int
    #: AWS says that the entry is wrong, so that a repeat does not help.
    at_fault: bool
    why: str
    code: str

    @classmethod
    def of(cls, entry: dict[str, Any]) -> EntryFailure:
        code = str(entry.get("Code") or "")
        why = ": ".join(filter(None, [code, str(entry.get("Message") or "").rstrip(".")]))
        return cls(int(entry["Id"]), bool(entry.get("SenderFault")) and not is_transient(code), why, code)


def rounds(groups: Sequence[Hashable]) -> Iterator[list[int]]:
    """The numbers of entries in rounds: in order, and in each round at most one of a group."""
    left: dict[Hashable, list[int]] = {}
    for number, group in enumerate(groups):
        left.setdefault(group, []).append(number)
    depth = 0
    while left:
        yield [numbers[depth] for numbers in left.values()]
        depth += 1
        left = {group: numbers for group, numbers in left.items() if len(numbers) > depth}


def split(sizes: Sequence[int], limit: int) -> Iterator[range]:
    """Ranges of entries, one for each request, in order. SQS refuses an entry that is too large by itself."""
    first = total = 0
    for number, size in enumerate(sizes):
        if number > first and (number - first == BATCH or total + size > limit):
            yield range(first, number)
            first, total = number, 0
        total += size
    if first < len(sizes):
        yield range(first, len(sizes))


def send_batch(
    clients: Clients,
    url: str,
    entries: dict[int, dict[str, Any]],
    sent: Sent,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Send one request to an SQS queue."""
    send_with_retries(
        lambda left: clients.sqs("send_message_batch", QueueUrl=url, Entries=left), "SQS", entries, sent, sleep
    )


def send_with_retries(
    ask: Callable[[list[dict[str, Any]]], dict[str, Any]],
    service: str,
    entries: dict[int, dict[str, Any]],
    sent: Sent,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Send one request. Entries that AWS does not take, although they are right, are sent again without the rest.

    Raises BatchRefusedError when entries are at fault, and BrokerAwayError when AWS still refuses some in the end.
    """
    left = dict(entries)
    why = ""
    for pause_s in (*PAUSES_S, None):
        answer = ask(list(left.values()))
        for stored in answer.get("Successful") or ():
            number = int(stored["Id"])
            if left.pop(number, None) is not None:
                sent(number)
        failures = [EntryFailure.of(entry) for entry in answer.get("Failed") or ()]
        if faults := [failure for failure in failures if failure.at_fault]:
            numbers = [failure.number for failure in faults]
            raise BatchRefusedError(faults[0].why, code=faults[0].code, entries=numbers, service=service)
        if not left:
            return
        why = failures[0].why if failures else "no word about them"
        if pause_s is not None:
            sleep(pause_s * random.uniform(0.5, 1))
    raise BrokerAwayError(
        f"{service} did not take {len(left)} of {len(entries)} messages in {len(PAUSES_S) + 1} tries, and says why: "
        f"{why}."
    )


_T = TypeVar("_T")

#: The errors of AWS that refuse a message.
Refusal = BrokerError | EnqueueError


def send_one_by_one_if_refused(
    items: Sequence[_T],
    send: Callable[[Sequence[_T], Sent], None],
    sent: Callable[[_T], None],
    refused: Callable[[_T, Refusal], None],
    *,
    gone_too: bool = False,
) -> None:
    """Send items together and, if SQS refuses that, what is left of them one by one.

    `sent` or `refused` is called with each. Raises for any other error. `gone_too`: a queue that no longer exists
    counts as a refusal.
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
        send_one_by_one_if_refused([item], send, sent, refused, gone_too=gone_too)


def _is_final(error: Refusal, gone_too: bool) -> bool:
    return is_refusal(error) or (gone_too and isinstance(error, MissingError))


def log_refusal(account: Account, sqs_queue: SQSQueue, id: str, error: Refusal) -> None:
    """Log that a job cannot be sent on and stays where it is: once for each job, or once for its queue if the error is
    not about the job."""
    general = isinstance(error, (DeniedError, MissingError))
    account.log_once(
        f"refused {sqs_queue.url} {type(error).__name__ if general else f'job {id}'}",
        f"the job {id} of the queue {sqs_queue.queue} has to be sent on, and cannot be"
        f"{', nor can others like it' if general else ''}. It stays in {sqs_queue.name}, and is tried again for as "
        f"long as SQS keeps it; mend what is wrong, or delete it there: {error}",
    )
