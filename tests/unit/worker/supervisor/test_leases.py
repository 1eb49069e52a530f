"""When a supervisor considers itself cut off from the broker."""

from __future__ import annotations

import pytest

from laneway import Laneway
from laneway.broker import Capabilities
from laneway.brokers.redis import RedisBroker
from laneway.brokers.sqlite import MemoryBroker, SQLiteBroker
from laneway.clock import ManualClock
from laneway.testing.faulty_broker import FaultyBroker
from laneway.worker.outage import Outage
from laneway.worker.supervisor.leases import ChildLeases

pytestmark = pytest.mark.unit

LEASE_S = 12.0


def test_it_asks_in_vain_only_when_it_has_asked_for_a_while():
    clock, broker = ManualClock(), FaultyBroker(MemoryBroker())
    app = Laneway(broker=broker)
    renewals = ChildLeases(app, clock, LEASE_S, Outage(app.telemetry), lambda: ())
    renewals.round()
    clock.advance(10 * LEASE_S)  # it was stopped
    assert not renewals.in_vain(clock.monotonic()), "it has not even asked again"
    broker.away = True
    renewals.round()
    assert not renewals.in_vain(clock.monotonic())
    clock.advance(LEASE_S / 12)
    assert renewals.in_vain(clock.monotonic())
    renewals.round()
    assert renewals.in_vain(clock.monotonic()), "it counts from the first time"
    broker.away = False
    renewals.round()
    clock.advance(LEASE_S)
    assert not renewals.in_vain(clock.monotonic())


def test_a_broker_is_remote_only_if_it_says_so():
    brokers = (RedisBroker, SQLiteBroker, MemoryBroker)
    assert [broker.capabilities.remote for broker in brokers] == [True, False, False]
    assert not Capabilities(shared=True).remote
