"""Tests of a worker whose queues are missing: it reports each queue once and does not treat it as empty."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from laneway import Laneway
from laneway.brokers.aws.sqs import queues
from laneway.telemetry import BrokerAway, BrokerBack, QueueFound, QueueMissing, SubscriptionFailed
from tests.integration.aws.test_events import provide, shop_on
from tests.support.aws.fake.server import FakeServer
from tests.support.aws.workers import Tally, app_on, running, wait_until


@pytest.fixture(autouse=True)
def _looks_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "LOOK_AGAIN_S", 0.0)


@pytest.fixture
def app(fake: FakeServer) -> Iterator[Laneway]:
    """With tasks for three queues of which there is one."""
    fake.create_queues("there")
    with app_on(fake) as app:
        for queue in ("there", "gone", "lost"):
            app.task(queue=queue, name=queue)(lambda: None)
        yield app


def test_each_is_named_once_and_the_broker_is_not_away(app: Laneway, fake: FakeServer) -> None:
    told: list[Any] = []
    for kind in (QueueMissing, QueueFound, BrokerAway, BrokerBack):
        app.telemetry.subscribe(kind, told.append)
    with running(app):
        wait_until(lambda: len(told) == 2)
        fake.create_queues("gone")
        wait_until(lambda: len(told) == 3)
    assert sorted((event.queue, event.error.split()[5]) for event in told[:2]) == [("gone", "gone"), ("lost", "lost")]
    assert [(type(event), event.queue) for event in told[2:]] == [(QueueFound, "gone")]


def test_that_the_queue_of_a_listener_is_missing_is_said_once(fake: FakeServer) -> None:
    told: list[Any] = []
    with shop_on(fake) as app:
        ran = Tally()

        @app.listener("sold", source="shop", destination="stock")
        def ship(order: int) -> None:
            ran.note(order)

        provide(fake, app)

        @app.listener("sold", source="shop", destination="mailer")
        def mail(order: int) -> None: ...

        for kind in (QueueMissing, SubscriptionFailed, BrokerAway):
            app.telemetry.subscribe(kind, told.append)
        with running(app):
            app.publish("sold", 7)
            ran.wait_for(1)
            wait_until(lambda: told)
    assert [(type(event), event.queue) for event in told] == [(QueueMissing, mail.queue)]


def test_a_missing_queue_is_not_an_empty_one(app: Laneway) -> None:
    with running(app) as worker:
        assert not worker.is_empty()
    with running(app, queues=["there"]) as worker:
        wait_until(worker.is_empty)
