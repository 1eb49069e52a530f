"""Tests of the information that workers share through the tables: heartbeats, counts, deaths and pauses."""

from __future__ import annotations

import pytest

from laneway.brokers.aws.broker import AWSBroker
from laneway.brokers.aws.dynamodb.heartbeat import Heartbeat
from laneway.clock import ManualClock
from laneway.errors import BrokerAwayError, BrokerError
from laneway.jobs.data import StartedRun, WorkerView
from tests.support.aws.brokers import make_broker
from tests.support.aws.delay_table import Waiters
from tests.support.aws.endpoints import Place

NOW = 1_700_000_000.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def waiters(fake: Place, clock: ManualClock) -> Waiters:
    fake.create_table("q")
    return Waiters(fake, clock)


def view(id: str = "w1", *queues: str) -> WorkerView:
    return WorkerView(
        id=id, host="h", pid=7, queues=list(queues) or ["q"], concurrency=5, lease_s=30, started_at=NOW, seen_at=0.0
    )


def broker_of(waiters: Waiters) -> AWSBroker:
    """The broker of another process with the same server, clock and clients."""
    return make_broker(waiters.place, clock=waiters.clock, clients=waiters.clients)


def heartbeat_of(waiters: Waiters) -> Heartbeat:
    return broker_of(waiters).heartbeat


def away(*_: object, **__: object) -> dict[str, object]:
    raise BrokerAwayError("DynamoDB is away.")


def test_a_worker_is_seen_while_it_lives_dead_when_silent_and_gone_after_an_hour(
    aws: Place, clock: ManualClock
) -> None:
    aws.create_table("q")
    waiters = Waiters(aws, clock)
    broker = broker_of(waiters)
    heartbeat = broker.heartbeat
    broker.inflight.count = lambda queue: 3  # type: ignore[method-assign]
    heartbeat.join(view())
    (seen,) = waiters.table().workers.all()
    assert (seen.id, seen.host, seen.queues, seen.seen_at, seen.busy, seen.dead) == ("w1", "h", ["q"], NOW, 3, False)
    clock.advance(30)
    assert heartbeat.round() == 10
    clock.advance(30)
    (seen,) = waiters.table().workers.all()
    assert (seen.seen_at, seen.dead) == (NOW + 30, False)
    clock.advance(30)
    (seen,) = waiters.table().workers.all()
    assert seen.dead
    clock.advance(3_600)
    assert waiters.table().workers.all() == []


def test_a_worker_that_leaves_is_forgotten_and_what_it_counted_is_not(waiters: Waiters) -> None:
    heartbeat = heartbeat_of(waiters)
    heartbeat.join(view())
    heartbeat.counted("q", 5, 1)
    heartbeat.counted("q", 2, 0)
    heartbeat.counted("q", 0, 0)
    heartbeat.leave("w1")
    assert waiters.table().workers.all() == []
    item = waiters.table().queues.get("q")
    assert (item.processed, item.failed) == (7, 1)
    heartbeat.round()
    assert waiters.table().workers.all() == []


def test_a_worker_of_several_queues_is_told_to_each_of_their_tables(waiters: Waiters, fake: Place) -> None:
    fake.create_table("r")
    heartbeat = heartbeat_of(waiters)
    heartbeat.join(view("w1", "q", "r", "without"))
    for name in ("q", "r"):
        assert [each.id for each in waiters.table(name).workers.all()] == ["w1"]
    heartbeat.counted("r", 1, 0)
    heartbeat.counted("without", 1, 0)
    heartbeat.round()
    assert waiters.table("r").queues.get("r").processed == 1


def test_what_was_counted_while_the_table_was_away_is_told_later(
    waiters: Waiters, monkeypatch: pytest.MonkeyPatch
) -> None:
    heartbeat = heartbeat_of(waiters)
    heartbeat.join(view())
    with monkeypatch.context() as patch:
        patch.setattr(waiters.clients, "dynamodb", away)
        heartbeat.counted("q", 3, 2)
        with pytest.raises(BrokerAwayError):
            heartbeat.round()
        heartbeat.leave("nobody")
    heartbeat.round()
    item = waiters.table().queues.get("q")
    assert (item.processed, item.failed) == (3, 2)


def test_a_worker_joins_and_leaves_although_the_table_is_away(
    waiters: Waiters, monkeypatch: pytest.MonkeyPatch
) -> None:
    heartbeat = heartbeat_of(waiters)
    monkeypatch.setattr(waiters.clients, "dynamodb", away)
    heartbeat.join(view())
    assert not heartbeat.paused("q")
    heartbeat.leave("w1")


def test_a_pause_reaches_other_workers_within_a_round_and_a_new_one_at_once(aws: Place, clock: ManualClock) -> None:
    aws.create_table("q")
    mine, theirs = Waiters(aws, clock), Waiters(aws, clock)
    here, there = heartbeat_of(mine), heartbeat_of(theirs)
    there.join(view())
    assert here.pause("q", True)
    assert not here.pause("q", True)
    assert here.paused("q")
    assert not there.paused("q")
    there.round()
    assert there.paused("q")
    late = heartbeat_of(Waiters(aws, clock))
    late.join(view("w2"))
    assert late.paused("q")
    assert here.pause("q", False)
    assert not here.pause("q", False)
    there.round()
    assert not there.paused("q")


def test_a_resume_by_another_process_wakes_the_waits_of_this_one(waiters: Waiters) -> None:
    """Once, by the round that reads it."""
    here, broker = heartbeat_of(waiters), broker_of(waiters)
    there = broker.heartbeat
    woken: list[str] = []
    broker.inflight.wake = lambda: woken.append("there")  # type: ignore[method-assign]
    there.join(view())
    here.pause("q", True)
    there.round()
    assert woken == []
    here.pause("q", False)
    assert woken == []
    there.round()
    there.round()
    assert woken == ["there"]


def test_without_a_table_nothing_is_told_and_nothing_can_be_paused(fake: Place, clock: ManualClock) -> None:
    heartbeat = heartbeat_of(Waiters(fake, clock))
    heartbeat.join(view())
    heartbeat.counted("q", 1, 0)
    assert heartbeat.round() == 10
    assert not heartbeat.paused("q")
    for paused in (True, False):
        with pytest.raises(BrokerError, match=r"table q .*laneway aws create"):
            heartbeat.pause("q", paused)
    heartbeat.leave("w1", [StartedRun("q", "a", 1)])


def test_a_death_is_counted_once_for_the_job_or_call_that_was_running(waiters: Waiters) -> None:
    died = [StartedRun("q", "a", 1), StartedRun("q", "k", 2, "c1")]
    heartbeat = heartbeat_of(waiters)
    for _ in range(2):  # the answer was lost
        heartbeat.leave("w1", died)
    heartbeat.leave("w2", died[:1])
    assert {id: state.deaths for id, state in waiters.table().retry_states.get_all(["a", "k", "c1"]).items()} == {
        "a": 2,
        "c1": 1,
    }


def test_a_death_that_cannot_be_counted_is_an_error(waiters: Waiters, monkeypatch: pytest.MonkeyPatch) -> None:
    heartbeat = heartbeat_of(waiters)
    waiters.table()
    monkeypatch.setattr(waiters.clients, "dynamodb", away)
    with pytest.raises(BrokerAwayError):
        heartbeat.leave("w1", [StartedRun("q", "a", 1)])
