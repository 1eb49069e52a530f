"""Tests of `laneway check` on AWS for events: whether they reach their listeners."""

from __future__ import annotations

import json

import pytest

from laneway import Laneway
from laneway.brokers.aws.admin.iam import AccountLocation as Somewhere
from laneway.brokers.aws.admin.iam import policy
from laneway.brokers.aws.admin.needs import needs_of
from laneway.brokers.aws.broker import AWSBroker
from laneway.brokers.aws.errors import AWSError
from laneway.events.event import Subscription
from tests.support.aws.brokers import opened
from tests.support.aws.endpoints import ACCOUNT, REGION, Place
from tests.support.aws.iam_guard import guarded
from tests.support.aws.listener_app import GERMAN, QUEUE, TOPIC, create, shop
from tests.support.findings import check_texts


def test_what_was_created_is_well(aws: Place) -> None:
    with opened(aws, table=None) as broker:
        create(broker, shop(broker, GERMAN))
    with opened(aws, table=None) as broker:
        app = shop(broker, GERMAN)
        assert broker.inspect.exists(QUEUE)
        assert broker.health.check() == broker.health.check(app) == []


def test_nothing_is_there(aws: Place) -> None:
    with opened(aws, table=None) as broker:
        [sentence] = check_texts(broker, shop(broker))
    assert sentence.startswith(f"There is no SQS queue {QUEUE}, which the plain jobs of ship go to")


def test_a_queue_alone(aws: Place) -> None:
    aws.create_with_dead_letters(QUEUE, MessageRetentionPeriod=1_209_600)
    with opened(aws, table=None) as broker:
        closed, topic = check_texts(broker, shop(broker))
    assert f"The access policy of the SQS queue {QUEUE} does not let the SNS topic {TOPIC} send to it" in closed
    assert topic.startswith(f"There is no SNS topic {TOPIC}, which the listener ship hears")
    assert "laneway aws create TARGET" in topic


def test_no_subscription(aws: Place) -> None:
    with opened(aws, table=None) as broker:
        app = shop(broker)
        create(broker, app)
        broker.events.unsubscribe(TOPIC, QUEUE)
        [sentence] = check_texts(broker, app)
        assert sentence.startswith(f"The SQS queue {QUEUE} is not subscribed to the SNS topic {TOPIC}")
        assert "laneway subscribe TARGET" in sentence


def test_another_filter(aws: Place) -> None:
    with opened(aws, table=None) as broker:
        create(broker, shop(broker, GERMAN))
        for wanted in (None, {"country": ["FR"]}):
            [sentence] = check_texts(broker, shop(broker, wanted))
            assert "has another filter than the listener ship declares" in sentence


def test_an_envelope_is_fine(aws: Place) -> None:
    with opened(aws, table=None) as broker:
        app = shop(broker)
        create(broker, app)
        broker.events.unsubscribe(TOPIC, QUEUE)
        endpoint = aws.arn(aws.queue_url(QUEUE))
        aws.sns_client.subscribe(TopicArn=broker.account.topics.arn(TOPIC), Protocol="sqs", Endpoint=endpoint)
        assert broker.health.check(app) == []


def test_a_policy_that_cannot_be_read(fake: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(fake, table=None) as broker:
        app = shop(broker)
        create(broker, app)
        ask = broker.account.clients.sqs

        def sqs(operation: str, **params: object) -> dict[str, object]:
            answer = ask(operation, **params)
            if operation == "get_queue_attributes":
                answer["Attributes"]["Policy"] = "{"
            return answer

        monkeypatch.setattr(broker.account.clients, "sqs", sqs)
        [sentence] = check_texts(broker, app)
    assert "cannot be read" in sentence


def test_a_policy_that_denies_it(aws: Place) -> None:
    """No statement more would help: it is told, by whoever comes across it, and nothing is written."""
    with opened(aws, table=None) as broker:
        app = shop(broker)
        create(broker, app)
        url = aws.queue_url(QUEUE)
        found = aws.sqs_client.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
        document = json.loads(found)
        document["Statement"].append({**document["Statement"][0], "Sid": "no", "Effect": "Deny"})
        aws.sqs_client.set_queue_attributes(QueueUrl=url, Attributes={"Policy": json.dumps(document)})
        [sentence] = check_texts(broker, app)
        assert sentence.startswith(f"A statement in the access policy of the SQS queue {QUEUE} denies the SNS topic ")
        assert [step.text for step in create(broker, app) if step.level != "exists"] == [sentence]
        with pytest.raises(AWSError, match="denies the SNS topic"):
            broker.events.subscribe(Subscription(TOPIC, QUEUE))
        after = aws.sqs_client.get_queue_attributes(QueueUrl=url, AttributeNames=["Policy"])["Attributes"]["Policy"]
    assert json.loads(after) == document


@pytest.mark.parametrize("prefix", ["", "p-"])
def test_a_prefix_is_told_of_where_somebody_listens(fake: Place, prefix: str) -> None:
    with opened(fake, table=None, prefix=prefix) as broker:
        assert broker.health.check(Laneway(broker=broker, name="shop")) == []
        notes = [each for each in broker.health.check(shop(broker)) if each.level == "note"]
        assert len(notes) == bool(prefix)
        assert all("The prefix p- of the URL stands before topics and listeners' queues" in note.text for note in notes)


def test_too_few_receives(fake: Place) -> None:
    fake.create_with_dead_letters(QUEUE, max_receives=4, MessageRetentionPeriod=1_209_600)
    with opened(fake, table=None) as broker:
        app = shop(broker)
        create(broker, app)
        [sentence] = check_texts(broker, app)
    assert "after 4 receives, and a job of ship may be run 4 times" in sentence


@pytest.mark.parametrize("lacking", ["sns:ListSubscriptionsByTopic", "sns:GetSubscriptionAttributes"])
def test_what_is_not_allowed_is_told(fake: Place, lacking: str) -> None:
    with opened(fake, table=None) as broker:
        app = shop(broker)
        create(broker, app)
        allowed = policy("worker", broker.account, needs_of(app), Somewhere(REGION, ACCOUNT))
    text = json.dumps(allowed).replace(lacking, "sns:Nothing")
    settings = fake.settings(table=None, wait_s=0)
    worker = AWSBroker(settings, clients=guarded(fake, settings, json.loads(text)), inline=True)
    [sentence] = check_texts(worker, shop(worker))
    assert sentence.startswith(f"These credentials may not do {lacking} on ")


def test_subscriptions_of_the_app_without_a_listener_can_be_seen(aws: Place) -> None:
    with opened(aws, table=None) as broker:
        create(broker, shop(broker))
    with opened(aws, table=None) as other:
        assert other.events.subscriptions() == [Subscription(TOPIC, QUEUE)]
