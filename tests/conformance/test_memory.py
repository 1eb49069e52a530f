"""The broker of `memory:` URLs passes the conformance suite. It is the SQLite broker on a database in memory."""

from __future__ import annotations

import pytest

from laneway.brokers.sqlite import MemoryBroker
from laneway.testing.conformance import BrokerConformance
from laneway.testing.conformance.fixtures import MakeBroker

pytestmark = pytest.mark.conformance


class TestMemoryBroker(BrokerConformance):
    capabilities = MemoryBroker.capabilities

    @pytest.fixture
    def make_broker(self) -> MakeBroker:
        return MemoryBroker
