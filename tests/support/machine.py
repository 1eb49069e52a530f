"""BrokerMachine: a Hypothesis state machine that compares any broker with the model.

    from tests.support.machine import broker_machine

    Machine = broker_machine(lambda clock: MyBroker(clock=clock))
    TestMyBroker = Machine.TestCase

`make_broker` gets a clock and returns an empty broker that takes the time from it. It is called once per sequence.
The machine interleaves several workers in any order. Hypothesis prints a failing sequence as codes and, above each
code, what the step did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from laneway.broker import Broker, Listing, Order, Turn
from laneway.clock import Clock, ManualClock
from laneway.errors import EnqueueError, LeaseLost
from laneway.jobs.data import Claim, Kind, NewJob, StartedRun, WorkerView
from laneway.jobs.settlement import done
from tests.support.choices import (
    EVERYWHERE,
    KINDS,
    NAMES,
    PAYLOADS,
    QUEUES,
    START,
    Choices,
    Name,
    identity,
    new_job,
    settlement,
)
from tests.support.compare import compare_key, compare_listing, compare_payload, compare_stats, compare_status
from tests.support.machine_events import EventSteps
from tests.support.machine_operate import OperateSteps
from tests.support.reference import ReferenceBroker, same

MakeBroker = Callable[[Clock], Broker]

#: The steps, as often as they are wanted.
STEPS = (
    *("enqueue",) * 7,
    *("turn",) * 14,
    *("advance",) * 4,
    *("act",) * 5,
    *("enqueue_several",) * 3,
    *("reschedule", "crash") * 2,
    *("cancel", "die", "leave", "renew", "repeat", "reshard", "pause", "resume", "enqueue_another_kind", "list_jobs"),
    *("look_around", "publish", "subscribe", "unsubscribe"),
)
#: Which step, and two numbers that say how. Bytes, because drawing is what takes the time, and they are drawn at once.
_steps = st.binary(min_size=9, max_size=9)


class MachineWorker:
    """A worker as the machine plays it: what it was handed, and what it has settled already."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seqs = dict.fromkeys(QUEUES, 0)
        self.claims: dict[str, list[Claim]] = {queue: [] for queue in QUEUES}
        self.settled: dict[str, list[Claim]] = {queue: [] for queue in QUEUES}


class BrokerMachine(EventSteps, OperateSteps, RuleBasedStateMachine):
    """What may happen to a broker. Subclasses say which one: see `broker_machine`."""

    make_broker: ClassVar[MakeBroker]
    #: Look at everything after every step, instead of at what the step touched.
    thorough = False

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(START)
        self.broker = type(self).make_broker(self.clock)
        self.reference = ReferenceBroker()
        self._hired = 0
        #: Whether the last step found no difference.
        self._sound = True
        self.hands = [self._hire() for _ in range(3)]
        for queue, shards in zip(QUEUES, (2, 3), strict=True):
            same("declare", self.broker.declare(queue, shards), self.reference.declare(queue, shards))
        self._begin_with_subscriptions()

    def _hire(self) -> MachineWorker:
        name = f"worker-{self._hired}"
        self._hired += 1
        self.broker.join(
            WorkerView(
                id=name, host="h", pid=1, queues=list(QUEUES), concurrency=1, lease_s=30.0, started_at=0.0, seen_at=0.0
            )
        )
        self.reference.join(name, 30.0)
        return MachineWorker(name)

    # One rule for all: Hypothesis chooses among many no faster than a broker stores a job.
    @rule(code=_steps)
    def step(self, code: bytes) -> None:
        self._sound = False
        what = STEPS[code[0] % len(STEPS)]
        how, more = int.from_bytes(code[1:5], "big"), int.from_bytes(code[5:], "big")
        touched = getattr(self, "_" + what)(Choices(how), Choices(more))
        self._look(EVERYWHERE if self.thorough else touched)
        self._sound = True

    def teardown(self) -> None:
        """Look at everything, unless a difference was found already, and see that a resharding comes to its end."""
        try:
            if self._sound:
                self._look(EVERYWHERE)
                self._look_around()
                self._finish_resharding()
        finally:
            self.broker.close()

    def _finish_resharding(self) -> None:
        for hand in self.hands:
            same("how many claims were left", self.broker.leave(hand.name), self.reference.leave(hand.name))
        same("how many claims the dead had", self.broker.reclaim(), self.reference.reclaim())
        for queue, known in self.reference.queues.items():
            while known.resharding:
                self._move(queue, known.resharding, 1_000)
        self._look(EVERYWHERE)

    # -- jobs in ---------------------------------------------------------------------------------------

    def _new(self, choices: Choices, kind: Kind | None = None) -> NewJob:
        name = choices.of(NAMES)
        return new_job(name, self.reference.state(*name), choices, kind)

    def _enqueue(self, how: Choices, more: Choices) -> Iterable[Name]:
        return self._store(self._new(how))

    def _enqueue_several(self, how: Choices, more: Choices) -> Iterable[Name]:
        if how.below(2):
            return self._store(self._new(how), self._new(more), self._new(how), self._new(more))
        name = how.of(NAMES)
        state = self.reference.state(*name)
        return self._store(*(new_job(name, state, choices) for choices in (how, more, how, more)))

    def _enqueue_another_kind(self, how: Choices, more: Choices) -> Iterable[Name]:
        """A key belongs to one kind of job for as long as there is one; nothing of the whole call is stored then."""
        taken = [name for name in NAMES if self.reference.state(*name).row is not None]
        if not taken:
            return ()
        name = how.of(taken)
        kind = Kind.COLLECTING if KINDS[name] is Kind.KEYED else Kind.KEYED
        return self._store(self._new(more), new_job(name, self.reference.state(*name), how, kind))

    def _store(self, *jobs: NewJob) -> Iterable[Name]:
        note(jobs)
        accepted = stored = True
        try:
            self.reference.enqueue(jobs, self.clock.now())
        except EnqueueError:
            accepted = False
        try:
            self.broker.enqueue(jobs)
        except EnqueueError:
            stored = False
        same("whether the jobs were accepted", stored, accepted)
        return {(job.queue, job.key) for job in jobs}

    # -- a worker's verbs ------------------------------------------------------------------------------

    def _turn(self, how: Choices, more: Choices) -> Iterable[Name]:
        slot, queue = self._whose_turn(how)
        limit, most, odd = how.of((4, 2, 1, 0)), how.of((None, 2, None, 1)), how.below(8)
        batch, in_order = how.of(((1, False), (2, False), (1, True), (2, True)))
        if queue == "orders":  # it has priorities, and they come before either
            batch, in_order = 1, False
        if not self.reference.workers[self.hands[slot].name].lives and odd != 1:
            self.hands[slot] = self._hire()
        hand, known = self.hands[slot], self.reference.queues[queue]
        shards = [shard for shard in reversed(range(known.shards)) if shard != odd - 5] if odd >= 5 else None
        epoch = known.epoch + (odd == 3) if odd >= 2 else 0
        ends = [
            settlement(claim, more, self._new(how)) for claim in self._ended(hand, queue, how.of((1, 2, 3, 0)), more)
        ]
        hand.seqs[queue] += 1
        return self._take(
            hand, Turn(hand.name, queue, hand.seqs[queue], ends, limit, shards, batch, in_order, most, epoch)
        )

    def _end_run(self, outbox: list[NewJob], choices: Choices) -> Iterable[Name]:
        slot, queue = self._whose_turn(choices)
        hand = self.hands[slot]
        hand.seqs[queue] += 1
        ends = [done(claim, outbox) for claim in self._ended(hand, queue, 1, choices)]
        return self._take(hand, Turn(hand.name, queue, hand.seqs[queue], ends))

    def _whose_turn(self, choices: Choices) -> tuple[int, str]:
        """Mostly somebody's who has something to settle: otherwise little would ever be."""
        anybody = [(slot, queue) for slot in range(len(self.hands)) for queue in QUEUES]
        if choices.below(4):
            holding = [(slot, queue) for slot, queue in anybody if self.hands[slot].claims[queue]]
            return choices.of(holding or anybody)
        return choices.of(anybody)

    def _ended(self, hand: MachineWorker, queue: str, count: int, choices: Choices) -> list[Claim]:
        """Claims that the worker settles now; sometimes one that it has settled before, which must be refused."""
        claims, settled = hand.claims[queue], hand.settled[queue]
        ended: list[Claim] = []
        for _ in range(count):
            if settled and choices.below(8) == 7:
                ended.append(settled[-1])
            elif claims:
                ended.append(claims.pop(choices.below(len(claims))))
        settled += ended
        return ended

    def _take(self, hand: MachineWorker, turn: Turn) -> Iterable[Name]:
        note(turn)
        try:
            answer = self.broker.turn(turn)
        except LeaseLost:
            answer = None
        self.reference.turn(turn, answer, self.clock.now())
        touched = {(turn.queue, each.claim.key) for each in turn.settlements}
        touched |= {(job.queue, job.key) for each in turn.settlements for job in each.outbox or ()}
        if answer is not None:
            touched |= {(turn.queue, claim.key) for claim in answer.claims}
            known = {(claim.token, claim.key) for claim in hand.claims[turn.queue] + hand.settled[turn.queue]}
            hand.claims[turn.queue] += [claim for claim in answer.claims if (claim.token, claim.key) not in known]
        return touched

    def _repeat(self, how: Choices, more: Choices) -> Iterable[Name]:
        """As if the answer of the last turn had been lost."""
        hand, queue = how.of(self.hands), how.of(QUEUES)
        last = self.reference.workers[hand.name].turns.get(queue)
        return self._take(hand, last[0]) if last is not None else ()

    def _renew(self, how: Choices, more: Choices) -> Iterable[Name]:
        """A worker renews, and may know of the older half of its claims only."""
        hand, knows, before = how.of(self.hands), how.below(2), self.reference.last_token + how.below(2)
        tokens = sorted({claim.token for claims in hand.claims.values() for claim in claims})
        held = tokens if knows else tokens[: len(tokens) // 2]
        touched = self._running()
        note(("renew", hand.name, held, before))
        renewed = True
        try:
            self.broker.renew(hand.name, held, before)
        except LeaseLost:
            renewed = False
        same(f"whether {hand.name} may renew", renewed, self.reference.renew(hand.name, held, before))
        return touched

    def _running(self) -> list[Name]:
        return [name for name, state in self.reference.keys.items() if state.running]

    def _die(self, how: Choices, more: Choices) -> Iterable[Name]:
        """A worker is declared dead, by an observer that may not have seen its last renewal."""
        hand, stale, swept = how.of(self.hands), how.below(4) == 3, how.below(2) == 0
        counter = self.reference.workers[hand.name].counter - stale
        note(("declare_dead", hand.name, counter, "and reclaim" if swept else ""))
        ended = self.broker.declare_dead(hand.name, counter)
        same(f"whether {hand.name} is dead", ended, self.reference.declare_dead(hand.name, counter))
        touched = self._running()
        if swept:
            same("how many claims were given back", self.broker.reclaim(), self.reference.reclaim())
        return touched

    def _leave(self, how: Choices, more: Choices) -> Iterable[Name]:
        hand, touched = how.of(self.hands), self._running()
        note(("leave", hand.name))
        same("how many claims a leaving worker held", self.broker.leave(hand.name), self.reference.leave(hand.name))
        return touched

    def _crash(self, how: Choices, more: Choices) -> Iterable[Name]:
        """A worker's process is gone, and its supervisor says what was being run; some of it is not true."""
        slot, _ = self._whose_turn(how)
        hand, touched = self.hands[slot], self._running()
        others = how.of(self.hands)
        known = [claim for claims in (*hand.claims.values(), *hand.settled.values()) for claim in claims]
        known += [claim for claims in others.claims.values() for claim in claims] if how.below(4) == 3 else []
        died: list[StartedRun] = []
        for claim in known:
            if more.below(4) < 3:
                first = claim.payloads[more.below(len(claim.payloads))]
                died.append(StartedRun(claim.queue, claim.key, claim.token - (more.below(8) == 7), first.identity))
        died += died[: how.below(2)]
        note(("leave", hand.name, died))
        expected = self.reference.leave(hand.name, died)
        same("how many claims a worker held whose process is gone", self.broker.leave(hand.name, died), expected)
        return touched

    # -- time, and looking -----------------------------------------------------------------------------

    def _advance(self, how: Choices, more: Choices) -> Iterable[Name]:
        """Time passes, in which whatever is being resharded goes on."""
        seconds, moving = how.of((5.0, 4.5, 0.5, 20.0, 70.0)), how.below(3)
        if more.below(6) == 0:
            seconds = -seconds
            self.clock.step(seconds)
        else:
            self.clock.advance(seconds)
        note(("advance", seconds))
        touched: list[Name] = []
        for queue, known in self.reference.queues.items():
            if known.resharding and moving:
                touched += self._move(queue, known.resharding, (0, 1, 1_000)[moving])
        return touched

    def _list_jobs(self, how: Choices, more: Choices) -> Iterable[Name]:
        listings: tuple[Listing, ...] = ("queued", "delayed", "retries", "running", "dead")
        queue, which, reverse, limit = how.of(QUEUES), how.of(listings), how.below(2) == 1, how.of((100, 2, 1))
        orders: tuple[Order | None, ...] = (None, "key", "perform_at" if which == "running" else "retry_count")
        order, now = how.of(("updated_at", "key") if which == "dead" else orders), self.clock.now()
        starts: dict[Order | None, float | str] = {"key": "k1" if queue == "orders" else "c2", "retry_count": 0}
        start = starts.get(order, now) if how.below(2) else None
        note(("listing", queue, which, order, reverse, start, limit))
        compare_listing(
            self.broker, self.reference, queue, which, now, order=order, reverse=reverse, start=start, limit=limit
        )
        return ()

    def _look_around(self, *choices: Choices) -> Iterable[Name]:
        """Everything that is not looked at after every step, and the model itself."""
        now = self.clock.now()
        flaws = self.reference.flaws()
        assert not flaws, flaws
        compare_stats(self.broker, self.reference, now)
        same("wait", self.broker.wait(QUEUES, 0.0), self.reference.due_queues(now))
        self._compare_subscriptions()
        for name in EVERYWHERE:
            compare_status(self.broker, self.reference, *name, now)
            for number in range(PAYLOADS if KINDS[name] is not Kind.PLAIN else 0):
                compare_payload(self.broker, self.reference, *name, identity(name, number), now)
        return ()

    def _look(self, names: Iterable[Name]) -> None:
        for name in names:
            compare_key(self.broker, self.reference, *name, self.clock.now())


def broker_machine(make_broker: MakeBroker, *, thorough: bool = False) -> type[BrokerMachine]:
    """A state machine for one broker; its `TestCase` is what pytest collects."""
    return type("Machine", (BrokerMachine,), {"make_broker": staticmethod(make_broker), "thorough": thorough})
