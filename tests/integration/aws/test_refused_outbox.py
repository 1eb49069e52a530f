"""Tests of a run that sends to a missing or forbidden topic or queue: it is retried until the operator fixes that."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from laneway import Context, Laneway
from laneway.brokers.aws.sqs import queues
from laneway.telemetry import OutboxRefused
from tests.integration.aws.test_events import provide, shop_on
from tests.support.aws.fake.server import FakeServer
from tests.support.aws.workers import Tally, running, wait_until


@pytest.fixture(autouse=True)
def _looks_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "LOOK_AGAIN_S", 0.0)


@pytest.fixture
def errors() -> Tally:
    return Tally()


@pytest.fixture
def app(fake: FakeServer, errors: Tally) -> Iterator[Laneway]:
    with shop_on(fake, error_handlers=[lambda error, context: errors.note((str(error), context.task))]) as app:
        yield app


def publishes(app: Laneway) -> Callable[[Context, int], object]:
    return lambda context, value: context.publish("gone", value)


def enqueues(app: Laneway) -> Callable[[Context, int], object]:
    @app.task(queue="gone")
    def child(number: int) -> None: ...

    return lambda context, value: context.enqueue(child, value)


def make_topic(fake: FakeServer, app: Laneway) -> None:
    fake.create_topic("eventboss-shop-gone-test")


def make_queue(fake: FakeServer, app: Laneway) -> None:
    fake.create_queues("gone")


def allow(fake: FakeServer, app: Laneway) -> None:
    fake.denied.clear()


@pytest.mark.parametrize(
    ("sends", "mend", "says"),
    [
        (publishes, make_topic, "There is no SNS topic"),
        (publishes, allow, "forbids these credentials sns:Publish"),
        (enqueues, make_queue, "SQS queue gone"),
    ],
    ids=["topic", "permission", "queue"],
)
def test_it_is_retried_until_that_is_mended(
    fake: FakeServer,
    app: Laneway,
    errors: Tally,
    sends: Callable[[Laneway], Callable[[Context, int], object]],
    mend: Callable[[FakeServer, Laneway], None],
    says: str,
) -> None:
    if mend is allow:
        make_topic(fake, app)
        fake.denied.add("sns.Publish")
    send, ran, told = sends(app), Tally(), list[OutboxRefused]()
    app.telemetry.subscribe(OutboxRefused, told.append)

    @app.listener("in", source="shop", context=True, retry_in=lambda count: 0)
    def inn(context: Context, value: int) -> None:
        send(context, value)
        ran.note(context.attempt)

    provide(fake, app)
    sender = app.sender("in", "shop")
    with running(app, queues=[inn.queue]):
        sender.send(7)
        errors.wait_for(2)
        mend(fake, app)
        wait_until(lambda: fake.counts(inn.queue) == (0, 0, 0))
    assert ran.ran[:3] == [1, 2, 3]
    assert fake.counts(f"{inn.queue}-deadletter") == (0, 0, 0)
    text, task = errors.ran[0]
    assert (says in text, task) == (True, "inn"), text
    assert [(event.task, event.attempt, event.verdict) for event in told[:2]] == [
        ("inn", 1, "retry"),
        ("inn", 2, "retry"),
    ]
