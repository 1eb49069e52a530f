"""The in-memory broker is a broker."""

from __future__ import annotations

import pytest

from laneway.brokers.memory import MemoryBroker
from laneway.config import Url, open_broker
from laneway.errors import ConfigError
from laneway.testing.conformance import BrokerConformance
from laneway.testing.conformance.kit import MakeBroker, put

pytestmark = pytest.mark.conformance


class TestMemoryBroker(BrokerConformance):
    @pytest.fixture
    def make_broker(self) -> MakeBroker:
        return MemoryBroker


def test_every_memory_url_is_a_broker_of_its_own() -> None:
    first, second = open_broker("memory:"), open_broker("memory:")
    put(first, "a")
    assert second.queues() == {}


@pytest.mark.parametrize("url", ["memory:?size=3", "memory:name", "memory://"])
def test_a_memory_url_is_nothing_but_memory(url: str) -> None:
    with pytest.raises(ConfigError):
        MemoryBroker.from_url(Url.parse(url))
