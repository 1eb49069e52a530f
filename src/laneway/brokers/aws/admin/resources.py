"""The AWS resources that an app needs, and how each queue and table should be set up. Calls nothing.

QueueRequirement lists the needs of a queue's tasks and listener: standard or FIFO queue, how many runs of a job, and
which subscription. `create` makes resources by these rules; `create` and `check` compare existing ones with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ....broker import Finding
from ....config import DEFAULT_QUEUE
from ....events.event import Subscription
from ....jobs.data import Kind
from ..dynamodb.items import INDEX
from ..settings import DEFAULT_MESSAGE_BYTES, AWSSettings

if TYPE_CHECKING:
    from ....app import Laneway


class QueueRequirement(msgspec.Struct):
    """The needs of one queue's tasks, or of its listener."""

    queue: str
    #: The names of the tasks with plain jobs, and of the tasks whose calls have keys.
    plain: list[str] = []
    keyed: list[str] = []
    #: The most runs of a job, all retries included, among the keyed (True) and the plain tasks (False).
    runs: dict[bool, int] = {}
    #: The subscription of the listener, if it is a listener's queue.
    subscription: Subscription | None = None

    @property
    def kinds(self) -> tuple[bool, ...]:
        """The SQS queues to create, by `fifo`: a standard and a FIFO queue. Events need only the standard queue."""
        return (False,) if self.subscription is not None else (False, True)

    def tasks(self, fifo: bool) -> list[str]:
        """The tasks that need the queue's FIFO queue, or its standard one."""
        return self.keyed if fifo else self.plain


def needs_of(app: Laneway) -> dict[str, QueueRequirement]:
    """The queues of an app's tasks and listeners, in the order of their declaration.

    The app is on SQS, so none of its tasks is a collecting one.
    """
    found: dict[str, QueueRequirement] = {}
    for task in app.registry:
        queue = task.options.queue or DEFAULT_QUEUE
        need = found.setdefault(queue, QueueRequirement(queue))
        fifo = task.kind is Kind.KEYED
        need.tasks(fifo).append(task.name)
        runs = task.options.retries(task.kind) + 1
        need.runs[fifo] = max(runs, need.runs.get(fifo, 0))
    for listener in app.registry.listeners.values():
        found[listener.queue].subscription = listener.subscription
    return found


#: The longest time for which SQS keeps a message: 14 days.
RETENTION_S = 1_209_600
#: The most that SQS allows. Laneway counts failures itself. SQS should bury a message only if no worker can settle
#: it: a message that is postponed or given back is received again, too.
MAX_RECEIVES = 1_000

HASH, RANGE, TIME = "scheduler", "job_id", "perform_at"
#: The attribute with the time, in unix seconds, after which DynamoDB may delete an item.
EXPIRES = "expires_at"


class RedrivePolicy(msgspec.Struct, rename="camel"):
    """A queue's redrive policy."""

    dead_letter_target_arn: str = ""
    #: AWS writes a number. Other servers, and operators, may write text.
    max_receive_count: int = 0


def redrive_of(attributes: Mapping[str, str]) -> RedrivePolicy | None:
    """The redrive policy of a queue; None if it has none."""
    policy = attributes.get("RedrivePolicy")
    return msgspec.json.decode(policy, type=RedrivePolicy, strict=False) if policy else None


def redrive_policy(dead_letters_arn: str) -> str:
    """The redrive policy that a queue is given."""
    return msgspec.json.encode(RedrivePolicy(dead_letters_arn, MAX_RECEIVES)).decode()


def queue_attributes(settings: AWSSettings, fifo: bool, dead_letters_arn: str | None) -> dict[str, str]:
    """The attributes of a new queue. `dead_letters_arn` is None for a dead-letter queue."""
    attributes = {"MessageRetentionPeriod": str(RETENTION_S)}
    if settings.max_body > DEFAULT_MESSAGE_BYTES:
        attributes["MaximumMessageSize"] = str(settings.max_body)
    if fifo:
        attributes["FifoQueue"] = "true"
    if dead_letters_arn is not None:
        attributes["RedrivePolicy"] = redrive_policy(dead_letters_arn)
        if fifo:  # throughput is limited per key, not per queue
            attributes |= {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}
    return attributes


def table_definition(name: str) -> dict[str, Any]:
    """The parameters that create a waiter table."""
    return {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": HASH, "AttributeType": "S"},
            {"AttributeName": RANGE, "AttributeType": "S"},
            {"AttributeName": TIME, "AttributeType": "N"},
        ],
        "KeySchema": [{"AttributeName": HASH, "KeyType": "HASH"}, {"AttributeName": RANGE, "KeyType": "RANGE"}],
        "LocalSecondaryIndexes": [
            {
                "IndexName": INDEX,
                "KeySchema": [{"AttributeName": HASH, "KeyType": "HASH"}, {"AttributeName": TIME, "KeyType": "RANGE"}],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
    }


def retention_problem(name: str, attributes: Mapping[str, str]) -> Iterator[Finding]:
    """A finding if a queue keeps messages for less than 14 days."""
    kept = int(attributes.get("MessageRetentionPeriod", RETENTION_S))
    if kept < RETENTION_S:
        yield Finding(
            "problem",
            "retention",
            f"The SQS queue {name} forgets messages after {kept / 86_400:g} days; set its MessageRetentionPeriod to "
            f"{RETENTION_S} (14 days).",
            name,
        )


def size_problem(name: str, attributes: Mapping[str, str], max_body: int) -> Iterator[Finding]:
    """A finding if a queue takes only messages smaller than the URL's `max_body`."""
    most = int(attributes.get("MaximumMessageSize", max_body))
    if most < max_body:
        yield Finding(
            "problem",
            "message-size",
            f"The SQS queue {name} takes messages of {most:,} bytes at most, and max_body is {max_body:,}; set its "
            f"MaximumMessageSize to {max_body}, or max_body to what it takes.",
            name,
        )


def receives_problem(name: str, redrive: RedrivePolicy, runs: int, task: str) -> Iterator[Finding]:
    """A finding if SQS itself would bury a job before its retries are used up."""
    if redrive.max_receive_count <= runs:
        if runs < MAX_RECEIVES:
            advice = f"set the maxReceiveCount of its redrive policy to {MAX_RECEIVES}"
        else:
            advice = (
                f"SQS allows a maxReceiveCount of {MAX_RECEIVES} at most: set max_retry_count to {MAX_RECEIVES - 2} or "
                "less"
            )
        yield Finding(
            "problem",
            "few-receives",
            f"The SQS queue {name} moves a message to its dead letters after {redrive.max_receive_count} receives, and "
            f"a job of {task} may be run {runs} times; {advice}.",
            name,
        )


def ttl_problem(name: str, described: Mapping[str, Any]) -> Iterator[Finding]:
    """A finding if DynamoDB does not delete expired items of a table."""
    on = described.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")
    if not on or described.get("AttributeName", EXPIRES) != EXPIRES:
        yield Finding(
            "problem",
            "no-expiry",
            f"The table {name} keeps for ever what may be forgotten (workers that have gone, failed calls, how jobs "
            f"ended); turn on its time to live for the attribute {EXPIRES}.",
            name,
        )
