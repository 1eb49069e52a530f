"""A worker and a poller on a manual clock that jumps to the next moment at which something can happen.

Days pass in no time. Poller rounds that would find nothing due soon enough are skipped. The other rounds stay at
their regular times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from laneway.brokers.aws import AWSBroker
from laneway.brokers.aws.settings import LONGEST_DELAY_S
from laneway.clock import ManualClock
from laneway.jobs.settlement import done
from laneway.testing.conformance.fixtures import ScriptedWorker
from tests.support.aws.servers import FakeServer

QUEUE = "q"


class Timeline:
    """Runs whatever is due in the queue `q`, and notes when."""

    def __init__(self, server: FakeServer, clock: ManualClock, *, poll_s: float = 300.0) -> None:
        self.server, self.clock, self.poll_s = server, clock, poll_s
        self.broker = AWSBroker(server.settings(poll_s=poll_s), clock=clock, inline=True)
        self.broker.declare(QUEUE, 1)
        #: When each job has begun, in unix seconds, by its id.
        self.runs: dict[str, list[float]] = {}
        #: The ids of those that have begun, in their order.
        self.order: list[str] = []
        #: Rounds of the poller that were asked for, and those that moved something.
        self.rounds = self.fruitful = 0
        self._hand = ScriptedWorker(self.broker)
        (self._poller,) = [each for each in self.broker.health.duties([QUEUE]) if each.name == "poller"]
        self._poll_at = clock.now()

    def run(self, jobs: int) -> None:
        """Let time pass until so many jobs have run."""
        while len(self.order) < jobs:
            self._do()
            if len(self.order) < jobs:
                self.clock.advance(self._next() - self.clock.now())

    def requests(self, service: str) -> int:
        return sum(count for name, count in self.server.requests.items() if name.startswith(f"{service}."))

    # -- what happens at a moment ------------------------------------------------------------------------

    def _do(self) -> None:
        now = self.clock.now()
        if self._poll_at <= now:
            before = len(self._waiting())
            self._poll_at = now + self._poller.round()
            self.rounds += 1
            self.fruitful += len(self._waiting()) < before
        while self._visible():
            claims = self._hand.claim(10, queue=QUEUE)
            for claim in claims:
                for id in [payload.identity or claim.key for payload in claim.payloads]:
                    self.runs.setdefault(id, []).append(now)
                    self.order.append(id)
            if claims:
                assert self._hand.settle(*map(done, claims), queue=QUEUE) == []

    def _visible(self) -> bool:
        return any(at is not None and at <= self.clock.now() for at in self._arrivals())

    def _arrivals(self) -> Iterator[float | None]:
        """When something of each queue can be received, if anything can."""
        queues = self.server.queues
        return (queues[name].next_at() for name in (QUEUE, f"{QUEUE}.fifo") if name in queues)

    def _waiting(self) -> list[float]:
        """When the jobs in the table are due."""
        table = self.server.tables.get(QUEUE)
        items = table.items() if table is not None else ()
        return [float(item["perform_at"]["N"]) for item in items if "perform_at" in item]

    def _next(self) -> float:
        """The next moment at which something may happen."""
        waiting = min(self._waiting(), default=math.inf)
        if math.isfinite(waiting) and waiting - LONGEST_DELAY_S > self._poll_at:
            rounds = math.floor((waiting - LONGEST_DELAY_S - self._poll_at) / self.poll_s)
            self._poll_at += rounds * self.poll_s
        moments = [at for at in self._arrivals() if at is not None]
        if math.isfinite(waiting):
            moments.append(self._poll_at)
        assert moments, f"nothing is left, and only {len(self.order)} jobs have run"
        return min(moments)


@contextmanager
def timeline(*, table: bool = True, poll_s: float = 300.0) -> Iterator[Timeline]:
    """The queues `q` and `q.fifo` on a server of its own, with a table or without."""
    clock = ManualClock()
    server = FakeServer.start(clock)
    try:
        server.create_queues(QUEUE)
        if table:
            server.create_table(QUEUE)
        made = Timeline(server, clock, poll_s=poll_s)
        try:
            yield made
        finally:
            made.broker.close()
    finally:
        server.end()
