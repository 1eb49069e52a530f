"""`Place`: any server that speaks AWS's protocols, as the tests see it.

It knows its endpoint, the Laneway settings and boto3 clients for it, and creates queues, tables and topics without
Laneway.
"""

from __future__ import annotations

import json
import os
import threading
from functools import cache
from typing import Any
from urllib.parse import urlencode

import boto3
from botocore.config import Config

from laneway.brokers.aws.settings import AWSSettings

REGION, ACCOUNT = "us-east-1", "123456789012"
#: For tests and for processes that they start: credentials that open nothing, and no looking for others.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_SESSION_TOKEN": "testing",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
#: What a receive waits at most: whoever closes a broker waits for its receiver, which may have just begun to wait.
WAIT_S = 1
INDEX = "scheduler-perform_at-index"


_making = threading.Lock()


class Place:
    """A server that speaks the protocols of SQS, DynamoDB, SNS and STS."""

    endpoint: str

    @property
    def account(self) -> str:
        """Whose queues and topics they are."""
        return ACCOUNT

    def settings(self, **options: Any) -> AWSSettings:
        """Laneway's settings for this server, and whatever is said beyond that."""
        return AWSSettings(**{"region": REGION, "endpoint": self.endpoint, "wait_s": WAIT_S, **options})

    def url(self, name: str = "", **options: Any) -> str:
        """The same as a URL, for programs."""
        options = {"region": REGION, "endpoint": self.endpoint, "wait": WAIT_S, **options}
        return f"sqs://{name}?{urlencode(options)}"

    # -- plain boto3 -----------------------------------------------------------------------------------

    @property
    def sqs_client(self) -> Any:
        """Somebody who looks at queues behind Laneway's back. Never tries twice."""
        return self._client("sqs")

    @property
    def dynamodb_client(self) -> Any:
        return self._client("dynamodb")

    @property
    def sns_client(self) -> Any:
        return self._client("sns")

    @property
    def sts_client(self) -> Any:
        return self._client("sts")

    @property
    def clients(self) -> dict[str, Any]:
        """All of them, for `Clients.of`: making one takes longer than most tests."""
        return {
            "sqs": self.sqs_client,
            "dynamodb": self.dynamodb_client,
            "sns": self.sns_client,
            "sts": self.sts_client,
        }

    def client(self, service: str, **config: Any) -> Any:
        """A boto3 client of the caller's own."""
        config = {"retries": {"total_max_attempts": 1}, "max_pool_connections": 20, **config}
        with _making:  # a session is not for several threads at once
            return _session().client(service, endpoint_url=self.endpoint, config=Config(**config))

    def forget_clients(self) -> None:
        for client in vars(self).pop("_clients", {}).values():
            client.close()

    def _client(self, service: str) -> Any:
        clients = vars(self).setdefault("_clients", {})
        if service not in clients:
            clients[service] = self.client(service)
        return clients[service]

    # -- making queues and tables ----------------------------------------------------------------------

    def create_queue(self, name: str, **attributes: Any) -> str:
        """A queue, FIFO if it is named so; its URL."""
        if name.endswith(".fifo"):
            attributes = {"FifoQueue": "true", **attributes}
        attributes = {key: str(value) for key, value in attributes.items()}
        return str(self.sqs_client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])

    def create_queues(self, name: str, *, max_receives: int = 1000, **attributes: Any) -> None:
        """All that the Laneway queue `name` can have: both kinds of queue, and dead letters for both."""
        for suffix in ("", ".fifo"):
            self.create_with_dead_letters(name + suffix, max_receives=max_receives, **attributes)

    def create_with_dead_letters(self, name: str, *, max_receives: int = 1000, **attributes: Any) -> str:
        """A queue whose redrive policy names another, `…-deadletter`, which is made too; its URL."""
        plain, fifo = name.removesuffix(".fifo"), ".fifo" if name.endswith(".fifo") else ""
        dead = self.create_queue(f"{plain}-deadletter{fifo}", MessageRetentionPeriod=1_209_600)
        policy = {"deadLetterTargetArn": self.arn(dead), "maxReceiveCount": max_receives}
        return self.create_queue(name, RedrivePolicy=json.dumps(policy), **attributes)

    def create_table(self, name: str) -> None:
        """A waiter table as SEMANTICS.md describes it."""
        self.dynamodb_client.create_table(
            TableName=name,
            KeySchema=_schema("scheduler", "job_id"),
            AttributeDefinitions=[
                {"AttributeName": attribute, "AttributeType": kind}
                for attribute, kind in (("scheduler", "S"), ("job_id", "S"), ("perform_at", "N"))
            ],
            LocalSecondaryIndexes=[
                {
                    "IndexName": INDEX,
                    "KeySchema": _schema("scheduler", "perform_at"),
                    "Projection": {"ProjectionType": "ALL"},
                }
            ],
            BillingMode="PAY_PER_REQUEST",
        )

    def create_topic(self, name: str, *queues: str, **attributes: Any) -> str:
        """A topic, and subscriptions of these queues, which exist, with these attributes; its ARN."""
        arn = str(self.sns_client.create_topic(Name=name)["TopicArn"])
        for queue in queues:
            self.let_in(queue, arn)
            self.subscribe(arn, queue, **attributes)
        return arn

    def let_in(self, queue: str, topic_arn: str) -> None:
        """Let a queue take what a topic sends it, beside what it takes already."""
        url = self.queue_url(queue)
        told = self.sqs_client.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"]).get("Attributes", {})
        statements = json.loads(told["Policy"])["Statement"] if told.get("Policy") else []
        statement = {
            "Effect": "Allow",
            "Principal": {"Service": "sns.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": self.arn(url),
            "Condition": {"ArnEquals": {"aws:SourceArn": topic_arn}},
        }
        policy = {"Version": "2012-10-17", "Statement": [*statements, statement]}
        self.sqs_client.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(policy)})

    def subscribe(self, topic_arn: str, queue: str, **attributes: Any) -> str:
        """The ARN of the subscription; a filter policy may be a dict."""
        written = {key: value if isinstance(value, str) else json.dumps(value) for key, value in attributes.items()}
        answer = self.sns_client.subscribe(
            TopicArn=topic_arn,
            Protocol="sqs",
            Endpoint=self.arn(f"/{queue}"),
            Attributes=written,
            ReturnSubscriptionArn=True,
        )
        return str(answer["SubscriptionArn"])

    # -- looking ---------------------------------------------------------------------------------------

    def arn(self, queue_url: str) -> str:
        return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue_url.rpartition('/')[2]}"

    def queue_url(self, name: str) -> str:
        return str(self.sqs_client.get_queue_url(QueueName=name)["QueueUrl"])

    def counts(self, name: str) -> tuple[int, int, int]:
        """How many messages of an SQS queue are visible, in flight, and delayed."""
        told = self.sqs_client.get_queue_attributes(QueueUrl=self.queue_url(name), AttributeNames=["All"])["Attributes"]
        prefix = "ApproximateNumberOfMessages"
        visible, in_flight, delayed = (int(told[prefix + suffix]) for suffix in ("", "NotVisible", "Delayed"))
        return visible, in_flight, delayed

    def receive_all(self, name: str) -> list[dict[str, Any]]:
        """All messages that are visible now; they are hidden for half a minute, and not deleted."""
        url, got = self.queue_url(name), []
        while found := self._receive(url):
            got += found
        return got

    def items(self, table: str) -> list[dict[str, Any]]:
        """All items of a table, as DynamoDB writes them."""
        return [
            i for page in self.dynamodb_client.get_paginator("scan").paginate(TableName=table) for i in page["Items"]
        ]

    def _receive(self, url: str) -> list[dict[str, Any]]:
        wanted = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}
        answer = self.sqs_client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=30, **wanted)
        return list(answer.get("Messages", []))


@cache
def _session() -> Any:
    """One for all: what it has read of AWS's descriptions it keeps, and that takes longer than everything else."""
    return boto3.session.Session("testing", "testing", region_name=REGION)


def _schema(hash_key: str, range_key: str) -> list[dict[str, str]]:
    return [{"AttributeName": hash_key, "KeyType": "HASH"}, {"AttributeName": range_key, "KeyType": "RANGE"}]
