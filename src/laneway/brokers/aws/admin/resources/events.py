"""Topic, and ListenerSubscription with the access policy of its queue: what events need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .....broker import Finding
from .....events.event import Subscription
from ...errors import AWSError, DeniedError, MissingError, MissingQueueError
from ...sns.subscriptions import SNSSubscriptions
from .queues import FIND_QUEUE
from .resource import CREATE_IT, Actions, CreateStep, Creation, Findings, Grant, Resource, Steps, denied

if TYPE_CHECKING:
    from ...account import Account
    from ..iam import AccountLocation


class Topic(Resource):
    """The SNS topic of what the app publishes, or of what a listener hears. `check` does not know what is published."""

    actions = Actions(producer=("sns:Publish",), worker=("sns:Publish",))

    def __init__(self, account: Account, topic: str, listener: str = "") -> None:
        super().__init__(account, account.topics.name(topic))
        self._topic = topic
        self._is_published = not listener
        why = f"for the events of {listener}" if listener else "for what the app publishes"
        self.subject, self.existing = f"The SNS topic {self.name}, {why},", f"The SNS topic {self.name} exists."

    def look(self) -> bool | None:
        return self.account.topics.exists(self._topic) or None

    def make(self, creation: Creation) -> None:
        self.account.topics.create(self._topic)

    def problems(self) -> Findings:
        return iter(())

    def grants(self, location: AccountLocation) -> Iterator[Grant]:
        if self._is_published:
            yield "LanewayPublishes", self.actions, location.arn("sns", self.name)


_SUBSCRIBE = "laneway aws create TARGET does that, and so does laneway subscribe TARGET"


class ListenerSubscription(Resource):
    """The subscription of a listener's queue to a topic, and the queue's access policy, which lets the topic send."""

    #: IAM has no names for subscriptions, so what is done to one must be allowed for all.
    actions = Actions(
        worker=("sns:GetSubscriptionAttributes",),
        operator=(
            *("sns:GetSubscriptionAttributes", "sns:ListSubscriptions", "sns:ListSubscriptionsByTopic"),
            *("sns:SetSubscriptionAttributes", "sns:Unsubscribe"),
        ),
    )
    #: A worker sees whether its listeners are subscribed. It does not subscribe them: a program that may change the
    #: policy of a queue may open the queue to every account.
    topic_actions = Actions(worker=("sns:ListSubscriptionsByTopic",), operator=("sns:Subscribe",))
    queue_actions = Actions(operator=("sqs:SetQueueAttributes",))
    #: On the FIFO queue of the listener: there is none, and that is found out by looking.
    fifo_actions = Actions(producer=FIND_QUEUE, worker=FIND_QUEUE, operator=FIND_QUEUE)

    def __init__(self, account: Account, wanted: Subscription, listener: str) -> None:
        super().__init__(account, account.queues.name_of(wanted.queue, False))
        self._wanted, self._listener = wanted, listener
        self._topic = account.topics.name(wanted.topic)
        self._events = SNSSubscriptions(account)

    def grants(self, location: AccountLocation) -> Iterator[Grant]:
        fifo = self.account.queues.name_of(self._wanted.queue, True)
        yield "LanewayLookedFor", self.fifo_actions, location.arn("sqs", fifo)
        yield "LanewayListeners", self.topic_actions, location.arn("sns", self._topic)
        yield "LanewayListenersQueues", self.queue_actions, location.queue_arn(self.name)
        yield "LanewaySubscriptions", self.actions, "*"

    def create(self, creation: Creation) -> Steps:
        """Let the topic send to the queue, then subscribe the queue to it."""
        wanted, topic, queue, events = self._wanted, self._topic, self.name, self._events
        try:
            access = events.access_of(wanted.queue)
            is_open, denial = events.is_open(access, wanted.topic), events.is_denied(access, wanted.topic)
            found = events.one(wanted.topic, wanted.queue)
        except MissingError as error:
            if not creation.dry_run:  # it could not be created, and an earlier step has said so
                yield CreateStep("problem", str(error))
                return
            is_open, denial, found = False, None, None
        if denial is not None:
            yield CreateStep("problem", denial)
        elif is_open:
            yield CreateStep("exists", f"The SNS topic {topic} may send to the SQS queue {queue}.")
        else:
            yield creation.step(f"The SNS topic {topic}", f"allowed to send to the SQS queue {queue}", self._let_send)
        if found is None:
            yield creation.step(f"The SQS queue {queue}", f"subscribed to {topic}", self._subscribe)
            return
        yield CreateStep("exists", f"The SQS queue {queue} is subscribed to {topic}.")
        if not creation.development and not events.terms(found).let_through(wanted.filter):
            text = (
                f"The subscription of {queue} to {topic} has another filter than its listener declares, and was left "
                "as it is; laneway subscribe TARGET sets it, and so does a worker that may."
            )
            yield CreateStep("problem", text)

    def _let_send(self) -> None:
        self._events.open(self._events.access_of(self._wanted.queue), self._wanted.topic)

    def _subscribe(self) -> None:
        self._events.make(self._wanted, self._events.access_of(self._wanted.queue))

    def problems(self) -> Findings:
        try:
            yield from self._access_problems()
            yield from self._subscription_problems()
        except MissingQueueError:
            pass  # the queue's own check reports it
        except AWSError as error:
            yield self.problem("aws-error", str(error))

    def _access_problems(self) -> Findings:
        try:
            access = self._events.access_of(self._wanted.queue)
        except DeniedError:
            return  # the queue's own check reports it
        if denial := self._events.is_denied(access, self._wanted.topic):
            yield self.problem("policy-denies", denial)
        elif not self._events.is_open(access, self._wanted.topic):
            yield self.problem(
                "policy-missing",
                f"The access policy of the SQS queue {self.name} does not let the SNS topic {self._topic} send to it, "
                f"so that the listener {self._listener} gets no events; {_SUBSCRIBE}.",
            )

    def _subscription_problems(self) -> Findings:
        topic, queue, listener = self._topic, self.name, self._listener
        try:
            found = self._events.one(self._wanted.topic, self._wanted.queue)
        except MissingError:
            text = f"There is no SNS topic {topic}, which the listener {listener} hears; {CREATE_IT}."
            yield Finding("problem", "no-topic", text, topic)
            return
        except DeniedError as error:
            yield denied(f"the SNS topic {topic}", "sns:ListSubscriptionsByTopic", error=error)
            return
        if found is None:
            yield self.problem(
                "not-subscribed",
                f"The SQS queue {queue} is not subscribed to the SNS topic {topic}, so that the listener {listener} "
                f"gets no events; {_SUBSCRIBE}.",
            )
            return
        try:
            terms = self._events.terms(found)
        except DeniedError as error:
            yield denied(f"the subscription of {queue}", "sns:GetSubscriptionAttributes", error=error)
            return
        if not terms.let_through(self._wanted.filter):
            yield self.problem(
                "other-filter",
                f"The subscription of the SQS queue {queue} to {topic} has another filter than the listener {listener} "
                "declares; laneway subscribe TARGET sets it, and so does a worker that may.",
            )
