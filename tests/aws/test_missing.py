"""A worker whose queues are missing: it says which, once each, and does not take them for empty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from laneway import Laneway
from laneway.telemetry import BrokerAway
from laneway.worker import outage
from tests.aws.servers import FakeServer
from tests.aws.working import app_on, running, wait_until


@pytest.fixture
def app(fake: FakeServer) -> Iterator[Laneway]:
    """With tasks for three queues of which there is one."""
    fake.create_queues("there")
    with app_on(fake) as app:
        for queue in ("there", "gone", "lost"):
            app.task(queue=queue, name=queue)(lambda: None)
        yield app


def test_each_is_named_once(app: Laneway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage, "QUIET_S", 0.0)
    told: list[str] = []
    app.telemetry.subscribe(BrokerAway, lambda event: told.append(event.error))
    with running(app):
        wait_until(lambda: len(told) == 2)
    assert sorted(text.split()[5] for text in told) == ["gone", "lost"]


def test_a_missing_queue_is_not_an_empty_one(app: Laneway) -> None:
    with running(app) as worker:
        assert not worker.is_empty()
    with running(app, queues=["there"]) as worker:
        wait_until(worker.is_empty)
