"""Tests that DynamoDB behaves the same on moto's server and on the fake.

Requests that moto accepts and AWS rejects are in test_fake_dynamodb.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.integration.aws.boto_calls import KEY, code, fill, item, jobs
from tests.support.aws.servers import INDEX, Place


def test_the_index_is_in_the_order_of_time(aws: Place) -> None:
    db = fill(aws, item("a", 30), item("b", 4), item("c", 20.5), item("d"), item("e", 1, "other"))
    asked = {"TableName": "t", "IndexName": INDEX, "KeyConditionExpression": "scheduler = :s AND perform_at <= :t"}
    values = {":s": {"S": "s"}, ":t": {"N": "20.5"}}
    assert jobs(db.query(**asked, ExpressionAttributeValues=values)["Items"]) == ["b", "c"]
    backwards = db.query(**asked, ExpressionAttributeValues=values, ScanIndexForward=False)["Items"]
    assert jobs(backwards) == ["c", "b"]
    assert db.query(**asked, ExpressionAttributeValues=values, Select="COUNT")["Count"] == 2
    between = asked | {"KeyConditionExpression": "scheduler = :s AND perform_at BETWEEN :a AND :b"}
    values = {":s": {"S": "s"}, ":a": {"N": "5"}, ":b": {"N": "30"}}
    assert jobs(db.query(**between, ExpressionAttributeValues=values)["Items"]) == ["c", "a"]


def test_pages_follow_each_other(aws: Place) -> None:
    db = fill(aws, *(item(str(number), number % 3) for number in range(7)), item("x", 0, "other"))
    asked = {"TableName": "t", "IndexName": INDEX, "KeyConditionExpression": "scheduler = :s"}
    asked |= {"ExpressionAttributeValues": {":s": {"S": "s"}}, "Limit": 3}
    seen: list[str] = []
    pages = 0
    while True:
        page = db.query(**asked)
        seen += jobs(page["Items"])
        pages += 1
        if "LastEvaluatedKey" not in page:
            break
        assert page["LastEvaluatedKey"].keys() == {"scheduler", "job_id", "perform_at"}
        asked["ExclusiveStartKey"] = page["LastEvaluatedKey"]
    assert seen == ["0", "3", "6", "1", "4", "2", "5"]
    assert pages == 3
    assert sorted(jobs(aws.items("t"))) == ["0", "1", "2", "3", "4", "5", "6", "x"]


def test_range_keys_begin_with_and_filters_come_after_the_limit(aws: Place) -> None:
    db = fill(aws, item("queue:a", q={"S": "1"}), item("queue:b", q={"S": "2"}), item("other"))
    asked = {"TableName": "t", "KeyConditionExpression": "scheduler = :s AND begins_with(job_id, :p)"}
    values = {":s": {"S": "s"}, ":p": {"S": "queue:"}}
    assert jobs(db.query(**asked, ExpressionAttributeValues=values)["Items"]) == ["queue:a", "queue:b"]
    filtered = {"FilterExpression": "q = :q", "Limit": 1, "ExpressionAttributeValues": values | {":q": {"S": "2"}}}
    page = db.query(**asked, **filtered)
    assert (page["Items"], page["ScannedCount"]) == ([], 1)
    assert page["LastEvaluatedKey"]["job_id"] == {"S": "queue:a"}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("attribute_exists(job_id)", True),
        ("attribute_not_exists(claim)", False),
        ("attribute_not_exists(#missing) AND n = :five", True),
        ("n < :five", False),
        ("n <> :five OR claim = :me", True),
        ("NOT (n > :five OR n < :five)", True),
        ("attribute_exists(job_id) AND n = :five AND (attribute_not_exists(claim) OR n < :five OR claim = :me)", True),
        ("#missing <> :five", True),
        ("#missing < :five", False),
        ("claim = :five", False),
        ("n BETWEEN :five AND :five", True),
        ("n IN (:five, :me)", True),
        ("begins_with(claim, :me)", True),
        ("size(claim) = :two", True),
        ("contains(claim, :me)", True),
    ],
)
def test_conditions(aws: Place, condition: str, holds: bool) -> None:
    db = fill(aws, item("j", n={"N": "5.0"}, claim={"S": "me"}))
    values = {":five": {"N": "5"}, ":me": {"S": "me"}, ":two": {"N": "2"}}
    asked: dict[str, Any] = {
        "ConditionExpression": condition,
        "ExpressionAttributeValues": {name: value for name, value in values.items() if name in condition},
    }
    if "#" in condition:
        asked["ExpressionAttributeNames"] = {"#missing": "missing"}
    asked = {name: value for name, value in asked.items() if value}
    if holds:
        db.delete_item(TableName="t", Key=KEY, **asked)
        assert "Item" not in db.get_item(TableName="t", Key=KEY)
    else:
        with pytest.raises(db.exceptions.ConditionalCheckFailedException):
            db.delete_item(TableName="t", Key=KEY, **asked)
        assert "Item" in db.get_item(TableName="t", Key=KEY)


def test_updates_set_add_and_remove(aws: Place) -> None:
    db = fill(aws)
    update = "SET a = if_not_exists(a, :one), #n = :name REMOVE gone ADD hits :one"
    asked = {"ExpressionAttributeNames": {"#n": "name"}, "ReturnValues": "ALL_NEW"}
    values = {":one": {"N": "1"}, ":name": {"S": "x"}}
    for hits in ("1", "2"):
        answer = db.update_item(
            TableName="t", Key=KEY, UpdateExpression=update, ExpressionAttributeValues=values, **asked
        )
        expected = {"a": {"N": "1"}, "name": {"S": "x"}, "hits": {"N": hits}}
        assert answer["Attributes"] == {**KEY, **expected}
    sums = {"UpdateExpression": "SET hits = hits - :one, b = :one + :one", "ReturnValues": "UPDATED_NEW"}
    answer = db.update_item(TableName="t", Key=KEY, ExpressionAttributeValues={":one": {"N": "1"}}, **sums)
    assert answer["Attributes"] == {"hits": {"N": "1"}, "b": {"N": "2"}}
    db.update_item(
        TableName="t", Key=KEY, UpdateExpression="REMOVE a, b, hits, #n", ExpressionAttributeNames={"#n": "name"}
    )
    assert db.get_item(TableName="t", Key=KEY)["Item"] == KEY


def test_a_moved_item_is_elsewhere_in_the_index(aws: Place) -> None:
    db = fill(aws, item("j", 10), item("k", 20))
    values = {":t": {"N": "30"}}
    db.update_item(TableName="t", Key=KEY, UpdateExpression="SET perform_at = :t", ExpressionAttributeValues=values)
    asked = {"TableName": "t", "IndexName": INDEX, "KeyConditionExpression": "scheduler = :s"}
    assert jobs(db.query(**asked, ExpressionAttributeValues={":s": {"S": "s"}})["Items"]) == ["k", "j"]
    db.update_item(TableName="t", Key=KEY, UpdateExpression="REMOVE perform_at")
    assert jobs(db.query(**asked, ExpressionAttributeValues={":s": {"S": "s"}})["Items"]) == ["k"]


def test_batches_write_and_read(aws: Place) -> None:
    db = fill(aws, item("gone"))
    puts = [{"PutRequest": {"Item": item(str(number))}} for number in range(24)]
    request = [*puts, {"DeleteRequest": {"Key": item("gone")}}]
    assert db.batch_write_item(RequestItems={"t": request})["UnprocessedItems"] == {}
    keys = [item("gone"), item("3"), item("4")]
    assert sorted(jobs(db.batch_get_item(RequestItems={"t": {"Keys": keys}})["Responses"]["t"])) == ["3", "4"]
    with pytest.raises(ClientError) as error:
        db.batch_write_item(RequestItems={"t": [*puts, *puts]})
    assert code(error) == "ValidationException"


def test_tables_come_and_go(aws: Place) -> None:
    db = fill(aws)
    assert db.describe_table(TableName="t")["Table"]["TableStatus"] == "ACTIVE"
    wanted = {"Enabled": True, "AttributeName": "expires_at"}
    db.update_time_to_live(TableName="t", TimeToLiveSpecification=wanted)
    told = db.describe_time_to_live(TableName="t")["TimeToLiveDescription"]
    assert told == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}
    with pytest.raises(db.exceptions.ResourceInUseException):
        aws.create_table("t")
    db.delete_table(TableName="t")
    with pytest.raises(db.exceptions.ResourceNotFoundException):
        db.get_item(TableName="t", Key=KEY)
