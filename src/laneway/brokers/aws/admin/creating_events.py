"""Making what events need on AWS beside a queue: the topic, the queue's permission for it, and the subscription.

A topic or a subscription that exists is never changed. A queue's policy is, if it does not let the topic send: a
statement is added to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....events.event import Subscription
from ..errors import MissingError
from .steps import Step, Steps

if TYPE_CHECKING:
    from ..broker import AWSBroker


class EventCreation:
    """Makes what is missing; with `dry_run` it only says so.

    `sets_filters`: whoever has it made sets them afterwards, so that nothing is to be said of them.
    """

    def __init__(self, broker: AWSBroker, *, dry_run: bool, sets_filters: bool = False) -> None:
        self._topics = broker.topics
        self._subscribing = broker.subscribing
        self._ties = broker.ties
        self._name_of = broker.channels.name_of
        self._dry_run = dry_run
        self._sets_filters = sets_filters

    def topic(self, topic: str, what: str) -> Steps:
        """Make a topic."""
        name = self._topics.name(topic)
        if self._topics.exists(topic):
            yield Step("exists", f"The SNS topic {name} exists.")
        elif self._dry_run:
            yield Step("missing", f"The SNS topic {name}, {what}, would be made.")
        else:
            self._topics.create(topic)
            yield Step("made", f"The SNS topic {name}, {what}, was made.")

    def subscription(self, wanted: Subscription) -> Steps:
        """Let a topic send to a queue, and subscribe the queue to it; both should exist."""
        topic, queue = self._topics.name(wanted.topic), self._name_of(wanted.queue, False)
        try:
            door = self._subscribing.door(wanted.queue)
            is_open = self._subscribing.is_open(door, wanted.topic)
            tie = self._ties.one(wanted.topic, wanted.queue)
        except MissingError as error:
            if not self._dry_run:  # it could not be made, and that was told
                yield Step("problem", str(error))
                return
            door, is_open, tie = None, False, None
        if door is not None and (denied := self._subscribing.is_denied(door, wanted.topic)):
            yield Step("problem", denied)
        elif is_open:
            yield Step("exists", f"The SNS topic {topic} may send to the SQS queue {queue}.")
        elif self._dry_run or door is None:
            yield Step("missing", f"The SNS topic {topic} would be allowed to send to the SQS queue {queue}.")
        else:
            self._subscribing.open(door, wanted.topic)
            yield Step("made", f"The SNS topic {topic} was allowed to send to the SQS queue {queue}.")
        if tie is not None:
            yield Step("exists", f"The SQS queue {queue} is subscribed to {topic}.")
            if not self._sets_filters and not self._ties.terms(tie).let_through(wanted.filter):
                yield Step(
                    "problem",
                    f"The subscription of {queue} to {topic} has another filter than its listener declares, and was "
                    "left as it is; laneway subscribe TARGET sets it, and so does a worker that may.",
                )
        elif self._dry_run or door is None:
            yield Step("missing", f"The SQS queue {queue} would be subscribed to {topic}.")
        else:
            self._subscribing.make(wanted, door)
            yield Step("made", f"The SQS queue {queue} was subscribed to {topic}.")
