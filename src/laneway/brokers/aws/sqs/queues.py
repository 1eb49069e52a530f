"""SQSQueues: finds the SQS queues of a Laneway queue and caches their attributes.

A Laneway queue has a standard queue for plain jobs, a FIFO queue for keyed calls, and a dead-letter queue for each.
They are looked up by name (GetQueueUrl), never listed. A missing queue is looked up again whenever a job is sent to
it, and by workers after a minute. Nothing is created here: `admin/create` does that.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from ....config import DEFAULT_QUEUE
from ..errors import AWSError, DeniedError, MissingError, MissingQueueError
from ..settings import LOOK_AGAIN_S, MAX_NAME
from .message import SQSQueue

if TYPE_CHECKING:
    from ..account import Account

#: Seconds after which a redrive policy is read again.
READ_AGAIN_S = 600.0

FIFO_SUFFIX = ".fifo"
DEAD_LETTERS_SUFFIX = "-deadletter"

K = TypeVar("K")


class RedrivePolicy(msgspec.Struct, rename="camel"):
    """A queue's redrive policy."""

    dead_letter_target_arn: str = ""
    #: AWS writes a number. Other servers, and operators, may write text.
    max_receive_count: int = 0

    @property
    def dead_letter_queue(self) -> tuple[str, str] | None:
        """Name and account of the dead-letter queue."""
        parts = self.dead_letter_target_arn.split(":")
        return (parts[5], parts[4]) if len(parts) == 6 else None


def redrive_of(name: str, attributes: Mapping[str, str]) -> RedrivePolicy | None:
    """The redrive policy of an SQS queue; None if it has none. Raises AWSError if it cannot be read."""
    policy = attributes.get("RedrivePolicy")
    try:
        return msgspec.json.decode(policy, type=RedrivePolicy, strict=False) if policy else None
    except msgspec.DecodeError as error:
        raise AWSError(f"The redrive policy of {name} cannot be read: {error}.") from None


class QueueLimits(msgspec.Struct, frozen=True):
    """What an SQS queue says of its messages; or, if it may not be asked, what SQS gives a queue by itself."""

    retention_s: float = 4 * 86_400.0
    #: None: it may be received without end.
    max_receives: int | None = None


class _QueueLookup(msgspec.Struct):
    """A cached look-up. `until` is on the monotonic clock."""

    sqs_queue: SQSQueue | None
    until: float


class _QueueAttributes(msgspec.Struct):
    """Cached attributes of an SQS queue. `until` is on the monotonic clock."""

    limits: QueueLimits
    #: Name and account of the dead-letter queue that its redrive policy names.
    dead_letter_queue: tuple[str, str] | None
    until: float


class SQSQueues:
    """The SQS queues, by the names of the queues that they belong to. Safe to call from several threads.

    There is no lock: two threads may look up the same queue, and the child of a fork cannot wait for its parent.
    """

    def __init__(self, account: Account) -> None:
        self._account = account
        #: The queues that were declared or found, and whether they were declared.
        self._known: dict[str, bool] = {}
        self._found: dict[tuple[str, bool], _QueueLookup] = {}
        self._dead_letter_queues: dict[str, _QueueLookup] = {}
        self._attributes: dict[str, _QueueAttributes] = {}

    def declare(self, queue: str) -> None:
        """Register a queue that this process uses."""
        self._known[queue] = True

    def declared(self) -> list[str]:
        """The queues that were declared."""
        return [queue for queue, declared in list(self._known.items()) if declared]

    def known(self) -> list[str]:
        """The declared queues, and those that were found because a job or a table named them."""
        return list(self._known)

    def of(self, queue: str, fifo: bool) -> SQSQueue:
        """The SQS queue for the plain jobs of a queue, or for its keyed calls. Raises MissingError.

        One that was missing is looked for again at once: the caller has a job for it, and it may have been made.
        """
        found = self._look(queue, fifo, again=True)
        if found is None:
            raise self.missing(queue, fifo)
        return found

    def missing(self, queue: str, fifo: bool) -> MissingQueueError:
        """The error that says that there is no such SQS queue."""
        return MissingQueueError(
            f"There is no SQS queue {self.name_of(queue, fifo)} {self._account.settings.where}, which the "
            f"{'keyed' if fifo else 'plain'} tasks of the queue {queue} need; create it with `laneway aws create`.",
            code="QueueDoesNotExist",
        )

    def existing(self, queue: str) -> list[SQSQueue]:
        """The SQS queues that a queue has now: the standard one, the FIFO one, both or none."""
        return [found for fifo in (False, True) if (found := self._look(queue, fifo)) is not None]

    def look_up(self, queue: str) -> None:
        """Look for the SQS queues of a queue now, even if they were found before. So there is a connection afterwards.

        One that is missing, or may not be looked for, is left to the first call that needs it.
        """
        for fifo in (False, True):
            self._found.pop((queue, fifo), None)
            with suppress(DeniedError, MissingError):
                self._look(queue, fifo)

    def dead_letter_queue(self, sqs_queue: SQSQueue) -> SQSQueue | None:
        """The dead-letter queue that the redrive policy of an SQS queue names, or else the one with its name."""
        known = self._dead_letter_queues.get(sqs_queue.url)
        if known is not None and self._account.clock.monotonic() < known.until:
            return known.sqs_queue
        named = self._ask(sqs_queue).dead_letter_queue
        name, account = named or (self.dead_name_of(sqs_queue.name), self._account.settings.account)
        url = self._url(name, account)
        found = None if url is None else SQSQueue(sqs_queue.queue, name, url, name.endswith(FIFO_SUFFIX))
        self._keep(self._dead_letter_queues, sqs_queue.url, found, READ_AGAIN_S)
        return found

    def limits(self, sqs_queue: SQSQueue) -> QueueLimits:
        """For how long an SQS queue keeps a message, and how often it hands it out."""
        found = self._attributes.get(sqs_queue.url)
        if found is None or self._account.clock.monotonic() >= found.until:
            found = self._ask(sqs_queue)
        return found.limits

    def attributes(self, sqs_queue: SQSQueue) -> dict[str, str]:
        """The current attributes of an SQS queue."""
        answer = self._account.clients.sqs("get_queue_attributes", QueueUrl=sqs_queue.url, AttributeNames=["All"])
        found: dict[str, str] = answer.get("Attributes") or {}
        return found

    def forget(self, sqs_queue: SQSQueue) -> None:
        """Note that AWS says it does not exist. It is looked up again after a while."""
        until = self._account.clock.monotonic() + LOOK_AGAIN_S
        for lookup in [*self._found.values(), *self._dead_letter_queues.values()]:
            if lookup.sqs_queue is not None and lookup.sqs_queue.url == sqs_queue.url:
                lookup.sqs_queue, lookup.until = None, until
        self._dead_letter_queues.pop(sqs_queue.url, None)

    def look_again(self) -> None:
        """Look up missing queues again at their next use: they may have been created."""
        for lookup in [*self._found.values(), *self._dead_letter_queues.values()]:
            if lookup.sqs_queue is None:
                lookup.until = 0.0

    def name_of(self, queue: str, fifo: bool) -> str:
        """The name of the SQS queue. Raises MissingError for a name that SQS does not take."""
        base = self._account.settings.name_of(queue)
        name = base + FIFO_SUFFIX if fifo else base
        if len(name) > MAX_NAME:
            raise MissingQueueError(
                f"The SQS queue of {queue} would be called {name}, and SQS takes {MAX_NAME} characters at most; give "
                "the queue a shorter name, or the URL a shorter prefix."
            )
        return name

    @staticmethod
    def dead_name_of(name: str) -> str:
        """The name of the dead-letter queue of an SQS queue, unless its redrive policy names another."""
        base = name.removesuffix(FIFO_SUFFIX)
        return base + DEAD_LETTERS_SUFFIX + name[len(base) :]

    # -- looking up ------------------------------------------------------------------------------------

    def _look(self, queue: str, fifo: bool, *, again: bool = False) -> SQSQueue | None:
        """An SQS queue from the cache, or from AWS. `again`: also if the cache has it as missing."""
        known = self._found.get((queue, fifo))
        now = self._account.clock.monotonic()
        if known is not None and (known.sqs_queue is not None or (not again and now < known.until)):
            return known.sqs_queue
        name = self.name_of(queue, fifo)
        given = self._account.settings.default_url if queue == DEFAULT_QUEUE else None
        if given is not None and given.endswith(f"/{name}"):
            url: str | None = given  # as it is: the credentials may not allow GetQueueUrl
        else:
            url = self._url(name, self._account.settings.account)
        found = None if url is None else SQSQueue(queue, name, url, fifo)
        self._keep(self._found, (queue, fifo), found, 0.0)
        if found is not None:
            self._known.setdefault(queue, False)
        return found

    def _keep(self, cache: dict[K, _QueueLookup], key: K, found: SQSQueue | None, seconds: float) -> None:
        until = self._account.clock.monotonic() + (LOOK_AGAIN_S if found is None else seconds)
        cache[key] = _QueueLookup(found, until)

    def _url(self, name: str, account: str | None) -> str | None:
        owner = {} if account is None else {"QueueOwnerAWSAccountId": account}
        try:
            url: str = self._account.clients.sqs("get_queue_url", QueueName=name, **owner)["QueueUrl"]
        except MissingError:
            return None
        return url

    def _ask(self, sqs_queue: SQSQueue) -> _QueueAttributes:
        """Read the attributes of a queue that a settlement needs."""
        names = ["MessageRetentionPeriod", "RedrivePolicy"]
        limits, redrive = QueueLimits(), None
        try:
            answer = self._account.clients.sqs("get_queue_attributes", QueueUrl=sqs_queue.url, AttributeNames=names)
        except DeniedError:
            pass  # then as SQS makes a queue by itself
        else:
            attributes = answer.get("Attributes") or {}
            redrive = redrive_of(sqs_queue.name, attributes)
            limits = QueueLimits(
                float(attributes.get("MessageRetentionPeriod") or limits.retention_s),
                (redrive.max_receive_count or None) if redrive is not None else None,
            )
        dead_letter_queue = redrive.dead_letter_queue if redrive is not None else None
        found = _QueueAttributes(limits, dead_letter_queue, self._account.clock.monotonic() + READ_AGAIN_S)
        self._attributes[sqs_queue.url] = found
        return found
