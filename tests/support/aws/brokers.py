"""Brokers on AWS for tests, and their accounts. A test takes a part from its broker, and constructs none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from laneway.brokers.aws.account import Account
from laneway.brokers.aws.broker import AWSBroker
from laneway.brokers.aws.clients import Clients
from laneway.brokers.aws.settings import AWSSettings
from laneway.clock import Clock
from tests.support.aws.endpoints import Place

TABLE = "waiter"


def make_account(
    place: Place,
    *,
    settings: AWSSettings | None = None,
    clock: Clock | None = None,
    clients: Clients | None = None,
    **options: Any,
) -> Account:
    """What the parts of one process share. `options` are those of its settings."""
    settings = settings or place.settings(**options)
    return Account(settings, clock=clock, clients=clients or Clients.of(settings, **place.clients))


def make_broker(
    place: Place, *, clock: Clock | None = None, clients: Clients | None = None, inline: bool = True, **options: Any
) -> AWSBroker:
    """The broker of one process, with the place's own boto3 clients: making one takes longer than most tests.

    A test of one part takes it from the broker: `sender`, `turns`, `morgue`, `heartbeat`. Not `inline`: with threads.
    """
    settings = place.settings(**options)
    return AWSBroker(settings, clock=clock, clients=clients or Clients.of(settings, **place.clients), inline=inline)


@contextmanager
def opened(place: Place, *, inline: bool = True, **options: Any) -> Iterator[AWSBroker]:
    """A broker of a process that has just begun; `table=None` for one that has no table. Not `inline`: with threads."""
    broker = make_broker(place, inline=inline, **{"table": TABLE, "wait_s": 0, **options})
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
