"""Reads, creates, updates and ends the subscriptions of SQS queues to SNS topics.

It reads first and writes only missing or different parts, so that credentials need no permission to write if all is
in order. The queue's access policy comes before the subscription: SNS drops messages that the queue does not accept.
Neither topics nor queues are created here: `admin/create` does that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from ....events.event import FilterPolicy, Subscription
from ...shared import check_subscription, write_filter
from ..errors import AWSError, DeniedError, MissingError, is_refusal
from ..sqs.message import SQSQueue
from ..sqs.queues import FIFO_SUFFIX
from .access_policy import allowing, allows, denies

if TYPE_CHECKING:
    from ..account import Account

#: The scope of a filter that matches message attributes. Other filters match the message body.
BY_ATTRIBUTES = "MessageAttributes"
#: A filter that lets everything through.
NO_FILTER = "{}"


class TopicSubscription(msgspec.Struct, frozen=True):
    """A subscription as SNS has it."""

    arn: str
    topic: str
    queue: str


class DeliveryTerms(msgspec.Struct, frozen=True):
    """What a subscription delivers, and how."""

    filter: FilterPolicy | None = None
    by_attributes: bool = True
    #: Whether messages are delivered without an envelope.
    raw: bool = True

    def let_through(self, wanted: FilterPolicy | None) -> bool:
        """Whether these terms let the same events through as a listener's filter."""
        return self.filter == (wanted or None) and (self.by_attributes or self.filter is None)


class QueueAccess(msgspec.Struct, frozen=True):
    """An SQS queue and its access policy, which says who may send to it."""

    sqs_queue: SQSQueue
    arn: str
    policy: str | None


class SNSSubscriptions:
    """The events tier: reads, creates and ends the subscriptions of queues to topics."""

    def __init__(self, account: Account) -> None:
        self._account = account

    def subscribe(self, subscription: Subscription) -> bool:
        """Subscribe a queue to a topic. False: nothing had to change.

        Raises MissingError if the queue or topic does not exist, and DeniedError if the credentials do not allow it.
        """
        check_subscription(subscription)
        write_filter(subscription)  # before any change: raises if the filter cannot be written
        access = self.access_of(subscription.queue)
        subscribed = self.one(subscription.topic, subscription.queue)
        terms = None if subscribed is None else self.terms(subscribed)
        with _changing(subscription):
            opened = self.open(access, subscription.topic)  # first: SNS drops messages that a queue rejects
            if subscribed is None or terms is None:
                self.make(subscription, access)
                return True
            return self.update_filter(subscribed, terms, subscription) or opened

    def unsubscribe(self, topic: str, queue: str) -> bool:
        """End a subscription. The queue and its policy stay. False: there was no subscription."""
        try:
            subscribed = self.one(topic, queue)
        except MissingError:
            return False
        if subscribed is not None:
            self._account.clients.sns("unsubscribe", SubscriptionArn=subscribed.arn)
        return subscribed is not None

    def subscriptions(self, topic: str | None = None) -> list[Subscription]:
        """The subscriptions of a topic, or all that look like a listener's."""
        found: list[Subscription] = []
        try:
            existing = list(self.all() if topic is None else self.of(topic))
        except MissingError:
            return []
        for subscribed in existing:
            try:
                found.append(Subscription(subscribed.topic, subscribed.queue, self.terms(subscribed).filter))
            except MissingError:
                continue  # it has just ended
        return sorted(found, key=lambda each: (each.topic, each.queue))

    # -- the steps -------------------------------------------------------------------------------------

    def access_of(self, queue: str) -> QueueAccess:
        """The SQS queue of a listener, and its access policy. Raises MissingError."""
        sqs_queue = self._account.queues.of(queue, False)
        wanted = ["QueueArn", "Policy"]
        try:
            answer = self._account.clients.sqs("get_queue_attributes", QueueUrl=sqs_queue.url, AttributeNames=wanted)
        except MissingError:
            self._account.queues.forget(sqs_queue)
            raise
        attributes = answer.get("Attributes") or {}
        return QueueAccess(sqs_queue, attributes["QueueArn"], attributes.get("Policy"))

    def is_open(self, access: QueueAccess, topic: str) -> bool:
        """Whether a topic may send to a queue."""
        return allows(access.policy, access.arn, self._account.topics.arn(topic))

    def is_denied(self, access: QueueAccess, topic: str) -> str | None:
        """A sentence if a queue's policy denies a topic. A statement that allows it would then have no effect."""
        if not denies(access.policy, access.arn, self._account.topics.arn(topic)):
            return None
        return (
            f"A statement in the access policy of the SQS queue {access.sqs_queue.name} denies the SNS topic "
            f"{self._account.topics.name(topic)} to send to it, so that no events get there, whatever else is allowed; "
            "take it out, or have it except this topic."
        )

    def open(self, access: QueueAccess, topic: str) -> bool:
        """Let a topic send to a queue. False: it already may. Raises AWSError if the queue's policy denies it."""
        if self.is_open(access, topic):
            return False
        if denied := self.is_denied(access, topic):
            raise AWSError(denied)
        policy = allowing(access.policy, access.arn, self._account.topics.arn(topic))
        self._account.clients.sqs("set_queue_attributes", QueueUrl=access.sqs_queue.url, Attributes={"Policy": policy})
        return True

    def make(self, subscription: Subscription, access: QueueAccess) -> None:
        """Create a subscription, with raw delivery: messages come without an envelope."""
        attributes = {"RawMessageDelivery": "true"}
        if (text := write_filter(subscription)) is not None:
            attributes["FilterPolicy"] = text
        to = {"TopicArn": self._account.topics.arn(subscription.topic), "Protocol": "sqs", "Endpoint": access.arn}
        try:
            self._account.clients.sns("subscribe", **to, Attributes=attributes)
        except MissingError as error:
            raise self.no_topic(subscription.topic, error) from None

    def update_filter(self, subscribed: TopicSubscription, terms: DeliveryTerms, subscription: Subscription) -> bool:
        """Set the filter of a subscription. Raw delivery stays as it is. False: it already has that filter."""
        if terms.let_through(subscription.filter):
            return False
        wanted = write_filter(subscription)
        if not wanted or not terms.by_attributes:
            self._set(subscribed, "FilterPolicy", NO_FILTER)
        if wanted:
            if not terms.by_attributes:  # SNS checks the filter against a new scope, so the old filter is removed first
                self._set(subscribed, "FilterPolicyScope", BY_ATTRIBUTES)
            self._set(subscribed, "FilterPolicy", wanted)
        return True

    def _set(self, subscribed: TopicSubscription, name: str, value: str) -> None:
        change = {"SubscriptionArn": subscribed.arn, "AttributeName": name, "AttributeValue": value}
        self._account.clients.sns("set_subscription_attributes", **change)

    # -- reading ---------------------------------------------------------------------------------------

    def of(self, topic: str) -> Iterator[TopicSubscription]:
        """The subscriptions of a topic. Raises MissingError if the topic does not exist."""
        try:
            yield from self._own("list_subscriptions_by_topic", TopicArn=self._account.topics.arn(topic))
        except MissingError as error:
            raise self.no_topic(topic, error) from None

    def one(self, topic: str, queue: str) -> TopicSubscription | None:
        """The subscription of a queue to a topic, if there is one. Raises MissingError if the topic does not exist."""
        return next((subscribed for subscribed in self.of(topic) if subscribed.queue == queue), None)

    def all(self) -> Iterator[TopicSubscription]:
        """The subscriptions of queues named after their topics, as listeners' queues are, or known to this process."""
        known = set(self._account.queues.known())
        for subscribed in self._own("list_subscriptions"):
            if subscribed.queue.endswith(f"-{subscribed.topic}") or subscribed.queue in known:
                yield subscribed

    def terms(self, subscribed: TopicSubscription) -> DeliveryTerms:
        """The current terms of a subscription. Asks SNS."""
        answer = self._account.clients.sns("get_subscription_attributes", SubscriptionArn=subscribed.arn)
        attributes = answer.get("Attributes") or {}
        try:
            policy = msgspec.json.decode(attributes.get("FilterPolicy") or NO_FILTER, type=dict[str, Any])
        except msgspec.DecodeError:
            raise AWSError(
                f"The filter of the subscription of {subscribed.queue} to {subscribed.topic} cannot be read; set "
                "another, or none."
            ) from None
        by_attributes = attributes.get("FilterPolicyScope", BY_ATTRIBUTES) == BY_ATTRIBUTES
        return DeliveryTerms(policy or None, by_attributes, attributes.get("RawMessageDelivery", "").lower() == "true")

    def no_topic(self, topic: str, error: MissingError) -> MissingError:
        """The error for a missing topic."""
        return MissingError(
            f"There is no SNS topic {self._account.topics.name(topic)} {self._account.settings.where}, which a "
            "listener's queue is to be subscribed to; create it with `laneway aws create`.",
            code=error.code,
        )

    def _own(self, operation: str, **params: str) -> Iterator[TopicSubscription]:
        """The subscriptions that SNS lists, of this account, region and prefix."""
        topics = self._account.topics.arn("")
        queues = topics.replace(":sns:", ":sqs:", 1)
        for listed in self._pages(operation, params):
            topic, queue, arn = listed["TopicArn"], listed["Endpoint"], listed["SubscriptionArn"]
            # A subscription that is unconfirmed or deleted has a word in place of its ARN.
            if listed["Protocol"] != "sqs" or not arn.startswith("arn:") or queue.endswith(FIFO_SUFFIX):
                continue
            if topic.startswith(topics) and queue.startswith(queues):
                yield TopicSubscription(arn, topic[len(topics) :], queue[len(queues) :])

    def _pages(self, operation: str, params: dict[str, str]) -> Iterator[dict[str, str]]:
        while True:
            answer = self._account.clients.sns(operation, **params)
            yield from answer.get("Subscriptions") or ()
            if not answer.get("NextToken"):
                return
            params["NextToken"] = answer["NextToken"]


@contextmanager
def _changing(subscription: Subscription) -> Iterator[None]:
    """If a change is denied, say what it was for. The credentials of most workers may only read."""
    try:
        yield
    except DeniedError as error:
        if not is_refusal(error):  # the credentials are unknown, not just without permission
            raise
        raise DeniedError(
            f"The queue {subscription.queue} is not subscribed to {subscription.topic} as its listener declares, and "
            f"these credentials may not change that; have somebody who may run `laneway aws create`, or `laneway "
            f"subscribe` ({str(error).rstrip('.')}).",
            code=error.code,
        ) from None
