"""Batch: payloads by key in the order of their scores, and the keys that failed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from laneway import Batch, LanewayError, NotInBatchError

pytestmark = pytest.mark.unit


@pytest.fixture
def batch():
    return Batch({"a": [{"v": 1}, {"v": 2}], "b": [{"v": "secret"}]}, {"a": [1.5, 2.0], "b": [-3.0]})


def test_it_is_a_mapping_of_keys_to_payloads(batch):
    assert isinstance(batch, Mapping)
    assert dict(batch) == {"a": [{"v": 1}, {"v": 2}], "b": [{"v": "secret"}]}
    assert list(batch) == ["a", "b"]
    assert len(batch) == 2
    assert list(batch.keys()) == ["a", "b"]
    assert list(batch.values()) == [[{"v": 1}, {"v": 2}], [{"v": "secret"}]]
    assert list(batch.items()) == list(zip(batch.keys(), batch.values(), strict=True))
    assert "a" in batch
    assert batch.get("c") is None
    with pytest.raises(KeyError):
        batch["c"]


def test_scores_stand_beside_the_payloads(batch):
    assert batch.scores("a") == [1.5, 2.0]
    assert batch.scores("b") == [-3.0]


def test_without_scores_payloads_are_numbered():
    assert Batch({"a": ["x", "y", "z"], "b": ["x"]}).scores("a") == [0.0, 1.0, 2.0]


def test_payloads_are_put_in_the_order_of_their_scores():
    batch = Batch({"a": ["late", "early", "as early"]}, {"a": [9, 1, 1]})
    assert batch["a"] == ["early", "as early", "late"]
    assert batch.scores("a") == [1, 1, 9]


@pytest.mark.parametrize(
    ("payloads", "scores", "sentence"),
    [
        ({"a": "xyz"}, None, "A batch has a list of payloads for every key, not str"),
        ({"a": {"v": 1}}, None, "A batch has a list of payloads for every key, not dict"),
        ({"a": [1, 2]}, {"a": [1.0]}, "The key 'a' has 2 payloads and 1 scores; give one for each."),
        ({"a": [1]}, {}, "The key 'a' has 1 payloads and 0 scores"),
    ],
)
def test_what_is_no_batch_is_refused(payloads, scores, sentence):
    with pytest.raises(LanewayError) as caught:
        Batch(payloads, scores)
    assert sentence in str(caught.value)


def test_keys_fail_and_the_last_error_counts(batch):
    error = ValueError("no")
    assert batch.failures == {}
    batch.fail("a", "first")
    batch.fail("b", error)
    batch.fail("a", "second")
    assert batch.failures == {"a": "second", "b": error}


def test_a_key_that_is_not_in_it_cannot_fail(batch):
    with pytest.raises(NotInBatchError) as caught:
        batch.fail("c", "no")
    assert str(caught.value) == "The key 'c' is not in this batch, so it cannot fail; give one of its keys."
    with pytest.raises(KeyError):
        batch.scores("c")
    assert batch.failures == {}


@pytest.mark.parametrize("error", [None, 5, ValueError])
def test_an_error_is_text_or_an_exception(batch, error):
    with pytest.raises(LanewayError, match="An error must be text or an exception, not"):
        batch.fail("a", error)
    assert batch.failures == {}


def test_it_is_shown_without_its_payloads(batch):
    batch.fail("a", "no")
    assert repr(batch) == "<Batch of 2 keys with 3 payloads, 1 failed>"
