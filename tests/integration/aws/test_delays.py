"""Tests of delays of any length, from the enqueue to the arrival in the queue, and of actions on delayed jobs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from laneway.clock import ManualClock
from laneway.errors import BrokerError, EnqueueError
from laneway.jobs.data import Hints, Kind, NewJob
from tests.support.aws.delay_table import Waiters, waiting
from tests.support.aws.endpoints import Place
from tests.support.aws.servers import FakeServer

NOW = 1_700_000_000.0
DAY_S = 86_400.0


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[FakeServer, ManualClock]]:
    clock = ManualClock(NOW)
    server = FakeServer.start(clock)
    yield server, clock
    server.end()


@pytest.fixture
def server(started: tuple[FakeServer, ManualClock]) -> FakeServer:
    """A server that tells the time by the test's clock."""
    server, clock = started
    server.reset()
    clock.step(NOW - clock.now())
    return server


@pytest.fixture
def clock(server: FakeServer, started: tuple[FakeServer, ManualClock]) -> ManualClock:
    return started[1]


@pytest.fixture
def waiters(server: FakeServer, clock: ManualClock) -> Waiters:
    server.create_queues("q")
    server.create_table("q")
    return Waiters(server, clock)


def job(id: str, *, key: str = "", **options: Any) -> NewJob:
    """A plain job, or a call of `key`."""
    ticket = '{"_job_class":"Send","_job_params":null}'
    if key:
        return NewJob(queue="q", key=key, identity=id, body=ticket, kind=Kind.KEYED, **options)
    return NewJob(queue="q", key=id, body=ticket, **options)


# -- the way of a delayed job --------------------------------------------------------------------------


def test_thirty_days_arrive_once_and_on_time_with_few_requests(
    waiters: Waiters, server: FakeServer, clock: ManualClock
) -> None:
    spread = random.Random(30)
    due = {f"j{n:03}": NOW + 30 * DAY_S + spread.uniform(0, 1_500) for n in range(100)}
    for id, at in due.items():
        waiters.sender.enqueue([job(id, perform_at=at, key=f"k{id}" if id in ("j033", "j066") else "")])
    poller = waiters.poller()
    poller.round()
    clock.advance(30 * DAY_S - 1_000)
    arrived: dict[str, float] = {}
    until = max(due.values()) + 3
    next_round = clock.now()
    while clock.now() < until:
        if clock.now() >= next_round:
            next_round = clock.now() + poller.round()
        for name in [name for name in ("q", "q.fifo") if server.queues[name].counts.visible]:
            for id in waiters.sent_ids(name):
                assert id not in arrived
                arrived[id] = clock.now()
        # On to whatever happens next: a round, or a message that SQS has delayed.
        visible = [at + 1 for id, at in due.items() if id not in arrived and at + 1 > clock.now()]
        clock.advance(max(0.001, min([next_round, *visible, until]) - clock.now()))
    assert arrived.keys() == due.keys()
    late = [arrived[id] - at for id, at in due.items()]
    assert min(late) >= 0
    assert max(late) <= 2
    assert waiters.requests("dynamodb") <= 4 * len(due)
    assert waiters.requests("sqs") <= 0.5 * len(due)
    assert waiters.waiting_ids() == []


def test_any_delay_of_a_keyed_call_is_spent_in_the_table_and_needs_one(waiters: Waiters, server: FakeServer) -> None:
    waiters.sender.enqueue([job("c1", delay_s=1, key="k")])
    assert waiters.waiting_ids() == ["c1"]
    server.dynamodb_client.delete_table(TableName="q")
    waiters.tables.forget("q")
    with pytest.raises(EnqueueError, match="table"):
        waiters.sender.enqueue([job("c2", delay_s=1, key="k")])


def test_a_short_delay_is_spent_in_the_table_only_if_it_must_be_possible_to_cancel_it(waiters: Waiters) -> None:
    waiters.sender.enqueue(
        [job("a", delay_s=60), job("b", delay_s=60, hints=Hints(cancellable=True)), job("c", delay_s=901)]
    )
    assert waiters.waiting_ids() == ["b", "c"]


# -- cancelling and moving -----------------------------------------------------------------------------


def test_what_waits_in_the_table_can_be_cancelled(waiters: Waiters) -> None:
    waiters.sender.enqueue([job("a", delay_s=DAY_S), job("c1", delay_s=5, key="k"), job("c2", delay_s=5, key="k")])
    acting = waiters.acting()
    assert acting.cancel("q", "a")
    assert acting.cancel("q", "k", "c1")
    assert waiters.waiting_ids() == ["c2"]
    assert acting.cancel("q", "k")
    assert waiters.waiting_ids() == []


def test_what_is_being_sent_is_neither_cancelled_nor_moved(waiters: Waiters) -> None:
    waiters.table().delayed.put([waiting("a", NOW + 10)])
    item = waiters.table().delayed.get("a")
    assert item is not None
    assert waiters.table().delayed.claim(item, "a poller", NOW)
    assert not waiters.acting().cancel("q", "a")
    assert not waiters.acting().reschedule("q", "a", delay_s=50)
    assert waiters.acting().run_now("q", ["a"]) == 0


@pytest.mark.parametrize("queue", ["q", "plain"])
def test_what_is_not_in_the_table_cannot_be_cancelled_and_the_error_names_the_table(
    waiters: Waiters, server: FakeServer, queue: str
) -> None:
    server.create_queue("plain")
    for act in (waiters.acting().cancel, waiters.acting().reschedule):
        with pytest.raises(BrokerError, match=rf"table {queue}\b.*using\(cancellable=True\)"):
            act(queue, "a")
    assert waiters.acting().run_now(queue, ["a"]) == 0


def test_a_job_of_another_queue_in_the_same_table_is_not_meant(server: FakeServer, clock: ManualClock) -> None:
    waiters = Waiters(server, clock, table="jobs")
    server.create_table("jobs")
    waiters.table().delayed.put([waiting("a", NOW + DAY_S, queue="other")])
    with pytest.raises(BrokerError, match="not in the table jobs"):
        waiters.acting().cancel("q", "a")
    assert waiters.waiting_ids("jobs") == ["a"]


def test_a_job_is_moved_to_a_later_time_and_arrives_then(waiters: Waiters, clock: ManualClock) -> None:
    waiters.sender.enqueue([job("a", delay_s=1_000)])
    assert waiters.acting().reschedule("q", "a", delay_s=5_000)
    clock.advance(4_000)
    waiters.poller().round()
    assert waiters.waiting_ids() == ["a"]
    clock.advance(200)
    waiters.poller().round()
    assert waiters.sent_ids() == []
    clock.advance(801)
    assert waiters.sent_ids() == ["a"]


@pytest.mark.parametrize("seconds", [-100, 0, 30])
def test_a_job_that_is_moved_to_before_the_next_poll_goes_to_its_queue_at_once(
    waiters: Waiters, clock: ManualClock, seconds: float
) -> None:
    waiters.sender.enqueue([job("a", delay_s=DAY_S)])
    assert waiters.acting().reschedule("q", "a", perform_at=NOW + seconds)
    assert waiters.waiting_ids() == []
    assert waiters.sent_ids() == ([] if seconds > 0 else ["a"])
    clock.advance(31)
    assert waiters.sent_ids() == (["a"] if seconds > 0 else [])


def test_a_call_that_is_moved_waits_in_the_table_until_it_is_due(waiters: Waiters) -> None:
    waiters.sender.enqueue([job("c1", delay_s=DAY_S, key="k"), job("c2", delay_s=DAY_S, key="k")])
    assert waiters.acting().reschedule("q", "k", "c1", delay_s=30)
    assert waiters.poller().round() == 30
    assert waiters.acting().reschedule("q", "k", delay_s=0)
    assert waiters.sent_ids("q.fifo") == ["c1", "c2"]


# -- many at once --------------------------------------------------------------------------------------


def test_running_now_sends_plain_jobs_and_all_calls_of_a_key(waiters: Waiters) -> None:
    plain = [f"j{n:02}" for n in range(12)]
    waiters.sender.enqueue([job(id, delay_s=DAY_S) for id in [*plain, "not meant"]])
    waiters.sender.enqueue([job(f"c{n}", delay_s=DAY_S + n, key="k") for n in range(3)])
    assert waiters.acting().run_now("q", [*plain, "k", "none"]) == 13
    assert sorted(waiters.sent_ids()) == plain
    assert waiters.sent_ids("q.fifo") == ["c0", "c1", "c2"]
    assert waiters.waiting_ids() == ["not meant"]


def test_failed_jobs_are_buried_or_deleted_and_others_left_alone(waiters: Waiters, server: FakeServer) -> None:
    waiters.table().delayed.put([waiting(id, NOW + DAY_S, retry_count=3, error="Boom") for id in ("a", "b", "c")])
    waiters.table().delayed.put([waiting("fresh", NOW + DAY_S)])
    acting = waiters.acting()
    assert acting.bury_failed("q", ["a", "b", "fresh", "none"]) == 2
    assert acting.delete_failed("q", ["c", "fresh", "none"]) == 1
    assert waiters.waiting_ids() == ["fresh"]
    letters = server.receive_all("q-deadletter")
    assert len(letters) == 2
    assert all('"error":"Boom"' in each["MessageAttributes"]["laneway"]["StringValue"] for each in letters)
    assert server.counts("q") == (0, 0, 0)


def test_a_job_that_cannot_be_buried_stays(fake: Place, clock: ManualClock) -> None:
    waiters = Waiters(fake, clock)
    waiters.make_queues("q")
    waiters.make_table()
    waiters.table().delayed.put([waiting("a", NOW + DAY_S, retry_count=3, error="Boom")])
    with pytest.raises(BrokerError, match="laneway aws create"):
        waiters.acting().bury_failed("q", ["a"])
    item = waiters.table().delayed.get("a")
    assert item is not None
    assert item.claim == ""
