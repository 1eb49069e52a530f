"""What the tests of the suite share: the fixtures, jobs, and a worker to play with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from ...broker import Answer, Broker, Turn
from ...clock import Clock, ManualClock
from ...job import Claim, JobView, NewJob, QueueStats, WorkerView
from ...outcome import Settlement

#: Long enough that reaching it means that nobody woke the waiter.
LONG_S = 30.0

MakeBroker = Callable[[Clock], Broker]


class Kit:
    """The fixtures. A broker under test overrides `make_broker`."""

    @pytest.fixture
    def make_broker(self) -> MakeBroker:
        """Return a function that makes an empty broker on the clock that it is given."""
        raise NotImplementedError("Override the fixture make_broker; laneway.testing.conformance shows how.")

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def broker(self, make_broker: MakeBroker, clock: ManualClock) -> Iterator[Broker]:
        broker = make_broker(clock)
        broker.declare("q", 5)
        yield broker
        broker.close()


def job(key: str, body: str = "{}", *, queue: str = "q", **fields: Any) -> NewJob:
    """A job for the queue `q`."""
    return NewJob(queue=queue, key=key, body=body, **fields)


def put(broker: Broker, *keys: str, **fields: Any) -> None:
    """Enqueue jobs with these keys, in one call."""
    broker.enqueue([job(key, **fields) for key in keys])


def keys(jobs: Sequence[Claim] | Sequence[JobView]) -> list[str]:
    return [each.key for each in jobs]


def numbers(broker: Broker, queue: str = "q") -> QueueStats:
    """The statistics of one queue."""
    return next(stats for stats in broker.stats() if stats.queue == queue)


def only(broker: Broker, key: str, queue: str = "q") -> JobView:
    """The one job of a key."""
    (found,) = broker.find(queue, key)
    return found


class Hand:
    """A worker that does what a test tells it to, and counts its turns."""

    def __init__(self, broker: Broker, name: str = "worker-1", *, lease_s: float = 30.0) -> None:
        self.broker = broker
        self.name = name
        self.seq = 0
        self.last: Turn | None = None
        broker.join(
            WorkerView(
                id=name,
                host="localhost",
                pid=1,
                queues=["q"],
                concurrency=5,
                lease_s=lease_s,
                started_at=0.0,
                seen_at=0.0,
            )
        )

    def turn(
        self, limit: int, *settlements: Settlement, queue: str = "q", shards: Sequence[int] | None = None
    ) -> Answer:
        self.seq += 1
        self.last = Turn(self.name, queue, self.seq, settlements, limit, shards)
        return self.broker.turn(self.last)

    def again(self) -> Answer:
        """Repeat the last turn, as if its answer had been lost."""
        assert self.last is not None
        return self.broker.turn(self.last)

    def claim(self, limit: int = 1_000, *, queue: str = "q", shards: Sequence[int] | None = None) -> list[Claim]:
        return self.turn(limit, queue=queue, shards=shards).claims

    def one(self, queue: str = "q") -> Claim:
        """Claim the only job that is due."""
        (claim,) = self.claim(queue=queue)
        return claim

    def settle(self, *settlements: Settlement, queue: str = "q") -> list[str]:
        """Settle, and return the keys refused."""
        return self.turn(0, *settlements, queue=queue).refused
