"""The command line on AWS for an app that publishes and listens: create, check, iam and subscribe."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.acceptance.aws_console import Console
from tests.support.aws.iam_guard import guarded

pytestmark = pytest.mark.acceptance

APP = """
from laneway import Laneway

app = Laneway(name="shop", env="test")

@app.listener("sold", source="stock", filter={"country": ["DE"]})
def ship(order: dict) -> None: ...
"""
PUBLISHER = """
from laneway import Laneway

app = Laneway()
"""
TOPIC = "eventboss-stock-sold-test"
QUEUE = f"shop-{TOPIC}"
ACCOUNT = "123456789012"


@pytest.fixture
def console(aws_console: Console) -> Console:
    aws_console.write(APP)
    return aws_console


@pytest.fixture
def made(console: Console) -> Console:
    """One whose listener has all that it needs."""
    console.ok("aws", "create", console.target)
    return console


def levels(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines()]


def topics(console: Console) -> list[str]:
    return sorted(each["TopicArn"].rpartition(":")[2] for each in console.server.sns_client.list_topics()["Topics"])


def test_what_a_listener_needs_is_made(console: Console) -> None:
    assert levels(console.ok("aws", "create", console.target, "--dry-run")) == ["missing"] * 6
    assert topics(console) == []
    done = console.run("check", console.target)
    assert done.exit_code == 3
    assert f"There is no SQS queue {QUEUE}, which the plain jobs of ship go to" in done.stdout
    steps = console.json("aws", "create", console.target)["steps"]
    assert [step["level"] for step in steps] == ["made"] * 6
    assert levels(console.ok("aws", "create", console.target)) == ["ok"] * 6
    report = console.json("check", console.target)
    assert report["well"], report


def test_the_topics_of_what_is_published_are_made(made: Console) -> None:
    published = ["--publishes", "paid", "--publishes", "returned", "--publishes-generic", "holiday"]
    said = made.ok("aws", "create", made.target, "--no-table", *published)
    assert levels(said) == ["made"] * 3 + ["ok"] * 5
    assert topics(made) == [
        "eventboss-holiday-test",
        "eventboss-shop-paid-test",
        "eventboss-shop-returned-test",
        TOPIC,
    ]
    assert "letters, digits" in made.wrong("aws", "create", made.target, "--publishes", "*")


def test_an_app_that_only_publishes(aws_console: Console) -> None:
    aws_console.write(PUBLISHER)
    assert "--publishes" in aws_console.wrong("aws", "create", aws_console.target)
    assert "Laneway(name=" in aws_console.wrong("aws", "create", aws_console.target, "--publishes", "sold")
    said = aws_console.ok("aws", "create", aws_console.target, "--publishes-generic", "sold")
    assert said == "made     The SNS topic eventboss-sold, for what the app publishes, was made.\n"
    [allowed] = json.loads(aws_console.ok("aws", "iam", aws_console.target, "--publishes-generic", "sold"))["Statement"]
    assert allowed["Resource"] == [f"arn:aws:sns:us-east-1:{ACCOUNT}:eventboss-sold"]


def test_another_filter_ends_with_3_and_is_left_alone(made: Console) -> None:
    [subscription] = made.server.sns_client.list_subscriptions()["Subscriptions"]
    made.server.sns_client.set_subscription_attributes(
        SubscriptionArn=subscription["SubscriptionArn"], AttributeName="FilterPolicy", AttributeValue="{}"
    )
    done = made.run("aws", "create", made.target)
    assert done.exit_code == 3
    assert f"problem  The subscription of {QUEUE} to {TOPIC} has another filter" in done.stdout
    done = made.run("check", made.target)
    assert done.exit_code == 3
    assert "has another filter than the listener ship declares" in done.stdout


def test_the_policy(console: Console) -> None:
    def printed(*options: str) -> dict[str, list[str]]:
        policy = json.loads(console.ok("aws", "iam", console.target, "--account", ACCOUNT, *options))
        return {each["Sid"]: each["Resource"] for each in policy["Statement"]}

    arn = f"arn:aws:sns:us-east-1:{ACCOUNT}:"
    assert printed()["LanewayListeners"] == [arn + TOPIC]
    assert "LanewayPublishes" not in printed()
    assert printed("--publishes", "*")["LanewayPublishes"] == [f"{arn}eventboss-shop-*-test"]
    named = printed("--role", "producer", "--publishes", "paid", "--publishes-generic", "holiday")
    assert named["LanewayPublishes"] == [f"{arn}eventboss-shop-paid-test", f"{arn}eventboss-holiday-test"]
    assert "LanewaySubscriptions" not in named


@pytest.fixture
def allowed(made: Console, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have all that follows be done by somebody who may do what is printed for a role, and no more."""

    def allow(role: str) -> None:
        policy = json.loads(made.ok("aws", "iam", made.target, "--role", role))
        monkeypatch.setattr(
            "laneway.brokers.aws.account.Clients", lambda settings: guarded(made.server, settings, policy)
        )

    return allow


def test_what_a_worker_is_allowed_suffices_for_the_check(made: Console, allowed: Callable[[str], None]) -> None:
    allowed("worker")
    report = made.json("check", made.target)
    assert report["well"], report


def test_what_an_operator_is_allowed_suffices_to_subscribe(made: Console, allowed: Callable[[str], None]) -> None:
    allowed("operator")
    [row] = made.json("subscriptions", made.target)["subscriptions"]
    assert row == {"topic": TOPIC, "queue": QUEUE, "filter": {"country": ["DE"]}, "listener": "ship"}
    assert levels(made.ok("subscribe", made.target)) == ["ok"]
    made.ok("unsubscribe", made.target, "sold", "--source", "stock")
    assert made.json("subscriptions")["subscriptions"] == []
    queue = made.server.queue_url(QUEUE)
    made.server.sqs_client.set_queue_attributes(QueueUrl=queue, Attributes={"Policy": ""})
    assert levels(made.ok("subscribe", made.target, "--dry-run")) == ["missing"]
    assert levels(made.ok("subscribe", made.target)) == ["made"]
    assert levels(made.ok("subscribe", made.target)) == ["ok"]


def test_what_cannot_be_subscribed_is_told(console: Console) -> None:
    done = console.run("subscribe", console.target)
    assert done.exit_code == 3
    assert f"There is no SQS queue {QUEUE}" in done.stdout
    assert "`laneway aws create`" in done.stdout


def test_a_worker_may_not_subscribe(made: Console, allowed: Callable[[str], None]) -> None:
    made.ok("unsubscribe", made.target, "sold", "--source", "stock")
    allowed("worker")
    done = made.run("subscribe", made.target)
    assert done.exit_code == 3
    assert "these credentials may not change that; have somebody who may run `laneway aws create`" in done.stdout
    report = made.run("check", made.target)
    assert report.exit_code == 3
    assert f"The SQS queue {QUEUE} is not subscribed to the SNS topic {TOPIC}" in report.stdout


def test_what_is_missing_is_said_once(made: Console) -> None:
    made.ok("unsubscribe", made.target, "sold", "--source", "stock")
    done = made.run("check", made.target)
    assert done.exit_code == 3
    assert done.stdout.count("not subscribed") == 1


@pytest.mark.parametrize("role", ["", "operator"])
def test_a_subscription_that_nobody_hears_is_named(made: Console, allowed: Callable[[str], None], role: str) -> None:
    """Also to somebody who may not look at its queue."""
    made.target = made.target.replace("aws_shop", "aws_other_shop")
    made.write(APP.replace('"sold"', '"paid"'))
    made.ok("aws", "create", made.target)
    if role:
        allowed(role)
    said = made.run("check", made.target).stdout  # for an operator it ends with 3: it may not do what a worker does
    assert f"The queue {QUEUE} is subscribed to {TOPIC}, and" in said
    assert "has no listener for it" in said
