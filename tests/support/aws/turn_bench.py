"""The parts of the AWS broker that turns need, with hooks that can make an SQS call fail."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from laneway.broker import Answer, Turn
from laneway.brokers.aws.clients import Clients
from laneway.clock import Clock, ManualClock, SystemClock
from laneway.errors import BrokerAwayError
from laneway.jobs.data import NewJob, WorkerView
from laneway.testing.conformance.fixtures import ScriptedWorker
from tests.support.aws.brokers import make_broker
from tests.support.aws.endpoints import Place
from tests.support.aws.servers import FakeServer

#: Told of every call: the operation and, when it has been carried out, its answer. It may raise.
Watch = Callable[[str, dict[str, Any], dict[str, Any] | None], None]


class Watched(Clients):
    """Clients whose calls of SQS somebody watches, before and after."""

    watch: Watch = staticmethod(lambda operation, params, answer: None)

    def sqs(self, operation: str, **params: Any) -> dict[str, Any]:
        self.watch(operation, params, None)
        answer = super().sqs(operation, **params)
        self.watch(operation, params, answer)
        return answer


class Rig:
    """The part of a broker that a `ScriptedWorker` needs. It receives within turns, unless it is to have threads."""

    shared = remote = True

    def __init__(self, place: Place, clock: Clock | None = None, *, inline: bool = True, **options: Any) -> None:
        self.place = place
        self.settings = place.settings(**options)
        self.clock = clock or SystemClock()
        # The place's own clients: making one takes longer than most of these tests.
        self.clients = Watched.of(self.settings, **place.clients)
        assert isinstance(self.clients, Watched)
        broker = make_broker(place, clock=self.clock, clients=self.clients, inline=inline, **options)
        self.account, self.inflight = broker.account, broker.inflight
        self.sender, self.heartbeat, self.turns = broker.sender, broker.heartbeat, broker.turns
        self.counts: list[tuple[str, int, int]] = []
        self.heartbeat.counted = lambda *counts: self.counts.append(counts)  # type: ignore[method-assign]

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        self.sender.enqueue(jobs)

    def join(self, worker: WorkerView) -> None:
        self.turns.join(worker)

    def turn(self, turn: Turn) -> Answer:
        return self.turns.turn(turn)

    def renew(self, worker: str = "worker-1") -> None:
        """Keep hidden all that is held."""
        self.turns.renew(worker, (), 0)

    def wait(self, queues: Collection[str], timeout_s: float) -> set[str]:
        return self.turns.wait(queues, timeout_s)

    def hand(self, name: str = "worker-1", **fields: Any) -> ScriptedWorker:
        return ScriptedWorker(self, name, **fields)  # type: ignore[arg-type]

    def close(self) -> None:
        self.turns.close()
        self.clients.close()

    # -- faults ----------------------------------------------------------------------------------------

    @contextmanager
    def watched(self, watch: Watch) -> Iterator[None]:
        self.clients.watch = watch
        try:
            yield
        finally:
            del self.clients.watch

    def pauses(self, queue: str) -> None:
        """Have a queue be paused, as the heartbeat would say."""
        self.heartbeat.paused = lambda name: name == queue  # type: ignore[method-assign]


class Lost:
    """Loses one call: the `number`th, before or after it was carried out."""

    def __init__(self, number: int, *, after: bool, operations: Collection[str] = ()) -> None:
        self._left = number
        self._after = after
        self._operations = operations
        self.lost = ""

    def __call__(self, operation: str, params: dict[str, Any], answer: dict[str, Any] | None) -> None:
        if (answer is not None) is not self._after or (self._operations and operation not in self._operations):
            return
        self._left -= 1
        if self._left == 0:
            self.lost = operation
            raise BrokerAwayError(f"The answer to {operation} was lost.")


class Bench:
    """Makes rigs for a test, and ends them."""

    def __init__(self, server: FakeServer, clock: ManualClock) -> None:
        self._server, self._clock = server, clock
        self._rigs: list[Rig] = []

    def rig(self, place: Place, clock: Clock | None = None, **options: Any) -> Rig:
        rig = Rig(place, clock, **options)
        self._rigs.append(rig)
        return rig

    def virtual(self, **options: Any) -> tuple[Rig, FakeServer, ManualClock]:
        """A rig and its server on a clock that stands still until it is told to move, with the queue `q`."""
        self._server.reset()
        self._server.create_queues("q")
        return self.rig(self._server, self._clock, **options), self._server, self._clock

    def end(self) -> None:
        while self._rigs:
            self._rigs.pop().close()


@pytest.fixture(scope="session")
def virtual_server(_aws_environment: None) -> Iterator[tuple[FakeServer, ManualClock]]:
    clock = ManualClock()
    server = FakeServer.start(clock)
    yield server, clock
    server.end()


@pytest.fixture
def bench(virtual_server: tuple[FakeServer, ManualClock]) -> Iterator[Bench]:
    made = Bench(*virtual_server)
    yield made
    made.end()


def sentences(caplog: pytest.LogCaptureFixture, level: int = logging.ERROR) -> list[str]:
    """What was logged, from this level on."""
    return [record.getMessage() for record in caplog.records if record.levelno >= level]
