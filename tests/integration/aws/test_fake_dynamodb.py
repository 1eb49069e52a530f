"""Tests that the fake's DynamoDB is as strict as AWS where moto is not."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.integration.aws.boto_calls import KEY, code, fill, item, jobs
from tests.support.aws.servers import INDEX, FakeServer


@pytest.mark.parametrize(
    "asked",
    [
        {"ConditionExpression": "name = :v", "ExpressionAttributeValues": {":v": {"S": "1"}}},
        {"ConditionExpression": "claim = :v"},
        {"ConditionExpression": "#c = :v", "ExpressionAttributeValues": {":v": {"S": "1"}}},
        {"ConditionExpression": "claim =", "ExpressionAttributeValues": {":v": {"S": "1"}}},
        {
            "ConditionExpression": "claim = :v",
            "ExpressionAttributeValues": {":v": {"S": "1"}, ":unused": {"S": "1"}},
        },
        {
            "ConditionExpression": "attribute_exists(claim)",
            "ExpressionAttributeNames": {"#unused": "claim"},
        },
    ],
    ids=["reserved word", "no value", "no name", "half", "unused value", "unused name"],
)
def test_expressions_that_are_wrong(fake: FakeServer, asked: dict[str, Any]) -> None:
    db = fill(fake)
    with pytest.raises(ClientError) as error:
        db.put_item(TableName="t", Item=item("j"), **asked)
    assert code(error) == "ValidationException"


@pytest.mark.parametrize(
    ("update", "values"),
    [
        ("SET job_id = :v", {":v": {"S": "1"}}),
        ("SET perform_at = :v", {":v": {"S": "soon"}}),
        ("SET n = n + :v", {":v": {"N": "1"}}),
        ("SET a = :v, a = :v", {":v": {"N": "1"}}),
        ("SET a = :v SET b = :v", {":v": {"N": "1"}}),
        ("SET status = :v", {":v": {"N": "1"}}),
        ("ADD a :v", {":v": {"S": "1"}}),
    ],
    ids=["key", "type of an index key", "no such attribute", "twice", "clause twice", "reserved word", "text"],
)
def test_updates_that_are_wrong(fake: FakeServer, update: str, values: dict[str, Any]) -> None:
    db = fill(fake)
    with pytest.raises(ClientError) as error:
        db.update_item(TableName="t", Key=KEY, UpdateExpression=update, ExpressionAttributeValues=values)
    assert code(error) == "ValidationException"
    assert fake.tables["t"].items() == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"scheduler": {"S": "s"}},
        {"scheduler": {"S": "s"}, "job_id": {"S": ""}},
        {"scheduler": {"S": "s"}, "job_id": {"N": "1"}},
        {"scheduler": {"S": "s"}, "job_id": {"S": "j"}, "perform_at": {"S": "1"}},
        {"scheduler": {"S": "s"}, "job_id": {"S": "j"}, "n": {"N": "NaN"}},
        {"scheduler": {"S": "s"}, "job_id": {"S": "j"}, "body": {"S": "x" * 409_601}},
    ],
    ids=["no range key", "empty key", "type of a key", "type of an index key", "no number", "too large"],
)
def test_items_that_are_wrong(fake: FakeServer, wrong: dict[str, Any]) -> None:
    db = fill(fake)
    with pytest.raises(ClientError) as error:
        db.put_item(TableName="t", Item=wrong)
    assert code(error) == "ValidationException"


def test_pages_are_as_short_as_a_test_wants_them(fake: FakeServer) -> None:
    db = fill(fake, *(item(f"{number:02}", number) for number in range(10)))
    fake.page_items = 4
    asked = {"TableName": "t", "IndexName": INDEX, "KeyConditionExpression": "scheduler = :s"}
    asked |= {"ExpressionAttributeValues": {":s": {"S": "s"}}}
    pages = [jobs(page["Items"]) for page in db.get_paginator("query").paginate(**asked)]
    assert [len(page) for page in pages] == [4, 4, 2]
    assert [job for page in pages for job in page] == [f"{number:02}" for number in range(10)]
    assert len(fake.items("t")) == 10
    assert fake.requests["dynamodb.Scan"] == 3


def test_a_page_ends_at_a_megabyte(fake: FakeServer) -> None:
    db = fill(fake, *(item(str(number), body={"S": "x" * 400_000}) for number in range(4)))
    page = db.scan(TableName="t")
    assert len(page["Items"]) == 3
    assert jobs(db.scan(TableName="t", ExclusiveStartKey=page["LastEvaluatedKey"])["Items"]) == ["3"]


def test_a_batch_has_each_key_once(fake: FakeServer) -> None:
    db = fill(fake)
    with pytest.raises(ClientError) as error:
        db.batch_write_item(RequestItems={"t": [{"PutRequest": {"Item": item("j", at)}} for at in (1, 2)]})
    assert code(error) == "ValidationException"


def test_a_condition_that_failed_can_tell_why(fake: FakeServer) -> None:
    db = fill(fake, item("j", 5))
    wanted = {"ConditionExpression": "attribute_not_exists(job_id)", "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
    with pytest.raises(db.exceptions.ConditionalCheckFailedException) as error:
        db.put_item(TableName="t", Item=item("j", 6), **wanted)
    assert error.value.response["Item"]["perform_at"] == {"N": "5"}
