"""Brokers on AWS for tests of the operator's view and actions: without threads, closed after use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from laneway.brokers.aws.broker import AWSBroker
from laneway.brokers.aws.clients import Clients
from tests.support.aws.endpoints import Place

TABLE = "waiter"


@contextmanager
def opened(place: Place, *, inline: bool = True, **options: Any) -> Iterator[AWSBroker]:
    """A broker of a process that has just begun; `table=None` for one that has no table. Not `inline`: with threads."""
    settings = place.settings(**{"table": TABLE, "wait_s": 0, **options})
    broker = AWSBroker(settings, clients=Clients.of(settings, **place.clients), inline=inline)
    try:
        yield broker
    finally:
        broker.close()


@contextmanager
def ready(place: Place, *queues: str, **options: Any) -> Iterator[AWSBroker]:
    """The same, with queues (`q` unless others are named) and a table."""
    for queue in queues or ("q",):
        place.create_queues(queue, MessageRetentionPeriod=1_209_600)
    place.create_table(TABLE)
    with opened(place, **options) as broker:
        for queue in queues or ("q",):
            broker.declare(queue, 1)
        yield broker


def turn_on_ttl(place: Place, table: str = TABLE) -> None:
    """As `laneway aws create` does."""
    specification = {"Enabled": True, "AttributeName": "expires_at"}
    place.dynamodb_client.update_time_to_live(TableName=table, TimeToLiveSpecification=specification)


def said(error: pytest.ExceptionInfo[BaseException]) -> str:
    """The sentence of an error, which it must be."""
    text = str(error.value)
    assert text[0].isupper()
    assert text.endswith(".")
    return text
