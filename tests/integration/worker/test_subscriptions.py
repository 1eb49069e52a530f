"""A worker writes the subscriptions of its listeners before it fetches, and retries until each exists."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

import pytest

from laneway import Laneway, Worker
from laneway.broker import AutoCreateNote
from laneway.brokers.sqlite import MemoryBroker
from laneway.config import WorkerOptions
from laneway.errors import BrokerAwayError, BrokerRefusedError, ConfigError
from laneway.events.event import Subscription
from laneway.telemetry import DutyFailed, Subscribed, SubscriptionFailed, WorkerStarted
from laneway.worker import subscriptions
from laneway.worker.queues import queues_served
from tests.support.worker_fixtures import PATIENCE_S, Running


def declare(app: Laneway) -> Laneway:
    @app.task
    def count() -> None: ...

    @app.listener("placed", source="shop")
    def bill(value: int) -> None: ...

    @app.listener("placed", source="shop", destination="store", filter={"country": ["DE"]})
    def ship(value: int) -> None: ...

    return app


@pytest.fixture
def shop(make_app: Callable[..., Laneway]) -> Laneway:
    return declare(make_app(name="shop"))


BILL = Subscription("eventboss-shop-placed", "shop-eventboss-shop-placed")
SHIP = Subscription("eventboss-shop-placed", "store-eventboss-shop-placed", {"country": ["DE"]})


class Told:
    """What an app has told of its subscriptions, and whether it has."""

    def __init__(self, app: Laneway) -> None:
        self.events: list[Any] = []
        self._news = threading.Semaphore(0)
        for kind in (Subscribed, SubscriptionFailed, WorkerStarted, DutyFailed):
            app.telemetry.subscribe(kind, self._note)

    def _note(self, event: Any) -> None:
        self.events.append(event)
        self._news.release()

    def wait(self, count: int) -> list[Any]:
        for _ in range(count):
            assert self._news.acquire(timeout=PATIENCE_S)
        return self.events


def test_they_are_there_when_the_worker_says_that_it_runs(shop: Laneway) -> None:
    seen: list[list[Subscription]] = []
    shop.telemetry.subscribe(WorkerStarted, lambda event: seen.append(shop.broker.events.subscriptions()))
    told = Told(shop)
    for _ in range(2):
        with Running(shop):
            pass
    assert seen == [[BILL, SHIP], [BILL, SHIP]]
    assert [event for event in told.events if isinstance(event, Subscribed)] == [
        Subscribed(each.topic, each.queue) for each in (BILL, SHIP)
    ], "and it is told once: the second time they were there"


def test_an_app_without_listeners_has_no_thread_for_them(app: Laneway) -> None:
    @app.task
    def nothing() -> None: ...

    with Running(app):
        assert not [each for each in threading.enumerate() if each.name.endswith(subscriptions.SubscriptionDuty.name)]


def test_another_filter_is_written_and_nothing_is_removed(shop: Laneway) -> None:
    old = Subscription(BILL.topic, "shop-eventboss-shop-cancelled")
    shop.broker.events.subscribe(old)
    shop.broker.events.subscribe(Subscription(SHIP.topic, SHIP.queue, {"country": ["FR"]}))
    with Running(shop):
        assert shop.broker.events.subscriptions() == sorted(
            [BILL, SHIP, old], key=lambda each: (each.topic, each.queue)
        )


# -- choosing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "queues"),
    [
        ({}, ["default", BILL.queue, SHIP.queue]),
        ({"include": ["bill"]}, ["default", BILL.queue]),
        ({"exclude": ["bill"]}, ["default", SHIP.queue]),
        ({"include": ["bill", "ship"], "exclude": ["ship"]}, ["default", BILL.queue]),
        ({"exclude": ["ship", "bill"]}, ["default"]),
        ({"queues": ["default"]}, ["default"]),
        ({"queues": [BILL.queue]}, [BILL.queue]),
        ({"queues": ["default"], "include": ["ship"]}, ["default", SHIP.queue]),
        ({"queues": [SHIP.queue], "exclude": ["bill"]}, [SHIP.queue]),
    ],
)
def test_what_is_served_is_subscribed_and_nothing_else(
    shop: Laneway, options: dict[str, Any], queues: list[str]
) -> None:
    assert queues_served(shop, WorkerOptions(**options)) == queues
    with Running(shop, **options):
        assert [each.queue for each in shop.broker.events.subscriptions()] == [
            name for name in queues if name != "default"
        ]
        assert shop.broker.inspect.workers()[0].queues == queues


@pytest.mark.parametrize("development", [False, True])
def test_a_worker_that_only_drains_serves_and_subscribes_nothing(development: bool) -> None:
    broker = Refusing(error=BrokerRefusedError("no"))
    app = declare(Laneway(name="shop", broker=broker, development=development))
    broker.events.subscribe(BILL)
    with Running(app, subscribe=False):
        assert broker.inspect.workers()[0].queues == ["default", BILL.queue, SHIP.queue]
    assert broker.events.subscriptions() == [BILL], "and it removes none"
    assert broker.provided == ([["default"]] if development else []), "a listener's is made with its subscription"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"include": ["bil"]}, "There is no listener 'bil' to include; there is bill, ship."),
        ({"exclude": ["count"]}, "There is no listener 'count' to exclude; there is bill, ship."),
        (
            {"queues": [BILL.queue], "include": ["ship"]},
            f"The queue {BILL.queue} is to be served, and its listener bill is not; leave one of them out.",
        ),
        ({"include": "bill"}, "include must be a list of names of listeners, not the text 'bill'."),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_starts(
    shop: Laneway, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError) as error:
        Worker(shop, WorkerOptions(**options)).start()
    assert str(error.value) == sentence
    assert (shop.broker.events.subscriptions(), shop.broker.inspect.workers()) == ([], [])


def test_there_must_be_something_left_to_serve(make_app: Callable[..., Laneway]) -> None:
    app = make_app(name="shop")

    @app.listener("placed")
    def bill(value: int) -> None: ...

    with pytest.raises(ConfigError, match=r"Nothing is left to serve: .* include one of bill, or exclude fewer\."):
        Worker(app, WorkerOptions(exclude=["bill"])).start()


def test_an_app_without_listeners_can_include_none(app: Laneway) -> None:
    @app.task
    def nothing() -> None: ...

    with pytest.raises(ConfigError, match=r"There is no listener 'bill' to include; the app has none\."):
        queues_served(app, WorkerOptions(include=["bill"]))


# -- when it cannot be done ----------------------------------------------------------------------------


class Refusing(MemoryBroker):
    """Refuses to subscribe some queues for as long as it is told to, and may make what is missing."""

    def __init__(self, *queues: str, error: Exception) -> None:
        super().__init__()
        self.refused = set(queues)
        self.error = error
        self.asked: list[str] = []
        self.provided: list[list[str]] = []
        self.cannot_provide: Exception | None = None
        self._subscribe = self.events.subscribe
        self.events.subscribe = self._subscribe_some  # type: ignore[method-assign]
        self.health.provide = self._provide  # type: ignore[method-assign]

    def _subscribe_some(self, subscription: Subscription) -> bool:
        self.asked.append(subscription.queue)
        if subscription.queue in self.refused:
            raise self.error
        return self._subscribe(subscription)

    def _provide(self, app: Laneway, queues: Collection[str]) -> Sequence[AutoCreateNote]:
        self.provided.append(list(queues))
        if self.cannot_provide is not None:
            raise self.cannot_provide
        return [AutoCreateNote(f"Made {len(queues)} queues."), AutoCreateNote("One is otherwise.", made=False)]


def test_what_cannot_be_subscribed_is_told_once_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(subscriptions, "AGAIN_S", 0.001)
    broker = Refusing(BILL.queue, error=BrokerRefusedError("There is no topic eventboss-shop-placed."))
    app = declare(Laneway(name="shop", broker=broker))
    told = Told(app)
    caplog.set_level(logging.INFO, "laneway")
    tried = threading.Event()
    with Running(app):
        assert broker.events.subscriptions() == [SHIP], "the other goes on"
        subscribe = broker.events.subscribe

        def count(subscription: Subscription) -> bool:
            if len(broker.asked) > 10:
                tried.set()
            return subscribe(subscription)

        monkeypatch.setattr(broker.events, "subscribe", count)
        assert tried.wait(PATIENCE_S)
        assert broker.asked.count(SHIP.queue) == 1
        broker.refused.clear()
        events = told.wait(4)
    assert events == [
        Subscribed(SHIP.topic, SHIP.queue),
        SubscriptionFailed([BILL.queue], "There is no topic eventboss-shop-placed."),
        events[2],
        Subscribed(BILL.topic, BILL.queue),
    ]
    assert isinstance(events[2], WorkerStarted)
    said = [record.getMessage() for record in caplog.records]
    assert said[:2] == [
        f"subscribed the queue {SHIP.queue} to {SHIP.topic}",
        f"could not subscribe {BILL.queue}, trying again every minute; no events get there: There is no topic "
        "eventboss-shop-placed.",
    ]
    assert f"subscribed the queue {BILL.queue} to {BILL.topic}" in said


def test_a_broker_that_is_away_is_asked_once_a_round_and_told_once_for_all() -> None:
    broker = Refusing(BILL.queue, SHIP.queue, error=BrokerAwayError("SNS does not answer."))
    app = declare(Laneway(name="shop", broker=broker))
    told = Told(app)
    with Running(app):
        events = told.wait(2)
        assert broker.asked == [BILL.queue]
    assert events[0] == SubscriptionFailed([BILL.queue, SHIP.queue], "SNS does not answer.")


def test_a_worker_does_not_wait_for_a_silent_broker_longer_than_its_lease_lets_it() -> None:
    broker = Refusing(error=BrokerRefusedError(""))
    answer = threading.Event()
    subscribe = broker.events.subscribe

    def silent(subscription: Subscription) -> bool:
        assert answer.wait(PATIENCE_S)
        return subscribe(subscription)

    broker.events.subscribe = silent  # type: ignore[method-assign]  # the network
    app = declare(Laneway(name="shop", broker=broker))
    told = Told(app)
    with Running(app, lease_s=0.5):
        assert isinstance(told.wait(1)[0], WorkerStarted)
        answer.set()
        assert {type(event) for event in told.wait(2)[1:]} == {Subscribed}


def test_they_are_written_again_when_the_broker_was_emptied() -> None:
    app = declare(Laneway(name="shop", broker=MemoryBroker()))
    told = Told(app)
    with Running(app) as worker:
        told.wait(3)
        for each in (BILL, SHIP):
            app.broker.events.unsubscribe(each.topic, each.queue)
        worker._running.membership.rejoin(worker.id)
        told.wait(2)
        assert app.broker.events.subscriptions() == [BILL, SHIP]


@pytest.mark.parametrize("refuses", [False, True])
def test_one_that_somebody_has_removed_is_found_missing_and_written_again(
    monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    """Or told, if it cannot be."""
    monkeypatch.setattr(subscriptions, "LOOK_AGAIN_S", 0.001)
    broker = Refusing(error=BrokerRefusedError("There is no topic eventboss-shop-placed."))
    app = declare(Laneway(name="shop", broker=broker))
    told = Told(app)
    with Running(app):
        told.wait(3)
        broker.refused = {BILL.queue} if refuses else set()
        assert broker.events.unsubscribe(BILL.topic, BILL.queue)
        [*_, last] = told.wait(1)
    assert last == (
        SubscriptionFailed([BILL.queue], "There is no topic eventboss-shop-placed.")
        if refuses
        else Subscribed(BILL.topic, BILL.queue)
    )
    assert broker.asked.count(SHIP.queue) == 1, "the other was only looked at"


def test_another_filter_is_not_written_over_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """While workers are replaced, old and new ones would write theirs in turn."""
    monkeypatch.setattr(subscriptions, "LOOK_AGAIN_S", 0.0)
    app = declare(Laneway(name="shop", broker=MemoryBroker()))
    duty = subscriptions.SubscriptionDuty(app, [BILL.queue, SHIP.queue])
    duty.round()
    newer = Subscription(SHIP.topic, SHIP.queue, {"country": ["FR"]})
    app.broker.events.subscribe(newer)
    duty.round()
    assert app.broker.events.subscriptions() == [BILL, newer]


# -- development ---------------------------------------------------------------------------------------


def test_in_development_what_is_missing_is_made_first(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "laneway")
    broker = Refusing(error=BrokerRefusedError(""))
    app = declare(Laneway(name="shop", broker=broker, development=True))
    with Running(app, exclude=["ship"]):
        assert broker.provided == [["default", BILL.queue]]
    assert ("laneway", logging.INFO, "Made 2 queues.") in caplog.record_tuples
    assert ("laneway", logging.WARNING, "One is otherwise.") in caplog.record_tuples


def test_what_cannot_be_made_is_told_once_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(subscriptions, "AGAIN_S", 0.001)
    broker = Refusing(error=BrokerRefusedError(""))
    broker.cannot_provide = BrokerRefusedError("You may not make queues.")
    app = declare(Laneway(name="shop", broker=broker, development=True))
    again = threading.Event()
    provide = broker.health.provide

    def count(app: Laneway, queues: Collection[str]) -> Sequence[AutoCreateNote]:
        if len(broker.provided) > 3:
            again.set()
            broker.cannot_provide = None
        return provide(app, queues)

    monkeypatch.setattr(broker.health, "provide", count)
    with Running(app):
        assert broker.events.subscriptions() == [BILL, SHIP]
        assert again.wait(PATIENCE_S)
    assert caplog.messages.count("what is missing could not be made, trying again: You may not make queues.") == 1


def test_otherwise_nothing_is_made() -> None:
    broker = Refusing(error=BrokerRefusedError(""))
    with Running(declare(Laneway(name="shop", broker=broker))):
        assert broker.provided == []
