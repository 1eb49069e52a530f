"""Compares Laneway's filters with the fake SNS, which was written from AWS's documentation, not from them."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from laneway.events.filters import filter_problem, passes
from tests.support.aws.fake import filters
from tests.support.aws.fake.faults import Refusal

TEXTS = some.sampled_from(["a", "ab", "abc", "B", "b", "5"])
NUMBERS = some.sampled_from([-1, 0, 1, 5, 5.5, 100])
WORDS = some.one_of(
    some.fixed_dictionaries({"prefix": TEXTS}),
    some.fixed_dictionaries({"suffix": TEXTS}),
    some.fixed_dictionaries({"equals-ignore-case": TEXTS}),
    some.fixed_dictionaries({"exists": some.booleans()}),
    some.fixed_dictionaries({"anything-but": some.one_of(TEXTS, NUMBERS)}),
    some.fixed_dictionaries({"anything-but": some.lists(some.one_of(TEXTS, NUMBERS), max_size=3)}),
    some.fixed_dictionaries({"anything-but": some.fixed_dictionaries({"prefix": TEXTS})}),
    some.fixed_dictionaries(
        {"numeric": some.tuples(some.sampled_from(["=", "<", "<=", ">", ">="]), NUMBERS).map(list)}
    ),
    some.fixed_dictionaries(
        {"numeric": some.tuples(some.just(">"), NUMBERS, some.sampled_from(["<", "<="]), NUMBERS).map(list)}
    ),
)
POLICIES = some.dictionaries(
    some.sampled_from(["x", "y"]), some.lists(some.one_of(TEXTS, NUMBERS, WORDS), max_size=3), min_size=1
)
ATTRIBUTES = some.dictionaries(
    some.sampled_from(["x", "y", "z"]), some.one_of(TEXTS, NUMBERS, some.lists(TEXTS, min_size=1, max_size=3))
)


def as_sent(value: Any) -> dict[str, str]:
    if isinstance(value, list):
        return {"DataType": "String.Array", "StringValue": json.dumps(value)}
    if isinstance(value, str):
        return {"DataType": "String", "StringValue": value}
    return {"DataType": "Number", "StringValue": str(Decimal(str(value)))}


@given(POLICIES, ATTRIBUTES)
def test_ours_and_theirs_agree(policy: dict[str, list[Any]], attributes: dict[str, Any]) -> None:
    try:
        theirs = filters.read(json.dumps(policy), filters.BY_ATTRIBUTES, "")
    except Refusal:
        assert filter_problem(policy) is not None
        return
    if filter_problem(policy) is None:
        sent = {name: as_sent(value) for name, value in attributes.items()}
        assert passes(policy, attributes) is filters.passes_attributes(theirs, sent)
