"""Holds the dict broker to the broker contract, as far as its capabilities reach."""

from __future__ import annotations

import pytest
from dict_broker import DictBroker

from laneway.testing.conformance import BrokerConformance
from laneway.testing.conformance.fixtures import MakeBroker


class TestDictBroker(BrokerConformance):
    capabilities = DictBroker.capabilities

    @pytest.fixture
    def make_broker(self) -> MakeBroker:
        return lambda clock: DictBroker(clock=clock)
