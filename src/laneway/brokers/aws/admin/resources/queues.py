"""Queue and DeadLetterQueue: the SQS queues of a Laneway queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from .....broker import Finding
from ...errors import AWSError, MissingError
from ...settings import DEFAULT_MESSAGE_BYTES, MAX_NAME, AWSSettings
from ...sqs.queues import FIFO_SUFFIX, RedrivePolicy, redrive_of
from ..needs import QueueRequirement
from .resource import CREATE_IT, NOBODY, Actions, CreateStep, Creation, Findings, Grant, Probes, Resource, Steps

if TYPE_CHECKING:
    from ...account import Account
    from ..iam import AccountLocation

#: The longest time for which SQS keeps a message: 14 days.
RETENTION_S = 1_209_600
#: The most that SQS allows. Laneway counts failures itself. SQS should bury a message only if no worker can settle
#: it: a message that is postponed or given back is received again, too.
MAX_RECEIVES = 1_000

_SEND = "sqs:SendMessage"
FIND_QUEUE = ("sqs:GetQueueUrl",)
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
            text = f"There is no dead-letter queue {self.name}, though a redrive policy names it; {CREATE_IT}."
        else:
            text = (
                f"The SQS queue {self._source} has no dead-letter queue, so that what fails for good cannot be buried; "
                "make one with laneway aws create TARGET, or name one in its redrive policy."
            )
        yield Finding("problem", "no-dead-letter-queue", text, self.name if self._named else self._source)


class Queue(SQSResource):
    """The standard or the FIFO queue of a Laneway queue, and its dead-letter queue."""

    actions = Actions(producer=(*FIND_QUEUE, _SEND), worker=(*_LOOK, *_RECEIVE, _SEND), operator=(*_LOOK, _SEND))

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
                f"There is no {what} {self.name}, which the {jobs} jobs of {self._tasks} go to; {CREATE_IT}.",
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
