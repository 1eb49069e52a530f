"""Tests that after `app.open()` the first enqueue only sends: clients are made, queues looked up, modules imported."""

from __future__ import annotations

from collections import Counter

import pytest

from laneway import BrokerAwayError, Laneway
from laneway.errors import BrokerRefusedError
from tests.support.aws.servers import ACCOUNT, FakeServer
from tests.support.opened_app import first_enqueue
from tests.support.servers import free_port


@pytest.mark.parametrize("forks", [False, True], ids=["", "in a forked process"])
def test_the_first_enqueue_finds_everything_ready(fake: FakeServer, forks: bool) -> None:
    fake.create_queues("default")
    before: list[Counter[str]] = []
    url = f"{fake.endpoint}/{ACCOUNT}/default"
    found = first_enqueue(
        url, kinds=("plain", "keyed"), forks=forks, between=lambda: before.append(Counter(fake.requests))
    )
    assert found == []
    assert Counter(fake.requests) - before[0] == {"sqs.SendMessageBatch": 2}


def test_a_missing_queue_is_left_to_the_first_enqueue(fake: FakeServer) -> None:
    app = Laneway(f"{fake.endpoint}/{ACCOUNT}/default")
    app.task(lambda: None, name="nothing", queue="missing")
    app.open()
    app.close()


def test_absent_credentials_are_left_to_the_first_enqueue(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    app = Laneway(f"{fake.endpoint}/{ACCOUNT}/default")
    task = app.task(lambda: None, name="nothing", queue="other")
    app.open()
    with pytest.raises(BrokerRefusedError, match="There are no AWS credentials"):
        task.enqueue()
    app.close()


def test_an_endpoint_that_is_away_is_reported() -> None:
    app = Laneway(f"http://127.0.0.1:{free_port()}/{ACCOUNT}/default")
    app.task(lambda: None, name="nothing", queue="other")
    with pytest.raises(BrokerAwayError):
        app.open()
    app.close()
