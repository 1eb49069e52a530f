"""The AWS resources that an app needs: one class describes each.

A class has what AWS knows of the resource (`look`), how to create it (`make`), what is wrong with it (`wrong`,
`missing`), which IAM actions each role needs (`grants`), and which requests try these permissions (`probes`).
`create`, `check`, `iam` and development mode are loops over `resources_of`.

Checks change nothing. A probe is harmless: AWS finds it invalid only after it has checked the permission, or it has no
effect, such as a write under a condition that does not hold. So every answer except a denial means that the action is
allowed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ....broker import Finding
from ....errors import BrokerAwayError
from ....events.event import Subscription
from ..dynamodb.items import INDEX
from ..dynamodb.tables import problem_of
from ..errors import AWSError, DeniedError, MissingError, MissingQueueError, is_refusal
from ..settings import DEFAULT_MESSAGE_BYTES, MAX_NAME, AWSSettings
from ..sns.subscriptions import SNSSubscriptions
from ..sqs.queues import FIFO_SUFFIX, RedrivePolicy, redrive_of
from .needs import QueueRequirement

if TYPE_CHECKING:
    from ..account import Account
    from .iam import AccountLocation

Role = Literal["worker", "producer", "operator"]
#: The name of a policy statement, its actions, and an ARN that it allows them on.
Grant = tuple[str, "Actions", str]
#: Requests that only try a permission: by the IAM action, the operation of the client and its parameters.
Probes = Mapping[str, tuple[str, Mapping[str, Any]]]
Findings = Iterator[Finding]


class Actions(msgspec.Struct, frozen=True, kw_only=True):
    """What IAM must allow each role to do to a kind of resource."""

    #: Enqueues, publishes, cancels, reschedules, and asks for the status of what it has enqueued.
    producer: tuple[str, ...] = ()
    #: Runs jobs, buries them, publishes, polls the table, and shows the queues in numbers.
    worker: tuple[str, ...] = ()
    #: Looks, acts on delayed jobs, empties the morgue, pauses, subscribes. What `check` tries is a worker's.
    operator: tuple[str, ...] = ()


#: A name that no resource of ours has.
NOBODY = "laneway-check"
_CREATE = "make it with laneway aws create TARGET"


class CreateStep(msgspec.Struct):
    """A resource that was created or found, or would be created (`missing`). The operator has to fix a `problem`."""

    level: Literal["made", "missing", "exists", "problem"]
    text: str


Steps = Iterator[CreateStep]


class Creation(msgspec.Struct, frozen=True, kw_only=True):
    """How missing resources are created."""

    #: Create nothing; report what would be created.
    dry_run: bool = False
    #: For a worker: it also adds a missing redrive policy to a queue, and sets filters afterwards.
    development: bool = False
    pause: Callable[[float], None] = time.sleep

    def step(self, subject: str, done: str, act: Callable[[], object], note: str = "") -> CreateStep:
        """Create or change a resource: "The table t was made; it is paid by request." """
        if self.dry_run:
            return CreateStep("missing", f"{subject} would be {done}.")
        act()
        return CreateStep("made", f"{subject} was {done}{note}.")


def resources_of(
    account: Account, needs: Mapping[str, QueueRequirement], *, tables: bool = True, publishes: Collection[str] = ()
) -> Iterator[Resource]:
    """The resources for these needs, each after those that it refers to. `publishes`: the topics that the app
    publishes to."""
    for topic in publishes:
        yield Topic(account, topic)
    for need in needs.values():
        listener = ", ".join(need.plain)
        if need.subscription is not None and need.subscription.topic not in publishes:
            yield Topic(account, need.subscription.topic, listener)
        for fifo in need.kinds:
            yield Queue(account, need, fifo)
        if need.subscription is not None:
            yield ListenerSubscription(account, need.subscription, listener)
    if tables:
        for name in dict.fromkeys(map(account.tables.name, needs)):
            yield Table(account, name)


def denied(what: str, *actions: str, error: DeniedError | None = None) -> Finding:
    """The finding for actions that are not allowed. If AWS does not know the credentials, the text of the error."""
    text = (
        f"These credentials may not do {', '.join(actions)} on {what}, which a worker does; laneway aws iam TARGET "
        "prints what it needs."
    )
    return Finding("problem", "denied", text if error is None or is_refusal(error) else str(error), what)


class Resource:
    """A resource that an app needs."""

    actions: Actions
    #: The client's method that calls its service, and the action that `look` takes.
    service: str
    look_action: str
    #: Its parts of "The table t, for delayed jobs, was made; it is paid by request.", and "The table t exists."
    subject: str
    note = ""
    existing: str

    def __init__(self, account: Account, name: str, what: str = "") -> None:
        """`what`: how a denial names it."""
        self.account = account
        self.name = name
        self.what = what or name

    def look(self) -> Any:
        """What AWS knows of it; None if it does not exist."""

    def make(self, creation: Creation) -> None:
        """Create it. It does not exist."""

    def wrong(self, found: Any) -> Findings:
        """What is wrong with it, by what `look` has found."""
        return iter(())

    def missing(self) -> Findings:
        """A finding if it should exist."""
        return iter(())

    def probes(self, found: Any) -> Probes:
        """Requests that try what a worker does to it."""
        return {}

    def grants(self, location: AccountLocation) -> Iterator[Grant]:
        """Its part of an IAM policy."""
        return iter(())

    def create(self, creation: Creation) -> Steps:
        """Create it if it is missing. What exists is reported, and not changed."""
        found = self.look()
        if found is None:
            yield creation.step(self.subject, "made", lambda: self.make(creation), self.note)
        else:
            yield CreateStep("exists", self.existing)
            yield from (CreateStep("problem", finding.text) for finding in self.wrong(found))

    def problems(self) -> Findings:
        """What is wrong with it, or with the permissions on it. Changes nothing."""
        try:
            found = self.look()
            yield from self.missing() if found is None else self.wrong(found)
        except AWSError as error:
            yield from self.unreadable(error)
            return
        lacking: list[str] = []
        for action, (operation, params) in self.probes(found).items() if found is not None else ():
            try:
                getattr(self.account.clients, self.service)(operation, **params)
            except DeniedError:
                lacking.append(action)
            except AWSError:
                pass
        if lacking:
            yield denied(self.what, *lacking)

    def unreadable(self, error: AWSError) -> Findings:
        """A finding if `look` fails."""
        if isinstance(error, DeniedError):
            yield denied(self.what, self.look_action, error=error)
        else:
            yield Finding("problem", "aws-error", str(error), self.what)

    def problem(self, code: str, text: str) -> Finding:
        """A finding about it."""
        return Finding("problem", code, text, self.name)


# -- queues --------------------------------------------------------------------------------------------

#: The longest time for which SQS keeps a message: 14 days.
RETENTION_S = 1_209_600
#: The most that SQS allows. Laneway counts failures itself. SQS should bury a message only if no worker can settle
#: it: a message that is postponed or given back is received again, too.
MAX_RECEIVES = 1_000

_SEND = "sqs:SendMessage"
_FIND = ("sqs:GetQueueUrl",)
_LOOK = ("sqs:GetQueueAttributes", "sqs:GetQueueUrl")
_RECEIVE = ("sqs:ChangeMessageVisibility", "sqs:DeleteMessage", "sqs:ReceiveMessage")


def queue_attributes(settings: AWSSettings, fifo: bool, dead_letters_arn: str | None) -> dict[str, str]:
    """The attributes of a new queue. `dead_letters_arn` is None for a dead-letter queue."""
    attributes = {"MessageRetentionPeriod": str(RETENTION_S)}
    if settings.max_body > DEFAULT_MESSAGE_BYTES:
        attributes["MaximumMessageSize"] = str(settings.max_body)
    if fifo:
        attributes["FifoQueue"] = "true"
    if dead_letters_arn is not None:
        attributes |= redrive_to(dead_letters_arn)
        if fifo:  # throughput is limited per key, not per queue
            attributes |= {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    return attributes


def redrive_to(dead_letters_arn: str) -> dict[str, str]:
    """The redrive policy that a queue is given, as an attribute."""
    return {"RedrivePolicy": msgspec.json.encode(RedrivePolicy(dead_letters_arn, MAX_RECEIVES)).decode()}


class SQSResource(Resource):
    """What a queue and a dead-letter queue have in common."""

    service, look_action = "sqs", "sqs:GetQueueAttributes"
    #: The URL and the attributes. `look` sets them.
    url = ""
    found: Mapping[str, str] = {}

    def __init__(self, account: Account, name: str) -> None:
        super().__init__(account, name)
        self.fifo = name.endswith(FIFO_SUFFIX)
        self.existing = f"The SQS queue {name} exists."

    def make_queue(self, dead_letters_arn: str | None = None) -> None:
        """Create an SQS queue."""
        attributes = queue_attributes(self.account.settings, self.fifo, dead_letters_arn)
        try:
            self.account.clients.sqs("create_queue", QueueName=self.name, Attributes=attributes)
        except AWSError as error:
            if not error.code.endswith("QueueDeletedRecently"):
                raise
            raise AWSError(
                f"The SQS queue {self.name} was deleted a moment ago, and SQS makes no other of that name for 60 "
                "seconds; do it again then.",
                code=error.code,
            ) from None

    def wrong(self, found: Mapping[str, str]) -> Findings:
        kept = int(found.get("MessageRetentionPeriod", RETENTION_S))
        if kept < RETENTION_S:
            yield self.problem(
                "retention",
                f"The SQS queue {self.name} forgets messages after {kept / 86_400:g} days; set its "
                f"MessageRetentionPeriod to {RETENTION_S} (14 days).",
            )

    def probes(self, found: Mapping[str, str]) -> Probes:
        def twice(**entry: object) -> dict[str, Any]:
            # SQS refuses the whole batch in which two entries have the same id, whatever the entries hold.
            return {"QueueUrl": self.url, "Entries": [{"Id": NOBODY, **entry}] * 2}

        group = {"MessageGroupId": NOBODY, "MessageDeduplicationId": NOBODY} if self.fifo else {}
        # 11 is more than SQS delivers at once. If a server accepts it, the visibility timeout of 0 hides no message.
        most = {"MaxNumberOfMessages": 11, "VisibilityTimeout": 0, "WaitTimeSeconds": 0}
        hide = twice(ReceiptHandle=NOBODY, VisibilityTimeout=0)
        probes: Probes = {
            _SEND: ("send_message_batch", twice(MessageBody=NOBODY, **group)),
            "sqs:DeleteMessage": ("delete_message_batch", twice(ReceiptHandle=NOBODY)),
            "sqs:ChangeMessageVisibility": ("change_message_visibility_batch", hide),
            "sqs:ReceiveMessage": ("receive_message", {"QueueUrl": self.url, **most}),
        }
        return {action: probe for action, probe in probes.items() if action in self.actions.worker}


class DeadLetterQueue(SQSResource):
    """The dead-letter queue of an SQS queue: the one that its redrive policy names, else the one named after it."""

    actions = Actions(worker=(*_LOOK, _SEND), operator=(*_LOOK, *_RECEIVE, _SEND))

    def __init__(self, account: Account, source: str, redrive: RedrivePolicy | None) -> None:
        self._source = source
        self._named = redrive.dead_letter_queue if redrive is not None else None
        name, self._owner = self._named or (account.queues.dead_name_of(source), account.settings.account)
        super().__init__(account, name)
        why = f"for the dead letters of {source}, whose redrive policy names it" if self._named else "for dead letters"
        self.subject = f"The SQS queue {name}, {why},"

    def look(self) -> Mapping[str, str] | None:
        sqs, owner = self.account.clients.sqs, {} if self._owner is None else {"QueueOwnerAWSAccountId": self._owner}
        try:
            self.url = sqs("get_queue_url", QueueName=self.name, **owner)["QueueUrl"]
            self.found = sqs("get_queue_attributes", QueueUrl=self.url, AttributeNames=["All"])["Attributes"]
        except MissingError:
            return None
        return self.found

    def arn(self) -> str:
        """The ARN of the queue, which exists."""
        return (self.look() or {})["QueueArn"]

    def make(self, creation: Creation) -> None:
        self.make_queue()

    def missing(self) -> Findings:
        if self._named:
            text = f"There is no dead-letter queue {self.name}, though a redrive policy names it; {_CREATE}."
        else:
            text = (
                f"The SQS queue {self._source} has no dead-letter queue, so that what fails for good cannot be buried; "
                "make one with laneway aws create TARGET, or name one in its redrive policy."
            )
        yield Finding("problem", "no-dead-letter-queue", text, self.name if self._named else self._source)


class Queue(SQSResource):
    """The standard or the FIFO queue of a Laneway queue, and its dead-letter queue."""

    actions = Actions(producer=(*_FIND, _SEND), worker=(*_LOOK, *_RECEIVE, _SEND), operator=(*_LOOK, _SEND))

    def __init__(self, account: Account, need: QueueRequirement, fifo: bool) -> None:
        super().__init__(account, account.queues.name_of(need.queue, fifo))
        self._need = need
        self._tasks = ", ".join(need.tasks(fifo))
        #: `look` replaces it by the one that the redrive policy names.
        self.dead_letters = DeadLetterQueue(account, self.name, None)
        self.redrive: RedrivePolicy | None = None
        self.subject = f"The SQS queue {self.name}, its dead letters in {self.dead_letters.name},"

    def look(self) -> dict[str, str] | None:
        try:
            queue = self.account.queues.of(self._need.queue, self.fifo)
            found = self.account.queues.attributes(queue)
        except MissingError:
            return None
        self.redrive = redrive_of(self.name, found)
        self.dead_letters = DeadLetterQueue(self.account, self.name, self.redrive)
        self.url, self.found = queue.url, found
        return found

    def make(self, creation: Creation) -> None:
        self.make_queue(self.dead_letters.arn())

    def create(self, creation: Creation) -> Steps:
        """Create the dead-letter queue, then the queue. In development, a queue gets a missing redrive policy."""
        self.look()
        if len(self.dead_letters.name) > MAX_NAME:
            text = (
                f"The dead-letter queue of {self.name} would be called {self.dead_letters.name}, and SQS takes "
                f"{MAX_NAME} characters at most; give the queue {self._need.queue} a shorter name."
            )
            yield CreateStep("problem", text)
            return
        place = self.redrive and self.redrive.dead_letter_target_arn.rpartition(":")[0]
        # Not if the redrive policy names a queue of another account or region.
        if place is None or place == self.found.get("QueueArn", "").rpartition(":")[0]:
            yield from self.dead_letters.create(creation)
        yield from super().create(creation)
        if not self.found or self.redrive is not None:
            return
        if creation.development:
            given = f"given a redrive policy, its dead letters in {self.dead_letters.name}"
            yield creation.step(f"The SQS queue {self.name}", given, self._give_redrive_policy)
        else:
            text = (
                f"The SQS queue {self.name} has no redrive policy, and was left as it is; give it one that names "
                f"{self.dead_letters.name} and has a maxReceiveCount of {MAX_RECEIVES}."
            )
            yield CreateStep("problem", text)

    def _give_redrive_policy(self) -> None:
        policy = redrive_to(self.dead_letters.arn())
        self.account.clients.sqs("set_queue_attributes", QueueUrl=self.url, Attributes=policy)

    def missing(self) -> Findings:
        if self._tasks:
            what, jobs = ("FIFO queue", "keyed") if self.fifo else ("SQS queue", "plain")
            yield self.problem(
                "no-queue",
                f"There is no {what} {self.name}, which the {jobs} jobs of {self._tasks} go to; {_CREATE}.",
            )

    def wrong(self, found: Mapping[str, str]) -> Findings:
        yield from super().wrong(found)
        max_body = self.account.settings.max_body
        most = int(found.get("MaximumMessageSize", max_body))
        if most < max_body:
            yield self.problem(
                "message-size",
                f"The SQS queue {self.name} takes messages of {most:,} bytes at most, and max_body is {max_body:,}; "
                f"set its MaximumMessageSize to {max_body}, or max_body to what it takes.",
            )
        runs = self._need.runs.get(self.fifo)
        if self.redrive is None or runs is None or self.redrive.max_receive_count > runs:
            return
        # SQS itself would bury a job before its retries are used up.
        if runs < MAX_RECEIVES:
            advice = f"set the maxReceiveCount of its redrive policy to {MAX_RECEIVES}"
        else:
            advice = (
                f"SQS allows a maxReceiveCount of {MAX_RECEIVES} at most: set max_retry_count to {MAX_RECEIVES - 2} or "
                "less"
            )
        yield self.problem(
            "few-receives",
            f"The SQS queue {self.name} moves a message to its dead letters after {self.redrive.max_receive_count} "
            f"receives, and a job of {self._tasks} may be run {runs} times; {advice}.",
        )

    def problems(self) -> Findings:
        yield from super().problems()
        if not self.found:
            return
        yield from self.dead_letters.problems()
        if self.redrive is None and self.dead_letters.found:
            yield self.problem(
                "no-redrive-policy",
                f"The SQS queue {self.name} has no redrive policy, so that a message that nobody can settle is "
                f"received again and again until it expires; give it one that names {self.dead_letters.name}.",
            )

    def grants(self, location: AccountLocation) -> Iterator[Grant]:
        dead_letters = location.dead_letters.get(self.name) or location.arn("sqs", self.dead_letters.name)
        yield "LanewayQueues", self.actions, location.queue_arn(self.name)
        yield "LanewayDeadLetters", DeadLetterQueue.actions, dead_letters


# -- tables --------------------------------------------------------------------------------------------

HASH, RANGE, TIME = "scheduler", "job_id", "perform_at"
#: The attribute with the time, in unix seconds, after which DynamoDB may delete an item.
EXPIRES = "expires_at"

#: Seconds to wait for a new table to become active, and between two looks.
PATIENCE_S = 120.0
PAUSE_S = 0.5

_READ = ("dynamodb:BatchGetItem", "dynamodb:DescribeTable", "dynamodb:GetItem", "dynamodb:Query")
_WRITE = ("dynamodb:BatchWriteItem", "dynamodb:DeleteItem", "dynamodb:UpdateItem")


class Table(Resource):
    """A waiter table."""

    actions = Actions(
        producer=(*_READ, *_WRITE),
        worker=(*_READ, *_WRITE, "dynamodb:PutItem"),
        operator=(*_READ, "dynamodb:DeleteItem", "dynamodb:UpdateItem"),
    )
    service, look_action = "dynamodb", "dynamodb:DescribeTable"
    note = "; it is paid by request"

    def __init__(self, account: Account, name: str) -> None:
        super().__init__(account, name, f"the table {name}")
        self._dynamodb = account.clients.dynamodb
        self._named = account.settings.table is not None
        self.subject, self.existing = f"The table {name}, for delayed jobs,", f"The table {name} exists."

    def look(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._dynamodb("describe_table", TableName=self.name)["Table"]
        except MissingError:
            return None
        return found

    def make(self, creation: Creation) -> None:
        def keys(hash_key: str, range_key: str) -> list[dict[str, str]]:
            kinds = {hash_key: "HASH", range_key: "RANGE"}
            return [{"AttributeName": name, "KeyType": kind} for name, kind in kinds.items()]

        types = {HASH: "S", RANGE: "S", TIME: "N"}
        index = {"IndexName": INDEX, "KeySchema": keys(HASH, TIME), "Projection": {"ProjectionType": "ALL"}}
        self._dynamodb(
            "create_table",
            TableName=self.name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": kind} for name, kind in types.items()],
            KeySchema=keys(HASH, RANGE),
            LocalSecondaryIndexes=[index],
        )
        for _ in range(int(PATIENCE_S / PAUSE_S)):
            if (self.look() or {}).get("TableStatus") == "ACTIVE":
                break
            creation.pause(PAUSE_S)
        else:
            raise BrokerAwayError(
                f"The table {self.name} is not ready after {PATIENCE_S:.0f} seconds; do it again in a while."
            )
        # If we die before this, the table works without expiry, and the next run reports that.
        expiry = {"Enabled": True, "AttributeName": EXPIRES}
        self._dynamodb("update_time_to_live", TableName=self.name, TimeToLiveSpecification=expiry)

    def missing(self) -> Findings:
        why = "which the URL names" if self._named else "in which records=on of the URL keeps how jobs end"
        if self._named or self.account.settings.records:
            yield self.problem("no-table", f"There is no table {self.name}, {why}; {_CREATE}.")

    def wrong(self, found: dict[str, Any]) -> Findings:
        if (problem := problem_of(found)) is not None:
            yield self.problem("wrong-table", problem)
            return
        try:
            expiry = self._dynamodb("describe_time_to_live", TableName=self.name).get("TimeToLiveDescription", {})
        except AWSError:
            return  # a worker does not need this permission
        on = expiry.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")
        if not on or expiry.get("AttributeName", EXPIRES) != EXPIRES:
            yield self.problem(
                "no-expiry",
                f"The table {self.name} keeps for ever what may be forgotten (workers that have gone, failed calls, "
                f"how jobs ended); turn on its time to live for the attribute {EXPIRES}.",
            )

    def unreadable(self, error: AWSError) -> Findings:
        if self._named or not isinstance(error, DeniedError):  # SQS alone needs no access to DynamoDB
            yield from super().unreadable(error)

    def probes(self, found: dict[str, Any]) -> Probes:
        if problem_of(found) is not None:
            return {}  # it may be used for something else
        table, key = {"TableName": self.name}, {HASH: {"S": NOBODY}, RANGE: {"S": NOBODY}}
        values = {"ExpressionAttributeValues": {":s": {"S": NOBODY}}}
        unless = {"ConditionExpression": f"attribute_exists({RANGE})"}
        update = {"UpdateExpression": "SET #v = :s", "ExpressionAttributeNames": {"#v": NOBODY}, **values, **unless}
        query = {"KeyConditionExpression": "#s = :s", "ExpressionAttributeNames": {"#s": HASH}, **values, "Limit": 1}
        delete = [{"DeleteRequest": {"Key": key}}]
        return {
            "dynamodb:GetItem": ("get_item", {**table, "Key": key}),
            "dynamodb:BatchGetItem": ("batch_get_item", {"RequestItems": {self.name: {"Keys": [key]}}}),
            "dynamodb:BatchWriteItem": ("batch_write_item", {"RequestItems": {self.name: delete}}),
            "dynamodb:PutItem": ("put_item", {**table, "Item": key, **unless}),
            "dynamodb:DeleteItem": ("delete_item", {**table, "Key": key, **unless}),
            "dynamodb:UpdateItem": ("update_item", {**table, "Key": key, **update}),
            "dynamodb:Query": ("query", {**table, **query}),
            # The index is a resource of its own. A policy has to name it.
            f"dynamodb:Query (of its index {INDEX})": ("query", {**table, **query, "IndexName": INDEX}),
        }

    def grants(self, location: AccountLocation) -> Iterator[Grant]:
        arn = location.arn("dynamodb", f"table/{self.name}")
        yield "LanewayTables", self.actions, arn
        yield "LanewayTables", self.actions, f"{arn}/index/{INDEX}"


# -- topics and subscriptions --------------------------------------------------------------------------


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
    #: A worker sees whether its listeners are subscribed. It does not subscribe them: whoever may change a queue's
    #: policy may open it to everybody.
    topic_actions = Actions(worker=("sns:ListSubscriptionsByTopic",), operator=("sns:Subscribe",))
    queue_actions = Actions(operator=("sqs:SetQueueAttributes",))
    #: On the FIFO queue of the listener: there is none, and that is found out by looking.
    fifo_actions = Actions(producer=_FIND, worker=_FIND, operator=_FIND)

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
            text = f"There is no SNS topic {topic}, which the listener {listener} hears; {_CREATE}."
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
