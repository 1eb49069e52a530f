"""ReferenceBroker: a whole broker made of the model's keys, which says how a broker must answer.

It owns queues, workers, tokens and the choice of claims, and compares every answer of the broker under test with
them. Where the contract leaves a choice (between jobs that are due at the same time) it follows the broker. It never
calls the broker: `machine.py` does. `compare.py` compares views, listings and stats.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec

from laneway.broker import Answer, ReshardProgress, Turn
from laneway.jobs.data import Claim, NewJob, StartedRun
from laneway.jobs.shards import DEFAULT_SHARDS, shard_of
from tests.support import model, model_settle
from tests.support.model import KeyState, replace
from tests.support.model_events import Subscriptions

Name = tuple[str, str]

#: Steps that a resharding may take while nothing runs, one job at a time: one for each job, dead ones too, and a few to
#: begin and to end.
LONGEST_RESHARDING = 24


class Difference(AssertionError):
    """The broker and the model do not agree."""


def same(what: str, got: object, expected: object) -> None:
    """Raise unless the broker's answer is the model's."""
    if got != expected:
        raise Difference(f"{what}:\n  the broker says {got!r}\n  the model says  {expected!r}")


class QueueState(msgspec.Struct):
    """A queue as a whole."""

    shards: int
    epoch: int = 1
    #: The shard count that it is being changed to; 0 when it is not.
    resharding: int = 0
    #: Steps of it that had nothing to wait for, and were not the last.
    delays: int = 0
    processed: int = 0
    failed: int = 0
    #: Nothing of it is claimed.
    paused: bool = False


class WorkerState(msgspec.Struct):
    """A worker."""

    lease_s: float
    counter: int = 0
    #: False once it was declared dead or has left.
    lives: bool = True
    #: Its last turn on each queue.
    turns: dict[str, tuple[Turn, Answer]] = {}


class ReferenceBroker:
    """Everything that a broker under test should hold."""

    def __init__(self) -> None:
        self.keys: dict[Name, KeyState] = {}
        self.queues: dict[str, QueueState] = {}
        self.workers: dict[str, WorkerState] = {}
        self.subscriptions = Subscriptions()
        self.last_token = 0
        self._arrivals = 0

    def state(self, queue: str, key: str) -> KeyState:
        """What there is of a key."""
        return self.keys.get((queue, key), KeyState())

    # -- jobs in ---------------------------------------------------------------------------------------

    def declare(self, queue: str, shards: int) -> int:
        """Make a queue; what a broker returns for it."""
        return self.queues.setdefault(queue, QueueState(shards)).shards

    def enqueue(self, jobs: Sequence[NewJob], now: float) -> None:
        """Store all, or raise EnqueueError and store none."""
        after = dict(self.keys)
        for new in jobs:
            self._arrivals += 1
            name = new.queue, new.key
            after[name] = model.enqueue(after.get(name, KeyState()), new, now, self._arrivals)
        self.keys = after
        for new in jobs:
            self.declare(new.queue, DEFAULT_SHARDS)

    # -- turns -----------------------------------------------------------------------------------------

    def turn(self, turn: Turn, answer: Answer | None, now: float) -> None:
        """Take a turn, and hold the answer against it; None is LeaseLost."""
        worker = self.workers[turn.worker]
        same(f"whether {turn.worker} may take a turn", answer is not None, worker.lives)
        if answer is None:
            return
        last = worker.turns.get(turn.queue)
        if last is not None and last[0].seq == turn.seq:
            self._repeated(turn, last[1], answer)
            return
        queue = self.queues[turn.queue]
        if answer.token <= self.last_token:
            raise Difference(f"The token {answer.token} is not larger than {self.last_token}, the one before.")
        self.last_token = answer.token
        outbox: list[NewJob] = []
        same("the keys refused", answer.refused, self._settle(turn, queue, outbox, now))
        self.enqueue(outbox, now)
        told = (answer.epoch, answer.shards, answer.resharding)
        same("epoch, shards and resharding in the answer", told, (queue.epoch, queue.shards, queue.resharding))
        self._claim(turn, queue, answer, now)
        worker.turns[turn.queue] = turn, answer

    def _repeated(self, turn: Turn, before: Answer, answer: Answer) -> None:
        held = [each for each in before.claims if self._holds(turn.worker, each)]
        # Which shard a job is in may change meanwhile; nobody settles by it.
        got = [replace(each, shard=0) for each in answer.claims]
        same("the claims of a repeated turn", got, [replace(each, shard=0) for each in held])
        same("the token of a repeated turn", answer.token, before.token)
        same("the keys refused by a repeated turn", answer.refused, before.refused)

    def _holds(self, worker: str, claim: Claim) -> bool:
        return model.holds(self.state(claim.queue, claim.key), worker, claim.token)

    def _settle(self, turn: Turn, queue: QueueState, outbox: list[NewJob], now: float) -> list[str]:
        """Settle, add what the runs enqueued to the outbox, and return the keys that must be refused."""
        refused: list[str] = []
        for settlement in turn.settlements:
            claim = settlement.claim
            state = self.state(claim.queue, claim.key)
            if not self._holds(turn.worker, claim):
                refused.append(claim.key)
                continue
            self.keys[claim.queue, claim.key] = model_settle.settle(state, settlement, now)
            outbox += settlement.outbox or ()
            queue.processed += settlement.verdict == "done" or settlement.done > 0
            queue.failed += settlement.verdict in ("retry", "bury")
        return refused

    def _claim(self, turn: Turn, queue: QueueState, answer: Answer, now: float) -> None:
        chosen = [claim.key for claim in answer.claims]
        expected = self._expected(turn, queue, chosen, now)
        if chosen != expected:
            raise Difference(f"The broker hands out {chosen}, and should have handed out {expected}.")
        for claim in answer.claims:
            name = turn.queue, claim.key
            state = model.claim(self.state(*name), turn.worker, answer.token, now, turn.max_payloads)
            self.keys[name] = state
            same(f"the claim of {claim.key}", claim, self._as_claim(name, state, claim, queue))

    def _expected(self, turn: Turn, queue: QueueState, chosen: Sequence[str], now: float) -> list[str]:
        """The keys that are to be handed out: the broker's choice wherever it has one, else the right one."""
        if queue.paused or queue.resharding or turn.epoch not in (0, queue.epoch):
            return []
        shards = list(range(queue.shards)) if turn.shards is None else list(turn.shards)
        due = {
            key: (-state.row.priority, state.row.perform_at)
            for (name, key), state in self.keys.items()
            if name == turn.queue and state.row and model.is_due(state, now)
        }
        left = {key: rank for key, rank in due.items() if shard_of(key, queue.shards) in shards}
        taken: list[str] = []
        position = 0
        while left and len(taken) < turn.limit:
            priority = min(rank[0] for rank in left.values())
            lanes = {shard_of(key, queue.shards) for key, rank in left.items() if rank[0] == priority}
            if turn.in_order:
                while shards[position % len(shards)] not in lanes:
                    position += 1
                lanes = {shards[position % len(shards)]}
                position += 1
            for _ in range(min(turn.batch, turn.limit - len(taken))):
                there = {key: rank for key, rank in left.items() if shard_of(key, queue.shards) in lanes}
                best = [key for key, rank in there.items() if rank == min(there.values())]
                if not best:
                    break
                wish = chosen[len(taken)] if len(taken) < len(chosen) else best[0]
                key = wish if wish in best else best[0]
                taken.append(key)
                lanes = {shard_of(key, queue.shards)}
                del left[key]
        return taken

    def _as_claim(self, name: Name, state: KeyState, claim: Claim, queue: QueueState) -> Claim:
        row = state.row
        assert row is not None
        return Claim(
            queue=name[0],
            ref=claim.ref,
            key=name[1],
            token=row.token,
            perform_at=row.perform_at,
            retry_count=row.retry_count,
            attempt=row.attempt,
            deaths=row.deaths,
            payloads=[entry.payload(row.kind) for entry in state.running],
            error=row.error,
            headers=row.headers,
            kind=row.kind,
            shard=shard_of(name[1], queue.shards),
            priority=row.priority,
        )

    # -- leases ----------------------------------------------------------------------------------------

    def join(self, worker: str, lease_s: float) -> None:
        """Make a worker known."""
        self.workers.setdefault(worker, WorkerState(lease_s))

    def renew(self, worker: str, held: Collection[int], before: int) -> bool:
        """Renew, and take back what the worker does not know of. False is LeaseLost."""
        known = self.workers[worker]
        if not known.lives:
            return False
        known.counter += 1
        self._take_back(
            lambda row: row.worker == worker and row.token < before and row.token not in held, model_settle.forget
        )
        return True

    def leave(self, worker: str, died: Collection[StartedRun] = ()) -> int:
        """Forget a worker, whose process may have died. Returns how many claims it held."""
        known = self.workers[worker]
        if not known.lives:
            return 0
        known.lives = False
        for started in dict.fromkeys(died):
            name = started.queue, started.key
            if model.holds(self.state(*name), worker, started.token):
                self.keys[name] = model_settle.died(self.keys[name], started.identity)
        return self._take_back(lambda row: row.worker == worker, model_settle.give_back)

    def declare_dead(self, worker: str, counter: int) -> bool:
        """End a lease, unless it was renewed since."""
        known = self.workers[worker]
        ended = known.lives and known.counter == counter
        known.lives = known.lives and not ended
        return ended

    def reclaim(self) -> int:
        """Give back the claims of the dead."""
        dead = {name for name, worker in self.workers.items() if not worker.lives}
        return self._take_back(lambda row: row.worker in dead, model_settle.give_back)

    def _take_back(self, which: Callable[[model.ModelJob], bool], how: Callable[[KeyState], KeyState]) -> int:
        taken = [name for name, state in self.keys.items() if state.row and state.row.worker and which(state.row)]
        for name in taken:
            self.keys[name] = how(self.keys[name])
        return len(taken)

    # -- acting ----------------------------------------------------------------------------------------

    def act(self, queue: str, key: str, how: Callable[[KeyState], KeyState | None]) -> bool:
        """Do something to one key. False: it was refused."""
        after = how(self.state(queue, key))
        if after is None:
            return False
        self.keys[queue, key] = after
        return True

    def act_on_all(self, queue: str, keys: Sequence[str], how: Callable[[KeyState], KeyState | None]) -> int:
        """Do something to each of these keys; how many it was done to."""
        return sum(self.act(queue, key, how) for key in keys)

    def set_paused(self, queue: str, *, paused: bool) -> bool:
        """Pause a queue, or have it go on. False: it was so already, or does not exist."""
        known = self.queues.get(queue)
        changed = known is not None and known.paused is not paused
        if known is not None:
            known.paused = paused
        return changed

    def due_queues(self, now: float) -> set[str]:
        """Those that `wait` tells of: with something to be claimed, or to be resharded."""
        due = {queue for (queue, _), state in self.keys.items() if model.is_due(state, now)}
        return {name for name, known in self.queues.items() if known.resharding or (name in due and not known.paused)}

    def reshard(self, queue: str, shards: int, step: ReshardProgress | None) -> None:
        """Take a step of resharding, and hold the answer against it; None is ConfigError."""
        known = self.queues[queue]
        same("whether resharding is refused", step is None, known.resharding not in (0, shards))
        if step is None:
            return
        running = sum(1 for (name, _), state in self.keys.items() if name == queue and state.running)
        if not known.resharding and known.shards == shards:
            same("whether there is nothing to reshard", step.done, True)
            return
        same("the claims that resharding waits for", step.running, running)
        if step.done and running:
            raise Difference(f"The resharding of {queue} is done while {running} of its claims are running.")
        known.resharding = shards
        known.delays += not running
        if step.done:
            known.shards, known.resharding, known.epoch, known.delays = shards, 0, known.epoch + 1, 0
        elif known.delays > LONGEST_RESHARDING:
            raise Difference(f"The resharding of {queue} comes to no end, though nothing runs: {step!r}.")

    # -- always ----------------------------------------------------------------------------------------

    def flaws(self) -> list[str]:
        """Mistakes of the model itself."""
        return [f"{name}: {flaw}" for name, state in self.keys.items() for flaw in model.flaws(state)]
