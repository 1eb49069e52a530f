"""Missing queues: reported once for all processes, and no reason to call the broker away."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from laneway import Laneway
from laneway.config import WorkerOptions
from laneway.telemetry import BrokerAway, QueueFound, QueueMissing, Telemetry
from laneway.worker.outage import MissingQueues
from laneway.worker.process.channel import HeartbeatMessage
from laneway.worker.supervisor.supervisor import Supervisor


@pytest.fixture
def said() -> list[Any]:
    return []


@pytest.fixture
def missing(said: list[Any]) -> MissingQueues:
    telemetry = Telemetry()
    for kind in (QueueMissing, QueueFound):
        telemetry.subscribe(kind, said.append)
    return MissingQueues(telemetry)


def test_each_is_said_once_and_once_when_it_is_there(missing: MissingQueues, said: list[Any]) -> None:
    for number in range(3):
        missing.miss("a", f"no a ({number})")
        missing.miss("b", "no b")
    missing.found("c")
    missing.found("a")
    missing.found("a")
    assert [(type(event), event.queue) for event in said] == [
        (QueueMissing, "a"),
        (QueueMissing, "b"),
        (QueueFound, "a"),
    ]
    assert said[0].error == "no a (0)"
    assert missing.errors == {"b": "no b"}


def test_it_is_there_when_nobody_misses_it(missing: MissingQueues, said: list[Any]) -> None:
    missing.missed_by("one", {"a": "no a", "b": "no b"})
    missing.missed_by("two", {"a": "no a"})
    missing.missed_by("one", {"b": "no b"})
    assert len(said) == 2
    missing.missed_by("two", {})
    assert [(type(event), event.queue) for event in said[2:]] == [(QueueFound, "a")]


def test_whoever_is_gone_does_not_know_whether_it_is_there(missing: MissingQueues, said: list[Any]) -> None:
    missing.missed_by("one", {"a": "no a"})
    missing.forget("one")
    assert [type(event) for event in said] == [QueueMissing]
    missing.missed_by("two", {"a": "no a"})
    assert [type(event) for event in said] == [QueueMissing, QueueMissing]


def test_a_supervisor_is_ready_while_one_of_its_queues_is_there(said: list[Any]) -> None:
    app = Laneway("memory:")
    for kind in (QueueMissing, QueueFound, BrokerAway):
        app.telemetry.subscribe(kind, said.append)
    app.task(queue="a", name="a")(lambda: None)
    app.task(queue="b", name="b")(lambda: None)
    supervisor = Supervisor(app, WorkerOptions(processes=2), [])
    children: list[Any] = [
        SimpleNamespace(
            pid=pid, ids=["me"], retiring=False, stopped=False, beat=HeartbeatMessage(0, 0, 0), listen=lambda: None
        )
        for pid in (1, 2)
    ]
    supervisor._children = children

    def told(missing: dict[str, str]) -> str | None:
        for child in children:
            child.beat = HeartbeatMessage(0, 0, 0, missing=missing)
            supervisor._listen(child)
        return supervisor.not_ready()

    assert told({"a": "no a"}) is None
    assert told({"a": "no a", "b": "no b"}) == "its queues are missing in the broker"
    assert told({"b": "no b"}) is None
    assert [(type(event), event.queue) for event in said] == [
        (QueueMissing, "a"),
        (QueueMissing, "b"),
        (QueueFound, "a"),
    ]
    app.close()
