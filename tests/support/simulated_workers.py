"""The workers, the producer and the resharder of a simulation. Each takes one action at a time.

A simulated worker is the real worker without its threads. Its holdings, lease and settlements are the real code; the
seed picks its next action. Any other event of the simulation may happen between two of its actions.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec

from laneway.broker import Broker, Turn
from laneway.clock import ManualClock
from laneway.errors import BrokerAwayError, ConfigError, LeaseLost
from laneway.jobs.data import Claim, Hints, Kind, NewJob, WorkerView
from laneway.jobs.merge import identity_of
from laneway.jobs.settlement import BURIED_AT, Settlement, buried, deaths_of, done, failed, postponed, released
from laneway.worker.lease.holdings import Holdings
from laneway.worker.lease.lease import LeaseKeeper
from tests.support.recorder import Ledger

LEASE_S = 30.0
ORDERS, GATHER = "orders", "gather"
KEYS = {ORDERS: ("k0", "k1", "k2", "k3"), GATHER: ("g0", "g1")}


class SimulatedCrash(BaseException):
    """The process of a simulated worker is gone."""


class SimulatedLane:
    """One queue, as a worker serves it."""

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.holdings = Holdings()
        self.seq = 0
        self.epoch = 0
        self.waiting: list[Claim] = []
        self.finished: list[Settlement] = []
        #: A turn whose answer has not come.
        self.unanswered: Turn | None = None


class SimulatedRun(msgspec.Struct):
    """A claim that is being worked on."""

    lane: SimulatedLane
    claim: Claim
    #: The process that it began in, by its number.
    pid: int
    #: Calls of it that have ended well.
    done: int = 0

    @property
    def job(self) -> str:
        """What is running now: a call, or everything that a collecting run was given."""
        if self.claim.kind is Kind.COLLECTING:
            return f"{self.claim.key}@{self.claim.token}"
        return self.claim.payloads[self.done].identity or self.claim.key

    @property
    def key(self) -> str:
        """What must not run twice at the same time. A plain job that is stored twice may."""
        return f"{self.claim.key}@{self.claim.token}" if self.claim.kind is Kind.PLAIN else self.claim.key


class SimulatedWorker:
    """A worker. Subclasses with a mistake in them show that the checkers see it."""

    def __init__(self, broker: Broker, ledger: Ledger, clock: ManualClock, chance: Random, new_pid: Callable[[], int]):
        self.broker = broker
        self.lanes = [SimulatedLane(queue) for queue in KEYS]
        self.run: SimulatedRun | None = None
        self.paused_until = 0.0
        self._ledger = ledger
        self._clock = clock
        self._chance = chance
        self._new_pid = new_pid
        self._next_beat = 0.0
        self.pid = new_pid()
        self.joined = False
        #: Whether a supervisor ends it when it does not keep its claims, where only the worker can keep them. Those
        #: without one are on machines that stop with their supervisors.
        self._supervised = broker.capabilities.holders_keep and chance.random() < 0.7
        self.keeper = self._make_keeper()

    def _make_keeper(self) -> LeaseKeeper:
        app: Any = SimpleNamespace(broker=self.broker, telemetry=SimpleNamespace(emit=lambda event: None))
        fetchers: Any = self.lanes
        outage: Any = None  # only its thread has a use for it
        return LeaseKeeper(
            app,
            self._clock,
            fetchers,
            outage,
            lease_s=LEASE_S,
            worker_id=lambda: self.id,
            lost=lambda worker: None,
            keeps=self.broker.capabilities.holders_keep,
        )

    @property
    def id(self) -> str:
        """Its id; never used twice."""
        return f"worker-{self.pid}"

    @property
    def paused(self) -> bool:
        """Whether its process is stopped."""
        return self._clock.monotonic() < self.paused_until

    # -- its life --------------------------------------------------------------------------------------

    def act(self) -> None:
        """Do one thing, chosen by chance among those that can be done."""
        if not self.joined:
            self._join()
            return
        actions: list[Callable[[], None]] = [lambda: self.turn(self._chance.choice(self.lanes))]
        if self.run is not None:
            actions += [self.end_run] * 2
        elif any(lane.waiting for lane in self.lanes):
            actions += [self.begin_run] * 2
        self._chance.choice(actions)()

    def _join(self) -> None:
        began = self._clock.monotonic()
        view = WorkerView(
            id=self.id,
            host="simulated",
            pid=self.pid,
            queues=list(KEYS),
            concurrency=1,
            lease_s=LEASE_S,
            started_at=0.0,
            seen_at=0.0,
        )
        try:
            self.broker.join(view)
        except BrokerAwayError:
            return
        self.joined = True
        self.keeper.joined(began)

    def beat(self) -> None:
        """Renew and sweep when it is time to, as the keeper's thread would."""
        now = self._clock.monotonic()
        if self._supervised and self.joined and now >= self.keeper.renewed_at + LEASE_S * 2 / 3:
            raise SimulatedCrash
        if not self.joined or self.paused or now < self._next_beat:
            return
        self._next_beat = now + LEASE_S / 6
        try:
            if now >= self.keeper.renewed_at + self.keeper._renews_s:
                self.keeper.renew(self.id)
            self.keeper.sweep(self.id)
        except LeaseLost:
            self.lost()
        except BrokerAwayError:
            if now >= self.keeper.renewed_at + LEASE_S * 2 / 3:
                raise SimulatedCrash from None  # the supervisor ends it before anybody else may take its jobs

    def lost(self) -> None:
        """It was declared dead: a new id, and what waits is not its own any more. What runs goes on."""
        self.joined = False
        self.pid = self._new_pid()
        for lane in self.lanes:
            lane.waiting.clear()
            lane.holdings.forget()
            if lane.unanswered is not None:
                lane.finished = [*lane.unanswered.settlements, *lane.finished]
                lane.unanswered = None

    def leave(self) -> None:
        """Go in good order: give back what has not been started, let what runs end, settle, leave."""
        for lane in self.lanes:
            lane.finished += [released(claim) for claim in lane.waiting]
            lane.waiting.clear()
        while self.run is not None:
            self.end_run()
        for lane in self.lanes:
            self.turn(lane, limit=0)
        try:
            self.broker.leave(self.id)
        except BrokerAwayError:
            pass  # its lease runs out

    # -- turns and runs --------------------------------------------------------------------------------

    def turn(self, lane: SimulatedLane, limit: int | None = None) -> None:
        """Settle what has ended and claim more; a turn that was not answered is repeated."""
        turn = lane.unanswered
        if turn is None:
            lane.seq += 1
            turn = Turn(self.id, lane.queue, lane.seq, self.settlements(lane))
            turn.limit = self._chance.randrange(4) if limit is None else limit
            turn.max_payloads = self._chance.choice((None, 1, 2, 5))
            turn.batch, turn.epoch = self._chance.choice((1, 2)), lane.epoch
            lane.holdings.ask()
        try:
            answer = self.broker.turn(turn)
        except BrokerAwayError:
            lane.unanswered = turn
            return
        except LeaseLost:
            lane.unanswered = turn
            self.lost()
            return
        lane.unanswered, lane.epoch = None, answer.epoch
        lane.holdings.take_in(turn.settlements, answer, keep=True)
        lane.waiting += answer.claims

    def settlements(self, lane: SimulatedLane) -> list[Settlement]:
        """What is to be settled now."""
        finished, lane.finished = lane.finished, []
        return finished

    def begin_run(self) -> None:
        """Take a claim that waits, and begin with it."""
        lane = self._chance.choice([lane for lane in self.lanes if lane.waiting])
        self.run = SimulatedRun(lane, lane.waiting.pop(0), self.pid)
        self._begin_call()

    def _begin_call(self) -> None:
        run = self.run
        assert run is not None
        if self._clock.monotonic() >= self.keeper.valid_until or run.pid != self.pid:
            # Stopped or cut off for so long that the claim may be somebody else's by now.
            self._end(released(run.claim, done=run.done))
            return
        if deaths_of(run.claim, run.done) >= BURIED_AT:
            self._end(buried(run.claim, "It has ended its process too often.", done=run.done))
            return
        attempt = run.claim.payloads[run.done].attempt
        self._ledger.note("S", run.key, run.job, attempt=attempt, token=run.claim.token, pid=run.pid)

    def end_run(self) -> None:
        """What runs ends: well, mostly."""
        run = self.run
        assert run is not None
        how, claim = self._chance.random(), run.claim
        well = how < 0.85
        self._ledger.note("E" if well else "F", run.key, run.job, token=claim.token, pid=run.pid)
        if how < 0.85:
            self._go_on(run)
        elif how < 0.95:
            self._end(failed(claim, "It failed.", 2, 5.0, done=run.done))
        elif how < 0.97:
            self._end(buried(claim, "It asked for the morgue.", done=run.done))
        else:
            self._end(postponed(claim, 5.0, done=run.done))

    def _go_on(self, run: SimulatedRun) -> None:
        if run.claim.kind is Kind.COLLECTING:
            for payload in run.claim.payloads:
                self._ledger.note("E", run.claim.key, payload.identity, token=run.claim.token, pid=run.pid)
            run.done = len(run.claim.payloads)
        else:
            run.done += 1
        if run.done == len(run.claim.payloads):
            self._end(done(run.claim))
        else:
            self._begin_call()

    def _end(self, settlement: Settlement) -> None:
        assert self.run is not None
        self.run.lane.finished.append(settlement)
        self.run = None


def name_of(job: NewJob) -> str:
    """What the checkers call a payload: its identity or, of a plain job, its key."""
    return job.identity or job.key


class Producer:
    """Enqueues calls of a key in the order of their numbers, and repeats what it got no answer for."""

    def __init__(self, broker: Broker, chance: Random) -> None:
        self.broker = broker
        #: What `enqueue` has returned for, as (key, number, job).
        self.accepted: list[tuple[str, int, str]] = []
        #: What may or may not be stored: no answer yet.
        self.pending: list[NewJob] = []
        self._chance = chance
        self._numbers: dict[str, int] = {}

    def act(self) -> None:
        """Enqueue one to three payloads in one call, or repeat the last."""
        if not self.pending:
            self.pending = [self._new() for _ in range(self._chance.randint(1, 3))]
        try:
            self.broker.enqueue(self.pending)
        except BrokerAwayError:
            return
        self.accepted += [
            (job.key, int(job.body) if job.kind is Kind.KEYED else -1, name_of(job)) for job in self.pending
        ]
        self.pending = []

    def _new(self) -> NewJob:
        queue = self._chance.choice((ORDERS, ORDERS, GATHER))
        key = self._chance.choice(KEYS[queue])
        number = self._numbers[key] = self._numbers.get(key, -1) + 1
        if queue == ORDERS:
            return NewJob(queue=queue, key=key, body=str(number), kind=Kind.KEYED, identity=f"{key}#{number}")
        if not self.broker.capabilities.has("collecting"):
            delay_s = self._chance.choice((0.0, 0.0, 5.0, 20.0))
            hints = Hints(cancellable=delay_s > 10)  # such a delay is spent in a table
            return NewJob(queue=queue, key=f"{key}-{number}", body=str(number), delay_s=delay_s, hints=hints)
        body = f'"{key}-{number}"'
        return NewJob(queue=queue, key=key, body=body, kind=Kind.COLLECTING, identity=identity_of(body))


class Resharder:
    """Changes the shard count of a queue, a few jobs at a time."""

    def __init__(self, broker: Broker, chance: Random) -> None:
        self.broker = broker
        self._chance = chance
        #: What is being changed: queue and count.
        self.under_way: tuple[str, int] | None = None
        self.finished = 0

    def act(self, *, begin: bool = True) -> None:
        """Begin, or take the next step."""
        if self.under_way is None:
            if not begin or not self.broker.capabilities.has("shards"):
                return
            self.under_way = self._chance.choice((ORDERS, GATHER)), self._chance.randint(1, 5)
        queue, shards = self.under_way
        try:
            step = self.broker.shards.reshard(queue, shards, limit=self._chance.randint(1, 3))
        except BrokerAwayError:
            return
        except ConfigError:
            self.under_way = None
            return
        if step.done:
            self.under_way = None
            self.finished += 1
