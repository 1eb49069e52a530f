"""SNS topics and subscriptions: allowed names and settings, and the message that a subscription delivers."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from tests.support.aws.endpoints import ACCOUNT, REGION
from tests.support.aws.fake import filters
from tests.support.aws.fake.faults import Refusal
from tests.support.aws.fake.publications import Publication

_NAME = re.compile(r"[A-Za-z0-9_-]{1,256}")
_QUEUE_ARN = re.compile(rf"arn:aws:sqs:{REGION}:{ACCOUNT}:[A-Za-z0-9_-]{{1,80}}(\.fifo)?")
_OF_TOPICS = {"DeliveryPolicy", "DisplayName", "KmsMasterKeyId", "Policy", "SignatureVersion", "TracingConfig"}
_RAW, _FILTER, _SCOPE = "RawMessageDelivery", "FilterPolicy", "FilterPolicyScope"


def invalid(reason: str) -> Refusal:
    return Refusal("InvalidParameter", f"Invalid parameter: {reason}")


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise invalid("Topic Name")


def check_topic_attributes(attributes: dict[str, str]) -> None:
    for name, value in attributes.items():
        if name not in _OF_TOPICS:
            raise invalid("AttributeName")
        if name.endswith("Policy") and value:
            try:
                json.loads(value)
            except ValueError:
                raise invalid(f"{name} Reason: failed to parse JSON.") from None


def check_endpoint(protocol: str, endpoint: str) -> None:
    """This server delivers to its own queues, and nowhere else."""
    if protocol != "sqs":
        raise invalid(f"Amazon SNS does not support this protocol string: {protocol}")
    if not _QUEUE_ARN.fullmatch(endpoint):
        raise invalid("SQS endpoint ARN")
    if endpoint.endswith(".fifo"):
        wrong = "Endpoint Reason: FIFO SQS Queues can not be subscribed to standard SNS topics"
        raise invalid(f"Invalid parameter: {wrong}")


class Subscription:
    """A queue that gets what is published to a topic, if it passes the filter."""

    def __init__(self, topic: str, queue: str, attributes: dict[str, str]) -> None:
        #: The ARNs of both, and its own.
        self.topic, self.queue = topic, queue
        self.arn = f"{topic}:{uuid.uuid4()}"
        self.attributes: dict[str, str] = {}
        self._filter: filters.Policy = {}
        self.set(attributes, "Invalid parameter: Attributes Reason: ")

    def set(self, attributes: dict[str, str], prefix: str = "Invalid parameter: ") -> None:
        """All of them, or none if one is wrong. `prefix` is what errors begin with."""
        new = {**self.attributes, **attributes}
        for name in attributes.keys() - {_RAW, _FILTER, _SCOPE}:
            raise Refusal("InvalidParameter", f"{prefix}AttributeName{'' if name else ' is empty'}")
        if (raw := new.get(_RAW, "false").lower()) not in ("true", "false"):
            reason = f"{_RAW}: Invalid value [{new[_RAW]}]. Must be true or false."
            raise Refusal("InvalidParameter", f"{prefix}{reason}")
        if self.scope_of(new) not in (filters.BY_ATTRIBUTES, filters.BY_BODY):
            reason = f"{_SCOPE}: Invalid value [{new[_SCOPE]}]. Please use either MessageBody or MessageAttributes"
            raise Refusal("InvalidParameter", f"{prefix}{reason}")
        self._filter = filters.read(new.get(_FILTER, ""), self.scope_of(new), prefix)
        self.attributes = {**new, _RAW: raw}

    @staticmethod
    def scope_of(attributes: dict[str, str]) -> str:
        return attributes.get(_SCOPE, filters.BY_ATTRIBUTES)

    @property
    def raw(self) -> bool:
        return self.attributes[_RAW] == "true"

    def differs(self, attributes: dict[str, str]) -> bool:
        """Whether somebody who subscribes once more wants it otherwise than it is. SNS compares texts."""
        wanted = {name: value.lower() if name == _RAW else value for name, value in attributes.items() if value}
        return any(self.told.get(name) != value for name, value in wanted.items())

    def wants(self, publication: Publication) -> bool:
        if self.scope_of(self.attributes) == filters.BY_BODY:
            return filters.passes_body(self._filter, publication.message)
        return filters.passes_attributes(self._filter, publication.attributes)

    @property
    def told(self) -> dict[str, str]:
        """As GetSubscriptionAttributes answers."""
        told = {
            "SubscriptionArn": self.arn,
            "TopicArn": self.topic,
            "Endpoint": self.queue,
            "Protocol": "sqs",
            "Owner": ACCOUNT,
            "PendingConfirmation": "false",
            "ConfirmationWasAuthenticated": "true",
            "SubscriptionPrincipal": f"arn:aws:iam::{ACCOUNT}:user/fake",
            _RAW: self.attributes[_RAW],
        }
        if self._filter:
            told |= {_FILTER: self.attributes[_FILTER], _SCOPE: self.scope_of(self.attributes)}
        return told

    @property
    def listed(self) -> dict[str, str]:
        """As it is in a list."""
        return {name: self.told[name] for name in ("SubscriptionArn", "Owner", "Protocol", "Endpoint", "TopicArn")}

    def entry(self, publication: Publication, now: float) -> dict[str, Any]:
        """What is sent to the queue."""
        group = {"MessageGroupId": publication.group} if publication.group else {}
        if self.raw:
            return {"MessageBody": publication.message, "MessageAttributes": publication.attributes, **group}
        return {"MessageBody": json.dumps(self._envelope(publication, now), indent=2, ensure_ascii=False), **group}

    def _envelope(self, publication: Publication, now: float) -> dict[str, Any]:
        host = f"https://sns.{REGION}.amazonaws.com"
        envelope: dict[str, Any] = {"Type": "Notification", "MessageId": publication.id, "TopicArn": self.topic}
        if publication.subject is not None:
            envelope["Subject"] = publication.subject
        at = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        envelope |= {
            "Message": publication.message,
            "Timestamp": at,
            "SignatureVersion": "1",
            "Signature": "bm90IHNpZ25lZA==",
            "SigningCertURL": f"{host}/SimpleNotificationService-fake.pem",
            "UnsubscribeURL": f"{host}/?Action=Unsubscribe&SubscriptionArn={self.arn}",
        }
        if publication.attributes:
            envelope["MessageAttributes"] = {
                name: {"Type": value["DataType"], "Value": value.get("StringValue", value.get("BinaryValue"))}
                for name, value in publication.attributes.items()
            }
        return envelope


@dataclass
class Topic:
    name: str
    arn: str
    attributes: dict[str, str]
    tags: dict[str, str]
    #: By the ARN of the queue.
    subscriptions: dict[str, Subscription] = field(default_factory=dict[str, Subscription])
    deleted: int = 0

    @property
    def told(self) -> dict[str, str]:
        """As GetTopicAttributes answers."""
        return {
            "Policy": json.dumps({"Version": "2008-10-17", "Id": "__default_policy_ID", "Statement": []}),
            "DisplayName": "",
            "EffectiveDeliveryPolicy": '{"http":{}}',
            **self.attributes,
            "TopicArn": self.arn,
            "Owner": ACCOUNT,
            "SubscriptionsConfirmed": str(len(self.subscriptions)),
            "SubscriptionsPending": "0",
            "SubscriptionsDeleted": str(self.deleted),
        }
