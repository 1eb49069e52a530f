"""Tests of `laneway aws create`: it creates missing resources and only inspects existing ones."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import ClientError

from laneway.brokers.aws.admin.create import create_resources
from laneway.brokers.aws.admin.needs import QueueRequirement
from laneway.brokers.aws.admin.resources.resource import CreateStep, Creation
from tests.support.aws.brokers import opened
from tests.support.aws.endpoints import Place

NEEDS = {
    "default": QueueRequirement("default", plain=["resize"], runs={False: 26}),
    "mail": QueueRequirement("mail", plain=["send"], keyed=["sync"], runs={False: 4, True: 6}),
}
NAMES = [
    *("shop", "shop-deadletter", "shop.fifo", "shop-deadletter.fifo"),
    *("x-mail", "x-mail-deadletter", "x-mail.fifo", "x-mail-deadletter.fifo"),
]


def create(
    place: Place, needs: dict[str, QueueRequirement] = NEEDS, *, dry_run: bool = False, **options: object
) -> list[CreateStep]:
    with opened(place, **{"default": "shop", "prefix": "x-", **options}) as broker:
        return list(create_resources(broker.account, needs, Creation(dry_run=dry_run)))


def levels(steps: list[CreateStep]) -> list[str]:
    return [step.level for step in steps]


def attributes(place: Place, name: str) -> dict[str, str]:
    answer = place.sqs_client.get_queue_attributes(QueueUrl=place.queue_url(name), AttributeNames=["All"])
    found: dict[str, str] = answer["Attributes"]
    return found


def test_all_that_is_missing_is_made(aws: Place) -> None:
    assert levels(create(aws)) == ["made"] * 9
    for name in NAMES:
        found = attributes(aws, name)
        assert found["MessageRetentionPeriod"] == "1209600"
        assert (found.get("FifoQueue") == "true") is name.endswith(".fifo")
        if "deadletter" in name:
            assert "RedrivePolicy" not in found
            continue
        policy = json.loads(found["RedrivePolicy"])
        base, dot, fifo = name.partition(".")
        assert policy["deadLetterTargetArn"] == aws.arn(aws.queue_url(f"{base}-deadletter{dot}{fifo}"))
        assert int(policy["maxReceiveCount"]) == 1_000
    found = aws.dynamodb_client.describe_table(TableName="waiter")["Table"]
    assert found["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    expiry = aws.dynamodb_client.describe_time_to_live(TableName="waiter")["TimeToLiveDescription"]
    assert expiry["TimeToLiveStatus"] in ("ENABLING", "ENABLED")
    assert expiry["AttributeName"] == "expires_at"
    with opened(aws, default="shop", prefix="x-") as broker:  # it is one of ours
        assert broker.account.tables.of("mail") is not None
        assert broker.inspect.queues() == {"default": 1}


def test_making_it_again_changes_nothing(aws: Place) -> None:
    create(aws)
    before = {name: attributes(aws, name) for name in NAMES}
    steps = create(aws)
    assert set(levels(steps)) == {"exists"}
    assert {name: attributes(aws, name) for name in NAMES} == before


def test_a_dry_run_makes_nothing(aws: Place) -> None:
    steps = create(aws, dry_run=True)
    assert levels(steps) == ["missing"] * 9
    for name in NAMES:
        with pytest.raises(ClientError, match=r"NonExistentQueue|QueueDoesNotExist"):
            aws.queue_url(name)
    with pytest.raises(ClientError, match="ResourceNotFound"):
        aws.dynamodb_client.describe_table(TableName="waiter")


def test_each_queue_may_have_a_table_of_its_own(fake: Place) -> None:
    create(fake, table=None, table_suffix="_waiter")
    for name in ("shop_waiter", "x-mail_waiter"):
        assert fake.dynamodb_client.describe_table(TableName=name)["Table"]["TableStatus"] == "ACTIVE"


def test_what_exists_is_told_and_left_alone(aws: Place) -> None:
    aws.create_with_dead_letters("x-mail", max_receives=4, MessageRetentionPeriod=345_600)
    aws.create_queue("x-mail.fifo", MessageRetentionPeriod=1_209_600)
    aws.dynamodb_client.create_table(
        TableName="waiter",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    before = {name: attributes(aws, name) for name in ("x-mail", "x-mail.fifo")}
    steps = create(aws, {"mail": NEEDS["mail"]})
    problems = [step.text for step in steps if step.level == "problem"]
    assert len(problems) == 4
    assert "forgets messages after 4 days" in problems[0]
    assert "after 4 receives, and a job of send may be run 4 times" in problems[1]
    assert "x-mail.fifo has no redrive policy" in problems[2]
    assert "waiter" in problems[3]
    # The dead letters of a queue that names none are found by their name, so they are made.
    assert [step.text for step in steps if step.level == "made"] == [
        "The SQS queue x-mail-deadletter.fifo, for dead letters, was made."
    ]
    assert {name: attributes(aws, name) for name in before} == before


def test_a_redrive_policy_that_names_another_queue_is_kept(fake: Place) -> None:
    policy = {"deadLetterTargetArn": fake.arn(fake.create_queue("graves")), "maxReceiveCount": 3}
    fake.create_queue("x-mail", RedrivePolicy=json.dumps(policy), MessageRetentionPeriod=1_209_600)
    steps = create(fake, {"mail": QueueRequirement("mail", plain=["send"], runs={False: 4})})
    assert [step.text[:46] for step in steps if step.level == "problem"] == [
        "The SQS queue graves forgets messages after 4 ",
        "The SQS queue x-mail moves a message to its de",
    ]
    assert not any("x-mail-deadletter " in step.text or "x-mail-deadletter," in step.text for step in steps)


@pytest.mark.parametrize("fifo", ["", ".fifo"])
def test_dead_letters_that_were_deleted_are_made_again(moto: Place, fifo: str) -> None:
    """On moto, where a name may be taken again at once."""
    url = moto.create_queue(f"graves{fifo}")
    policy = {"deadLetterTargetArn": moto.arn(url), "maxReceiveCount": 1000}
    moto.create_queue(f"x-mail{fifo}", RedrivePolicy=json.dumps(policy), MessageRetentionPeriod=1_209_600)
    moto.sqs_client.delete_queue(QueueUrl=url)
    dry = [step for step in create(moto, {"mail": QueueRequirement("mail")}, dry_run=True) if "graves" in step.text]
    assert levels(dry) == ["missing"]
    made = [step for step in create(moto, {"mail": QueueRequirement("mail")}) if "graves" in step.text]
    assert levels(made) == ["made"]
    assert attributes(moto, f"graves{fifo}")["MessageRetentionPeriod"] == "1209600"
    assert set(levels(create(moto, {"mail": QueueRequirement("mail")}))) == {"exists"}


def test_larger_messages_are_told_to_sqs(fake: Place) -> None:
    create(fake, {"mail": NEEDS["mail"]}, max_body=1_048_576)
    assert attributes(fake, "x-mail")["MaximumMessageSize"] == "1048576"
    steps = create(fake, {"mail": NEEDS["mail"]}, max_body=1_048_576)
    assert set(levels(steps)) == {"exists"}


def test_a_name_that_is_too_long_is_told(fake: Place) -> None:
    name = "q" * 70
    steps = create(fake, {name: QueueRequirement(name, plain=["send"])}, prefix="")
    assert levels(steps).count("problem") == 2
    assert "give the queue" in steps[0].text


def test_a_table_is_waited_for(fake: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    with opened(fake) as broker:
        ask = broker.account.clients.dynamodb
        states = iter(["CREATING", "CREATING", "ACTIVE"])

        def slow(operation: str, **params: object) -> dict[str, object]:
            answer = ask(operation, **params)
            if operation == "describe_table":
                answer["Table"]["TableStatus"] = next(states)
            return answer

        monkeypatch.setattr(broker.account.clients, "dynamodb", slow)
        steps = list(create_resources(broker.account, {"q": QueueRequirement("q")}, Creation(pause=pauses.append)))
    assert steps[-1].level == "made"
    assert len(pauses) == 2
