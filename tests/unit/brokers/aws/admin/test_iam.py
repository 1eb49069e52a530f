"""Tests that the policy of `laneway aws iam` allows exactly the calls that the code makes."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from laneway.brokers.aws.admin.iam import AccountLocation as Somewhere
from laneway.brokers.aws.admin.iam import locate, policy
from laneway.brokers.aws.admin.needs import QueueRequirement, needs_of
from laneway.brokers.aws.admin.resources.events import ListenerSubscription, Topic
from laneway.brokers.aws.admin.resources.queues import DeadLetterQueue, Queue
from laneway.brokers.aws.admin.resources.resource import Role
from laneway.brokers.aws.admin.resources.table import TableResource
from laneway.brokers.aws.broker import AWSBroker
from laneway.errors import BrokerAwayError, BrokerError, BrokerRefusedError, ConfigError
from laneway.events.event import Subscription
from laneway.jobs.data import EventCopy, NewJob
from laneway.jobs.settlement import buried, done, failed, postponed
from laneway.testing.conformance.fixtures import ScriptedWorker, call, job
from tests.support.aws.brokers import opened, ready
from tests.support.aws.endpoints import ACCOUNT, REGION, Place
from tests.support.aws.listener_app import GERMAN, QUEUE, TOPIC, create, shop

DAY = 86_400.0
NEEDS = {"q": QueueRequirement("q", plain=["send"])}
ROLES: tuple[Role, ...] = get_args(Role)


@pytest.fixture
def broker(fake: Place) -> Iterator[AWSBroker]:
    with ready(fake) as broker:
        yield broker


class Calls:
    """What a broker calls, and of which queue or table, as IAM sees it."""

    def __init__(self, broker: AWSBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: set[tuple[str, str]] = set()
        for service in ("sqs", "dynamodb", "sns"):
            self._watch(broker, service, monkeypatch)

    def _watch(self, broker: AWSBroker, service: str, monkeypatch: pytest.MonkeyPatch) -> None:
        ask = getattr(broker.account.clients, service)

        def call(operation: str, **params: Any) -> dict[str, Any]:
            action = "".join(map(str.capitalize, operation.split("_")))
            if service != "dynamodb":  # a batch has no action of its own
                action = action.removesuffix("Batch")
            named = ("QueueUrl", "QueueName", "TableName", "TopicArn")
            where = next((params[name] for name in named if name in params), "")
            if "RequestItems" in params:
                where = next(iter(params["RequestItems"]))
            self.made.add((f"{service}:{action}", where.rpartition("/")[2]))
            answer: dict[str, Any] = ask(operation, **params)
            return answer

        monkeypatch.setattr(broker.account.clients, service, call)

    def by_place(self) -> list[set[str]]:
        """The actions on queues, on dead-letter queues, and on tables."""
        places = [set[str](), set[str](), set[str]()]
        for action, where in self.made:
            number = 2 if action.startswith("dynamodb:") else 1 if "-deadletter" in where else 0
            places[number].add(action)
        return places


def produce(broker: AWSBroker) -> None:
    """What a program does that enqueues."""
    broker.enqueue([job("a"), job("soon", delay_s=60), job("later", delay_s=DAY), job("moved", delay_s=DAY)])
    broker.enqueue([call("k", "x"), call("k", "y", delay_s=DAY)])
    assert broker.status("q", "later") == "delayed"
    assert broker.cancel("q", "later")
    assert broker.reschedule("q", "moved", delay_s=2 * DAY)
    assert broker.cancel("q", "k", "y")
    with pytest.raises(BrokerError):
        broker.cancel("q", "a")
    if broker.account.settings.records:
        assert (broker.status("q", "a"), broker.status("q", "later")) == ("queued", "cancelled")
    else:
        with pytest.raises(BrokerError):
            broker.status("q", "a")


def work(broker: AWSBroker) -> None:
    """What a worker does."""
    hand = ScriptedWorker(broker)
    broker.enqueue([job(key) for key in ("done", "retried", "buried", "postponed", "held")])
    broker.enqueue([call("k", "x"), call("k", "y")])
    claims = {claim.key: claim for _ in range(3) for claim in hand.claim(limit=10)}
    broker.renew("worker-1", [], 0)
    hand.settle(
        done(claims["done"]),
        failed(claims["retried"], "no", 5, 2 * DAY),
        buried(claims["buried"], "no"),
        postponed(claims["postponed"], 5.0),
        failed(claims["k"], "no", 5, 1.0),
    )
    broker.enqueue([call("late", "z", perform_at=time.time() + 0.01)])
    for duty in broker.health.duties(["q"]):
        duty.round()
    broker.inspect.stats()
    broker.inspect.workers()
    broker.leave("worker-1")


def operate(broker: AWSBroker) -> None:
    """What the command line does."""
    broker.inspect.stats()
    broker.inspect.workers()
    broker.inspect.listing("q", "delayed")
    broker.inspect.listing("q", "dead")
    broker.inspect.find("q", "dead")
    assert broker.operate.pause("q")
    assert broker.operate.resume("q")
    assert broker.operate.run_now("q", ["run"]) == 1
    assert broker.cancel("q", "cancelled")
    assert broker.reschedule("q", "moved", delay_s=3 * DAY)
    assert broker.operate.bury_failed("q", ["failed"]) == 1
    assert broker.operate.revive("q", ["dead"]) == 1
    assert broker.operate.delete_dead("q", ["failed"]) == 1


def prepare(broker: AWSBroker) -> None:
    """Something for an operator to act on."""
    hand = ScriptedWorker(broker, "w-0")
    broker.enqueue([job("dead"), job("failed")])
    claims = {claim.key: claim for claim in hand.claim(limit=10)}
    hand.settle(buried(claims["dead"], "no"), failed(claims["failed"], "no", 5, DAY))
    broker.enqueue([job(key, delay_s=DAY) for key in ("run", "cancelled", "moved")])


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("role", ROLES)
def test_the_policy_is_what_the_code_calls(
    fake: Place, broker: AWSBroker, role: Role, records: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if role == "operator":
        prepare(broker)
    with opened(fake, records=records) as other:
        calls = Calls(other, monkeypatch)
        other.declare("q", 1)
        {"producer": produce, "worker": work, "operator": operate}[role](other)
        assert calls.by_place() == [
            set(getattr(kind.actions, role)) for kind in (Queue, DeadLetterQueue, TableResource)
        ]


SOLD = Subscription(TOPIC, QUEUE)


def publish_and_look(broker: AWSBroker) -> None:
    """What a worker does about events: its listener is subscribed, as it sees, and its jobs publish."""
    assert not broker.events.subscribe(Subscription(TOPIC, QUEUE, GERMAN))
    broker.enqueue([NewJob(queue=TOPIC, key="e", body="1", event=EventCopy("e", TOPIC, to_topic=True))])


def subscribe(broker: AWSBroker) -> None:
    """What an operator does about events."""
    assert broker.events.subscriptions() == [Subscription(TOPIC, QUEUE, GERMAN)]
    assert broker.events.subscribe(SOLD)
    assert broker.events.unsubscribe(TOPIC, QUEUE)
    assert broker.events.subscribe(SOLD)


@pytest.mark.parametrize("role", ["worker", "operator"])
def test_the_policy_for_events_is_what_the_code_calls(fake: Place, role: Role, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(fake, table=None) as broker:
        create(broker, shop(broker, GERMAN))
    if role == "operator":
        fake.sqs_client.set_queue_attributes(QueueUrl=fake.queue_url(QUEUE), Attributes={"Policy": ""})
    with opened(fake, table=None) as other:
        calls = Calls(other, monkeypatch)
        {"worker": publish_and_look, "operator": subscribe}[role](other)
    kind = ListenerSubscription
    topics, queues, subscriptions, publishes = (
        set(getattr(actions, role)) for actions in (kind.topic_actions, kind.queue_actions, kind.actions, Topic.actions)
    )
    made = {action for action, _ in calls.made}
    assert {action for action in made if action.startswith("sns:")} == topics | subscriptions | publishes
    assert made - {"sqs:GetQueueUrl", "sqs:GetQueueAttributes"} == topics | subscriptions | queues | publishes


def test_a_policy_names_the_very_topics(fake: Place) -> None:
    with opened(fake, prefix="x-") as broker:
        needs, place = needs_of(shop(broker)), Somewhere(REGION, ACCOUNT)
        made = {role: policy(role, broker.account, needs, place, ["eventboss-shop-*"]) for role in ROLES}
        assert "sns:" not in str(policy("producer", broker.account, needs, place))
    statements = {role: {each["Sid"]: each for each in made[role]["Statement"]} for role in made}
    heard, told = (f"arn:aws:sns:{REGION}:{ACCOUNT}:x-{name}" for name in (TOPIC, "eventboss-shop-*"))
    assert statements["worker"]["LanewayListeners"]["Resource"] == [heard]
    assert statements["worker"]["LanewayPublishes"]["Resource"] == [told]
    assert statements["producer"]["LanewayPublishes"] == statements["worker"]["LanewayPublishes"]
    assert "LanewayPublishes" not in statements["operator"]
    assert statements["operator"]["LanewayListenersQueues"] == {
        "Sid": "LanewayListenersQueues",
        "Effect": "Allow",
        "Action": ["sqs:SetQueueAttributes"],
        "Resource": [f"arn:aws:sqs:{REGION}:{ACCOUNT}:x-{QUEUE}"],
    }
    for role in ("worker", "operator"):  # IAM has no names for subscriptions
        assert statements[role]["LanewaySubscriptions"]["Resource"] == ["*"]
    assert not any("sns:Subscribe" in str(statements[role]) for role in ("worker", "producer"))


def test_a_policy_names_the_very_queues_and_tables(fake: Place) -> None:
    needs = {"default": QueueRequirement("default"), "mail": QueueRequirement("mail")}
    with opened(fake, default="shop", prefix="x-") as broker:
        found = policy("worker", broker.account, needs, Somewhere("eu-central-1", ACCOUNT))
    queues, letters, tables = found["Statement"]
    start = f"arn:aws:sqs:eu-central-1:{ACCOUNT}:"
    assert queues["Resource"] == [start + name for name in ("shop", "shop.fifo", "x-mail", "x-mail.fifo")]
    assert letters["Resource"][1] == f"{start}shop-deadletter.fifo"
    table = f"arn:aws:dynamodb:eu-central-1:{ACCOUNT}:table/waiter"
    assert tables["Resource"] == [table, f"{table}/index/scheduler-perform_at-index"]
    for statement in found["Statement"]:
        assert statement["Effect"] == "Allow"
        assert all(re.fullmatch(r"(sqs|dynamodb):[A-Za-z]+", action) for action in statement["Action"])
        assert not any("*" in resource for resource in statement["Resource"])


def test_a_listener_has_no_fifo_queue(fake: Place) -> None:
    with opened(fake) as broker:
        app = shop(broker)

        @app.task(queue="mail")
        def send() -> None: ...

        made = policy("worker", broker.account, needs_of(app), Somewhere(REGION, ACCOUNT))["Statement"]
    statements = {each["Sid"]: each for each in made}
    found = [*statements["LanewayQueues"]["Resource"], *statements["LanewayDeadLetters"]["Resource"]]
    names = [each.rpartition(":")[2] for each in found]
    tasks = ["mail", "mail.fifo", "mail-deadletter", "mail-deadletter.fifo"]
    assert sorted(names) == sorted([QUEUE, f"{QUEUE}-deadletter", *tasks])
    sought = statements["LanewayLookedFor"]
    assert sought["Action"] == ["sqs:GetQueueUrl"], "that there is none is found out by looking"
    assert sought["Resource"] == [f"arn:aws:sqs:{REGION}:{ACCOUNT}:{QUEUE}.fifo"]


def test_queues_that_exist_say_where_they_are(fake: Place) -> None:
    fake.create_queue(
        "q", RedrivePolicy=f'{{"deadLetterTargetArn":"{fake.arn(fake.create_queue("graves"))}","maxReceiveCount":9}}'
    )
    with opened(fake, region=None) as broker:
        place = locate(broker.account, NEEDS)
        assert (place.region, place.account) == (REGION, ACCOUNT)
        made = policy("worker", broker.account, NEEDS, place)
    assert made["Statement"][1]["Resource"][0] == f"arn:aws:sqs:{REGION}:{ACCOUNT}:graves"


def test_without_an_account_it_is_asked_for(fake: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(fake) as broker:
        monkeypatch.setattr(broker.account.clients, "sqs", _away)
        assert locate(broker.account, NEEDS) == Somewhere(REGION, ACCOUNT)
        monkeypatch.setattr(broker.account.clients, "sts", _away)
        with pytest.raises(ConfigError, match="--account"):
            locate(broker.account, NEEDS)
        assert locate(broker.account, NEEDS, ACCOUNT).account == ACCOUNT


def _away(operation: str, **params: Any) -> dict[str, Any]:
    raise BrokerRefusedError("Nobody may look.")


def test_an_outage_is_no_answer(fake: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(*args: object) -> dict[str, str]:
        raise BrokerAwayError("SQS is away.")

    with ready(fake) as broker:
        monkeypatch.setattr(broker.account.queues, "attributes", lose)
        with pytest.raises(BrokerAwayError):
            locate(broker.account, NEEDS)


@pytest.mark.parametrize(("region", "start"), [("cn-north-1", "arn:aws-cn:"), ("us-gov-west-1", "arn:aws-us-gov:")])
def test_other_parts_of_aws_have_other_arns(region: str, start: str) -> None:
    assert Somewhere(region, ACCOUNT).arn("sqs", "q") == f"{start}sqs:{region}:{ACCOUNT}:q"
