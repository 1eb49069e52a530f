"""One-line calls of SQS, DynamoDB and SNS with plain boto3."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.support.aws.servers import ACCOUNT, REGION, Place

ALL = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}


def send(aws: Place, name: str, *bodies: str, **more: Any) -> dict[str, Any]:
    entries = [{"Id": str(place), "MessageBody": body, **more} for place, body in enumerate(bodies)]
    if name.endswith(".fifo"):
        for entry in entries:
            entry.setdefault("MessageDeduplicationId", entry["MessageBody"])
    answer: dict[str, Any] = aws.sqs_client.send_message_batch(QueueUrl=aws.queue_url(name), Entries=entries)
    return answer


def receive(aws: Place, name: str, **params: Any) -> list[dict[str, Any]]:
    params = {"MaxNumberOfMessages": 10, **ALL, **params}
    answer = aws.sqs_client.receive_message(QueueUrl=aws.queue_url(name), **params)
    return list(answer.get("Messages", []))


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["Body"] for message in messages]


def hide(aws: Place, name: str, message: dict[str, Any], seconds: int) -> None:
    handle = message["ReceiptHandle"]
    url = aws.queue_url(name)
    aws.sqs_client.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=seconds)


def delete(aws: Place, name: str, *messages: dict[str, Any]) -> dict[str, Any]:
    entries = [{"Id": str(place), "ReceiptHandle": each["ReceiptHandle"]} for place, each in enumerate(messages)]
    answer: dict[str, Any] = aws.sqs_client.delete_message_batch(QueueUrl=aws.queue_url(name), Entries=entries)
    return answer


def code(error: pytest.ExceptionInfo[ClientError]) -> str:
    return str(error.value.response["Error"]["Code"])


def item(job: str, at: float | None = None, scheduler: str = "s", **more: dict[str, Any]) -> dict[str, Any]:
    due = {} if at is None else {"perform_at": {"N": str(at)}}
    return {"scheduler": {"S": scheduler}, "job_id": {"S": job}, **due, **more}


def fill(aws: Place, *items: dict[str, Any]) -> Any:
    """A table `t` with these items; the client for it."""
    aws.create_table("t")
    for one in items:
        aws.dynamodb_client.put_item(TableName="t", Item=one)
    return aws.dynamodb_client


def jobs(items: list[dict[str, Any]]) -> list[str]:
    return [each["job_id"]["S"] for each in items]


KEY = {"scheduler": {"S": "s"}, "job_id": {"S": "j"}}

#: A topic `t` of the tests' servers, and how a queue gets its messages as they are.
TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:t"
RAW = {"RawMessageDelivery": "true"}


def text(value: str, kind: str = "String") -> dict[str, str]:
    """A message's attribute."""
    return {"DataType": kind, "StringValue": value}


def number(value: float) -> dict[str, str]:
    return text(str(value), "Number")


def publish(aws: Place, message: str = "one", **attributes: dict[str, Any]) -> None:
    """Publish to the topic `t`."""
    aws.sns_client.publish(TopicArn=TOPIC, Message=message, MessageAttributes=attributes)
