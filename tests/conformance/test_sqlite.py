"""The SQLite broker passes the conformance suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from laneway.brokers.sqlite import SQLiteBroker
from laneway.testing.conformance import BrokerConformance
from laneway.testing.conformance.fixtures import MakeBroker

pytestmark = pytest.mark.conformance


class TestSQLiteBroker(BrokerConformance):
    capabilities = SQLiteBroker.capabilities

    @pytest.fixture
    def make_broker(self, tmp_path: Path) -> MakeBroker:
        return lambda clock: SQLiteBroker(tmp_path / "jobs.db", clock=clock)
