"""SNSPublisher: publishes events to SNS, which sends a copy to each subscribed queue.

Owns the form of a request to SNS, and the handling of a missing topic. If the answer to a request is lost, the
request is repeated, and an event may be published twice: under the same id, by which its listeners recognise it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..clients import Clients
from ..errors import AWSError, BatchRefusedError, DeniedError, MissingError, is_refusal
from ..settings import DEFAULT_MESSAGE_BYTES
from ..sqs.message import OutgoingMessage, attributes_of, size_of
from ..sqs.send_batch import Sent, send_with_retries, split
from .topics import Topics

#: The bytes of a request to SNS, even if the subscribed queues take larger messages.
LARGEST = DEFAULT_MESSAGE_BYTES

#: An event by its number among all that is sent together.
Numbered = tuple[int, OutgoingMessage]


class SNSPublisher:
    """Publishes to the topics of one account and region. Safe to call from several threads."""

    def __init__(self, clients: Clients, topics: Topics, makes_topics: Callable[[], bool] = lambda: False) -> None:
        """`makes_topics`: whether a topic that is missing is made by whoever publishes to it, as in development."""
        self._clients = clients
        self._topics = topics
        self._makes_topics = makes_topics

    def publish(self, topic: str, events: Sequence[Numbered], sent: Sent) -> None:
        """Publish events in their order; `sent` is told of each, by its number, as soon as SNS has it."""
        arn, taken = self._topics.arn(topic), set[int]()

        def stored(number: int) -> None:
            taken.add(number)
            sent(number)

        try:
            self._publish(arn, events, stored)
        except MissingError:
            if not self._makes_topics():
                raise self._missing(topic) from None
        else:
            return
        self._topics.create(topic)
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
            lambda left: self._clients.sns("publish_batch", TopicArn=arn, PublishBatchRequestEntries=left),
            "SNS",
            {number: {"Id": str(number), **_message_of(outgoing)} for number, outgoing in events},
            sent,
        )

    def _one(self, arn: str, number: int, outgoing: OutgoingMessage, sent: Sent) -> None:
        try:
            self._clients.sns("publish", TopicArn=arn, **_message_of(outgoing))
        except AWSError as error:
            if not is_refusal(error) or isinstance(error, DeniedError):
                raise
            raise BatchRefusedError(str(error).rstrip("."), code=error.code, entries=[number], service="SNS") from None
        sent(number)

    def _missing(self, topic: str) -> MissingError:
        return MissingError(
            f"There is no SNS topic {self._topics.name(topic)} {self._clients.settings.where}, so that nothing can be "
            "published to it; create it with `laneway aws create TARGET --publishes EVENT`.",
            code="NotFound",
        )


def _message_of(outgoing: OutgoingMessage) -> dict[str, Any]:
    """An event as SNS takes it: the value itself as JSON, as the Ruby and JavaScript originals publish it."""
    return {"Message": outgoing.body, "MessageAttributes": attributes_of(outgoing)}
