"""Handle: the status of a job, and cancelling and rescheduling it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from laneway import BrokerAwayError, BrokerRefusedError, EnqueueError, Handle, Laneway
from laneway.broker import Turn
from laneway.brokers.sqlite import MemoryBroker
from laneway.clock import ManualClock
from laneway.jobs.data import WorkerView
from laneway.jobs.settlement import buried, done

pytestmark = pytest.mark.unit


@pytest.fixture
def app():
    return Laneway(broker=MemoryBroker(clock=ManualClock(1_000.0)))


@pytest.fixture
def noop(app):
    @app.task
    def noop(): ...

    return noop


def claim(app):
    view = WorkerView(id="w", host="h", pid=1, queues=["default"], concurrency=1, lease_s=30, started_at=0, seen_at=0)
    app.broker.join(view)
    return app.broker.turn(Turn("w", "default", 1, (), 1)).claims[0]


def test_a_job_is_delayed_then_queued(app, noop):
    handle = noop.using(delay=5).enqueue()
    assert handle.status() == "delayed"
    app.broker._clock.advance(5)
    assert handle.status() == "queued"


def test_what_is_running_is_neither_cancelled_nor_moved(app, noop):
    handle = noop.enqueue()
    claim(app)
    assert handle.status() == "running"
    assert not handle.cancel()
    assert not handle.reschedule(delay=5)


@pytest.mark.parametrize(("end", "status"), [(done, "gone"), (lambda held: buried(held, "no"), "dead")])
def test_what_is_over_is_neither_cancelled_nor_moved(app, noop, end, status):
    handle = noop.enqueue()
    app.broker.turn(Turn("w", "default", 2, [end(claim(app))], 0))
    assert handle.status() == status
    assert not handle.cancel()
    assert not handle.reschedule(perform_at=5)


def test_what_is_queued_is_cancelled_once(noop, stored):
    handle = noop.using(delay=5).enqueue()
    assert handle.cancel()
    assert handle.status() == "cancelled"
    assert not handle.cancel()
    assert stored() == []


def test_what_is_queued_is_moved(noop, stored):
    handle = noop.using(delay=5).enqueue()
    assert handle.reschedule(delay=60)
    assert stored()[0].perform_at == 1_060.0
    assert handle.reschedule(perform_at=datetime(1970, 1, 1, tzinfo=UTC))
    assert stored()[0].perform_at == 0.0
    assert handle.status() == "queued"


def test_moving_needs_a_time(noop):
    with pytest.raises(EnqueueError, match=r"reschedule needs a delay or a perform_at\."):
        noop.enqueue().reschedule()


def test_a_job_that_was_never_stored_is_gone_even_if_its_queue_never_was(app):
    handle = Handle(app.broker, "nowhere", "x")
    assert handle.status() == "gone"
    assert not handle.cancel()
    assert not handle.reschedule(delay=5)


@pytest.mark.parametrize("error", [BrokerRefusedError("no"), BrokerAwayError("away")])
def test_an_error_of_the_broker_is_not_taken_for_an_answer(app, noop, monkeypatch, error):
    def fail(*args):
        raise error

    handle = noop.enqueue()
    monkeypatch.setattr(app.broker, "status", fail)
    with pytest.raises(type(error)):
        handle.status()
