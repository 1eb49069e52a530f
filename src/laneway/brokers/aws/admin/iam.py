"""The smallest IAM policy that works: the requests of the code, on the queues, topics and tables of an app.

SQS and SNS have no actions for batches: sqs:SendMessage allows SendMessageBatch. A test runs producers, workers and
operators, and compares their requests with this policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from ....errors import BrokerError, BrokerRefusedError, ConfigError
from ..clients import Clients
from ..dynamodb.items import INDEX
from ..settings import AWSSettings
from ..sns.topics import partition_of
from ..sqs.queues import SQSQueues
from .resources import QueueRequirement, redrive_of

if TYPE_CHECKING:
    from ..broker import AWSBroker

Role = Literal["worker", "producer", "operator"]
ROLES: tuple[Role, ...] = get_args(Role)

_LOOK = ("sqs:GetQueueAttributes", "sqs:GetQueueUrl")
_READ = ("dynamodb:BatchGetItem", "dynamodb:DescribeTable", "dynamodb:GetItem", "dynamodb:Query")
_WRITE = ("dynamodb:BatchWriteItem", "dynamodb:DeleteItem", "dynamodb:UpdateItem")
_RECEIVE = ("sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:ReceiveMessage")

#: What each may do to queues, to dead-letter queues, and to tables.
ACTIONS: dict[Role, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    # Enqueues, cancels, reschedules and asks for the status of what it has enqueued.
    "producer": (("sqs:GetQueueUrl", "sqs:SendMessage"), (), (*_READ, *_WRITE)),
    # Runs jobs, buries them, polls the table, and shows the queues in numbers.
    "worker": (
        (*_LOOK, *_RECEIVE, "sqs:SendMessage"),
        (*_LOOK, "sqs:SendMessage"),
        (*_READ, *_WRITE, "dynamodb:PutItem"),
    ),
    # Looks, acts on delayed jobs, empties the morgue, pauses. What `check` tries is a worker's.
    "operator": (
        (*_LOOK, "sqs:SendMessage"),
        (*_LOOK, *_RECEIVE, "sqs:SendMessage"),
        (*_READ, "dynamodb:DeleteItem", "dynamodb:UpdateItem"),
    ),
}
#: What each may do to the topics that an app's listeners hear, to the queues of these, and to subscriptions.
EVENTS: dict[Role, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "producer": ((), (), ()),
    # Sees whether its listeners are subscribed. It does not subscribe them: whoever may change a queue's policy may
    # open it to everybody.
    "worker": (("sns:ListSubscriptionsByTopic",), (), ("sns:GetSubscriptionAttributes",)),
    # Subscribes and unsubscribes, also from topics that nobody hears any more.
    "operator": (
        ("sns:Subscribe",),
        ("sqs:SetQueueAttributes",),
        (
            *("sns:GetSubscriptionAttributes", "sns:ListSubscriptions", "sns:ListSubscriptionsByTopic"),
            *("sns:SetSubscriptionAttributes", "sns:Unsubscribe"),
        ),
    ),
}
#: To the topics of what an app publishes; an operator does not publish.
PUBLISHES: dict[Role, tuple[str, ...]] = {"producer": ("sns:Publish",), "worker": ("sns:Publish",), "operator": ()}
#: To the FIFO queues of listeners: there are none, and that is found out by looking.
_LOOK_FOR = ("sqs:GetQueueUrl",)
#: IAM has no names for subscriptions, so what is done to one must be allowed for all.
_ALL = ["*"]


class AccountLocation(msgspec.Struct, frozen=True):
    """Where things are on AWS."""

    region: str
    account: str

    def arn(self, service: str, name: str) -> str:
        """The ARN of a queue, a topic or a table."""
        return f"arn:{partition_of(self.region)}:{service}:{self.region}:{self.account}:{name}"


class QueueARNs(msgspec.Struct):
    """What AWS has said of the queues that exist: their ARNs, and those of their dead letters, by name."""

    queues: dict[str, str] = {}
    letters: dict[str, str] = {}


def look(channels: SQSQueues, queues: Iterable[str]) -> QueueARNs:
    """What can be found out now; without credentials, or without queues, that is nothing.

    Raises BrokerAwayError: a policy with guessed names must not pass for one that was looked up.
    """
    found = QueueARNs()
    try:
        for queue in queues:
            for channel in channels.existing(queue):
                attributes = channels.attributes(channel)
                found.queues[channel.name] = attributes.get("QueueArn", "")
                redrive = redrive_of(attributes)
                if redrive is not None:
                    found.letters[channel.name] = redrive.dead_letter_target_arn
    except BrokerRefusedError:
        pass  # a policy is often written before any credentials may look
    return found


def caller_of(clients: Clients) -> str | None:
    """The account of the credentials, if there are any and STS can be asked."""
    try:
        account: str = clients.sts("get_caller_identity")["Account"]
    except BrokerError:  # then nothing is guessed: `place_of` asks for --account
        return None
    return account


def place_of(
    settings: AWSSettings, found: QueueARNs, account: str | None, ask: Callable[[], str | None] = lambda: None
) -> AccountLocation:
    """Where an app's queues and topics are: as it was said, else as those say that exist, else as `ask` says."""
    arns = [arn.split(":") for arn in found.queues.values() if arn.count(":") == 5]
    region = settings.region or next((arn[3] for arn in arns), None)
    account = account or settings.account or next((arn[4] for arn in arns), None) or ask()
    if region is None:
        raise ConfigError("A policy names the region of its queues; give the URL region=…, or set AWS_REGION.")
    if account is None:
        raise ConfigError(
            "A policy names the account of its queues and topics, and neither a queue nor STS could be asked for it; "
            "say it with --account."
        )
    return AccountLocation(region, account)


def policy(
    role: Role,
    needs: Mapping[str, QueueRequirement],
    broker: AWSBroker,
    place: AccountLocation,
    found: QueueARNs,
    publishes: Iterable[str] = (),
) -> dict[str, Any]:
    """The policy document for a role; `publishes` are the topics of what the app publishes, or patterns of them."""
    channels, tables = broker.account.queues, broker.account.tables
    names = [channels.name_of(need.queue, fifo) for need in needs.values() for fifo in need.kinds]
    queues = [found.queues.get(name) or place.arn("sqs", name) for name in names]
    letters = [found.letters.get(name) or place.arn("sqs", channels.dead_name_of(name)) for name in names]
    waiters = dict.fromkeys(place.arn("dynamodb", f"table/{tables.name(queue)}") for queue in needs)
    indexed = [each for table in waiters for each in (table, f"{table}/index/{INDEX}")]

    heard = [need.subscription for need in needs.values() if need.subscription is not None]
    topics = [place.arn("sns", broker.account.topics.name(each.topic)) for each in heard]
    doors = [channels.name_of(each.queue, False) for each in heard]
    sought = [place.arn("sqs", channels.name_of(each.queue, True)) for each in heard]
    hearing = [found.queues.get(name) or place.arn("sqs", name) for name in doors]
    told = [place.arn("sns", broker.account.topics.name(topic)) for topic in publishes]

    granted = (
        ("LanewayQueues", ACTIONS[role][0], queues),
        ("LanewayLookedFor", _LOOK_FOR, sought),
        ("LanewayDeadLetters", ACTIONS[role][1], letters),
        ("LanewayTables", ACTIONS[role][2], indexed),
        ("LanewayListeners", EVENTS[role][0], topics),
        ("LanewayListenersQueues", EVENTS[role][1], hearing),
        ("LanewaySubscriptions", EVENTS[role][2], _ALL if heard else []),
        ("LanewayPublishes", PUBLISHES[role], told),
    )
    statements = [
        {"Sid": name, "Effect": "Allow", "Action": sorted(actions), "Resource": list(dict.fromkeys(resources))}
        for name, actions, resources in granted
        if actions and resources
    ]
    return {"Version": "2012-10-17", "Statement": statements}
