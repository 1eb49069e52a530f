"""SNSPublisher: publishes events to SNS, which sends a copy to each subscribed queue.

Owns the form of a request to SNS, and the handling of a missing topic. If the answer to a request is lost, the
request is repeated, and an event may be published twice: under the same id, by which its listeners recognise it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import AWSError, BatchRefusedError, DeniedError, MissingError, is_refusal
from ..settings import DEFAULT_MESSAGE_BYTES
from ..sqs.message import OutgoingMessage, attributes_of, size_of
from ..sqs.send_batch import Sent, send_with_retries, split

if TYPE_CHECKING:
    from ....broker import HealthTier
    from ..account import Account

#: The bytes of a request to SNS, even if the subscribed queues take larger messages.
LARGEST = DEFAULT_MESSAGE_BYTES

#: An event by its number among all that is sent together.
Numbered = tuple[int, OutgoingMessage]


class SNSPublisher:
    """Publishes to the topics of one account and region. Safe to call from several threads."""

    def __init__(self, account: Account, health: HealthTier) -> None:
        """With `health.auto_create`, as in development, the process that publishes creates a missing topic."""
        self._account = account
        self._health = health

    def publish(self, topic: str, events: Sequence[Numbered], sent: Sent) -> None:
        """Publish events in order. `sent` is called with the number of each as soon as SNS has it."""
        arn, taken = self._account.topics.arn(topic), set[int]()

        def stored(number: int) -> None:
            taken.add(number)
            sent(number)

        try:
            self._publish(arn, events, stored)
        except MissingError:
            if not self._health.auto_create:
                raise self._missing(topic) from None
        else:
            return
        self._account.topics.create(topic)
        try:
            self._publish(arn, [each for each in events if each[0] not in taken], stored)
        except MissingError:
            raise self._missing(topic) from None

    def _publish(self, arn: str, events: Sequence[Numbered], sent: Sent) -> None:
        for part in split([size_of(outgoing) for _, outgoing in events], LARGEST):
            self._ask(arn, events[part.start : part.stop], sent)

    def _ask(self, arn: str, events: Sequence[Numbered], sent: Sent) -> None:
        if len(events) == 1:
            self._one(arn, *events[0], sent)
            return
        send_with_retries(
            lambda left: self._account.clients.sns("publish_batch", TopicArn=arn, PublishBatchRequestEntries=left),
            "SNS",
            {number: {"Id": str(number), **_message_of(outgoing)} for number, outgoing in events},
            sent,
        )

    def _one(self, arn: str, number: int, outgoing: OutgoingMessage, sent: Sent) -> None:
        try:
            self._account.clients.sns("publish", TopicArn=arn, **_message_of(outgoing))
        except AWSError as error:
            if not is_refusal(error) or isinstance(error, DeniedError):
                raise
            raise BatchRefusedError(str(error).rstrip("."), code=error.code, entries=[number], service="SNS") from None
        sent(number)

    def _missing(self, topic: str) -> MissingError:
        return MissingError(
            f"There is no SNS topic {self._account.topics.name(topic)} {self._account.settings.where}, so that nothing "
            "can be published to it; create it with `laneway aws create TARGET --publishes EVENT`.",
            code="NotFound",
        )


def _message_of(outgoing: OutgoingMessage) -> dict[str, Any]:
    """An event as SNS takes it: the value itself as JSON, as the Ruby and JavaScript originals publish it."""
    return {"Message": outgoing.body, "MessageAttributes": attributes_of(outgoing)}
