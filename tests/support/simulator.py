"""Simulates workers, a producer, crashes, pauses and lost messages in one thread, interleaved by a seed.

    python -m tests.support.simulator --seeds 1000

The broker is real, and so is much of the worker. The clock is not, and nothing happens by itself, so that the same
seed gives the same history. At every snapshot each accepted job must be somewhere. At the end the simulator lets
everything run. Then nothing may be lost, have overlapped, be out of order or have been settled too late.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, cast
from zlib import crc32

import msgspec

from laneway.broker import Broker, CoreBroker, complete
from laneway.clock import Clock, ManualClock
from laneway.errors import BrokerAwayError
from laneway.failpoints import armed
from laneway.jobs.data import JobView
from laneway.testing.faulty_broker import FaultyBroker
from tests.support.checkers import (
    AcceptedCall,
    Snapshot,
    conservation,
    lost,
    out_of_order,
    overlap,
    repeats,
    snapshot,
    stale_accepted,
)
from tests.support.history import HistoryEvent
from tests.support.recorder import Ledger, RecordingBroker
from tests.support.simulated_operators import SimulatedOperator, SimulatedSupervisor
from tests.support.simulated_workers import (
    GATHER,
    KEYS,
    LEASE_S,
    ORDERS,
    Producer,
    Resharder,
    SimulatedCrash,
    SimulatedWorker,
    name_of,
)

#: Called once for each participant: processes have connections of their own to one store.
Connect = Callable[[Clock], CoreBroker]

WORKERS = 3
#: Rounds of the end in which nothing goes wrong any more; more, and something is stuck.
LONGEST_END = 2_000


class SimulationReport(msgspec.Struct):
    """What came of a simulation."""

    seed: int
    #: What is wrong, a sentence each.
    findings: list[str]
    accepted: int
    runs: int
    repeats: int
    refused: int
    crashes: int
    pauses: int
    reshardings: int
    #: Deaths that were reported of what was being run, and turns that were taken while their queue was paused.
    deaths: int
    paused_turns: int
    #: Verbs that were cut off between two requests.
    cuts: int
    #: Different for different histories.
    digest: int


class Simulation:
    """One seed's world."""

    def __init__(self, seed: int, connect: Connect, worker: type[SimulatedWorker] = SimulatedWorker) -> None:
        self.seed = seed
        self.chance = Random(seed)
        self.clock = ManualClock()
        self.ledger = Ledger(self.clock)
        self.findings: list[str] = []
        self.crashes = self.pauses = self.cuts = 0
        self._connect = connect
        self._worker = worker
        self._pids = count(1)
        self._brokers: list[FaultyBroker] = []
        self.onlooker = complete(connect(self.clock))
        self.onlooker.declare(ORDERS, 3)
        self.onlooker.declare(GATHER, 2)
        #: Whether a verb is one transaction: then nothing can happen in the middle of it.
        self._whole_verbs = self.onlooker.capabilities.has("unique_keys")
        self.producer = Producer(self._participant(), self.chance)
        self.resharder = Resharder(self._participant(), self.chance)
        self.operator = SimulatedOperator(self._participant(), self.chance)
        self.supervisor = SimulatedSupervisor(self._participant())
        self.workers = [self._hire() for _ in range(WORKERS)]

    def _participant(self) -> Broker:
        recorder = cast(Broker, RecordingBroker(complete(self._connect(self.clock)), self.ledger))
        faulty = FaultyBroker(recorder)
        self._brokers.append(faulty)
        return cast(Broker, faulty)

    def _hire(self) -> SimulatedWorker:
        return self._worker(self._participant(), self.ledger, self.clock, self.chance, lambda: next(self._pids))

    # -- what happens ----------------------------------------------------------------------------------

    def step(self) -> None:
        """One thing happens, and a little time passes; now and then somebody sets the wall clock."""
        self.clock.advance(self.chance.choice((0.0, 0.0, 0.1, 1.0, 3.0)))
        if self.chance.random() < 0.01:
            self.clock.step(self.chance.choice((-20.0, -2.0, -0.5, 5.0)))
        self._beat()
        happening = self.chance.random()
        if happening < 0.69:
            self._work()
        elif happening < 0.82:
            with self._cut_off(BrokerAwayError("A request was lost.")):
                self.producer.act()
        elif happening < 0.86:
            self._trouble()
        elif happening < 0.88:
            self.resharder.act()
        elif happening < 0.93:
            self.resharder.act(begin=False)
        elif happening < 0.94:
            self.operator.act()
        elif happening < 0.95:
            self.onlooker.operate.revive(ORDERS, [self.chance.choice(KEYS[ORDERS])])
        else:
            self._lose_something()

    @contextmanager
    def _cut_off(self, *how: BaseException) -> Iterator[None]:
        """Where a verb is several requests: now and then, one of these happens before or after one of them."""
        if self._whole_verbs or self.chance.random() > 0.1:
            yield
            return
        left, error = self.chance.randrange(8), self.chance.choice(how)

        def cut_off() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                del armed["inside call"]
                self.cuts += 1
                raise error

        armed["inside call"] = cut_off
        try:
            yield
        finally:
            armed.pop("inside call", None)

    def _beat(self) -> None:
        for worker in list(self.workers):
            try:
                worker.beat()
            except SimulatedCrash:
                self._crash(worker)

    def _work(self) -> None:
        awake = [worker for worker in self.workers if not worker.paused]
        if not awake:
            return
        worker = self.chance.choice(awake)
        place = self.chance.choice((None,) * 60 + ("inside settle", "before", "after"))
        try:
            if place == "before":
                raise SimulatedCrash
            with _crashing(place), self._cut_off(BrokerAwayError("A request was lost."), SimulatedCrash()):
                worker.act()
            if place == "after":
                raise SimulatedCrash
        except SimulatedCrash:
            self._crash(worker)

    def _crash(self, worker: SimulatedWorker) -> None:
        """Its process is gone, with all that it knew; another is started."""
        self.crashes += 1
        self.ledger.note("K", pid=worker.pid)
        if worker.run is not None:
            self.ledger.note("K", pid=worker.run.pid)
        if worker.joined and self.chance.random() < 0.5:  # else its machine is gone, and its lease runs out
            self.supervisor.buries(worker)
        self._replace(worker)

    def _replace(self, worker: SimulatedWorker) -> None:
        worker.broker.close()
        self.workers[self.workers.index(worker)] = self._hire()

    def _trouble(self) -> None:
        """A worker is stopped, shorter or longer than its lease, or goes in good order."""
        worker = self.chance.choice(self.workers)
        if worker.paused or not worker.joined:
            return
        match self.chance.randrange(3):
            case 0:
                worker.paused_until = self.clock.monotonic() + LEASE_S * 0.5
            case 1:
                self.pauses += 1
                worker.paused_until = self.clock.monotonic() + LEASE_S * 1.5
                self.ledger.note("P", pid=worker.pid)
                if worker.run is not None:
                    self.ledger.note("P", pid=worker.run.pid)
            case _:
                worker.leave()
                self._replace(worker)

    def _lose_something(self) -> None:
        """The next request of somebody, or its answer, gets lost."""
        theirs = [worker.broker for worker in self.workers]
        others = [each.broker for each in (self.producer, self.resharder, self.operator, self.supervisor)]
        faulty = cast(FaultyBroker, self.chance.choice((*theirs, *theirs, *theirs, *others)))
        verbs = (*("turn",) * 3, "enqueue", "renew", "join", "leases", "reclaim", "reshard", "leave", "pause", "resume")
        verb = self.chance.choice(verbs)
        self.chance.choice((faulty.lose_request, faulty.lose_answer))(verb)

    # -- what must be true -----------------------------------------------------------------------------

    def look(self) -> Snapshot:
        """Whether everything that was accepted is somewhere."""
        whole, views = self._seen()
        unsure = {name_of(job) for job in self.producer.pending}
        sure = Snapshot(*(place - unsure for place in (whole.waiting, whole.running, whole.dead)))
        accepted = {job for _, _, job in self.producer.accepted}
        self.findings += conservation(accepted, self.ledger.done, sure)
        self.findings += self.supervisor.unexplained(views)
        return whole

    def _seen(self) -> tuple[Snapshot, list[JobView]]:
        if not self.onlooker.capabilities.has("queued_jobs"):
            return cast(Any, self.onlooker).snapshot(), []
        seen = snapshot(self.onlooker, [(ORDERS, key) for key in KEYS[ORDERS]])
        gathered = snapshot(self.onlooker, [(GATHER, key) for key in KEYS[GATHER]])
        # A value may be running and set aside at once, when its enqueueing was repeated.
        waiting = gathered.waiting - gathered.running
        whole = Snapshot(seen.waiting | waiting, seen.running | gathered.running, seen.dead | gathered.dead)
        views = [
            view for queue, keys in KEYS.items() for key in keys for view in self.onlooker.inspect.find(queue, key)
        ]
        return whole, views

    def end(self) -> Snapshot:
        """Let everything run until nothing is left; nothing goes wrong any more."""
        left = self.look()
        for _ in range(LONGEST_END):
            self.clock.advance(self.chance.choice((0.0, 0.5, 2.0)))
            self._beat()
            if self.producer.pending:
                self.producer.act()
            self.resharder.act(begin=False)
            for queue in sorted(self.operator.paused):
                self.operator.resume(queue)
            for worker in self.workers:
                if not worker.paused:
                    worker.act()
            left = self.look()
            if not (left.waiting or left.running or self.producer.pending or self.resharder.under_way):
                return left
        self.findings.append(f"It came to no end: {len(left.waiting)} are waiting, {len(left.running)} are running.")
        return left

    def report(self, steps: int) -> SimulationReport:
        """Run it, and check what came of it."""
        for number in range(steps):
            self.step()
            if number % 20 == 0:
                self.look()
        left = self.end()
        events = self.ledger.events
        accepted = [AcceptedCall(*each) for each in self.producer.accepted]
        self.findings += lost(accepted, events, left)
        self.findings += overlap(events) + out_of_order(events)
        if self._whole_verbs:
            self.findings += stale_accepted(events)
        else:
            self.findings += self._morgue(left)
        self.findings += self.ledger.findings + [finding.text for finding in self.onlooker.health.check()]
        for broker in (*self._brokers, self.onlooker):
            broker.close()
        return SimulationReport(
            seed=self.seed,
            findings=list(dict.fromkeys(self.findings)),
            accepted=len(accepted),
            runs=sum(event.what == "S" for event in events),
            repeats=repeats(events),
            refused=self.ledger.refused,
            crashes=self.crashes,
            pauses=self.pauses,
            reshardings=self.resharder.finished,
            deaths=self.supervisor.blamed.total(),
            paused_turns=self.ledger.paused_turns,
            cuts=self.cuts,
            digest=_digest(events),
        )

    def _morgue(self, left: Snapshot) -> list[str]:
        """Whether the broker shows the jobs that are dead, no others, and only deaths that were reported."""
        views = [view for queue in KEYS for view in self.onlooker.inspect.listing(queue, "dead").jobs]
        shown = {payload.identity or view.key for view in views for payload in view.payloads}
        wrong = [f"Job {job} is dead and not shown." for job in sorted(left.dead - shown)]
        wrong += [f"Job {job} is shown as dead and is not." for job in sorted(shown - left.dead)]
        return wrong + self.supervisor.unexplained(views)


def _digest(events: Sequence[HistoryEvent]) -> int:
    """Tokens count by their order: some brokers make them from their server's clock."""
    order = {token: number for number, token in enumerate(sorted({event.token for event in events}))}
    lines = []
    for event in events:
        token = order[event.token]
        job = event.job.replace(f"@{event.token}", f"@{token}")
        lines.append(msgspec.structs.replace(event, token=token, job=job).line())
    return crc32("\n".join(lines).encode())


@contextmanager
def _crashing(place: str | None) -> Any:
    """Have whoever reaches this failpoint crash there."""

    def crash() -> None:
        raise SimulatedCrash

    if place is not None:
        armed[place] = crash
    try:
        yield
    finally:
        armed.pop(place or "", None)


def simulate(
    seed: int, connect: Connect, *, steps: int = 400, worker: type[SimulatedWorker] = SimulatedWorker
) -> SimulationReport:
    """Run one seed. `connect` is called for every participant, and each time leads to the same store."""
    return Simulation(seed, connect, worker).report(steps)


def on_sqlite(path: Path) -> Connect:
    """A SQLite file, with a connection of its own for every participant."""
    from laneway.brokers.sqlite import SQLiteBroker

    return lambda clock: SQLiteBroker(path, clock=clock)


def in_memory() -> Connect:
    """One broker of `memory:`, for all."""
    from laneway.brokers.sqlite import MemoryBroker

    return _one_for_all(MemoryBroker)


def on_second_broker() -> Connect:
    """One broker of the second implementation, for all."""
    from .second_broker import SecondBroker

    return _one_for_all(SecondBroker)


def _one_for_all(make: Connect) -> Connect:
    brokers: list[CoreBroker] = []

    def connect(clock: Clock) -> CoreBroker:
        if not brokers:
            brokers.append(make(clock))
        return brokers[0]

    return connect


def on_redis(url: str) -> Connect:
    """A Redis or Valkey server, with connections of its own for every participant. The URL's prefix must be unused."""
    from laneway.brokers.redis import RedisBroker
    from laneway.brokers.redis.settings import RedisSettings
    from laneway.urls import Url

    settings = RedisSettings.from_url(Url.parse(url))
    return lambda clock: RedisBroker(settings.open(), prefix=settings.prefix, clock=clock)


def on_fake() -> Connect:
    """The AWS broker on the in-memory fake, as if every participant were a process."""
    from tests.support.aws.simulated_aws import OnFake

    return OnFake()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run many seeds, and print what is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.simulator", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many (default: 100)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default: 0)")
    parser.add_argument("--steps", type=int, default=400, help="steps of each (default: 400)")
    parser.add_argument("--broker", choices=("sqlite", "memory", "fake"), default="sqlite")
    options = parser.parse_args(arguments)
    wrong = runs = crashes = 0
    for seed in range(options.first, options.first + options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            stores = {"sqlite": lambda: on_sqlite(Path(folder) / "jobs.db"), "memory": in_memory, "fake": on_fake}
            report = simulate(seed, stores[options.broker](), steps=options.steps)
        runs, crashes = runs + report.runs, crashes + report.crashes
        if report.findings:
            wrong += 1
            print(f"seed {seed}:", *report.findings[:10], sep="\n  ")
    print(f"{options.seeds} seeds, {runs} runs, {crashes} crashes: {wrong or 'none'} with findings.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
