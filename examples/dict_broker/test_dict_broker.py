"""Holds the dict broker to the broker contract, as far as its capabilities reach."""

from __future__ import annotations

import pytest
from dict_broker import DictBroker

from laneway.testing.conformance import BrokerConformance


class TestDictBroker(BrokerConformance):
    capabilities = DictBroker.capabilities

    @pytest.fixture
    def make_broker(self) -> type[DictBroker]:
        return DictBroker
