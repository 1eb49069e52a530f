"""Tests of delays that can be cancelled until the due time: the job leaves the table when it is due, no sooner."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from laneway.brokers.aws import AWSBroker
from laneway.brokers.aws.dynamodb.forward import ForwardResult
from laneway.brokers.aws.dynamodb.poller import Poller
from laneway.clock import ManualClock
from laneway.errors import BrokerAwayError
from laneway.jobs.data import Hints, Kind, NewJob
from tests.support.aws.delay_table import Waiters, waiting
from tests.support.aws.endpoints import Place

NOW = 1_700_000_000.0
DAY_S = 86_400.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def waiters(fake: Place, clock: ManualClock) -> Waiters:
    waiters = Waiters(fake, clock)
    waiters.make_table()
    waiters.make_queues("q", "q.fifo")
    return waiters


def job(id: str, delay_s: float, *, cancellable: bool = True, key: str = "") -> NewJob:
    """A plain job, or a call of `key`."""
    ticket = '{"_job_class":"Send","_job_params":null}'
    if key:
        return NewJob(queue="q", key=key, identity=id, body=ticket, kind=Kind.KEYED, delay_s=delay_s)
    return NewJob(queue="q", key=id, body=ticket, delay_s=delay_s, hints=Hints(cancellable=cancellable))


# -- to the end ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay_s", [600, DAY_S])
def test_a_job_can_be_cancelled_until_it_is_due(waiters: Waiters, clock: ManualClock, delay_s: float) -> None:
    waiters.sender.enqueue([job("a", delay_s)])
    poller = waiters.poller()
    clock.advance(delay_s - 7)
    assert poller.round() == 7
    assert waiters.acting().cancel("q", "a")
    clock.advance(7)
    poller.round()
    assert waiters.place.counts("q") == (0, 0, 0)


def test_a_job_that_is_not_cancelled_goes_when_it_is_due(waiters: Waiters, clock: ManualClock) -> None:
    waiters.sender.enqueue([job("a", 20), job("b", 20), job("c", 50), job("plain", 1_000, cancellable=False)])
    poller = waiters.poller()
    assert poller.round() == 20
    clock.advance(19.9)
    assert poller.round() == pytest.approx(0.1)
    assert waiters.sent_ids() == []
    clock.advance(0.1)
    assert poller.round() == 30
    assert sorted(waiters.sent_ids()) == ["a", "b"]
    clock.advance(30)
    assert poller.round() == 250, "then it looks as far ahead as SQS delays again"
    assert waiters.sent_ids() == ["c"]
    clock.advance(250)
    assert poller.round() == 300
    assert waiters.waiting_ids() == []
    assert waiters.place.counts("q") == (0, 0, 1), "what need not be cancelled waits in SQS"


def test_a_job_that_is_moved_can_still_be_cancelled(waiters: Waiters, clock: ManualClock) -> None:
    waiters.sender.enqueue([job("a", DAY_S)])
    assert waiters.acting().reschedule("q", "a", delay_s=90)
    poller = waiters.poller()
    assert poller.round() == 90
    assert waiters.waiting_ids() == ["a"]
    clock.advance(80)
    assert waiters.acting().cancel("q", "a")


@pytest.mark.parametrize("delay_s", [0, -5])
def test_a_job_that_is_moved_to_now_goes_at_once(waiters: Waiters, delay_s: float) -> None:
    waiters.sender.enqueue([job("a", DAY_S)])
    assert waiters.acting().reschedule("q", "a", delay_s=delay_s)
    assert waiters.sent_ids() == ["a"]


def test_a_job_that_was_not_sent_is_tried_again(waiters: Waiters, clock: ManualClock) -> None:
    waiters.table().delayed.put([waiting("a", NOW + 10, queue="nowhere", cancellable=True)])
    poller = waiters.poller()
    assert poller.round() == 10
    clock.advance(10)
    assert poller.round() == 30
    waiters.make_queues("nowhere")
    clock.advance(60)
    poller.round()
    assert waiters.sent_ids("nowhere") == ["a"]


def test_another_pollers_claim_is_waited_for(waiters: Waiters, clock: ManualClock) -> None:
    waiters.sender.enqueue([job("a", 10)])
    poller = waiters.poller()
    assert poller.round() == 10
    clock.advance(10)
    item = waiters.table().delayed.get("a")
    assert item is not None
    assert waiters.table().delayed.claim(item, "a dead one", clock.now())
    pause_s = poller.round()
    assert 120 < pause_s < 125
    clock.advance(pause_s)
    poller.round()
    assert waiters.sent_ids() == ["a"]


# -- what it costs -------------------------------------------------------------------------------------


def test_what_waits_is_not_read_again_and_again(
    waiters: Waiters, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiters.table().delayed.put([waiting(f"j{n:02}", NOW + 10 + n, cancellable=True) for n in range(20)])
    read: list[int] = []
    ask = waiters.clients.dynamodb

    def counted(operation: str, **params: Any) -> dict[str, Any]:
        answer = ask(operation, **params)
        if operation == "query":
            read.append(len(answer["Items"]))
        return answer

    monkeypatch.setattr(waiters.clients, "dynamodb", counted)
    poller = waiters.poller()
    pause_s = poller.round()
    while waiters.waiting_ids():
        clock.advance(pause_s)
        pause_s = poller.round()
    assert clock.now() == NOW + 29
    assert sum(read) == 20 + 20, "once when they were seen, and once when they were due"


@pytest.mark.parametrize(("key", "most"), [("", 9), ("k", 11)])
def test_one_job_costs_few_requests(waiters: Waiters, clock: ManualClock, key: str, most: int) -> None:
    poller = waiters.poller()
    waiters.sender.enqueue([job("first", DAY_S)])
    poller.round()
    before = waiters.requests("dynamodb")
    waiters.sender.enqueue([job("a", 20, key=key)])
    clock.advance(20)
    poller.round()
    assert waiters.requests("dynamodb") - before <= most
    assert waiters.sent_ids("q.fifo" if key else "q") == ["a"]


# -- the poller of the process that stores a job -------------------------------------------------------


class Asked(list[float]):
    """The pauses that a poller has asked for."""

    def __init__(self, poller: Poller) -> None:
        poller.sooner = self.append


@pytest.mark.parametrize("key", ["", "k"])
def test_a_job_that_is_stored_after_a_poll_is_not_late(waiters: Waiters, clock: ManualClock, key: str) -> None:
    poller = waiters.poller()
    asked = Asked(poller)
    assert poller.round() == 300
    waiters.sender.enqueue([job("a", 20, key=key), job("b", 12, key=key), job("late", 400, key=key)])
    assert asked == [12]
    clock.advance(12)
    assert poller.round() == 8
    assert waiters.sent_ids("q.fifo" if key else "q") == ["b"]
    clock.advance(8)
    assert poller.round() == 280
    assert waiters.sent_ids("q.fifo" if key else "q") == ["a"]
    waiters.sender.enqueue([job("plain", 901, cancellable=False), job("now", 0)])
    assert asked == [12], "nothing is told of what the next poll sees in time"


def test_a_job_that_is_moved_after_a_poll_is_not_late(waiters: Waiters, clock: ManualClock) -> None:
    waiters.sender.enqueue([job("a", DAY_S), job("c", DAY_S, key="k")])
    poller = waiters.poller()
    asked = Asked(poller)
    assert poller.round() == 300
    assert waiters.acting().reschedule("q", "a", delay_s=30)
    assert waiters.acting().reschedule("q", "k", "c", delay_s=30)
    assert asked == [30, 30]
    clock.advance(30)
    assert poller.round() == 270
    assert (waiters.sent_ids(), waiters.sent_ids("q.fifo")) == (["a"], ["c"])


def test_a_job_that_is_stored_while_a_round_reads_is_not_late(
    waiters: Waiters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have read that part of the table already."""
    poller = waiters.poller()
    waiters.table().delayed.put([waiting("p", NOW)])
    send = waiters.forwarder.forward

    def forward(*args: Any) -> ForwardResult:
        waiters.sender.enqueue([job("a", 25)])
        return send(*args)

    monkeypatch.setattr(waiters.forwarder, "forward", forward)
    assert poller.round() == 25


def test_after_a_round_that_failed_the_whole_table_is_looked_at(
    waiters: Waiters, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiters.sender.enqueue([job("a", 20)])
    poller = waiters.poller()
    assert poller.round() == 20
    waiters.table().delayed.put([waiting("p", NOW + 100)])
    clock.advance(20)

    def away(operation: str, **params: object) -> dict[str, object]:
        raise BrokerAwayError("DynamoDB is away.")

    with monkeypatch.context() as patch:
        patch.setattr(waiters.clients, "dynamodb", away)
        with pytest.raises(BrokerAwayError):
            poller.round()
    assert poller.round() == 300
    assert waiters.waiting_ids() == []


def test_a_table_that_the_worker_does_not_poll_is_none_of_its_business(waiters: Waiters) -> None:
    waiters.make_table("other")
    waiters.make_queues("other")
    poller = waiters.poller("other")
    asked = Asked(poller)
    poller.round()
    waiters.sender.enqueue([job("a", 20)])
    assert asked == []


@pytest.fixture
def broker(fake: Place, clock: ManualClock) -> Iterator[AWSBroker]:
    fake.create_queues("q")
    fake.create_table("q")
    broker = AWSBroker(fake.settings(), clock=clock, inline=True)
    broker.declare("q", 1)
    yield broker
    broker.close()


def test_a_broker_tells_the_pollers_of_its_workers(broker: AWSBroker) -> None:
    pollers = [duty for _ in range(2) for duty in broker.health.duties(["q"]) if isinstance(duty, Poller)]
    asked = [Asked(poller) for poller in pollers]
    for poller in pollers:
        poller.round()
    broker.enqueue([job("a", 20)])
    assert asked == [[20], [20]]
    assert broker.reschedule("q", "a", delay_s=15)
    assert asked == [[20, 15], [20, 15]]
