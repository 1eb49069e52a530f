"""Tests of `laneway check` on AWS: missing resources, dangerous settings and missing permissions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import pytest

from laneway import Key, Laneway
from laneway.brokers.aws.admin.create import create_resources
from laneway.brokers.aws.admin.needs import needs_of
from laneway.brokers.aws.admin.resources.resource import Creation
from laneway.brokers.aws.admin.resources.table import TableResource
from laneway.brokers.aws.broker import AWSBroker
from laneway.brokers.aws.dynamodb.items import INDEX
from laneway.brokers.aws.errors import DeniedError
from laneway.cli.findings import examine
from laneway.clock import ManualClock
from tests.support.aws.brokers import TABLE, opened, ready, turn_on_ttl
from tests.support.aws.endpoints import Place
from tests.support.findings import check_texts

WORKS_ON_TABLES = TableResource.actions.worker
QUERIES_INDEX = ("dynamodb:Query", INDEX)


def shop(broker: AWSBroker) -> Laneway:
    app = Laneway(broker=broker)

    @app.task(queue="q", max_retry_count=3)
    def send(to: str) -> None: ...

    @app.task(queue="q")
    def sync(order: Annotated[str, Key]) -> None: ...

    return app


def test_what_was_created_is_well(aws: Place) -> None:
    with opened(aws) as broker:
        app = shop(broker)
        list(create_resources(broker.account, needs_of(app), Creation()))
    with opened(aws) as broker:
        app = shop(broker)
        assert broker.inspect.exists("q")
        assert broker.health.check() == []
        assert broker.health.check(app) == []


def test_checking_leaves_everything_as_it_was(aws: Place) -> None:
    with ready(aws) as broker:
        aws.sqs_client.send_message(QueueUrl=aws.queue_url("q"), MessageBody="{}")
        broker.health.check()
    assert aws.counts("q") == (1, 0, 0)
    assert aws.counts("q.fifo") == aws.counts("q-deadletter") == (0, 0, 0)
    [message] = aws.receive_all("q")
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert aws.items(TABLE) == []


def test_what_tasks_need_and_is_missing(fake: Place) -> None:
    with opened(fake, table=None) as broker:
        app = shop(broker)
        plain, keyed = check_texts(broker, app)
        assert plain.startswith("There is no SQS queue q, which the plain jobs of send go to")
        assert keyed.startswith("There is no FIFO queue q.fifo, which the keyed jobs of sync go to")
        assert broker.health.check() == []


def test_dangerous_settings_are_told(aws: Place) -> None:
    aws.create_with_dead_letters("q", max_receives=4, MessageRetentionPeriod=86_400)
    aws.create_queue("q.fifo", MessageRetentionPeriod=1_209_600)
    aws.create_queue("q-deadletter.fifo", MessageRetentionPeriod=60)
    with opened(aws) as broker:
        broker.declare("q", 1)
        said = check_texts(broker, shop(broker))
    assert [sentence for sentence in said if "q forgets messages after 1 days" in sentence]
    assert [sentence for sentence in said if "q-deadletter.fifo forgets messages" in sentence]
    assert [sentence for sentence in said if "q.fifo has no redrive policy" in sentence]
    assert [sentence for sentence in said if "after 4 receives, and a job of send may be run 4 times" in sentence]
    assert [sentence for sentence in said if f"There is no table {TABLE}" in sentence]
    assert len(said) == 5


def test_more_runs_than_sqs_allows_receives_are_told(fake: Place) -> None:
    """No redrive policy can mend that: a maxReceiveCount is 1,000 at most."""
    fake.create_with_dead_letters("q", max_receives=1_000, MessageRetentionPeriod=1_209_600)
    with opened(fake, table=None) as broker:
        app = Laneway(broker=broker)

        @app.task(queue="q", max_retry_count=1_000)
        def send(to: str) -> None: ...

        [sentence] = check_texts(broker, app)
        assert sentence == (
            "The SQS queue q moves a message to its dead letters after 1000 receives, and a job of send may be run "
            "1001 times; SQS allows a maxReceiveCount of 1000 at most: set max_retry_count to 998 or less."
        )


def test_missing_dead_letters_are_told(fake: Place) -> None:
    fake.create_queue("q", MessageRetentionPeriod=1_209_600)
    with opened(fake, table=None) as broker:
        broker.declare("q", 1)
        [sentence] = check_texts(broker)
    assert "has no dead-letter queue" in sentence


def test_tables_that_are_no_waiter_tables_are_told(aws: Place) -> None:
    with ready(aws) as broker:
        assert ["time to live" in sentence for sentence in check_texts(broker)] == [True]
        turn_on_ttl(aws)
        assert broker.health.check() == []
    aws.dynamodb_client.delete_table(TableName=TABLE)
    aws.dynamodb_client.create_table(
        TableName=TABLE,
        KeySchema=[
            {"AttributeName": "scheduler", "KeyType": "HASH"},
            {"AttributeName": "job_id", "KeyType": "RANGE"},
        ],
        AttributeDefinitions=[
            {"AttributeName": "scheduler", "AttributeType": "S"},
            {"AttributeName": "job_id", "AttributeType": "S"},
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    with opened(aws) as broker:
        broker.declare("q", 1)
        [sentence] = check_texts(broker)
    assert "index" in sentence


def test_a_smaller_limit_than_the_urls_is_told(fake: Place) -> None:
    fake.create_with_dead_letters("q", MaximumMessageSize=262_144, MessageRetentionPeriod=1_209_600)
    with opened(fake, table=None, max_body=1_048_576) as broker:
        broker.declare("q", 1)
        [sentence] = check_texts(broker)
    assert "takes messages of 262,144 bytes at most" in sentence


def denying(ask: Callable[..., dict[str, Any]], *operations: str) -> Callable[..., dict[str, Any]]:
    """AWS for somebody who may do all but these."""

    def call(operation: str, **params: Any) -> dict[str, Any]:
        if operation in operations:
            raise DeniedError("No.", code="AccessDenied")
        return ask(operation, **params)

    return call


def test_what_is_not_allowed_is_told(fake: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with ready(fake) as broker:
        turn_on_ttl(fake)
        sqs, dynamodb = broker.account.clients.sqs, broker.account.clients.dynamodb
        monkeypatch.setattr(broker.account.clients, "sqs", denying(sqs, "send_message_batch", "receive_message"))
        monkeypatch.setattr(broker.account.clients, "dynamodb", denying(dynamodb, "update_item", "query"))
        said = check_texts(broker)
        assert said[0].startswith("These credentials may not do sqs:SendMessage, sqs:ReceiveMessage on q,")
        assert any("may not do sqs:SendMessage on q-deadletter," in sentence for sentence in said)
        assert any("dynamodb:UpdateItem, dynamodb:Query, " in sentence for sentence in said)
        assert all(sentence.endswith(".") for sentence in said)
        monkeypatch.setattr(broker.account.clients, "sqs", denying(sqs, "get_queue_attributes"))
        assert any("sqs:GetQueueAttributes on q," in sentence for sentence in check_texts(broker))


@pytest.mark.parametrize(("action", "on"), [*sorted((action, "") for action in WORKS_ON_TABLES), QUERIES_INDEX])
def test_whatever_a_worker_may_not_do_with_the_table_is_told(
    fake: Place, monkeypatch: pytest.MonkeyPatch, action: str, on: str
) -> None:
    with ready(fake) as broker:
        turn_on_ttl(fake)
        dynamodb = broker.account.clients.dynamodb

        def ask(operation: str, **params: Any) -> dict[str, Any]:
            called = "dynamodb:" + "".join(map(str.capitalize, operation.split("_")))
            if (called, params.get("IndexName", "")) == (action, on):
                raise DeniedError("No.", code="AccessDenied")
            return dynamodb(operation, **params)

        monkeypatch.setattr(broker.account.clients, "dynamodb", ask)
        levels = {finding.text: finding.level for finding in examine(shop(broker), "shop")}
        assert "The broker finds nothing wrong with itself." not in levels
        told = [text for text, level in levels.items() if level == "problem" and action in text]
        assert any("the table waiter" in text for text in told)
        assert fake.items(TABLE) == []


def test_a_clock_that_is_wrong_is_told(moto: Place) -> None:
    moto.create_with_dead_letters("q", MessageRetentionPeriod=1_209_600)
    broker = AWSBroker(moto.settings(), clock=ManualClock(), inline=True)
    broker.declare("q", 1)
    [sentence] = check_texts(broker)
    broker.close()
    assert "clock" in sentence
    assert "behind that of AWS" in sentence


def test_dead_letters_that_are_gone_are_told(fake: Place) -> None:
    policy = {"deadLetterTargetArn": fake.arn(fake.create_queue("graves")), "maxReceiveCount": 100}
    fake.create_queue("q", RedrivePolicy=json.dumps(policy), MessageRetentionPeriod=1_209_600)
    fake.sqs_client.delete_queue(QueueUrl=fake.queue_url("graves"))
    with opened(fake, table=None) as broker:
        broker.declare("q", 1)
        [sentence] = check_texts(broker)
    assert "no dead-letter queue" in sentence
