"""MessageMachine: a Hypothesis state machine that holds the AWS broker to what it promises on SQS.

`tests.support.machine` compares a broker with the model of a key, and looks into every queue. SQS shows no queued jobs
and has no collecting jobs, so this machine has a smaller model: where each job is, the order of each key's calls, and
what each worker holds. Two workers in processes of their own share one fake. A worker renews what it holds while time
goes by, or it stalls for longer than its lease: then all its claims are lost.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from laneway.broker import Turn
from laneway.clock import ManualClock
from laneway.jobs.data import Claim, Hints, Kind, NewJob, WorkerView
from laneway.jobs.settlement import Settlement, buried, done, failed, postponed, released
from tests.support.aws.simulated_aws import OnFake, SimulatedAWS
from tests.support.choices import Choices

LEASE_S = 30.0
PLAIN, KEYED = "mail", "orders"
#: The steps, as often as they are wanted.
STEPS = (
    *("enqueue",) * 5,
    *("claim",) * 6,
    *("settle",) * 8,
    *("advance",) * 3,
    *("stall", "die", "cancel", "revive", "delete"),
)
_steps = st.binary(min_size=5, max_size=5)


class Held(msgspec.Struct):
    """A claim that a worker has not settled."""

    claim: Claim
    #: Its jobs, in order.
    jobs: list[str]


class MessageWorker:
    """A worker in a process of its own, and what it holds."""

    def __init__(self, broker: SimulatedAWS, name: str) -> None:
        self.broker = broker
        self.name = name
        self.seqs = {PLAIN: 0, KEYED: 0}
        self.held: list[Held] = []
        queues = [PLAIN, KEYED]
        view = WorkerView(
            id=name, host="h", pid=1, queues=queues, concurrency=1, lease_s=LEASE_S, started_at=0.0, seen_at=0.0
        )
        broker.join(view)

    def turn(self, queue: str, limit: int, *settlements: Settlement) -> tuple[list[Claim], list[str]]:
        self.seqs[queue] += 1
        turn = Turn(self.name, queue, self.seqs[queue], settlements, limit)
        answer = self.broker.turn(turn)
        assert self.broker.turn(turn) == answer, "a repeated turn gets the same answer"
        return answer.claims, answer.refused

    def renew(self) -> None:
        tokens = [held.claim.token for held in self.held]
        self.broker.renew(self.name, tokens, max(tokens, default=0) + 1)


class MessageMachine(RuleBasedStateMachine):
    """What may happen to an AWS broker. Subclasses may say which one."""

    broker_class: ClassVar[type[SimulatedAWS]] = SimulatedAWS

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self._connect = OnFake(self.broker_class)
        self._begun = self._made = 0
        self.workers = [self._begin(), self._begin()]
        #: When each plain job that is queued is due, and the calls of each key in their order.
        self.due: dict[str, float] = {}
        self.calls: dict[str, list[str]] = {"k1": [], "k2": []}
        #: In the morgue: the key of each job.
        self.dead: dict[str, str] = {}

    def _begin(self) -> MessageWorker:
        """A worker in a new process."""
        self._begun += 1
        broker = self._connect(self.clock)
        broker.declare(PLAIN, 1)
        broker.declare(KEYED, 1)
        return MessageWorker(broker, f"worker-{self._begun}")

    # -- the model -------------------------------------------------------------------------------------

    def _living(self) -> set[str]:
        return {*self.due, *(call for calls in self.calls.values() for call in calls)}

    def _holders(self, job: str) -> list[str]:
        return [worker.name for worker in self.workers for held in worker.held if job in held.jobs]

    def _remove(self, key: str, job: str) -> None:
        if key in self.calls:
            self.calls[key].remove(job)
        else:
            del self.due[job]

    @rule(code=_steps)
    def step(self, code: bytes) -> None:
        what = STEPS[code[0] % len(STEPS)]
        getattr(self, "_" + what)(Choices(int.from_bytes(code[1:], "big")))
        self._look()

    def _look(self) -> None:
        seen = self.workers[0].broker.snapshot()
        assert seen.waiting | seen.running == self._living(), "every job that was accepted and has not ended is there"
        assert seen.dead == self.dead.keys(), "the buried jobs lie in the morgue"

    # -- the steps -------------------------------------------------------------------------------------

    def _enqueue(self, how: Choices) -> None:
        self._made += 1
        job = f"job-{self._made}"
        if how.below(2):
            key = how.of(list(self.calls))
            new = NewJob(queue=KEYED, key=key, body=job, kind=Kind.KEYED, identity=job)
            self.calls[key].append(job)
        else:
            delay_s = how.of((0.0, 0.0, 5.0, 60.0))
            hints = Hints(cancellable=delay_s > 10)  # such a delay is spent in a table
            new = NewJob(queue=PLAIN, key=job, body=job, delay_s=delay_s, hints=hints)
            self.due[job] = self.clock.now() + delay_s
        note(("enqueue", new))
        how.of(self.workers).broker.enqueue([new])

    def _claim(self, how: Choices) -> None:
        worker, queue, limit = how.of(self.workers), how.of((PLAIN, KEYED)), how.of((1, 3, 10))
        claims, _ = worker.turn(queue, limit)
        note(("claim", worker.name, queue, claims))
        assert len(claims) <= limit
        for claim in claims:
            self._take(worker, claim)

    def _take(self, worker: MessageWorker, claim: Claim) -> None:
        jobs = [payload.identity for payload in claim.payloads] if claim.queue == KEYED else [claim.key]
        assert [payload.body for payload in claim.payloads] == jobs
        if claim.queue == KEYED:
            calls = self.calls[claim.key]
            assert jobs == calls[: len(jobs)], "the calls of a key come in their order, beginning with the first"
            holders = [name for call in calls for name in self._holders(call)]
        else:
            assert claim.key in self.due, "no job comes after it has ended"
            assert self.due[claim.key] <= self.clock.now(), "no job comes before its time"
            holders = self._holders(claim.key)
        assert holders == [], "what a worker holds is not handed out"
        worker.held.append(Held(claim, jobs))

    def _settle(self, how: Choices) -> None:
        holding = [worker for worker in self.workers if worker.held]
        if not holding:
            return
        worker = how.of(holding)
        held = worker.held.pop(how.below(len(worker.held)))
        claim, finished = held.claim, how.below(len(held.jobs)) if held.claim.queue == KEYED else 0
        delay_s = how.of((0.0, 5.0))
        settlement = how.of(
            (
                done(claim),
                done(claim),
                failed(claim, "no", 25, delay_s, done=finished),
                postponed(claim, delay_s, done=finished),
                buried(claim, "no", done=finished),
                released(claim, done=finished),
            )
        )
        _, refused = worker.turn(claim.queue, 0, settlement)
        note(("settle", worker.name, settlement, refused))
        assert refused == [], "a settlement counts as long as its claim holds"
        self._ended(claim.key, held.jobs, settlement, delay_s)

    def _ended(self, key: str, jobs: list[str], settlement: Settlement, delay_s: float) -> None:
        finished = len(jobs) if settlement.verdict == "done" else settlement.done
        for job in jobs[:finished]:
            self._remove(key, job)
        if settlement.verdict == "bury":
            for job in jobs[finished:][: settlement.buried]:
                self._remove(key, job)
                self.dead[job] = key
        elif settlement.verdict in ("retry", "postpone") and key in self.due:
            self.due[key] = self.clock.now() + delay_s

    def _advance(self, how: Choices) -> None:
        """Time goes by, and the workers renew their leases as often as they do."""
        seconds = how.of((1.0, 5.0, 10.0, 20.0, 40.0))
        note(("advance", seconds))
        while seconds > 0:
            self.clock.advance(min(seconds, LEASE_S / 3))
            seconds -= LEASE_S / 3
            for worker in self.workers:
                worker.renew()

    def _stall(self, how: Choices) -> None:
        """Every worker stands still for longer than its lease, and settles then."""
        note("stall")
        self.clock.advance(LEASE_S + 1)
        for worker in self.workers:
            for held in worker.held:
                _, refused = worker.turn(held.claim.queue, 0, done(held.claim))
                assert refused == [held.claim.key], "a settlement that comes too late is refused"
            worker.held.clear()

    def _die(self, how: Choices) -> None:
        """A worker is killed, and another one takes its place. What it held comes back when its lease is over."""
        number = how.below(2)
        note(("die", self.workers[number].name))
        self.workers[number].broker.close()
        self.workers[number] = self._begin()
        self._stall(how)

    def _cancel(self, how: Choices) -> None:
        later = [job for job, due in self.due.items() if due > self.clock.now() + 10]
        if later:
            job = how.of(later)
            note(("cancel", job))
            assert how.of(self.workers).broker.cancel(PLAIN, job), "a delayed job can be cancelled"
            del self.due[job]

    def _revive(self, how: Choices) -> None:
        if not self.dead:
            return
        key = self.dead[how.of(sorted(self.dead))]
        jobs = sorted((job for job in self.dead if self.dead[job] == key), key=lambda job: int(job[4:]))
        note(("revive", key, jobs))
        assert how.of(self.workers).broker.operate.revive(KEYED if key in self.calls else PLAIN, [key]) == 1
        for job in jobs:
            del self.dead[job]
            if key in self.calls:
                self.calls[key].append(job)
            else:
                self.due[job] = self.clock.now()

    def _delete(self, how: Choices) -> None:
        if not self.dead:
            return
        key = self.dead[how.of(sorted(self.dead))]
        note(("delete", key))
        assert how.of(self.workers).broker.operate.delete_dead(KEYED if key in self.calls else PLAIN, [key]) == 1
        self.dead = {job: other for job, other in self.dead.items() if other != key}

    # -- the end ---------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Run everything: what is left must come, in its order."""
        self._stall(Choices(0))
        for _ in range(40):
            self.clock.advance(10.0)
            for worker in self.workers:
                for queue in (PLAIN, KEYED):
                    self._run_all(worker, queue)
        assert self._living() == set(), "what was accepted is handed out in the end"
        shown = {
            payload.body
            for queue in (PLAIN, KEYED)
            for view in self.workers[0].broker.inspect.listing(queue, "dead").jobs
            for payload in view.payloads
        }
        assert shown == self.dead.keys(), "the morgue shows what was buried"
        for worker in self.workers:
            worker.broker.close()

    def _run_all(self, worker: MessageWorker, queue: str) -> None:
        claims, _ = worker.turn(queue, 10)
        for claim in claims:
            self._take(worker, claim)
            jobs = worker.held.pop().jobs
            assert worker.turn(queue, 0, done(claim)) == ([], [])
            self._ended(claim.key, jobs, done(claim), 0.0)
