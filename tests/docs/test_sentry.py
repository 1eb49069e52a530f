"""The guide's recipe for Sentry, with Sentry's own SDK and without sending anything."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from laneway import Laneway, Middleware, Worker, WorkerOptions
from tests.docs.test_docs import blocks


class Kept(Transport):
    """What would have been sent, instead of a connection."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        self.items += [item.payload.json for item in envelope.items if item.payload.json]

    def transactions(self) -> dict[str, dict[str, Any]]:
        return {item["transaction"]: item for item in self.items if item.get("type") == "transaction"}

    def errors(self) -> list[dict[str, Any]]:
        return [item for item in self.items if "exception" in item]


@pytest.fixture
def kept():
    transport = Kept()
    sentry_sdk.init(
        "https://key@sentry.invalid/1",
        transport=transport,
        traces_sample_rate=1.0,
        default_integrations=False,
        auto_enabling_integrations=False,
    )
    yield transport
    # Nothing more is reported, and nothing of Python's own is left patched.
    sentry_sdk.init(default_integrations=False, auto_enabling_integrations=False)


@pytest.fixture
def app(tmp_path):
    (recipe,) = (block for block in blocks("docs/guide.md") if "class Sentry" in block)
    names: dict[str, Any] = {"Laneway": lambda **options: None, "Middleware": Middleware}
    exec(compile(recipe, "docs/guide.md", "exec", dont_inherit=True), names)
    logger = logging.getLogger("laneway.sentry")  # its own, because a listener fails on purpose
    logger.setLevel(logging.CRITICAL)
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    app = Laneway(url, name="shop", middleware=[names["Sentry"]()], logger=logger)
    yield app
    app.close()


def test_an_event_is_followed_to_both_listeners_and_an_error_is_reported_there(kept, app):
    @app.listener("placed", source="shop", destination="mailer")
    async def mail(value: int) -> None: ...

    @app.listener("placed", source="shop", destination="stock", max_retry_count=0)
    def ship(value: int) -> None:
        raise ValueError("no such article")

    for listener in app.listeners():
        app.broker.events.subscribe(listener.subscription)
    with sentry_sdk.start_transaction(name="checkout") as checkout:
        app.publish("placed", 7)
    assert Worker(app, WorkerOptions(until_empty=True)).run() == 0
    transactions = kept.transactions()
    assert set(transactions) == {"checkout", "mail", "ship"}
    places = {name: transactions[name]["contexts"]["trace"] for name in transactions}
    assert {place["trace_id"] for place in places.values()} == {checkout.trace_id}
    assert {places[name]["parent_span_id"] for name in ("mail", "ship")} == {checkout.span_id}
    (error,) = kept.errors()
    assert error["exception"]["values"][0]["value"] == "no such article"
    assert error["contexts"]["trace"]["span_id"] == places["ship"]["span_id"]
    assert error["tags"]["laneway.queue"] == "stock-eventboss-shop-placed"


def test_a_job_is_followed_to_its_run(kept, app):
    @app.task
    def work(number: int) -> None: ...

    with sentry_sdk.start_transaction(name="request") as request:
        work.enqueue(1)
    Worker(app, WorkerOptions(until_empty=True)).run()
    place = kept.transactions()["work"]["contexts"]["trace"]
    assert (place["trace_id"], place["parent_span_id"]) == (request.trace_id, request.span_id)
    assert place["op"] == "queue.process"
