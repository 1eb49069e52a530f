"""When a supervisor considers itself cut off from the broker."""

from __future__ import annotations

import pytest

from laneway import Laneway
from laneway.brokers.memory import MemoryBroker
from laneway.brokers.redis import RedisBroker
from laneway.brokers.sqlite import SQLiteBroker
from laneway.capabilities import is_remote
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
    class Strangers:
        max_body, shared = 1_000, True

    assert [is_remote(each) for each in (RedisBroker, SQLiteBroker, MemoryBroker, Strangers)] == [True, *[False] * 3]
