"""A topic and the queues of two listeners, for tests of published events and their copies on AWS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from laneway.brokers.aws.broker import AWSBroker
from laneway.events.event import Attributes
from laneway.jobs.data import EventCopy, NewJob
from tests.support.aws.brokers import opened
from tests.support.aws.endpoints import Place

TOPIC = "eventboss-shop-order_placed-test"
MAILER, STOCK = f"mailer-{TOPIC}", f"stock-{TOPIC}"
TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "sentry-trace": "0af7-b7ad-1"}


def event(
    id: str, body: str = '{"id":7}', *, topic: str = TOPIC, beside: Attributes | None = None, **fields: Any
) -> NewJob:
    """What the core hands over for one that is published."""
    return NewJob(
        queue=topic, key=id, body=body, event=EventCopy(id, topic, to_topic=True, attributes=beside), **fields
    )


def hear(place: Place, *queues: str, raw: bool = True) -> None:
    """Make the topic, and queues with dead letters that have subscribed to it."""
    for queue in queues:
        place.create_with_dead_letters(queue, MessageRetentionPeriod=1_209_600)
    place.create_topic(TOPIC, *queues, **({"RawMessageDelivery": "true"} if raw else {}))


@contextmanager
def listening(place: Place, *queues: str, raw: bool = True, **options: Any) -> Iterator[AWSBroker]:
    """The same, and a broker, without a table unless one is named."""
    hear(place, *(queues or (MAILER,)), raw=raw)
    with opened(place, **{"table": None, **options}) as broker:
        yield broker


def note_in(message: dict[str, Any]) -> dict[str, Any]:
    """What travels beside a body, in our own attribute."""
    found: dict[str, Any] = json.loads(message["MessageAttributes"]["laneway"]["StringValue"])
    return found


def theirs(message: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """The message attributes that are not ours: type and text."""
    attributes = message.get("MessageAttributes", {})
    return {name: (at["DataType"], at["StringValue"]) for name, at in attributes.items() if name != "laneway"}
