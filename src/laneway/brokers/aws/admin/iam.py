"""The smallest IAM policy that works: the requests of the code, on the queues, topics and tables of an app.

SQS and SNS have no actions for batches: sqs:SendMessage allows SendMessageBatch. A test runs producers, workers and
operators, and compares their requests with this policy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from ....errors import BrokerError, BrokerRefusedError, ConfigError
from ..sns.topics import partition_of
from ..sqs.queues import redrive_of
from .needs import QueueRequirement
from .resources import resources_of
from .resources.resource import Role

if TYPE_CHECKING:
    from ..account import Account

#: The statements of a policy, in their order.
_STATEMENTS = (
    *("LanewayQueues", "LanewayLookedFor", "LanewayDeadLetters", "LanewayTables"),
    *("LanewayListeners", "LanewayListenersQueues", "LanewaySubscriptions", "LanewayPublishes"),
)


class AccountLocation(msgspec.Struct, frozen=True):
    """Where the resources are on AWS."""

    region: str
    account: str
    #: The ARNs of existing queues, and those of their dead-letter queues, both by the name of the queue.
    queues: dict[str, str] = {}
    dead_letters: dict[str, str] = {}

    def arn(self, service: str, name: str) -> str:
        """The ARN of a topic, a table, or a queue that does not exist yet."""
        return f"arn:{partition_of(self.region)}:{service}:{self.region}:{self.account}:{name}"

    def queue_arn(self, name: str) -> str:
        """The ARN of an SQS queue."""
        return self.queues.get(name) or self.arn("sqs", name)


def locate(account: Account, queues: Iterable[str], number: str | None = None) -> AccountLocation:
    """Where an app's resources are: in the account of that number, else of the URL, of an existing queue, or of the
    credentials.

    Raises BrokerAwayError: a policy with guessed names must not pass for one that was looked up.
    """
    arns: dict[str, str] = {}
    dead_letters: dict[str, str] = {}
    try:
        for sqs_queue in (found for queue in queues for found in account.queues.existing(queue)):
            attributes = account.queues.attributes(sqs_queue)
            arns[sqs_queue.name] = attributes.get("QueueArn", "")
            if (redrive := redrive_of(sqs_queue.name, attributes)) is not None:
                dead_letters[sqs_queue.name] = redrive.dead_letter_target_arn
    except BrokerRefusedError:
        pass  # a policy is often written before any credentials may look
    parts = next((arn.split(":") for arn in arns.values() if arn.count(":") == 5), None)
    region = account.settings.region or (parts[3] if parts else None)
    number = number or account.settings.account or (parts[4] if parts else None) or _caller(account)
    if region is None:
        raise ConfigError("A policy names the region of its queues; give the URL region=…, or set AWS_REGION.")
    if number is None:
        raise ConfigError(
            "A policy names the account of its queues and topics, and neither a queue nor STS could be asked for it; "
            "say it with --account."
        )
    return AccountLocation(region, number, arns, dead_letters)


def _caller(account: Account) -> str | None:
    """The account of the credentials, if there are any and STS can be asked."""
    try:
        number: str = account.clients.sts("get_caller_identity")["Account"]
    except BrokerError:
        return None
    return number


def policy(
    role: Role,
    account: Account,
    needs: Mapping[str, QueueRequirement],
    location: AccountLocation,
    publishes: Collection[str] = (),
) -> dict[str, Any]:
    """The policy document for a role; `publishes` are the topics of what the app publishes, or patterns of them."""
    statements: dict[str, dict[str, Any]] = {}
    for resource in resources_of(account, needs, publishes=publishes):
        for name, actions, arn in resource.grants(location):
            if allowed := getattr(actions, role):
                new = {"Sid": name, "Effect": "Allow", "Action": sorted(allowed), "Resource": []}
                resources = statements.setdefault(name, new)["Resource"]
                if arn not in resources:
                    resources.append(arn)
    return {"Version": "2012-10-17", "Statement": [statements[name] for name in _STATEMENTS if name in statements]}
