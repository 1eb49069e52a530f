"""Checks queues, dead letters, tables, topics, subscriptions, permissions and the clock. Changes nothing.

`AWSHealth.check` covers the existing resources of the known queues; `check_app` the needs of an app's tasks and
listeners. Raw delivery and an SNS envelope are both fine: a worker reads either. Permissions are tried with harmless
requests: AWS finds them invalid only after it has checked the permissions, or they have no effect, such as a write
under a condition that does not hold. So every answer except a denial means that the request is allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from ....broker import AutoCreateNote, Duty, Finding
from ....events.event import Subscription
from ..clients import Clients
from ..dynamodb.items import INDEX
from ..dynamodb.tables import problem_of
from ..errors import AWSError, DeniedError, MissingError, is_refusal
from ..sqs.message import SQSQueue
from .create import provide
from .resources import (
    HASH,
    RANGE,
    QueueRequirement,
    needs_of,
    receives_problem,
    redrive_of,
    retention_problem,
    size_problem,
    ttl_problem,
)

if TYPE_CHECKING:
    from ....app import Laneway
    from ..broker import AWSBroker

#: A name that no resource of ours has.
NOBODY = "laneway-check"

#: Requests for a batch in which two entries have the same id. SQS refuses the whole batch, whatever the entries hold.
_TWICE: dict[str, tuple[str, dict[str, Any]]] = {
    "sqs:SendMessage": ("send_message_batch", {"MessageBody": NOBODY}),
    "sqs:DeleteMessage": ("delete_message_batch", {"ReceiptHandle": NOBODY}),
    "sqs:ChangeMessageVisibility": (
        "change_message_visibility_batch",
        {"ReceiptHandle": NOBODY, "VisibilityTimeout": 0},
    ),
}


def denied(what: str, actions: Sequence[str], error: DeniedError | None = None) -> str:
    """The sentence for actions that are not allowed. If AWS does not know the credentials, the text of the error."""
    if error is not None and not is_refusal(error):
        return str(error)
    return (
        f"These credentials may not do {', '.join(actions)} on {what}, which a worker does; laneway aws iam TARGET "
        "prints what it needs."
    )


def queue_denials(clients: Clients, channel: SQSQueue, *, letters: bool = False) -> Iterator[str]:
    """The actions on a queue that are not allowed. `letters`: a dead-letter queue, to which a worker only sends."""
    for action, (operation, entry) in _TWICE.items():
        if letters and action != "sqs:SendMessage":
            continue
        entries = [{"Id": NOBODY, **entry, **_groups(action, channel)}] * 2
        if _is_denied(lambda: clients.sqs(operation, QueueUrl=channel.url, Entries=entries)):  # noqa: B023 - called here
            yield action
    # 11 is more than SQS delivers at once. If a server accepts it, the visibility timeout of 0 hides no message.
    most = {"MaxNumberOfMessages": 11, "VisibilityTimeout": 0, "WaitTimeSeconds": 0}
    if not letters and _is_denied(lambda: clients.sqs("receive_message", QueueUrl=channel.url, **most)):
        yield "sqs:ReceiveMessage"


def table_denials(clients: Clients, table: str) -> Iterator[str]:
    """The actions on a table that are not allowed."""
    key = {HASH: {"S": NOBODY}, RANGE: {"S": NOBODY}}
    unless = {"ConditionExpression": f"attribute_exists({RANGE})"}
    values = {":s": {"S": NOBODY}}
    query = {
        "TableName": table,
        "Limit": 1,
        "KeyConditionExpression": "#s = :s",
        "ExpressionAttributeNames": {"#s": HASH},
        "ExpressionAttributeValues": values,
    }
    tries: dict[str, tuple[str, dict[str, Any]]] = {
        "dynamodb:GetItem": ("get_item", {"TableName": table, "Key": key}),
        "dynamodb:BatchGetItem": ("batch_get_item", {"RequestItems": {table: {"Keys": [key]}}}),
        "dynamodb:BatchWriteItem": ("batch_write_item", {"RequestItems": {table: [{"DeleteRequest": {"Key": key}}]}}),
        "dynamodb:PutItem": ("put_item", {"TableName": table, "Item": key, **unless}),
        "dynamodb:DeleteItem": ("delete_item", {"TableName": table, "Key": key, **unless}),
        "dynamodb:UpdateItem": (
            "update_item",
            {
                "TableName": table,
                "Key": key,
                "UpdateExpression": "SET #v = :s",
                "ExpressionAttributeNames": {"#v": NOBODY},
                "ExpressionAttributeValues": values,
                **unless,
            },
        ),
        "dynamodb:Query": ("query", query),
        # The index is a resource of its own. A policy has to name it.
        f"dynamodb:Query (of its index {INDEX})": ("query", {**query, "IndexName": INDEX}),
    }
    for action, (operation, params) in tries.items():
        if _is_denied(lambda: clients.dynamodb(operation, **params)):  # noqa: B023 - called here
            yield action


def _groups(action: str, channel: SQSQueue) -> dict[str, str]:
    if action != "sqs:SendMessage" or not channel.fifo:
        return {}
    return {"MessageGroupId": NOBODY, "MessageDeduplicationId": NOBODY}


def _is_denied(call: Any) -> bool:
    try:
        call()
    except AWSError as error:
        return isinstance(error, DeniedError)
    return False


_CREATE = "make it with laneway aws create TARGET"
_SUBSCRIBE = "laneway aws create TARGET does that, and so does laneway subscribe TARGET"


def check_listener(broker: AWSBroker, name: str, wanted: Subscription) -> Iterator[Finding]:
    """Findings for what a listener lacks besides its queue. The queue must exist."""
    try:
        yield from _check_queue_access(broker, name, wanted)
        yield from _check_subscription(broker, name, wanted)
    except AWSError as error:
        yield Finding("problem", "aws-error", str(error), wanted.queue)


def _check_queue_access(broker: AWSBroker, name: str, wanted: Subscription) -> Iterator[Finding]:
    try:
        door = broker.events.access_of(wanted.queue)
    except (DeniedError, MissingError):
        return  # the check of the queue has reported it
    if denied := broker.events.is_denied(door, wanted.topic):
        yield Finding("problem", "policy-denies", denied, wanted.queue)
    elif not broker.events.is_open(door, wanted.topic):
        yield Finding(
            "problem",
            "policy-missing",
            f"The access policy of the SQS queue {door.sqs_queue.name} does not let the SNS topic "
            f"{broker.account.topics.name(wanted.topic)} send to it, so that the listener {name} gets no events; "
            f"{_SUBSCRIBE}.",
            wanted.queue,
        )


def _check_subscription(broker: AWSBroker, name: str, wanted: Subscription) -> Iterator[Finding]:
    topic, queue = broker.account.topics.name(wanted.topic), broker.account.queues.name_of(wanted.queue, False)
    try:
        tie = broker.events.one(wanted.topic, wanted.queue)
    except MissingError:
        yield Finding(
            "problem", "no-topic", f"There is no SNS topic {topic}, which the listener {name} hears; {_CREATE}.", topic
        )
        return
    except DeniedError as error:
        yield _denied_finding(f"the SNS topic {topic}", ["sns:ListSubscriptionsByTopic"], error)
        return
    if tie is None:
        yield Finding(
            "problem",
            "not-subscribed",
            f"The SQS queue {queue} is not subscribed to the SNS topic {topic}, so that the listener {name} gets no "
            f"events; {_SUBSCRIBE}.",
            wanted.queue,
        )
        return
    try:
        terms = broker.events.terms(tie)
    except DeniedError as error:
        yield _denied_finding(f"the subscription of {queue}", ["sns:GetSubscriptionAttributes"], error)
        return
    if not terms.let_through(wanted.filter):
        yield Finding(
            "problem",
            "other-filter",
            f"The subscription of the SQS queue {queue} to {topic} has another filter than the listener {name} "
            "declares; laneway subscribe TARGET sets it, and so does a worker that may.",
            wanted.queue,
        )


#: Seconds by which this machine's clock may differ from that of AWS. Due times and expiring signatures depend on it.
CLOCK_S = 60.0


class AWSHealth:
    """The health tier."""

    def __init__(self, broker: AWSBroker) -> None:
        self._broker = broker
        self.auto_create = False

    def unmade(self) -> Finding | None:
        return None

    def check(self, app: Laneway | None = None) -> list[Finding]:
        """Check the queues that were declared or asked for, their tables, and the needs of an app."""
        broker = self._broker
        queues = [queue for queue in broker.inspect.queues() if broker.inspect.is_own(queue)]
        channels = [channel for queue in queues for channel in broker.account.queues.existing(queue)]
        found = [finding for channel in channels for finding in _queue(broker, channel)]
        found += _clock(broker, channels[:1])
        found += _tables(broker, queues)
        if app is not None:
            found += check_app(broker, app)
        return list(dict.fromkeys(found))

    def repair(self) -> list[str]:
        """Does nothing: SQS needs no repair."""
        return []

    def duties(self, queues: Collection[str]) -> Sequence[Duty]:
        """The poller of the waiter tables, and the heartbeat of this worker."""
        return [self._broker.make_poller(queues), self._broker.heartbeat]

    def provide(self, app: Laneway, queues: Collection[str]) -> Sequence[AutoCreateNote]:
        return provide(self._broker, app, queues)


def check_app(broker: AWSBroker, app: Laneway) -> Iterator[Finding]:
    """Findings for resources that an app's tasks and listeners need, and that are missing or different on AWS."""
    for need in needs_of(app).values():
        channels = {channel.fifo: channel for channel in broker.account.queues.existing(need.queue)}
        for fifo in (False, True):
            if not need.tasks(fifo):
                continue
            if fifo not in channels:
                yield _missing(broker, need, fifo)
            else:
                yield from _receives(broker, need, channels[fifo])
        if need.subscription is not None and False in channels:
            yield from check_listener(broker, ", ".join(need.plain), need.subscription)
    prefix = broker.account.settings.prefix
    if prefix and app.listeners():
        yield Finding(
            "note",
            "prefix",
            f"The prefix {prefix} of the URL stands before topics and listeners' queues, too: the listeners of this "
            "app hear only what is published with the same prefix, and nothing of Eventboss for Ruby or JavaScript, "
            "which know none.",
            prefix,
        )


def _denied_finding(what: str, actions: Sequence[str], error: DeniedError | None = None) -> Finding:
    return Finding("problem", "denied", denied(what, actions, error), what)


def _unreadable(what: str, action: str, error: AWSError) -> Finding:
    """The finding for a resource that could not be read."""
    if isinstance(error, DeniedError):
        return _denied_finding(what, [action])
    return Finding("problem", "aws-error", str(error), what)


def _missing(broker: AWSBroker, need: QueueRequirement, fifo: bool) -> Finding:
    name = broker.account.queues.name_of(need.queue, fifo)
    what = ("FIFO queue", "keyed") if fifo else ("SQS queue", "plain")
    return Finding(
        "problem",
        "no-queue",
        f"There is no {what[0]} {name}, which the {what[1]} jobs of {', '.join(need.tasks(fifo))} go to; "
        "make it with laneway aws create TARGET.",
        name,
    )


def _receives(broker: AWSBroker, need: QueueRequirement, channel: SQSQueue) -> Iterator[Finding]:
    try:
        redrive = redrive_of(broker.account.queues.attributes(channel))
    except AWSError:
        return  # `check` has reported it
    if redrive is not None:
        runs = need.runs[channel.fifo]
        yield from receives_problem(channel.name, redrive, runs, ", ".join(need.tasks(channel.fifo)))


# -- queues --------------------------------------------------------------------------------------------


def _queue(broker: AWSBroker, channel: SQSQueue) -> Iterator[Finding]:
    try:
        attributes = broker.account.queues.attributes(channel)
        letters = broker.account.queues.dead_letter_queue(channel)
    except AWSError as error:
        yield _unreadable(channel.name, "sqs:GetQueueAttributes", error)
        return
    yield from retention_problem(channel.name, attributes)
    yield from size_problem(channel.name, attributes, broker.account.settings.max_body)
    if lacking := list(queue_denials(broker.account.clients, channel)):
        yield _denied_finding(channel.name, lacking)
    if letters is None:
        yield Finding(
            "problem",
            "no-dead-letter-queue",
            f"The SQS queue {channel.name} has no dead-letter queue, so that what fails for good cannot be buried; "
            "make one with laneway aws create TARGET, or name one in its redrive policy.",
            channel.name,
        )
        return
    if redrive_of(attributes) is None:
        yield Finding(
            "problem",
            "no-redrive-policy",
            f"The SQS queue {channel.name} has no redrive policy, so that a message that nobody can settle is received "
            f"again and again until it expires; give it one that names {letters.name}.",
            channel.name,
        )
    yield from _letters(broker, letters)


def _letters(broker: AWSBroker, letters: SQSQueue) -> Iterator[Finding]:
    try:
        yield from retention_problem(letters.name, broker.account.queues.attributes(letters))
    except MissingError:
        yield Finding(
            "problem",
            "no-dead-letter-queue",
            f"There is no dead-letter queue {letters.name}, though a redrive policy names it; make it with laneway aws "
            "create TARGET.",
            letters.name,
        )
        return
    except AWSError as error:
        yield _unreadable(letters.name, "sqs:GetQueueAttributes", error)
        return
    if lacking := list(queue_denials(broker.account.clients, letters, letters=True)):
        yield _denied_finding(letters.name, lacking)


# -- tables --------------------------------------------------------------------------------------------


def _tables(broker: AWSBroker, queues: Collection[str]) -> Iterator[Finding]:
    wanted = broker.account.settings.table
    for name in dict.fromkeys([wanted] if wanted else map(broker.account.tables.name, queues)):
        try:
            described = broker.account.clients.dynamodb("describe_table", TableName=name)["Table"]
        except MissingError:
            if wanted:
                yield Finding(
                    "problem",
                    "no-table",
                    f"There is no table {name}, which the URL names; make it with laneway aws create TARGET.",
                    name,
                )
            elif broker.account.settings.records:
                yield Finding(
                    "problem",
                    "no-table",
                    f"There is no table {name}, in which records=on of the URL keeps how jobs end; make it with "
                    "laneway aws create TARGET.",
                    name,
                )
            continue
        except AWSError as error:
            if wanted or not isinstance(error, DeniedError):  # SQS alone needs no access to DynamoDB
                yield _unreadable(f"the table {name}", "dynamodb:DescribeTable", error)
            continue
        problem = problem_of(described)
        if problem is not None:
            yield Finding("problem", "wrong-table", problem, name)
            continue
        yield from _expiry(broker, name)
        if actions := list(table_denials(broker.account.clients, name)):
            yield _denied_finding(f"the table {name}", actions)


def _expiry(broker: AWSBroker, name: str) -> Iterator[Finding]:
    try:
        said = broker.account.clients.dynamodb("describe_time_to_live", TableName=name)
    except AWSError:
        return  # a worker does not need this permission
    yield from ttl_problem(name, said.get("TimeToLiveDescription", {}))


# -- the clock -----------------------------------------------------------------------------------------


def _clock(broker: AWSBroker, channels: list[SQSQueue]) -> Iterator[Finding]:
    """Compares this machine's clock with the date of an answer from AWS."""
    for channel in channels:
        try:
            answer = broker.account.clients.sqs(
                "get_queue_attributes", QueueUrl=channel.url, AttributeNames=["QueueArn"]
            )
        except AWSError:
            return  # the check of the queue has reported it
        now = broker.account.clock.now()
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
        if date is None:
            return
        apart = now - parsedate_to_datetime(date).timestamp()
        if abs(apart) > CLOCK_S:
            yield Finding(
                "problem",
                "clock",
                f"This machine's clock is {abs(apart):.0f} seconds {'ahead of' if apart > 0 else 'behind'} that of "
                "AWS, so that delayed jobs run at the wrong time; set it, by NTP.",
                channel.name,
            )
