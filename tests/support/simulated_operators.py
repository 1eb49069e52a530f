"""The operator of a simulation, who pauses queues, and the supervisor, which outlives a worker's process.

The supervisor knows which run a process had begun when it died, and reports it to the broker. Every death that a
broker shows must have been reported. The supervisor never knows more than the worker itself did.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from laneway.broker import Broker
from laneway.errors import BrokerAwayError
from laneway.jobs.data import JobView, Kind, StartedRun
from tests.support.simulated_workers import GATHER, ORDERS, SimulatedWorker


class SimulatedOperator:
    """Pauses queues and has them go on."""

    def __init__(self, broker: Broker, chance: Random) -> None:
        self.broker = broker
        self._chance = chance
        #: What may be paused: it was asked for, and its end was not answered.
        self.paused: set[str] = set()

    def act(self) -> None:
        """Pause a queue, or end the pause."""
        queue = self._chance.choice((ORDERS, GATHER))
        if queue in self.paused:
            self.resume(queue)
            return
        self.paused.add(queue)
        try:
            self.broker.operate.pause(queue)
        except BrokerAwayError:
            pass  # it may be paused or not

    def resume(self, queue: str) -> None:
        """Have a queue go on; no answer: another time."""
        try:
            self.broker.operate.resume(queue)
        except BrokerAwayError:
            return
        self.paused.discard(queue)


class SimulatedSupervisor:
    """Gives back what a process held that has died."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        #: How often each call, or key of a collecting job, was said to have been running.
        self.blamed: Counter[str] = Counter()

    def buries(self, worker: SimulatedWorker) -> None:
        """The worker's process is gone. Asked again when there is no answer, and not for ever: its lease runs out."""
        died: list[StartedRun] = []
        if worker.run is not None:
            claim = worker.run.claim
            keyed = claim.kind is Kind.KEYED
            identity = claim.payloads[worker.run.done].identity if keyed else ""
            died.append(StartedRun(claim.queue, claim.key, claim.token, identity))
            self.blamed[identity or claim.key] += 1
        for _ in range(2):
            try:
                self.broker.leave(worker.id, died)
            except BrokerAwayError:
                continue
            return

    def unexplained(self, views: list[JobView]) -> list[str]:
        """Deaths that a broker shows and nobody has told it of, a sentence each."""
        shown = [
            (payload.identity, payload.deaths)
            for view in views
            for payload in (view.payloads if view.kind is Kind.KEYED else ())
        ]
        shown += [(view.key, view.deaths) for view in views if view.kind is not Kind.KEYED]
        return [
            f"{name} has {deaths} deaths, and was being run at {self.blamed[name]}."
            for name, deaths in shown
            if deaths > self.blamed[name]
        ]
