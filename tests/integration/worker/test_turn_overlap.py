"""Turns that are executed on a server: the worker runs the claims of one turn while the next is under way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

import pytest

from laneway import Laneway
from laneway.broker import Answer, Capabilities, Turn
from laneway.brokers.sqlite import MemoryBroker
from laneway.errors import BrokerAwayError
from tests.support.worker_fixtures import PATIENCE_S, Running, drain


class Elsewhere(MemoryBroker):
    """Says that it is remote, and has something happen at every turn that comes after jobs were claimed."""

    capabilities = Capabilities(shared=False, remote=True)

    def __init__(self, then: Callable[[Turn], None]) -> None:
        super().__init__()
        self._then = then
        self._brought = False

    def turn(self, turn: Turn) -> Answer:
        if self._brought:
            self._brought = False
            self._then(turn)
        answer = super().turn(turn)
        self._brought = bool(answer.claims)
        return answer


def running(app: Laneway, count: int) -> tuple[list[int], threading.Event]:
    """What has run, and the event that is set when something has."""
    ran: list[int] = []
    begun = threading.Event()

    @app.task
    def note(number: int) -> None:
        ran.append(number)
        begun.set()

    note.enqueue_many([(number,) for number in range(count)])
    return ran, begun


def test_a_job_that_comes_alone_is_fetched_by_who_waited_for_it():
    """And settled by the fetcher, as ever. (Now and then the fetcher is at it already: it settles the one before.)"""
    settled, waiting = threading.Event(), threading.Event()
    threads: dict[str, set[str]] = {"claims": set(), "settles": set()}

    class Noting(MemoryBroker):
        def turn(self, turn: Turn) -> Answer:
            answer = super().turn(turn)
            if answer.claims:
                threads["claims"].add(threading.current_thread().name)
            if turn.settlements:
                threads["settles"].add(threading.current_thread().name)
                settled.set()
            return answer

        def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
            waiting.set()
            return super().wait(queues, timeout_s)

    app = Laneway(broker=Noting())

    @app.task
    def note() -> None: ...

    with Running(app):
        for _ in range(20):
            assert waiting.wait(PATIENCE_S)
            note.enqueue()
            assert settled.wait(PATIENCE_S)
            settled.clear()
            if "laneway-waker" in threads["claims"]:
                break
    assert "laneway-waker" in threads["claims"]
    assert threads["settles"] == {"laneway-fetch-default"}


def test_what_a_turn_brought_is_run_while_the_next_one_is_under_way():
    waited = []

    def wait_for_a_run(turn: Turn) -> None:
        turn.on_sent()
        waited.append(begun.wait(PATIENCE_S))
        begun.clear()

    app = Laneway(broker=Elsewhere(wait_for_a_run))
    ran, begun = running(app, 100)
    assert drain(app, concurrency=2) == 0
    assert sorted(ran) == list(range(100))
    assert waited
    assert all(waited)


@pytest.mark.parametrize("says_so", [True, False])
def test_a_turn_that_cannot_be_sent_does_not_hold_up_what_was_fetched(says_so):
    failures = iter(range(3))

    def fail(turn: Turn) -> None:
        if says_so:
            turn.on_sent()
        if next(failures, None) is not None:
            raise BrokerAwayError("it is away")

    app = Laneway(broker=Elsewhere(fail))
    ran, _ = running(app, 100)
    assert drain(app, concurrency=2) == 0
    assert sorted(ran) == list(range(100))


def test_a_queue_whose_turns_fail_holds_up_no_other_that_idles():
    fails = threading.Event()

    class Halved(MemoryBroker):
        def turn(self, turn: Turn) -> Answer:
            if turn.queue == "away" and turn.limit and fails.is_set():
                raise BrokerAwayError("half of it is away")
            return super().turn(turn)

    app = Laneway(broker=Halved())
    ran = threading.Event()

    @app.task(queue="away")
    def nothing() -> None: ...

    @app.task(queue="here")
    def note() -> None:
        ran.set()

    with Running(app, concurrency=2):
        note.enqueue()
        assert ran.wait(PATIENCE_S)
        for _ in range(3):  # whoever waits has found that something is due where nothing can be fetched
            ran.clear()
            fails.set()
            nothing.enqueue()
            note.enqueue()
            assert ran.wait(PATIENCE_S)
            ran.clear()
            note.enqueue()
            assert ran.wait(PATIENCE_S)
        fails.clear()
