"""Tests of SNS subscriptions: inspected first, created if missing, and given the right filter if it differs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from laneway.brokers.aws.broker import AWSBroker
from laneway.brokers.aws.errors import DeniedError, MissingError
from laneway.errors import ConfigError
from laneway.events.event import FilterPolicy, Subscription
from tests.support.aws.brokers import opened, said
from tests.support.aws.endpoints import Place
from tests.support.aws.iam_guard import Guarded, guarded

TOPIC = "eventboss-shop-sold"
QUEUE = f"mail-{TOPIC}"
WANTED = Subscription(TOPIC, QUEUE)
GERMAN: FilterPolicy = {"country": ["DE", {"prefix": "A"}], "cents": [{"numeric": [">", 5]}]}
#: All that changes something.
WRITES = {"sns.Subscribe", "sns.SetSubscriptionAttributes", "sqs.SetQueueAttributes", "sns.Unsubscribe"}


@pytest.fixture
def broker(aws: Place) -> Iterator[AWSBroker]:
    """One whose topic and queue exist, and nothing more."""
    aws.create_queue(QUEUE)
    with opened(aws) as broker:
        broker.account.topics.create(TOPIC)
        yield broker


def attributes(place: Place, broker: AWSBroker) -> dict[str, str]:
    """What SNS says of the subscription."""
    [told] = place.sns_client.list_subscriptions_by_topic(TopicArn=broker.account.topics.arn(TOPIC))["Subscriptions"]
    answer = place.sns_client.get_subscription_attributes(SubscriptionArn=told["SubscriptionArn"])
    found: dict[str, str] = answer["Attributes"]
    return found


def by_hand(place: Place, broker: AWSBroker, **attributes: str) -> None:
    """As the Ruby original, or somebody else, subscribes."""
    arn, endpoint = broker.account.topics.arn(TOPIC), place.arn(place.queue_url(QUEUE))
    place.sns_client.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=endpoint, Attributes=attributes)


def policy_of(place: Place) -> dict[str, Any]:
    told = place.sqs_client.get_queue_attributes(QueueUrl=place.queue_url(QUEUE), AttributeNames=["Policy"])
    found: dict[str, Any] = json.loads(told["Attributes"]["Policy"])
    return found


def publish(place: Place, broker: AWSBroker, body: str, **attributes: str) -> None:
    values = {name: {"DataType": "String", "StringValue": value} for name, value in attributes.items()}
    place.sns_client.publish(TopicArn=broker.account.topics.arn(TOPIC), Message=body, MessageAttributes=values)


def test_a_queue_is_subscribed_raw_and_its_topic_may_send(aws: Place, broker: AWSBroker) -> None:
    assert broker.events.subscribe(WANTED)
    told = attributes(aws, broker)
    assert told["RawMessageDelivery"] == "true"
    assert told.get("FilterPolicy", "{}") in ("", "{}")
    [statement] = policy_of(aws)["Statement"]
    assert statement["Principal"] == {"Service": "sns.amazonaws.com"}
    assert statement["Condition"] == {"ArnEquals": {"aws:SourceArn": broker.account.topics.arn(TOPIC)}}
    publish(aws, broker, '{"order":1}')
    assert [message["Body"] for message in aws.receive_all(QUEUE)] == ['{"order":1}']


def test_what_is_so_already_is_not_written(aws: Place, broker: AWSBroker) -> None:
    broker.events.subscribe(Subscription(TOPIC, QUEUE, GERMAN))
    before = policy_of(aws)
    with opened(aws) as other:
        assert not other.events.subscribe(Subscription(TOPIC, QUEUE, GERMAN))
        assert not WRITES & set(other.account.clients.requests)
    assert policy_of(aws) == before


def test_a_filter_is_set_changed_and_taken_away(aws: Place, broker: AWSBroker) -> None:
    for wanted in (GERMAN, {"country": ["FR"]}, None):
        assert broker.events.subscribe(Subscription(TOPIC, QUEUE, wanted))
        assert not broker.events.subscribe(Subscription(TOPIC, QUEUE, wanted))
        assert broker.events.subscriptions(TOPIC) == [Subscription(TOPIC, QUEUE, wanted)]
    assert broker.events.subscribe(Subscription(TOPIC, QUEUE, {"country": ["FR"]}))
    for country in ("DE", "FR"):
        publish(aws, broker, f'"{country}"', country=country)
    assert [message["Body"] for message in aws.receive_all(QUEUE)] == ['"FR"']


def test_a_subscription_with_an_envelope_stays_as_it_is(aws: Place, broker: AWSBroker) -> None:
    by_hand(aws, broker)
    assert broker.events.subscribe(WANTED)  # the policy was missing
    assert not broker.events.subscribe(WANTED)
    assert attributes(aws, broker)["RawMessageDelivery"] == "false"
    assert broker.events.subscribe(Subscription(TOPIC, QUEUE, GERMAN))
    assert attributes(aws, broker)["RawMessageDelivery"] == "false"


def test_a_filter_of_bodies_is_not_ours(aws: Place, broker: AWSBroker) -> None:
    by_hand(aws, broker, FilterPolicy='{"country": ["FR"]}', FilterPolicyScope="MessageBody")
    assert broker.events.subscribe(Subscription(TOPIC, QUEUE, {"country": ["FR"]}))
    told = attributes(aws, broker)
    assert told.get("FilterPolicyScope", "MessageAttributes") == "MessageAttributes"
    assert json.loads(told["FilterPolicy"]) == {"country": ["FR"]}
    assert not broker.events.subscribe(Subscription(TOPIC, QUEUE, {"country": ["FR"]}))


def test_a_policy_of_somebody_else_is_kept(aws: Place, broker: AWSBroker) -> None:
    arn = aws.arn(aws.queue_url(QUEUE))
    theirs = {"Sid": "theirs", "Effect": "Allow", "Principal": "*", "Action": "sqs:ReceiveMessage", "Resource": arn}
    policy = json.dumps({"Version": "2012-10-17", "Id": "x", "Statement": [theirs]})
    aws.sqs_client.set_queue_attributes(QueueUrl=aws.queue_url(QUEUE), Attributes={"Policy": policy})
    broker.events.subscribe(WANTED)
    found = policy_of(aws)
    assert found["Id"] == "x"
    assert found["Statement"][0] == theirs
    assert len(found["Statement"]) == 2


def test_the_policy_of_the_ruby_original_suffices(aws: Place, broker: AWSBroker) -> None:
    allowed = {
        "Effect": "Allow",
        "Principal": "*",
        "Action": ["SQS:SendMessage"],
        "Resource": aws.arn(aws.queue_url(QUEUE)),
        "Condition": {"ArnEquals": {"aws:SourceArn": broker.account.topics.arn(TOPIC)}},
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [allowed]})
    aws.sqs_client.set_queue_attributes(QueueUrl=aws.queue_url(QUEUE), Attributes={"Policy": policy})
    assert broker.events.subscribe(WANTED)
    assert policy_of(aws)["Statement"] == [allowed]


def test_unsubscribing_leaves_the_queue_and_its_policy(aws: Place, broker: AWSBroker) -> None:
    broker.events.subscribe(WANTED)
    assert broker.events.unsubscribe(TOPIC, QUEUE)
    assert not broker.events.unsubscribe(TOPIC, QUEUE)
    assert not broker.events.unsubscribe("eventboss-shop-never", QUEUE)
    assert broker.events.subscriptions(TOPIC) == []
    assert len(policy_of(aws)["Statement"]) == 1


def test_one_whose_queue_is_gone_can_be_ended(aws: Place, broker: AWSBroker) -> None:
    broker.events.subscribe(WANTED)
    aws.sqs_client.delete_queue(QueueUrl=aws.queue_url(QUEUE))
    with opened(aws) as other:
        assert other.events.subscriptions() == [WANTED]
        assert other.events.unsubscribe(TOPIC, QUEUE)


def test_those_of_all_topics_are_those_of_listeners(aws: Place, broker: AWSBroker) -> None:
    broker.events.subscribe(WANTED)
    topic = aws.sns_client.create_topic(Name="alarms")["TopicArn"]
    for name in ("pager", "pager.fifo"):
        endpoint = aws.arn(aws.create_queue(name))
        if not name.endswith(".fifo"):
            aws.sns_client.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=endpoint)
    with opened(aws) as other:
        assert other.events.subscriptions() == [WANTED]
        assert other.events.subscriptions("alarms") == [Subscription("alarms", "pager")]
        assert other.events.subscriptions("eventboss-shop-never") == []
        other.declare("pager", 1)
        assert other.events.subscriptions() == [Subscription("alarms", "pager"), WANTED]


def test_names_have_their_prefix_and_others_are_left_out(aws: Place, broker: AWSBroker) -> None:
    broker.events.subscribe(WANTED)
    with opened(aws, prefix="x-") as other:
        aws.create_queue(f"x-{QUEUE}")
        other.account.topics.create(TOPIC)
        assert other.events.subscriptions() == []
        assert other.events.subscribe(WANTED)
        assert other.events.subscriptions() == other.events.subscriptions(TOPIC) == [WANTED]
        assert other.events.unsubscribe(TOPIC, QUEUE)
    assert broker.events.subscriptions() == [WANTED]


def test_all_pages_are_read(aws: Place) -> None:
    with opened(aws) as broker:
        arn = broker.account.topics.create(TOPIC)
        start = broker.account.topics.arn("").replace(":sns:", ":sqs:")
        for number in range(105):
            endpoint = f"{start}app{number:03}-{TOPIC}"
            aws.sns_client.subscribe(TopicArn=arn, Protocol="sqs", Endpoint=endpoint)
        ties = list(broker.events.of(TOPIC))
        assert len({tie.queue for tie in ties}) == len(ties) == 105
        assert len(list(broker.events.all())) == 105


def test_a_queue_or_topic_that_is_missing_is_named(aws: Place) -> None:
    with opened(aws) as broker:
        with pytest.raises(MissingError, match=f"no SQS queue {QUEUE} .*`laneway aws create`") as error:
            broker.events.subscribe(WANTED)
        said(error)
    aws.create_queue(QUEUE)
    with opened(aws) as broker:
        with pytest.raises(MissingError, match=f"no SNS topic {TOPIC} .*`laneway aws create`") as error:
            broker.events.subscribe(WANTED)
        said(error)
        assert "sqs.SetQueueAttributes" not in broker.account.clients.requests


# -- for somebody who may not do everything ------------------------------------------------------------

LOOKING = ("sqs:GetQueueUrl", "sqs:GetQueueAttributes", "sns:ListSubscriptionsByTopic", "sns:GetSubscriptionAttributes")


def restricted(place: Place, *actions: str) -> AWSBroker:
    settings = place.settings(table=None, wait_s=0)
    policy = {"Statement": [{"Action": actions, "Resource": ["*"]}]}
    return AWSBroker(settings, clients=guarded(place, settings, policy), inline=True)


def test_whoever_finds_all_in_order_needs_only_look(aws: Place, broker: AWSBroker) -> None:
    broker.events.subscribe(Subscription(TOPIC, QUEUE, GERMAN))
    worker = restricted(aws, *LOOKING)
    assert not worker.events.subscribe(Subscription(TOPIC, QUEUE, GERMAN))
    assert isinstance(worker.account.clients, Guarded)
    assert worker.account.clients.denied == []


@pytest.mark.parametrize("lacking", LOOKING)
def test_whoever_may_not_look_is_told_what_is_needed(aws: Place, broker: AWSBroker, lacking: str) -> None:
    broker.events.subscribe(WANTED)
    worker = restricted(aws, *(action for action in LOOKING if action != lacking))
    with pytest.raises(DeniedError, match=lacking) as error:
        worker.events.subscribe(WANTED)
    assert "is not subscribed" not in said(error)


@pytest.mark.parametrize(
    ("lacking", "wanted"),
    [("sqs:SetQueueAttributes", None), ("sns:Subscribe", None), ("sns:SetSubscriptionAttributes", GERMAN)],
)
def test_whoever_may_not_change_it_is_told_what_for(
    aws: Place, broker: AWSBroker, lacking: str, wanted: FilterPolicy | None
) -> None:
    if wanted is not None:
        broker.events.subscribe(WANTED)
    writing = ("sqs:SetQueueAttributes", "sns:Subscribe", "sns:SetSubscriptionAttributes")
    worker = restricted(aws, *LOOKING, *(action for action in writing if action != lacking))
    with pytest.raises(DeniedError, match=lacking) as error:
        worker.events.subscribe(Subscription(TOPIC, QUEUE, wanted))
    assert said(error).startswith(f"The queue {QUEUE} is not subscribed to {TOPIC} as its listener declares")


def test_a_filter_that_cannot_be_written_is_refused_and_nothing_is_changed(fake: Place) -> None:
    fake.create_with_dead_letters(QUEUE)
    fake.create_topic(TOPIC)
    with opened(fake, table=None) as broker:
        with pytest.raises(ConfigError, match="cannot be written as JSON"):
            broker.events.subscribe(Subscription(TOPIC, QUEUE, {"country": ["\ud800"]}))
        assert broker.events.access_of(QUEUE).policy is None
