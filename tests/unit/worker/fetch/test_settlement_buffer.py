"""SettlementBuffer: where a broker counts requests, settlements wait for ten or for a tenth of a second."""

from __future__ import annotations

import threading

import pytest

from laneway import Laneway
from laneway.broker import Answer, Capabilities, SettleBatch, Turn
from laneway.brokers.sqlite import MemoryBroker
from laneway.clock import ManualClock
from laneway.jobs.data import Claim, Payload
from laneway.jobs.settlement import Settlement, done, postponed, released
from laneway.worker.fetch import shards
from laneway.worker.fetch.bus import Bus
from laneway.worker.fetch.fetcher import Fetcher
from laneway.worker.fetch.prefetch import Lane, SettlementBuffer
from laneway.worker.fetch.shards import ShardAssignment
from laneway.worker.outage import MissingQueues, Outage
from laneway.worker.run.decide import OutboxRefusals
from laneway.worker.shutdown import look_s
from tests.support.worker_fixtures import PATIENCE_S, Running, drain, stats

TEN = SettleBatch(10, 0.1)


def claim(number: int, calls: int = 1) -> Claim:
    return Claim("q", number, f"key {number}", 1, 0.0, -1, 1, 0, [Payload("x") for _ in range(calls)])


class Bench:
    """A lane and what gathers in it, on a clock that stands still."""

    def __init__(self, gather: SettleBatch = TEN) -> None:
        self.clock = ManualClock()
        self.lane = Lane("q", 1)
        self.gathering = SettlementBuffer(self.lane, gather, self.clock.monotonic)

    def finish(self, count: int) -> None:
        for number in range(count):
            self.lane.finish(done(claim(number)), 0.001)


@pytest.mark.unit
def test_without_a_wish_all_goes_with_the_next_turn():
    bench = Bench(SettleBatch())
    assert not bench.gathering.ready()
    bench.finish(3)
    assert bench.gathering.ready()
    assert bench.gathering.due_in() is None, "whoever has finished it wakes the fetcher"
    assert len(bench.gathering.take()) == 3


@pytest.mark.unit
def test_a_few_wait_until_the_first_has_waited_long_enough():
    bench = Bench()
    assert bench.gathering.due_in() is None
    bench.finish(9)
    assert not bench.gathering.ready()
    assert bench.gathering.take() == []
    assert bench.gathering.due_in() == pytest.approx(0.1)
    bench.clock.advance(0.06)
    assert bench.gathering.take() == [], "asking again does not begin anew"
    assert bench.gathering.due_in() == pytest.approx(0.04)
    bench.clock.advance(0.05)
    assert bench.gathering.ready()
    assert len(bench.gathering.take()) == 9
    assert bench.gathering.due_in() is None


@pytest.mark.unit
def test_ten_go_at_once_and_what_would_not_fill_a_request_stays():
    bench = Bench()
    bench.finish(23)
    assert bench.gathering.due_in() == 0
    assert len(bench.gathering.take()) == 20
    assert bench.lane.in_turn == 20
    assert bench.gathering.take() == []
    assert bench.gathering.due_in() == pytest.approx(0.1)
    bench.clock.advance(0.1)
    assert len(bench.gathering.take()) == 3


@pytest.mark.unit
def test_every_call_of_a_key_counts():
    bench = Bench()
    bench.lane.finish(done(claim(1, calls=6)), 0.1)
    assert not bench.gathering.ready()
    bench.lane.finish(done(claim(2, calls=4)), 0.1)
    assert len(bench.gathering.take()) == 2


@pytest.mark.unit
def test_a_batch_is_not_divided():
    bench = Bench()
    settlements = [done(claim(number)) for number in range(12)]
    for settlement in settlements:
        settlement.run = 1
    bench.lane.finish_all(settlements, 0.1)
    assert len(bench.gathering.take()) == 12


@pytest.mark.unit
@pytest.mark.parametrize(
    ("settlement", "at_once"), [(released(claim(1)), True), (postponed(claim(1), 60.0), False)], ids=["back", "later"]
)
def test_what_others_could_run_does_not_wait(settlement: Settlement, at_once: bool):
    bench = Bench()
    bench.finish(2)
    bench.lane.finish(settlement, None)
    assert bench.gathering.ready() is at_once
    assert len(bench.gathering.take()) == (3 if at_once else 0)


@pytest.mark.unit
def test_as_many_as_a_lane_may_have_do_not_wait_for_more():
    bench = Bench()
    bench.lane.most = 4
    bench.finish(4)
    assert len(bench.gathering.take()) == 4


@pytest.mark.unit
def test_nothing_waits_when_the_worker_stops():
    bench = Bench()
    bench.finish(3)
    assert bench.gathering.take() == []
    bench.gathering.at_once = True
    assert bench.gathering.ready()
    assert len(bench.gathering.take()) == 3


@pytest.mark.unit
@pytest.mark.parametrize(
    ("gather", "capacity", "waiting", "asks"),
    [
        (TEN, 20, 12, False),
        (TEN, 20, 11, True),  # and one runner idles: room for ten
        (TEN, 4, 3, False),
        (TEN, 4, 2, True),
        (TEN, 0, 0, True),
        (TEN, 0, 1, False),
        (SettleBatch(), 20, 20, True),
    ],
)
def test_jobs_are_asked_for_when_they_fill_a_request(gather: SettleBatch, capacity: int, waiting: int, asks: bool):
    app = Laneway(broker=Counted(gather))
    lane = Lane("q", 1)
    lane.capacity = capacity
    bus = Bus([lane], 1)
    bus.put(lane, [claim(number) for number in range(waiting)])
    fetcher = fetcher_of(app, lane, bus)
    lane.due = False
    assert fetcher.hungry is asks


def fetcher_of(app: Laneway, lane: Lane, bus: Bus) -> Fetcher:
    """One that nobody starts."""

    def nothing(*args: object) -> None: ...

    share = ShardAssignment(app, lane.queue, shards.default_splitter, shards.lag)
    return Fetcher(
        app,
        lane,
        bus,
        Outage(app.telemetry),
        MissingQueues(app.telemetry),
        share,
        OutboxRefusals(app, nothing),
        worker_id=lambda: "me",
        held_under=lambda: "me",
        lost=nothing,
        told_buried=nothing,
        counted=nothing,
        fatal=nothing,
        moved=nothing,
    )


class Counted(MemoryBroker):
    """Notes how many settlements came with each turn that had some."""

    def __init__(self, gather: SettleBatch = TEN) -> None:
        super().__init__()
        self.capabilities = Capabilities(shared=False, remote=True, settle_batch=gather)
        self.sizes: list[int] = []
        self.claims_alone = 0
        self.settled = threading.Event()

    def turn(self, turn: Turn) -> Answer:
        answer = super().turn(turn)
        if turn.settlements:
            self.sizes.append(len(turn.settlements))
            self.settled.set()
        elif answer.claims:
            self.claims_alone += 1
        return answer


def test_a_busy_worker_settles_in_full_requests_and_claims_meanwhile():
    broker = Counted()
    app = Laneway(broker=broker)

    @app.task
    def nothing() -> None: ...

    nothing.enqueue_many([()] * 500)
    assert drain(app, concurrency=5) == 0
    assert stats(app).processed == 500
    requests = sum(-(-size // 10) for size in broker.sizes)
    assert requests <= 100, broker.sizes  # 50 would be full; a machine that stands still sends some that are not
    assert broker.claims_alone > 0


def test_few_runs_are_recorded_though_no_more_come():
    broker = Counted(SettleBatch(10, 0.02))
    app = Laneway(broker=broker)

    @app.task
    def nothing() -> None: ...

    with Running(app):
        for _ in range(3):
            nothing.enqueue()
            assert broker.settled.wait(PATIENCE_S)
            broker.settled.clear()
    assert broker.sizes == [1, 1, 1]
    assert stats(app).processed == 3


def test_runs_go_on_while_settlements_gather(monkeypatch: pytest.MonkeyPatch):
    """Claiming does not wait for them, and nobody goes round and round until they are due."""
    broker = Counted(SettleBatch(10, 3600.0))
    app = Laneway(broker=broker)
    ran = threading.Semaphore(0)
    rounds: list[int] = []
    go_round = Fetcher.round
    monkeypatch.setattr(Fetcher, "round", lambda self: rounds.append(1) or go_round(self))

    @app.task
    def note() -> None:
        ran.release()

    with Running(app, concurrency=2) as worker:
        for _ in range(9):
            note.enqueue()
            assert ran.acquire(timeout=PATIENCE_S)
        assert broker.sizes == []
        assert stats(app).busy == 9, "they are held until they are settled"
        assert not worker.is_empty()
        assert len(rounds) < 100, "a few for each run"
    assert sum(broker.sizes) == 9, "stopping takes them along at once"
    assert stats(app).processed == 9


def test_a_worker_that_is_to_end_looks_seldom_where_requests_are_counted():
    assert look_s(Counted()) > look_s(MemoryBroker())
