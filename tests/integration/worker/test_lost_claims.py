"""A worker that has lost its lease starts no job that it claimed under the old id."""

from __future__ import annotations

import threading
from typing import Annotated

import pytest

from laneway import Batch, Context, Key, Laneway, Worker
from laneway.jobs.data import Claim, Kind, Payload
from laneway.worker.fetch.bus import Bus
from laneway.worker.fetch.prefetch import Lane
from laneway.worker.run.async_loop import AsyncLoop
from laneway.worker.run.run import Run
from laneway.worker.run.runner import RunPreparer
from tests.support.worker_fixtures import PATIENCE_S, Bench, Running

KINDS = ["plain", "keyed", "collecting", "batch"]


class UnitsBench(Bench):
    """One runner, without threads or a broker, and a unit of work of each kind that was claimed as "me"."""

    def __init__(self) -> None:
        super().__init__()

        @self.app.task
        def plain() -> None:
            self.ran.append("plain")

        @self.app.task
        def keyed(key: Annotated[str, Key], number: int) -> None:
            self.ran.append(number)

        @self.app.collect(queue="gathered")
        def gather(batch: Batch[int]) -> None:
            self.ran.append(list(batch))

        self.plain, self.keyed, self.gather = plain, keyed, gather

    def unit(self, kind: str) -> Claim | list[Claim]:
        if kind == "plain":
            return self._claim("a", Kind.PLAIN, [self.app.outgoing(self.plain, (), {})])
        if kind == "keyed":
            calls = [self.app.outgoing(self.keyed, ("a", number), {}) for number in range(3)]
            return self._claim("a", Kind.KEYED, calls)
        claims = [self._value(key) for key in ("a", "b")]
        return claims if kind == "batch" else claims[0]

    def _value(self, key: str) -> Claim:
        return Claim("gathered", 1, key, 7, 0.0, -1, 1, 0, [Payload("1")], kind=Kind.COLLECTING, worker="me")

    def _claim(self, key: str, kind: Kind, jobs: list) -> Claim:
        payloads = [Payload(job.body, 0.0, job.identity, 1) for job in jobs]
        return Claim("default", 1, key, 7, 0.0, -1, 1, 0, payloads, kind=kind, worker="me")

    def read(self, kind: str) -> Run | None:
        return self.runner.read(self.lane, self.unit(kind))

    @property
    def verdicts(self) -> list[tuple[str, int]]:
        return [(settlement.verdict, settlement.done) for settlement, _ in self.lane.finished]


@pytest.fixture
def bench() -> UnitsBench:
    return UnitsBench()


@pytest.mark.integration
@pytest.mark.parametrize("now", ["", "me again"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_claimed_under_an_id_that_is_lost_is_dropped(bench, kind, now):
    """Nothing is run, and nothing settled: under the new id that would be refused, or be somebody else's."""
    assert bench.read(kind) is not None, "as long as it is ours"
    bench.worker = now
    assert bench.read(kind) is None
    assert bench.verdicts == []


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_has_waited_is_looked_at_again(bench, kind):
    run = bench.read(kind)
    assert bench.runner.still_ours(run)
    bench.worker = "me again"
    assert not bench.runner.still_ours(run)
    assert bench.verdicts == []


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_has_waited_for_longer_than_the_lease_is_given_back(bench, kind):
    run = bench.read(kind)
    bench.clock.advance(30)
    assert not bench.runner.still_ours(run)
    assert bench.verdicts == [("release", 0)] * (2 if kind == "batch" else 1)


@pytest.mark.integration
@pytest.mark.parametrize("lost", [True, False])
def test_calls_that_have_ended_are_told_though_the_next_may_not_begin(bench, lost):
    """The broker decides whether they count, and somebody is told if not."""
    run = bench.runner.execute(bench.read("keyed"))
    if lost:
        bench.worker = "me again"
    else:
        bench.clock.advance(30)
    assert not bench.runner.still_ours(run)
    assert (bench.ran, bench.verdicts) == ([0], [("release", 1)])


class Once:
    """Has the worker lose its lease, and learn of it, at a place that it passes; the first time only."""

    def __init__(self, app: Laneway) -> None:
        self.app = app
        self.worker: Worker | None = None
        self.tokens: set[int] = set()
        self.happened = threading.Event()

    def __call__(self, *claims: Claim) -> None:
        if self.happened.is_set() or self.worker is None or not claims:
            return
        self.tokens = {claim.token for claim in claims}
        self.happened.set()
        broker, old = self.app.broker, self.worker.id
        while not broker.declare_dead(old, broker.leases()[old][0]):
            pass
        broker.reclaim()
        self.worker._parts.membership.rejoin(old)
        assert self.worker.id != old


@pytest.fixture
def once(app):
    return Once(app)


def run_all(app: Laneway, once: Once, done: threading.Event, **options) -> None:
    running = Running(app, **options)
    once.worker = running.worker
    with running:
        assert once.happened.wait(PATIENCE_S)
        assert done.wait(PATIENCE_S)
    assert [stats for stats in app.broker.inspect.stats() if stats.length or stats.busy] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_unit_taken_before_the_id_changes_is_not_begun_after(app, once, monkeypatch, kind):
    fences, done = [], threading.Event()

    def run(context: Context) -> None:
        fences.append(context.fence)
        done.set()

    if kind in ("collecting", "batch"):

        @app.collect(batch_size=2 if kind == "batch" else 1, shards=1, context=True)
        def gather(context: Context, batch: Batch[int]) -> None:
            run(context)

        gather.enqueue_many([("a", 1), ("b", 1)] if kind == "batch" else [("a", 1)])
    elif kind == "keyed":

        @app.task(context=True)
        def keyed(context: Context, key: Annotated[str, Key]) -> None:
            run(context)

        keyed.enqueue("a")
    else:

        @app.task(context=True)
        def plain(context: Context) -> None:
            run(context)

        plain.enqueue()
    read = RunPreparer.read

    def slowly(self, lane, unit):
        once(*(unit if isinstance(unit, list) else [unit]))
        return read(self, lane, unit)

    monkeypatch.setattr(RunPreparer, "read", slowly)
    run_all(app, once, done, concurrency=1)
    assert len(fences) == 1
    assert not once.tokens & set(fences)


def test_claims_that_arrive_while_the_id_changes_are_forgotten(app, once, monkeypatch):
    """Between looking whose they are and putting them into the bus: else they would count as held for ever."""
    fences, done = [], threading.Event()

    @app.task(context=True)
    def work(context: Context) -> None:
        fences.append(context.fence)
        done.set()

    work.enqueue()
    put = Bus.put

    def slowly(self, lane, units):
        once(*units)
        put(self, lane, units)

    monkeypatch.setattr(Bus, "put", slowly)
    run_all(app, once, done)
    assert len(fences) == 1
    assert not once.tokens & set(fences)
    assert once.worker.is_empty()


def test_a_run_that_waits_for_the_loop_while_the_id_changes_is_not_begun(app, once, monkeypatch):
    fences, done = [], threading.Event()

    @app.task(context=True)
    async def work(context: Context) -> None:
        fences.append(context.fence)
        done.set()

    work.enqueue()
    submit = AsyncLoop.submit

    def slowly(self, run, runner):
        once(run.claim)
        submit(self, run, runner)

    monkeypatch.setattr(AsyncLoop, "submit", slowly)
    run_all(app, once, done)
    assert len(fences) == 1
    assert not once.tokens & set(fences)


def test_a_run_that_waits_for_a_thread_while_the_id_changes_is_not_begun(app, once, monkeypatch):
    """The loop, which has the only permit, takes what comes after its own job; that turns out to be for a thread."""
    fences, done = [], threading.Event()

    @app.task
    async def first() -> None: ...

    @app.task(context=True)
    def second(context: Context) -> None:
        fences.append(context.fence)
        done.set()

    first.enqueue()
    second.enqueue()
    give_back = Bus.give_back

    def slowly(self, run=None):
        if run is not None:
            once(run.claim)
        give_back(self, run)

    monkeypatch.setattr(Bus, "give_back", slowly)
    monkeypatch.setattr("laneway.worker.assembly.Lane", FetchingAhead)
    run_all(app, once, done, concurrency=1)
    assert len(fences) == 1
    assert not once.tokens & set(fences)


class FetchingAhead(Lane):
    """Fetches both jobs in one turn, however quick this machine is."""

    def __init__(self, queue: str, concurrency: int, ahead_s: float, weight: int | None) -> None:
        super().__init__(queue, concurrency, ahead_s, weight)
        self.capacity = 10

    def _adapt(self) -> None: ...
