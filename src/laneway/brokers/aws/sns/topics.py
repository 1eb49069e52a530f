"""Topics: the name and the ARN of an event's SNS topic, and its creation.

The ARN is computed, never looked up: credentials that may only publish may not look it up either. Whether the topic
exists shows in the request that uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import MissingError

if TYPE_CHECKING:
    from ..account import Account


class Topics:
    """The SNS topics, by the names of the topics that they are. Safe to call from several threads."""

    def __init__(self, account: Account) -> None:
        self._account = account
        #: How the ARNs of all topics begin; found out once.
        self._start: str | None = None

    def name(self, topic: str) -> str:
        """What the topic is called on SNS."""
        return self._account.settings.prefix + topic

    def arn(self, topic: str) -> str:
        """The ARN that a topic has if there is one."""
        start = self._start
        if start is None:  # two threads may both find it out: the answer is the same
            region = self._account.clients.region
            start = self._start = f"arn:{partition_of(region)}:sns:{region}:{self._id()}:"
        return start + self.name(topic)

    def exists(self, topic: str) -> bool:
        """Whether there is such a topic now; asks for sns:GetTopicAttributes."""
        try:
            self._account.clients.sns("get_topic_attributes", TopicArn=self.arn(topic))
        except MissingError:
            return False
        return True

    def create(self, topic: str) -> str:
        """Make a topic, unless it exists. Returns its ARN."""
        arn: str = self._account.clients.sns("create_topic", Name=self.name(topic))["TopicArn"]
        return arn

    def _id(self) -> str:
        if self._account.settings.account is not None:
            return self._account.settings.account
        # Any credentials allow this request.
        id: str = self._account.clients.sts("get_caller_identity")["Account"]
        return id


def partition_of(region: str) -> str:
    """Which of the AWSs a region belongs to, as ARNs say it."""
    starts = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
    return next((name for start, name in starts.items() if region.startswith(start)), "aws")
