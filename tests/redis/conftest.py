"""Opens servers by URL, and closes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from laneway.brokers.redis.calling import Caller
from laneway.brokers.redis.urls import Settings
from laneway.config import Url

Opener = Callable[[str], Caller]


@pytest.fixture
def open_url() -> Iterator[Opener]:
    """What a URL leads to; closed at the end of the test."""
    opened: list[Caller] = []

    def open_one(url: str) -> Caller:
        opened.append(Settings.from_url(Url.parse(url), environ={}).open())
        return opened[-1]

    yield open_one
    for caller in opened:
        caller.close()
