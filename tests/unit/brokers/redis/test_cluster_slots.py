"""Tests that a key's slot is the one that redis-py computes."""

from __future__ import annotations

import pytest
from redis.crc import key_slot

from laneway.brokers.redis.client.cluster import _slot


@pytest.mark.parametrize(
    "key", ["", "a", "ключ", "{laneway:q:0}:meta", "a{b}c", "a{b}{c}", "{}a", "a{}{b}", "{a", "a}b{c}"]
)
def test_the_slot_of_a_key(key: str) -> None:
    assert _slot(key) == _slot(key.encode()) == key_slot(key.encode())
