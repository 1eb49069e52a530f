"""Duties: work that a broker has the worker repeat while it serves the broker's queues."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence

import pytest

from laneway import Laneway, Worker
from laneway.broker import Duty
from laneway.brokers.sqlite import MemoryBroker
from laneway.config import WorkerOptions
from laneway.errors import BrokerAwayError
from laneway.telemetry import BrokerAway, DutyBack, DutyFailed
from tests.support.worker_fixtures import PATIENCE_S, Running


class Chore:
    """Does what it is told, and counts its rounds."""

    def __init__(self, then: Callable[[int], float], name: str = "chore") -> None:
        self.name = name
        self._then = then
        self.rounds = threading.Semaphore(0)
        self.count = 0
        self.threads: set[str] = set()
        self.sooner: Callable[[float], None] = lambda seconds: None

    def round(self) -> float:
        self.count += 1
        self.threads.add(threading.current_thread().name)
        try:
            return self._then(self.count)
        finally:
            self.rounds.release()

    def has_rounds(self, count: int) -> bool:
        return all(self.rounds.acquire(timeout=PATIENCE_S) for _ in range(count))


class WithDuties(MemoryBroker):
    def __init__(self, *duties: Chore) -> None:
        super().__init__()
        self._duties = duties
        self.asked: list[list[str]] = []
        self.health.duties = self._note_queues  # type: ignore[method-assign]

    def _note_queues(self, queues: Collection[str]) -> Sequence[Duty]:
        self.asked.append(sorted(queues))
        return self._duties


def app_on(*duties: Chore) -> Laneway:
    app = Laneway(broker=WithDuties(*duties))

    @app.task
    def nothing() -> None: ...

    @app.task(queue="other")
    def nothing_else() -> None: ...

    return app


def test_each_has_a_thread_and_is_done_as_often_as_it_says():
    often, seldom = Chore(lambda count: 0.0, "often"), Chore(lambda count: 3600.0, "seldom")
    app = app_on(often, seldom)
    with Running(app):
        assert often.has_rounds(5)
        assert seldom.has_rounds(1)
    assert app.broker.asked == [["default", "other"]]
    assert seldom.count == 1, "and the end of the worker did not wait an hour"
    assert (often.threads, seldom.threads) == ({"laneway-duty-often"}, {"laneway-duty-seldom"})
    assert not [each for each in threading.enumerate() if each.name.startswith("laneway-duty")]
    before = often.count
    with Running(app):
        assert often.has_rounds(before + 1)


def test_one_that_fails_is_told_and_tried_again(caplog: pytest.LogCaptureFixture):
    def fails_twice(count: int) -> float:
        if count == 1:
            raise BrokerAwayError("the table is away")
        if count == 2:
            raise ValueError("a mistake")
        return 3600.0

    chore = Chore(fails_twice)
    app = app_on(chore)
    told: list[str] = []
    back = threading.Event()
    away: list[str] = []
    app.telemetry.subscribe(DutyFailed, lambda event: told.append(f"{event.duty}: {event.error}"))
    app.telemetry.subscribe(DutyBack, lambda event: back.set())
    app.telemetry.subscribe(BrokerAway, lambda event: away.append(event.error))
    with Running(app):
        assert chore.has_rounds(3)
        assert back.wait(PATIENCE_S)
    assert (told, away) == (["chore: the table is away"], []), "the broker serves its queues all the same"
    assert "the duty chore failed" in caplog.text, "what is not the broker's doing is shown with its traceback"


def test_what_is_no_exception_ends_the_worker():
    def leave(count: int) -> float:
        raise SystemExit(3)

    app = app_on(Chore(leave))
    said: list[BaseException] = []
    app.last_words = said.append
    assert Worker(app, WorkerOptions()).run() == 1
    assert [type(error) for error in said] == [SystemExit]


def test_a_round_that_does_not_end_does_not_keep_the_worker():
    gate = threading.Event()
    chore = Chore(lambda count: float(not gate.wait(PATIENCE_S)))
    began = time.monotonic()
    worker = Worker(app_on(chore), WorkerOptions())
    worker.start()
    assert worker.stop(PATIENCE_S)
    assert time.monotonic() - began < PATIENCE_S / 2
    gate.set()
    assert chore.has_rounds(1)


def test_one_that_learns_that_its_next_round_must_be_sooner_has_it_then():
    chore = Chore(lambda count: 3600.0)
    with Running(app_on(chore)):
        for _ in range(3):
            assert chore.has_rounds(1)
            chore.sooner(5000.0)
            chore.sooner(0.01)
            chore.sooner(7200.0)
        assert chore.has_rounds(1)
    assert chore.count == 4, "and what was asked for once was had once"


def test_what_is_asked_for_in_the_middle_of_a_round_is_had_after_it():
    def asks(count: int) -> float:
        if count < 3:
            chore.sooner(0.0)
        return 3600.0

    chore = Chore(asks)
    with Running(app_on(chore)):
        assert chore.has_rounds(3)
    assert chore.count == 3
