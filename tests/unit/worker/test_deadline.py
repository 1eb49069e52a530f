"""Calling a broker with a deadline: a slow reply is passed on, a silent broker is given up."""

from __future__ import annotations

import threading

import pytest

from laneway.errors import BrokerAwayError, BrokerError, BrokerRefusedError
from laneway.worker import deadline
from laneway.worker.deadline import call_with_deadline

pytestmark = pytest.mark.unit


def test_what_is_answered_is_passed_on() -> None:
    def refuse() -> None:
        raise BrokerRefusedError("No.")

    assert call_with_deadline(lambda: 1) == 1
    with pytest.raises(BrokerError, match=r"^No\.$"):
        call_with_deadline(refuse)


def test_a_slow_broker_is_not_away_though_it_is_urgent() -> None:
    looked, answered = threading.Event(), threading.Event()

    def unless() -> bool:
        looked.set()
        return True

    def slow() -> str:
        answered.wait(deadline.LEAST_S / 4)
        return "late"

    assert call_with_deadline(slow, unless=unless) == "late"
    assert not looked.is_set()


def test_a_silent_one_is_left_alone_when_it_is_urgent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "SAY_S", 0.0)
    over, said = threading.Event(), threading.Event()
    with pytest.raises(BrokerAwayError, match="It has not answered for"):
        call_with_deadline(over.wait, unless=lambda: True, say=said.set)
    assert said.is_set()
    over.set()


def test_a_silent_one_is_left_alone_when_its_time_is_up() -> None:
    over = threading.Event()
    with pytest.raises(BrokerAwayError, match="It has not answered for"):
        call_with_deadline(over.wait, timeout_s=0.05)
    over.set()
