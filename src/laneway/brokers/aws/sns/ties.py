"""Subscriptions of SQS queues to SNS topics, as SNS tells them. Looks only: `subscribing` changes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ....events.event import FilterPolicy
from ..clients import Clients
from ..errors import AWSError, MissingError
from ..settings import Settings
from ..sqs.queues import FIFO_SUFFIX, Channels
from .topics import Topics

#: What a filter is held against: what travels beside a message. Else it is the message's body.
BY_ATTRIBUTES = "MessageAttributes"
#: A filter that lets everything through.
NO_FILTER = "{}"


class Tie(msgspec.Struct, frozen=True):
    """A subscription as SNS has it."""

    arn: str
    topic: str
    queue: str


class Terms(msgspec.Struct, frozen=True):
    """What a subscription delivers, and how."""

    filter: FilterPolicy | None = None
    by_attributes: bool = True
    #: Whether the message alone is delivered, else in an envelope.
    raw: bool = True

    def let_through(self, wanted: FilterPolicy | None) -> bool:
        """Whether they let through what a listener's filter does."""
        return self.filter == (wanted or None) and (self.by_attributes or self.filter is None)


class Ties:
    """The subscriptions that there are."""

    def __init__(self, clients: Clients, channels: Channels, topics: Topics, settings: Settings) -> None:
        self._clients = clients
        self._channels = channels
        self._topics = topics
        self._settings = settings

    def of(self, topic: str) -> Iterator[Tie]:
        """Those of a topic. Raises MissingError if there is no such topic."""
        try:
            yield from self._own("list_subscriptions_by_topic", TopicArn=self._topics.arn(topic))
        except MissingError as error:
            raise self.no_topic(topic, error) from None

    def one(self, topic: str, queue: str) -> Tie | None:
        """That of a queue to a topic, if there is one. Raises MissingError if there is no such topic."""
        return next((tie for tie in self.of(topic) if tie.queue == queue), None)

    def all(self) -> Iterator[Tie]:
        """Those of queues that are named after their topics, as listeners' are, or that this process knows."""
        known = set(self._channels.known())
        for tie in self._own("list_subscriptions"):
            if tie.queue.endswith(f"-{tie.topic}") or tie.queue in known:
                yield tie

    def terms(self, tie: Tie) -> Terms:
        """What a subscription lets through, as SNS says it now."""
        answer = self._clients.sns("get_subscription_attributes", SubscriptionArn=tie.arn)
        told = answer.get("Attributes") or {}
        try:
            policy = msgspec.json.decode(told.get("FilterPolicy") or NO_FILTER, type=dict[str, Any])
        except msgspec.DecodeError:
            raise AWSError(
                f"The filter of the subscription of {tie.queue} to {tie.topic} cannot be read; set another, or none."
            ) from None
        by_attributes = told.get("FilterPolicyScope", BY_ATTRIBUTES) == BY_ATTRIBUTES
        return Terms(policy or None, by_attributes, told.get("RawMessageDelivery", "").lower() == "true")

    def no_topic(self, topic: str, error: MissingError) -> MissingError:
        """The error for a topic that is missing."""
        return MissingError(
            f"There is no SNS topic {self._topics.name(topic)} {self._settings.where}, which a listener's queue is to "
            "be subscribed to; create it with `laneway aws create`.",
            code=error.code,
        )

    def _own(self, operation: str, **params: str) -> Iterator[Tie]:
        """What SNS lists of this account, region and prefix."""
        topics = self._topics.arn("")
        queues = topics.replace(":sns:", ":sqs:", 1)
        for told in self._pages(operation, params):
            topic, queue, arn = told["TopicArn"], told["Endpoint"], told["SubscriptionArn"]
            # One that is to be confirmed, or was deleted, has a word in the place of its ARN.
            if told["Protocol"] != "sqs" or not arn.startswith("arn:") or queue.endswith(FIFO_SUFFIX):
                continue
            if topic.startswith(topics) and queue.startswith(queues):
                yield Tie(arn, topic[len(topics) :], queue[len(queues) :])

    def _pages(self, operation: str, params: dict[str, str]) -> Iterator[dict[str, str]]:
        while True:
            answer = self._clients.sns(operation, **params)
            yield from answer.get("Subscriptions") or ()
            if not answer.get("NextToken"):
                return
            params["NextToken"] = answer["NextToken"]
