"""Tests of creating the resources of listeners: topics, queues, permissions and subscriptions.

Both `laneway aws create` and a worker in development mode create them.
"""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from botocore.exceptions import ClientError

from laneway import Laneway
from laneway.brokers.aws.admin.resources.resource import CreateStep
from laneway.brokers.aws.broker import AWSBroker
from laneway.brokers.aws.clients import Clients
from laneway.events.event import Subscription
from tests.support.aws.brokers import opened
from tests.support.aws.endpoints import Place
from tests.support.aws.listener_app import GERMAN, LETTERS, QUEUE, TOPIC, create, shop
from tests.support.aws.workers import Tally, running


def levels(steps: list[CreateStep]) -> list[str]:
    return [step.level for step in steps]


def attributes(place: Place, name: str) -> dict[str, str]:
    answer = place.sqs_client.get_queue_attributes(QueueUrl=place.queue_url(name), AttributeNames=["All"])
    found: dict[str, str] = answer["Attributes"]
    return found


def topics(place: Place) -> list[str]:
    return sorted(each["TopicArn"].rpartition(":")[2] for each in place.sns_client.list_topics()["Topics"])


def test_all_that_a_listener_needs_is_made(aws: Place) -> None:
    with opened(aws) as broker:
        steps = create(broker, shop(broker, GERMAN))
        assert levels(steps) == ["made"] * 5
        assert [step.text for step in steps] == [
            f"The SNS topic {TOPIC}, for the events of ship, was made.",
            f"The SQS queue {LETTERS}, for dead letters, was made.",
            f"The SQS queue {QUEUE}, its dead letters in {LETTERS}, was made.",
            f"The SNS topic {TOPIC} was allowed to send to the SQS queue {QUEUE}.",
            f"The SQS queue {QUEUE} was subscribed to {TOPIC}.",
        ]
        assert broker.events.subscriptions() == [Subscription(TOPIC, QUEUE, GERMAN)]
        [tie] = broker.events.of(TOPIC)
        assert broker.events.terms(tie).raw
    redrive = json.loads(attributes(aws, QUEUE)["RedrivePolicy"])
    assert redrive["deadLetterTargetArn"] == aws.arn(aws.queue_url(LETTERS))
    assert int(redrive["maxReceiveCount"]) == 1_000
    with pytest.raises(ClientError):  # events have no keys
        aws.queue_url(f"{QUEUE}.fifo")
    aws.sns_client.publish(TopicArn=topic_arn(aws), Message="1", MessageAttributes=_attributes(country="DE"))
    assert [message["Body"] for message in aws.receive_all(QUEUE)] == ["1"]


def topic_arn(place: Place, topic: str = TOPIC) -> str:
    return str(place.sns_client.create_topic(Name=topic)["TopicArn"])


def _attributes(**values: str) -> dict[str, Any]:
    return {name: {"DataType": "String", "StringValue": value} for name, value in values.items()}


def test_making_it_again_changes_nothing(aws: Place) -> None:
    with opened(aws) as broker:
        create(broker, shop(broker, GERMAN))
        before = attributes(aws, QUEUE)
    with opened(aws) as broker:
        assert set(levels(create(broker, shop(broker, GERMAN)))) == {"exists"}
        assert broker.events.subscriptions() == [Subscription(TOPIC, QUEUE, GERMAN)]
    assert attributes(aws, QUEUE) == before


def test_a_dry_run_makes_nothing(aws: Place) -> None:
    with opened(aws) as broker:
        app = shop(broker)
        assert levels(create(broker, app, dry_run=True, publishes=["eventboss-shop-paid-test"])) == ["missing"] * 6
        assert topics(aws) == []
        # And what was looked for and missing is found when it is made.
        assert levels(create(broker, app)) == ["made"] * 5
        assert set(levels(create(broker, app, dry_run=True))) == {"exists"}


def test_what_is_missing_of_it_is_made(aws: Place) -> None:
    with opened(aws) as broker:
        app = shop(broker)
        create(broker, app)
        broker.events.unsubscribe(TOPIC, QUEUE)
        assert levels(create(broker, app)) == ["exists"] * 4 + ["made"]
        aws.sqs_client.set_queue_attributes(QueueUrl=aws.queue_url(QUEUE), Attributes={"Policy": ""})
        assert levels(create(broker, app, dry_run=True)) == ["exists"] * 3 + ["missing", "exists"]
        assert levels(create(broker, app)) == ["exists"] * 3 + ["made", "exists"]
        assert set(levels(create(broker, app))) == {"exists"}


def test_another_filter_is_told_and_left_alone(aws: Place) -> None:
    with opened(aws) as broker:
        create(broker, shop(broker))
        steps = create(broker, shop(broker, GERMAN))
        assert levels(steps) == ["exists"] * 5 + ["problem"]
        assert "another filter than its listener declares, and was left as it is" in steps[-1].text
        assert broker.events.subscriptions() == [Subscription(TOPIC, QUEUE)]
        assert broker.events.subscribe(Subscription(TOPIC, QUEUE, GERMAN))  # as a worker does
        assert set(levels(create(broker, shop(broker, GERMAN)))) == {"exists"}


def test_the_topics_of_what_is_published_are_made(aws: Place) -> None:
    with opened(aws, prefix="x-") as broker:
        app = Laneway(broker=broker, name="shop")
        steps = create(broker, app, publishes=["eventboss-shop-sold", "eventboss-paid"])
        assert levels(steps) == ["made"] * 2
        assert steps[0].text == "The SNS topic x-eventboss-shop-sold, for what the app publishes, was made."
        assert topics(aws) == ["x-eventboss-paid", "x-eventboss-shop-sold"]
        assert set(levels(create(broker, app, publishes=["eventboss-shop-sold"]))) == {"exists"}


def test_an_app_that_hears_itself_has_one_topic(fake: Place) -> None:
    with opened(fake) as broker:
        texts = [step.text for step in create(broker, shop(broker), publishes=[TOPIC])]
    assert len([text for text in texts if text.startswith(f"The SNS topic {TOPIC}, ")]) == 1


# -- development ---------------------------------------------------------------------------------------


def test_in_development_a_worker_makes_what_its_queues_need(aws: Place) -> None:
    with opened(aws, table=None) as broker:
        app = shop(broker, GERMAN)

        @app.task(queue="mail")
        def send(to: str) -> None: ...

        @app.task(queue="other")
        def not_served() -> None: ...

        for queue in (QUEUE, "mail"):
            broker.declare(queue, 1)
        assert broker.inspect.queues() == {}  # somebody has looked, and found nothing
        made = broker.health.provide(app, [QUEUE, "mail"])
        assert len(made) == 5 + 4
        assert all(each.made for each in made)
        assert all(each.text.endswith((" was made.", f" {QUEUE}.", f" {TOPIC}.")) for each in made)
        assert broker.events.subscriptions() == [Subscription(TOPIC, QUEUE, GERMAN)]
        assert broker.inspect.queues() == {QUEUE: 1, "mail": 1}
        assert broker.health.provide(app, [QUEUE, "mail"]) == []
        with pytest.raises(ClientError):
            aws.queue_url("other")


def test_in_development_what_is_otherwise_is_told_and_left(fake: Place) -> None:
    fake.create_with_dead_letters(QUEUE, max_receives=4, MessageRetentionPeriod=1_209_600)
    with opened(fake) as broker:
        [told] = [each for each in broker.health.provide(shop(broker), [QUEUE]) if not each.made]
        assert "after 4 receives, and a job of ship may be run 4 times" in told.text
        assert broker.health.provide(shop(broker), [QUEUE]) == [told]


def test_in_development_the_worker_sets_the_filter_and_nothing_else_is_said(fake: Place) -> None:
    with opened(fake) as broker:
        create(broker, shop(broker))
        assert broker.health.provide(shop(broker, GERMAN), [QUEUE]) == []


def test_in_development_a_queue_without_a_redrive_policy_gets_one(aws: Place) -> None:
    """As the Ruby original's development mode makes them."""
    aws.create_queue(QUEUE, MessageRetentionPeriod=1_209_600)
    with opened(aws, table=None) as broker:
        assert "was left as it is" in create(broker, shop(broker), dry_run=True)[3].text
        texts = [each.text for each in broker.health.provide(shop(broker), [QUEUE]) if each.made]
        assert f"The SQS queue {LETTERS}, for dead letters, was made." in texts
        assert f"The SQS queue {QUEUE} was given a redrive policy, its dead letters in {LETTERS}." in texts
        assert broker.health.provide(shop(broker), [QUEUE]) == []
    redrive = json.loads(attributes(aws, QUEUE)["RedrivePolicy"])
    assert redrive["deadLetterTargetArn"] == aws.arn(aws.queue_url(LETTERS))
    assert int(redrive["maxReceiveCount"]) == 1_000


def test_in_development_nobody_has_to_make_anything(aws: Place, caplog: pytest.LogCaptureFixture) -> None:
    broker = AWSBroker(aws.settings(), clients=Clients.of(aws.settings(), **aws.clients))
    app, tally = Laneway(broker=broker, name="shop", env="test", development=True), Tally()

    @app.listener("sold", source="stock")
    def ship(order: int) -> None:
        tally.note(order)

    with caplog.at_level(logging.INFO), running(app):
        aws.sns_client.publish(TopicArn=broker.account.topics.arn(TOPIC), Message="7")
        tally.wait_for(1)
    assert tally.ran == [7]
    assert [record.levelname for record in caplog.records if record.levelno > logging.INFO] == []
    assert f"The SQS queue {QUEUE} was subscribed to {TOPIC}." in caplog.messages
    app.close()
