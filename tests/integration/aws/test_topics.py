"""Tests of SNS topics: their names and ARNs."""

from __future__ import annotations

from typing import Any

import pytest

from laneway.brokers.aws.sns.topics import Topics
from tests.support.aws.brokers import make_account
from tests.support.aws.endpoints import ACCOUNT, REGION, Place


def topics(place: Place, **options: Any) -> Topics:
    return make_account(place, **options).topics


def test_an_arn_is_that_of_the_topic_that_is_made(aws: Place) -> None:
    found = topics(aws, prefix="x-")
    assert not found.exists("eventboss-shop-sold")
    made = found.create("eventboss-shop-sold")
    assert made == found.arn("eventboss-shop-sold")
    assert made.endswith(":x-eventboss-shop-sold")
    assert found.exists("eventboss-shop-sold")
    assert found.create("eventboss-shop-sold") == made


def test_the_account_is_asked_for_once_unless_it_is_known(moto: Place) -> None:
    account = make_account(moto)
    found = account.topics
    assert found.arn("t") == f"arn:aws:sns:{REGION}:{ACCOUNT}:t"
    assert found.arn("u") == f"arn:aws:sns:{REGION}:{ACCOUNT}:u"
    assert account.clients.requests == {"sts.GetCallerIdentity": 1}
    other = topics(moto, account="999999999999")
    assert other.arn("t") == f"arn:aws:sns:{REGION}:999999999999:t"


@pytest.mark.parametrize(("region", "start"), [("cn-north-1", "arn:aws-cn:"), ("us-gov-west-1", "arn:aws-us-gov:")])
def test_other_parts_of_aws_have_other_arns(moto: Place, region: str, start: str) -> None:
    found = topics(moto, region=region, account=ACCOUNT)
    assert found.arn("t") == f"{start}sns:{region}:{ACCOUNT}:t"


def test_without_a_region_it_is_that_of_the_client(moto: Place) -> None:
    assert topics(moto, region=None, account=ACCOUNT).arn("t") == f"arn:aws:sns:{REGION}:{ACCOUNT}:t"
