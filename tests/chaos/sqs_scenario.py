"""A scenario with every SQS and DynamoDB operation that jobs need; it repeats each call that fails.

Jobs of all kinds are enqueued, delayed, run, retried, postponed, buried, listed, revived, cancelled and
rescheduled. At the end all remaining jobs are run. `Story.findings` checks the rules that hold however many
responses were lost: no job is missing, no unknown job has run, calls of a key ran in order, and the queues are
empty.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from laneway.broker import Answer
from laneway.brokers.aws import AWSBroker
from laneway.brokers.aws.clients import Clients
from laneway.brokers.aws.dynamodb.delayed_jobs import CLAIM_S
from laneway.errors import BrokerAwayError, BrokerError, BrokerRefusedError
from laneway.jobs.data import Claim, Hints, NewJob
from laneway.jobs.settlement import Settlement, buried, done, failed, postponed
from laneway.testing.conformance.fixtures import ScriptedWorker, call, job
from tests.support.aws.endpoints import Place

T = TypeVar("T")

#: What becomes of jobs in the story beside being done at once: how often each of them is run.
RUNS = {"retried": 2, "postponed": 2, "k-retried": 2, "buried": 2, "k-buried": 2}
PLAIN = [f"p{n}" for n in range(10)] + ["retried", "postponed", "buried", "parent"]
KEYED = {"k1": ["a", "b", "c"], "k2": ["k-retried", "d"], "k3": ["k-buried", "e"]}
LATER = ["late", "moved", "cancelled"]
#: Sent by the run of `parent`.
CHILDREN = [job("child"), call("k4", "k-child")]
#: For so long messages are hidden, and so what is received by a receive whose answer is lost.
LEASE_S = 3.0
PATIENCE_S = 60.0


class AheadClock:
    """The machine's clock, set forward: what is asked of servers is asked when it is due by this one."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def now(self) -> float:
        return time.time() + self._ahead_s

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead_s

    def advance(self, seconds: float) -> None:
        self._ahead_s += seconds


class Story:
    """One telling of it, on queues and a table of its own."""

    def __init__(self, place: Place, clients: Clients, queue: str) -> None:
        place.create_queues(queue)
        place.create_table(queue)
        self.place, self.queue = place, queue
        self.clock = AheadClock()
        self.broker = AWSBroker(clients.settings, clock=self.clock, clients=clients, inline=True)
        #: How often each job has begun, and how often it has been finished, by id.
        self.runs: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.order: list[str] = []
        self.strangers: list[str] = []
        #: Calls that were not answered, so that whoever had made them did so again.
        self.repeated = 0

    def tell(self) -> None:
        self._begin()
        self._run()
        self._wait_in_the_table()
        self._raise_the_dead()
        self._run()
        self.broker.turns.close()

    # -- what happens ------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._insist(lambda: self.broker.declare(self.queue, 1))
        self._insist(lambda: self.broker.enqueue([self._of(job(id)) for id in PLAIN]))
        calls = [call(key, id) for key, ids in KEYED.items() for id in ids]
        self._insist(lambda: self.broker.enqueue([self._of(each) for each in calls]))
        self.hand = ScriptedWorker(self.broker, f"worker of {self.queue}", lease_s=LEASE_S)

    def _wait_in_the_table(self) -> None:
        later = [job(id, delay_s=1_000, hints=Hints(cancellable=True)) for id in LATER]
        later += [call("k5", f"k-late-{n}", delay_s=100 + n) for n in range(3)]
        self._insist(lambda: self.broker.enqueue([self._of(each) for each in later]))
        self._insist(lambda: self.broker.reschedule(self.queue, "moved", delay_s=2_000))
        self._insist(self._cancel)
        (poller, *_) = self.broker.health.duties([self.queue])
        self.clock.advance(3_000)
        self._insist(poller.round)
        while self._waiting():
            self.clock.advance(CLAIM_S + 1.0)  # until whoever held an item, and did not get an answer, holds it no more
            self._insist(poller.round)

    def _cancel(self) -> None:
        before = self.repeated
        try:
            assert self.broker.cancel(self.queue, "cancelled")
        except BrokerRefusedError:
            if not before:  # else nobody could know that it was done the first time
                raise

    def _raise_the_dead(self) -> None:
        self._insist_until(lambda: len(self.broker.inspect.listing(self.queue, "dead").jobs) == 2)
        self._insist(lambda: self.broker.operate.revive(self.queue, ["buried", "k3"]))

    def _run(self) -> None:
        """Run whatever is there until nothing is."""
        until = time.monotonic() + PATIENCE_S
        while any(sum(self.place.counts(self.queue + suffix)) for suffix in ("", ".fifo")):
            assert time.monotonic() < until, f"it does not end: {self.runs - self.ended}, {self.repeated} repeated"
            claims = self._turn(7).claims
            if claims:
                self._insist(lambda: self.broker.renew(self.hand.name, [], 0))
                self._turn(0, *map(self._settlement, claims))
            else:
                time.sleep(0.02)

    def _settlement(self, claim: Claim) -> Settlement:
        ids = [payload.identity or claim.key for payload in claim.payloads]
        self.order += ids
        for number, id in enumerate(ids):
            self.runs[id] += 1
            first = self.runs[id] == 1
            if id.endswith("retried") and first:
                return self._over(failed(claim, "no", 5, 0.0, done=number), ids[:number])
            if id.endswith("buried") and first:
                return self._over(buried(claim, "no", done=number), ids[:number])
            if id == "postponed" and first:
                return postponed(claim, 0.0)
        outbox = [self._of(each) for each in CHILDREN] if ids == ["parent"] else None
        return self._over(done(claim, outbox), ids)

    def _over(self, settlement: Settlement, ids: list[str]) -> Settlement:
        self.ended.update(ids)
        return settlement

    # -- how ---------------------------------------------------------------------------------------------

    def _of(self, new: NewJob) -> NewJob:
        """The job, for the queue of this telling."""
        made = NewJob(**{name: getattr(new, name) for name in NewJob.__struct_fields__})
        made.queue = self.queue
        return made

    def _turn(self, limit: int, *settlements: Settlement) -> Answer:
        try:
            return self.hand.turn(limit, *settlements, queue=self.queue)
        except BrokerAwayError:
            self.repeated += 1
            return self._insist(self.hand.again)

    def _insist(self, act: Callable[[], T]) -> T:
        for _ in range(20):
            try:
                return act()
            except BrokerAwayError:
                self.repeated += 1
            except BrokerError as error:
                if "too slow" not in str(error):
                    raise
        raise AssertionError("It is away for good.")

    def _insist_until(self, true: Callable[[], bool]) -> None:
        until = time.monotonic() + PATIENCE_S
        while not self._insist(true):
            assert time.monotonic() < until, "it does not come"
            time.sleep(0.02)

    def _waiting(self) -> list[str]:
        return [item["job_id"]["S"] for item in self.place.items(self.queue) if "perform_at" in item]

    # -- what must be true -------------------------------------------------------------------------------

    def findings(self, *, repeats: int = 0) -> list[str]:
        """What is not as it must be; so many runs too many are no finding."""
        expected = [*PLAIN, *(id for ids in KEYED.values() for id in ids), *LATER[:2]]
        expected += [each.identity or each.key for each in CHILDREN] + [f"k-late-{n}" for n in range(3)]
        wanted = {id: RUNS.get(id, 1) for id in expected}
        found = [f"{id} was lost" for id in wanted if not self.ended[id]]
        found += [f"{id} has run, and nobody knows it" for id in self.runs if id not in wanted]
        more = self.runs - Counter(wanted)
        if more.total() > repeats:
            found.append(f"more runs than there should be: {more}")
        for ids in [*KEYED.values(), [f"k-late-{n}" for n in range(3)]]:
            firsts = [id for id in dict.fromkeys(self.order) if id in ids]
            if firsts != ids:
                found.append(f"out of order: {firsts}")
        left = {name: self.place.counts(self.queue + name) for name in ("", ".fifo", "-deadletter", "-deadletter.fifo")}
        found += [f"something is left: {left}" for counts in left.values() if any(counts)]
        return found
