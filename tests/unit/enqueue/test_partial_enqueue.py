"""Lists that were stored only in part: the error names the missing items by their positions in the caller's list."""

from __future__ import annotations

from typing import Any

import pytest

from laneway import Laneway, Middleware
from laneway.brokers.sqlite import MemoryBroker
from laneway.errors import BrokerAwayError, item_numbers_text
from laneway.jobs.data import NewJob
from laneway.middleware import Around
from tests.support.publish_app import Recording, heard


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ([3], "item 3"),
        ([3, 4], "items 3 to 4"),
        ([1, *range(10, 25)], "items 1 and 10 to 24"),
        ([0, 2, 3, 5], "items 0, 2 to 3 and 5"),
        ([*range(0, 40, 2)], "items 0, 2, 4, 6, 8, 10 and 14 more"),
        ([*range(1_000)], "items 0 to 999"),
    ],
)
def test_places_are_said_shortly(places: list[int], words: str) -> None:
    assert item_numbers_text(places) == words


def fail_at(broker: MemoryBroker, places: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def enqueue(jobs: Any) -> None:
        error = BrokerAwayError("It is away.")
        error.unstored = places
        raise error

    monkeypatch.setattr(broker, "enqueue", enqueue)


def test_an_event_has_one_place_however_many_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Recording()
    app = heard(broker)  # by two
    fail_at(broker, [3, 4, 5], monkeypatch)
    with pytest.raises(BrokerAwayError) as caught:
        app.publish_many("placed", range(3))
    assert caught.value.unstored == [1, 2]
    assert str(caught.value) == "It is away. In the list that was given that is items 1 to 2."


class Dropping(Middleware):
    """Leaves out what comes first."""

    def around_enqueue(self, jobs: list[NewJob]) -> Around:
        del jobs[0]
        yield


@pytest.mark.parametrize("many", ["tasks", "values"])
def test_places_are_those_of_the_list_though_a_middleware_takes_some_out(
    many: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = MemoryBroker()
    app = Laneway(broker=broker, name="shop", middleware=[Dropping()])

    @app.task
    def work(number: int) -> None: ...

    fail_at(broker, [1], monkeypatch)
    send: Any = work.enqueue_many if many == "tasks" else app.sender("sold", "mail").send_many
    given = [(0,), (1,), (2,)] if many == "tasks" else [0, 1, 2]
    with pytest.raises(BrokerAwayError) as caught:
        send(given)
    assert caught.value.unstored == [2]
