"""Fixtures: Redis clients by URL, a manual clock, and a plain client that bypasses the broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from laneway.brokers.redis.client.server import RedisClient
from laneway.brokers.redis.settings import RedisSettings
from laneway.clock import ManualClock
from laneway.urls import Url
from tests.support.servers import RedisServer

Opener = Callable[[str], RedisClient]


@pytest.fixture
def open_url() -> Iterator[Opener]:
    """What a URL leads to; closed at the end of the test."""
    opened: list[RedisClient] = []

    def open_one(url: str) -> RedisClient:
        opened.append(RedisSettings.from_url(Url.parse(url), environ={}).open())
        return opened[-1]

    yield open_one
    for caller in opened:
        caller.close()


@pytest.fixture
def clock() -> ManualClock:
    """The time by which the broker goes; it stands still."""
    return ManualClock()


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[Any]:
    """Whoever looks at the keys, and may do harm."""
    with redis_server.client() as client:
        yield client
