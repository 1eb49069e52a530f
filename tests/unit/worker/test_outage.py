"""Reports about a broker that is away or refuses calls: each refusal once, and recovery only when it is real."""

from __future__ import annotations

from typing import Any

import pytest

from laneway.errors import BrokerAwayError, BrokerRefusedError
from laneway.telemetry import BrokerAway, BrokerBack, Telemetry
from laneway.worker import outage as module
from laneway.worker.outage import Outage


@pytest.fixture(autouse=True)
def _talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET_S", 0.0)


@pytest.fixture
def said() -> list[Any]:
    return []


@pytest.fixture
def outage(said: list[Any]) -> Outage:
    telemetry = Telemetry()
    for event in (BrokerAway, BrokerBack):
        telemetry.subscribe(event, said.append)
    return Outage(telemetry)


def test_each_who_is_refused_is_told_once(outage: Outage, said: list[Any]) -> None:
    for _ in range(3):
        for queue in ("a", "b", "c"):
            outage.away(queue, BrokerRefusedError(f"There is no queue {queue}."))
    assert [event.error for event in said] == [f"There is no queue {queue}." for queue in ("a", "b", "c")]


def test_the_same_refusal_of_all_is_told_once(outage: Outage, said: list[Any]) -> None:
    for queue in ("a", "b", "c"):
        outage.away(queue, BrokerRefusedError("The password is wrong."))
    assert len(said) == 1


def test_a_refusal_that_reads_otherwise_each_time_is_told_once(outage: Outage, said: list[Any]) -> None:
    for number in range(5):
        outage.away("a", BrokerRefusedError(f"It is forbidden (request {number})."))
    assert len(said) == 1


def test_a_broker_that_is_away_is_told_once_and_its_refusal_after_that(outage: Outage, said: list[Any]) -> None:
    for queue in ("a", "b"):
        outage.away(queue, BrokerAwayError(f"It is away, says {queue}."))
    for queue in ("a", "b"):
        outage.away(queue, BrokerRefusedError("The password is wrong."))
    assert [event.error for event in said] == ["It is away, says a.", "The password is wrong."]
    for queue in ("a", "b"):
        outage.back(queue)
    assert [type(event) for event in said] == [BrokerAway, BrokerAway, BrokerBack]


def test_all_refusals_pass_from_one_process_to_another(said: list[Any]) -> None:
    """A supervisor says what its children are told, and reads only their last word each time that it looks."""
    telemetry = Telemetry()
    telemetry.subscribe(BrokerAway, said.append)
    supervisor = Outage(telemetry, refusals=3)
    child = Outage(Telemetry(), lambda: supervisor.away("process 1", BrokerRefusedError(child.error)))
    for _ in range(3):
        for queue in ("a", "b", "c"):
            child.away(queue, BrokerRefusedError(f"There is no queue {queue}."))
    assert [event.error for event in said] == [f"There is no queue {queue}." for queue in ("a", "b", "c")]


def test_whoever_was_refused_and_is_gone_does_not_make_it_back(outage: Outage, said: list[Any]) -> None:
    """What another is answered says nothing about a queue that is missing."""
    outage.away("process 1", BrokerRefusedError("There is no queue a."))
    outage.forget("process 1")
    outage.back("lease")
    assert [type(event) for event in said] == [BrokerAway]
    outage.away("process 2", BrokerRefusedError("There is no queue a."))
    outage.back("process 2")
    assert [type(event) for event in said] == [BrokerAway, BrokerAway, BrokerBack]


def test_whoever_got_no_answer_and_is_gone_leaves_it_to_others_to_say_so(outage: Outage, said: list[Any]) -> None:
    outage.away("process 1", BrokerAwayError("It is away."))
    outage.forget("process 1")
    outage.back("lease")
    assert [type(event) for event in said] == [BrokerAway, BrokerBack]
