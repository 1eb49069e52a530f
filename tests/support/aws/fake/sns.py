"""The operations of SNS: parameters in, responses out, and delivery into the queues of this server's SQS."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.aws.endpoints import ACCOUNT, REGION
from tests.support.aws.fake import publications
from tests.support.aws.fake.faults import Refusal
from tests.support.aws.fake.messages import MAX_ATTRIBUTES
from tests.support.aws.fake.policies import allows
from tests.support.aws.fake.publications import MAX_BYTES, Publication, publication
from tests.support.aws.fake.query import Map
from tests.support.aws.fake.sqs import MAX_ENTRIES, SQS
from tests.support.aws.fake.topics import (
    Subscription,
    Topic,
    check_endpoint,
    check_name,
    check_topic_attributes,
    invalid,
)

PAGE = 100
_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]+")

#: Why something was lost.
DENIED, NO_QUEUE, TOO_MANY_ATTRIBUTES, REFUSED = "denied", "no queue", "too many attributes", "refused"

Params = dict[str, Any]


@dataclass(frozen=True)
class Lost:
    """A message that was published, and did not come into a queue that has subscribed. Nobody is told."""

    topic: str
    queue: str
    message: str
    why: str


class SNS:
    """All topics of one account in one region."""

    def __init__(self, now: Callable[[], float], sqs: SQS) -> None:
        self._now, self._sqs = now, sqs
        #: By ARN.
        self.topics: dict[str, Topic] = {}
        self.subscriptions: dict[str, Subscription] = {}
        #: What did not come where it should have.
        self.lost: list[Lost] = []
        #: How many copies were not made, because a filter did not let them pass.
        self.filtered = 0

    # -- topics ----------------------------------------------------------------------------------------

    def create_topic(self, params: Params, host: str) -> Params:
        name, attributes = params["Name"], params.get("Attributes") or {}
        tags = {each["Key"]: each["Value"] for each in params.get("Tags") or []}
        if name.endswith(".fifo") or "FifoTopic" in attributes:
            raise invalid("FifoTopic Reason: this fake has no FIFO topics")
        check_name(name)
        check_topic_attributes(attributes)
        arn = f"arn:aws:sns:{REGION}:{ACCOUNT}:{name}"
        if (known := self.topics.get(arn)) is not None:
            if any(known.told.get(key) != value for key, value in attributes.items()):
                raise invalid("Attributes Reason: Topic already exists with different attributes")
            if any(known.tags.get(key) != value for key, value in tags.items()):
                raise invalid("Tags Reason: Topic already exists with different tags")
            return {"TopicArn": arn}
        self.topics[arn] = Topic(name, arn, dict(attributes), tags)
        return {"TopicArn": arn}

    def delete_topic(self, params: Params, host: str) -> Params:
        topic = self.topics.pop(_topic_arn(params), None)
        for subscription in topic.subscriptions.values() if topic else ():
            del self.subscriptions[subscription.arn]
        return {}

    def get_topic_attributes(self, params: Params, host: str) -> Params:
        return {"Attributes": Map(self._topic(params).told)}

    def set_topic_attributes(self, params: Params, host: str) -> Params:
        topic, attributes = self._topic(params), {params["AttributeName"]: params.get("AttributeValue", "")}
        check_topic_attributes(attributes)
        topic.attributes.update(attributes)
        return {}

    def list_topics(self, params: Params, host: str) -> Params:
        page, more = _page(list(self.topics), params)
        return {"Topics": [{"TopicArn": arn} for arn in page], **more}

    def tag_resource(self, params: Params, host: str) -> Params:
        self._tagged(params).update({each["Key"]: each["Value"] for each in params["Tags"]})
        return {}

    def untag_resource(self, params: Params, host: str) -> Params:
        for key in params["TagKeys"]:
            self._tagged(params).pop(key, None)
        return {}

    def list_tags_for_resource(self, params: Params, host: str) -> Params:
        return {"Tags": [{"Key": key, "Value": value} for key, value in self._tagged(params).items()]}

    # -- subscriptions ---------------------------------------------------------------------------------

    def subscribe(self, params: Params, host: str) -> Params:
        topic, queue = self._topic(params), params.get("Endpoint", "")
        attributes = params.get("Attributes") or {}
        check_endpoint(params["Protocol"], queue)
        wanted = Subscription(topic.arn, queue, attributes)
        if (known := topic.subscriptions.get(queue)) is not None:
            if known.differs(attributes):
                raise invalid("Attributes Reason: Subscription already exists with different attributes")
            return {"SubscriptionArn": known.arn}
        topic.subscriptions[queue] = self.subscriptions[wanted.arn] = wanted
        return {"SubscriptionArn": wanted.arn}

    def unsubscribe(self, params: Params, host: str) -> Params:
        arn: str = params["SubscriptionArn"]
        if (parts := len(arn.split(":"))) < 6:
            raise invalid(f"SubscriptionArn Reason: An ARN must have at least 6 elements, not {parts}")
        if parts == 6:
            raise invalid("SubscriptionId")
        if (subscription := self.subscriptions.pop(arn, None)) is not None:
            topic = self.topics[subscription.topic]
            del topic.subscriptions[subscription.queue]
            topic.deleted += 1
        return {}

    def get_subscription_attributes(self, params: Params, host: str) -> Params:
        return {"Attributes": Map(self._subscription(params).told)}

    def set_subscription_attributes(self, params: Params, host: str) -> Params:
        self._subscription(params).set({params["AttributeName"]: params.get("AttributeValue", "")})
        return {}

    def list_subscriptions(self, params: Params, host: str) -> Params:
        page, more = _page(list(self.subscriptions), params)
        return {"Subscriptions": [self.subscriptions[arn].listed for arn in page], **more}

    def list_subscriptions_by_topic(self, params: Params, host: str) -> Params:
        page, more = _page([each.arn for each in self._topic(params).subscriptions.values()], params)
        return {"Subscriptions": [self.subscriptions[arn].listed for arn in page], **more}

    # -- publishing ------------------------------------------------------------------------------------

    def publish(self, params: Params, host: str) -> Params:
        if "PhoneNumber" in params:
            raise invalid("PhoneNumber Reason: this fake has no telephone")
        publications.check_attributes(params)
        what = publication(params)
        if publications.size(params) > MAX_BYTES:
            raise invalid("Message too long")
        topic = self._topic({"TopicArn": params.get("TopicArn") or params.get("TargetArn", "")})
        self._deliver(topic, what)
        return {"MessageId": what.id}

    def publish_batch(self, params: Params, host: str) -> Params:
        """One wrong attribute fails all entries, as on AWS; a wrong message only its own."""
        entries: list[Params] = params.get("PublishBatchRequestEntries") or []
        if not entries:
            raise Refusal("EmptyBatchRequest", "The batch request doesn't contain any entries.")
        if len(entries) > MAX_ENTRIES:
            message = "The batch request contains more entries than permissible."
            raise Refusal("TooManyEntriesInBatchRequest", message)
        topic = self._topic(params)
        _check_ids([entry["Id"] for entry in entries])
        for entry in entries:
            publications.check_attributes(entry)
        if sum(publications.size(entry) for entry in entries) > MAX_BYTES:
            message = "The length of all the messages put together is more than the limit."
            raise Refusal("BatchRequestTooLong", message)
        successful: list[Params] = []
        failed: list[Params] = []
        for entry in entries:
            try:
                what = publication(entry)
            except Refusal as refusal:
                told = {"Code": refusal.kind, "Message": refusal.message, "SenderFault": True}
                failed.append({"Id": entry["Id"], **told})
            else:
                self._deliver(topic, what)
                successful.append({"Id": entry["Id"], "MessageId": what.id})
        return {"Successful": successful, "Failed": failed}

    def _deliver(self, topic: Topic, what: Publication) -> None:
        for subscription in topic.subscriptions.values():
            if not subscription.wants(what):
                self.filtered += 1
            elif why := self._send(subscription, what):
                self.lost.append(Lost(topic.name, subscription.queue.rpartition(":")[2], what.message, why))

    def _send(self, subscription: Subscription, what: Publication) -> str:
        """Why it is lost, if it is."""
        queue = self._sqs.queues.get(subscription.queue.rpartition(":")[2])
        if queue is None:
            return NO_QUEUE
        if not allows(queue.attributes.get("Policy", ""), queue.arn, subscription.topic):
            return DENIED
        if subscription.raw and len(what.attributes) > MAX_ATTRIBUTES:
            return TOO_MANY_ATTRIBUTES
        try:
            queue.send(subscription.entry(what, self._now()))
        except Refusal:
            return REFUSED
        queue.wake()
        return ""

    # -- inside ----------------------------------------------------------------------------------------

    def _topic(self, params: Params) -> Topic:
        topic = self.topics.get(_topic_arn(params))
        if topic is None:
            raise Refusal("NotFound", "Topic does not exist", 404)
        return topic

    def _subscription(self, params: Params) -> Subscription:
        subscription = self.subscriptions.get(params["SubscriptionArn"])
        if subscription is None:
            raise Refusal("NotFound", "Subscription does not exist", 404)
        return subscription

    def _tagged(self, params: Params) -> dict[str, str]:
        if params["ResourceArn"] not in self.topics:
            raise Refusal("ResourceNotFound", "Resource does not exist", 404)
        return self.topics[params["ResourceArn"]].tags


def _topic_arn(params: Params) -> str:
    arn = str(params["TopicArn"])
    parts = arn.split(":")
    if len(parts) < 6:
        raise invalid(f"TopicArn Reason: An ARN must have at least 6 elements, not {len(parts)}")
    if parts[2] != "sns" or parts[3] != REGION:
        raise invalid("TopicArn")
    return arn


def _check_ids(ids: list[str]) -> None:
    if len(set(ids)) != len(ids):
        raise Refusal("BatchEntryIdsNotDistinct", "Two or more batch entries in the request have the same Id.")
    for id in ids:
        if len(id) > 80:
            raise Refusal("InvalidBatchEntryId", f"The Id of a batch entry in the batch request is too long: {id}")
        if not _ENTRY_ID.fullmatch(id):
            message = f"The Id of a batch entry in the batch request contains an impermissible character: {id}"
            raise Refusal("InvalidBatchEntryId", message)


def _page(arns: list[str], params: Params) -> tuple[list[str], Params]:
    """A page of ARNs, and where the next begins if there is one."""
    start = 0
    if token := params.get("NextToken"):
        try:
            start = int(base64.b64decode(token, validate=True))
        except (binascii.Error, ValueError):
            raise invalid("NextToken Reason: it is not one of this server's") from None
    following = start + PAGE
    more = {"NextToken": base64.b64encode(str(following).encode()).decode()} if following < len(arns) else {}
    return arns[start:following], more
