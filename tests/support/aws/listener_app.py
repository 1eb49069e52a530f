"""An app with one listener, for tests of the AWS resources that a listener needs."""

from __future__ import annotations

from typing import Any

from laneway import Laneway
from laneway.brokers.aws.admin.create import create_resources
from laneway.brokers.aws.admin.needs import needs_of
from laneway.brokers.aws.admin.resources.resource import CreateStep, Creation
from laneway.brokers.aws.broker import AWSBroker
from laneway.events.event import FilterPolicy

TOPIC = "eventboss-stock-sold-test"
QUEUE = f"shop-{TOPIC}"
LETTERS = f"{QUEUE}-deadletter"
GERMAN: FilterPolicy = {"country": ["DE"]}


def shop(broker: AWSBroker, filter: FilterPolicy | None = None) -> Laneway:
    """It hears of what another app has sold."""
    app = Laneway(broker=broker, name="shop", env="test")

    @app.listener("sold", source="stock", filter=filter, max_retry_count=3)
    def ship(order: Any) -> None: ...

    return app


def create(broker: AWSBroker, app: Laneway, *, dry_run: bool = False, **options: Any) -> list[CreateStep]:
    """What `laneway aws create` does, without a table."""
    creation = Creation(dry_run=dry_run)
    return list(create_resources(broker.account, needs_of(app), creation, tables=False, **options))
