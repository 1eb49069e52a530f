"""Whether these credentials may do what a worker does: tried with calls that cannot do any harm.

Each is wrong in a way that AWS sees after it has looked at the permissions, or writes under a condition that does not
hold. So all but one answer, that it is not allowed, mean that it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ....errors import BrokerAwayError
from ..clients import Clients
from ..dynamodb.items import INDEX
from ..errors import AWSError, DeniedError, is_refusal
from ..sqs.message import Channel
from .resources import HASH, RANGE

#: Nothing of ours is called so.
NOBODY = "laneway-check"

#: Two entries of one id: refused as a whole, whatever stands in them.
_TWICE: dict[str, tuple[str, dict[str, Any]]] = {
    "sqs:SendMessage": ("send_message_batch", {"MessageBody": NOBODY}),
    "sqs:DeleteMessage": ("delete_message_batch", {"ReceiptHandle": NOBODY}),
    "sqs:ChangeMessageVisibility": (
        "change_message_visibility_batch",
        {"ReceiptHandle": NOBODY, "VisibilityTimeout": 0},
    ),
}


def denied(what: str, actions: Sequence[str], error: DeniedError | None = None) -> str:
    """The sentence for what is not allowed; for credentials that AWS does not know at all, that of the error."""
    if error is not None and not is_refusal(error):
        return str(error)
    return (
        f"These credentials may not do {', '.join(actions)} on {what}, which a worker does; laneway aws iam TARGET "
        "prints what it needs."
    )


def queue_denials(clients: Clients, channel: Channel, *, letters: bool = False) -> Iterator[str]:
    """The actions on a queue that are not allowed; a worker only sends to one of dead letters."""
    for action, (operation, entry) in _TWICE.items():
        if letters and action != "sqs:SendMessage":
            continue
        entries = [{"Id": NOBODY, **entry, **_groups(action, channel)}] * 2
        if _is_denied(lambda: clients.sqs(operation, QueueUrl=channel.url, Entries=entries)):  # noqa: B023 - called here
            yield action
    # More than SQS hands out at once; a server that does not mind hides nothing all the same.
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
        # A resource of its own, which a policy has to name.
        f"dynamodb:Query (of its index {INDEX})": ("query", {**query, "IndexName": INDEX}),
    }
    for action, (operation, params) in tries.items():
        if _is_denied(lambda: clients.dynamodb(operation, **params)):  # noqa: B023 - called here
            yield action


def _groups(action: str, channel: Channel) -> dict[str, str]:
    if action != "sqs:SendMessage" or not channel.fifo:
        return {}
    return {"MessageGroupId": NOBODY, "MessageDeduplicationId": NOBODY}


def _is_denied(call: Any) -> bool:
    try:
        call()
    except BrokerAwayError:
        raise
    except AWSError as error:
        return isinstance(error, DeniedError)
    return False
