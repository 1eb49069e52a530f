"""Tests of the row client: how values are stored, and how expressions are composed."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.conditions import Attr

from laneway.brokers.aws.dynamodb.client import Expressions, RowClient
from tests.support.aws.brokers import make_account
from tests.support.aws.endpoints import Place

pytestmark = pytest.mark.unit

KEY = ("a", "b")


@pytest.fixture
def rows(fake: Place) -> RowClient:
    fake.create_table("t")
    return RowClient(make_account(fake), "t")


def row(**values: Any) -> dict[str, Any]:
    return {"scheduler": KEY[0], "job_id": KEY[1], **values}


def written_out(params: dict[str, Any], expression: str) -> str:
    """An expression with the names and values instead of their placeholders."""
    names, values = params["ExpressionAttributeNames"], params.get("ExpressionAttributeValues", {})
    text = re.sub(r"#\w+", lambda found: names[found[0]], params[expression])
    return re.sub(r":\w+", lambda found: "/".join(map(str, *[values[found[0]].values()])), text)


def test_an_update_has_a_placeholder_for_every_name_and_value() -> None:
    update = Expressions().set(**{"status": "dead", "a.b.status": 1.5}).add(count=2).remove("claim", "a.name")
    params = update.when(Attr("status").not_exists() | (Attr("a.b").eq("x") & Attr("at").lte(2.5))).params()
    assert (
        written_out(params, "UpdateExpression")
        == "SET status = dead, a.b.status = 1.5 ADD count 2 REMOVE claim, a.name"
    )
    assert written_out(params, "ConditionExpression") == "(attribute_not_exists(status) OR (a.b = x AND at <= 2.5))"
    texts = params["UpdateExpression"] + params["ConditionExpression"]
    assert set(re.findall(r"#\w+", texts)) == set(params["ExpressionAttributeNames"])
    assert set(re.findall(r":\w+", texts)) == set(params["ExpressionAttributeValues"])


def test_a_condition_without_values_has_none() -> None:
    assert "ExpressionAttributeValues" not in Expressions().remove("claim").when(Attr("claim").exists()).params()


@pytest.mark.parametrize(
    "value",
    [
        "",
        "ü",
        b"\0\xff",
        True,
        False,
        None,
        7,
        0.1,
        -1.5,
        1_700_000_000.123456,
        {"a": {"b": b"\1"}},
        ["a", ["b", None]],
    ],
)
def test_a_value_comes_out_as_it_went_in(rows: RowClient, value: Any) -> None:
    rows.put(row(value=value))
    found = rows.get(KEY)
    assert found is not None
    assert (float(found["value"]) if isinstance(value, float) else found["value"]) == value


@pytest.mark.parametrize(("value", "stored"), [(1e300, "9e125"), (-1e300, "-9e125"), (1e-300, "0"), (-1e-300, "0")])
def test_a_float_that_dynamodb_cannot_store_becomes_the_nearest_number(
    rows: RowClient, value: float, stored: str
) -> None:
    rows.put(row(value=value))
    assert rows.get(KEY) == row(value=Decimal(stored))
    assert rows.update(KEY, Expressions().set(seen=True).when(Attr("value").eq(Decimal(stored))))


def test_a_write_whose_condition_does_not_hold_changes_nothing(rows: RowClient) -> None:
    assert rows.update(KEY, Expressions().add(count=2, died={"x"}).set(size=1))
    assert not rows.update(KEY, Expressions().set(size=3).when(Attr("size").gt(1)))
    assert not rows.delete(KEY, Attr("size").eq(3))
    assert rows.get(KEY) == row(count=2, died=["x"], size=1)
    assert rows.delete(KEY, Attr("size").eq(1))
    assert rows.delete(KEY)
    assert rows.get(KEY) is None
