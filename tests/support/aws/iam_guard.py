"""AWS clients that may do only the actions which a given IAM policy allows."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

from laneway.brokers.aws.clients import Clients
from laneway.brokers.aws.errors import DeniedError
from laneway.brokers.aws.settings import AWSSettings
from tests.support.aws.endpoints import ACCOUNT, REGION, Place


class Guarded(Clients):
    """Clients that refuse what no statement of a policy allows, and keep account of that."""

    policy: dict[str, Any]
    denied: list[tuple[str, str]]

    def sqs(self, operation: str, **params: Any) -> dict[str, Any]:
        action = _camel(operation).removesuffix("Batch")  # a batch has no action of its own
        name = params.get("QueueName") or params["QueueUrl"].rpartition("/")[2]
        self._see(f"sqs:{action}", f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}")
        return super().sqs(operation, **params)

    def dynamodb(self, operation: str, **params: Any) -> dict[str, Any]:
        name = params.get("TableName") or next(iter(params["RequestItems"]))
        index = f"/index/{params['IndexName']}" if "IndexName" in params else ""
        where = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}{index}"
        self._see(f"dynamodb:{_camel(operation)}", where)
        return super().dynamodb(operation, **params)

    def sns(self, operation: str, **params: Any) -> dict[str, Any]:
        where = params.get("TopicArn") or params.get("ResourceArn")
        if "Name" in params:
            where = f"arn:aws:sns:{REGION}:{ACCOUNT}:{params['Name']}"
        # Only topics are resources to IAM: what is done to a subscription must be allowed everywhere.
        self._see(f"sns:{_camel(operation).removesuffix('Batch')}", where or "*")
        return super().sns(operation, **params)

    # Who one is needs no permission: `sts` is as it is.

    def _see(self, action: str, where: str) -> None:
        statements = self.policy["Statement"]
        if not any(action in each["Action"] and _fits(where, each["Resource"]) for each in statements):
            self.denied.append((action, where))
            raise DeniedError(f"AWS forbids these credentials {action} on {where}.", code="AccessDenied")


def guarded(place: Place, settings: AWSSettings, policy: dict[str, Any]) -> Guarded:
    """The clients of somebody who has this policy and no other."""
    clients = Guarded.of(settings, **place.clients)
    assert isinstance(clients, Guarded)
    clients.policy, clients.denied = policy, []
    return clients


def _fits(where: str, resources: list[str]) -> bool:
    return any(where == resource or fnmatchcase(where, resource) for resource in resources)


def _camel(operation: str) -> str:
    return "".join(map(str.capitalize, operation.split("_")))
