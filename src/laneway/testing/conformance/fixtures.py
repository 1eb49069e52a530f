"""BrokerFixtures, `needs`, builders of jobs, and ScriptedWorker: a worker that does as a test says."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import pytest

from ...broker import Answer, Broker, Capabilities, CoreBroker, Feature, Turn, complete
from ...clock import Clock, ManualClock
from ...jobs.data import Claim, Hints, JobView, Kind, NewJob, QueueStats, WorkerView
from ...jobs.merge import identity_of
from ...jobs.settlement import Settlement, done

#: Long enough that reaching it means that nobody woke the waiter.
LONG_S = 30.0

#: Of a delayed job that any broker finds, cancels and moves.
CANCELLABLE = Hints(cancellable=True)

MakeBroker = Callable[[Clock], CoreBroker]
#: A test, or a class of tests.
Tests = TypeVar("Tests", bound=Callable[..., Any])


def needs(*features: Feature) -> Callable[[Tests], Tests]:
    """Mark a test, or every test of a class: it is for brokers that have these features."""
    return lambda tests: _marked(tests, "needs", features)


def lacks(feature: Feature) -> Callable[[Tests], Tests]:
    """Mark a test: it is for brokers that lack this feature."""
    return lambda tests: _marked(tests, "lacks", (feature,))


def _marked(tests: Tests, mark: str, features: Sequence[Feature]) -> Tests:
    members: list[Any] = [tests, *vars(tests).values()]
    for test in filter(inspect.isfunction, members):
        setattr(test, mark, marks_of(test, mark) | set(features))
    return tests


def marks_of(test: object, mark: str = "needs") -> frozenset[Feature]:
    """The features with which a test is marked."""
    marks: frozenset[Feature] = getattr(test, mark, frozenset())
    return marks


class BrokerFixtures:
    """The fixtures. A broker under test gives `capabilities` and overrides `make_broker`.

    Tests that need a feature which the capabilities lack are left out.
    """

    capabilities: ClassVar[Capabilities]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not hasattr(cls, "capabilities"):
            return
        lacking = cls.capabilities.lacks.keys()
        for name, test in inspect.getmembers(cls, inspect.isfunction):
            if marks_of(test) & lacking or marks_of(test, "lacks") - lacking:
                setattr(cls, name, None)

    @pytest.fixture
    def make_broker(self) -> MakeBroker:
        """Return a function that makes an empty broker on the clock that it is given."""
        raise NotImplementedError("Override the fixture make_broker; laneway.testing.conformance shows how.")

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def broker(self, make_broker: MakeBroker, clock: ManualClock) -> Iterator[Broker]:
        assert hasattr(self, "capabilities"), "give the test class the attribute capabilities, those of its broker"
        broker = complete(make_broker(clock))
        assert broker.capabilities.lacks == self.capabilities.lacks, (
            "the test class lacks other features than its broker"
        )
        broker.declare("q", 5)
        yield broker
        broker.close()


def job(key: str, body: str = "{}", *, queue: str = "q", **fields: Any) -> NewJob:
    """A job for the queue `q`."""
    return NewJob(queue=queue, key=key, body=body, **fields)


def call(key: str, id: str, *, queue: str = "q", **fields: Any) -> NewJob:
    """A call of a keyed task for the queue `q`; its body is its id unless another is given."""
    return NewJob(queue=queue, key=key, kind=Kind.KEYED, identity=id, **{"body": id, **fields})


def value(key: str, body: str = "", *, queue: str = "q", **fields: Any) -> NewJob:
    """A payload of a collecting task for the queue `q`."""
    return NewJob(queue=queue, key=key, body=body, kind=Kind.COLLECTING, identity=identity_of(body), **fields)


def calls(broker: Broker, key: str, *ids: str, **fields: Any) -> None:
    """Enqueue calls for a key, in this order."""
    broker.enqueue([call(key, id, **fields) for id in ids])


def values(broker: Broker, key: str, scores: Mapping[str, float | None], **fields: Any) -> None:
    """Enqueue payloads with their scores for a key, in this order."""
    broker.enqueue([value(key, body, score=score, **fields) for body, score in scores.items()])


def put(broker: Broker, *keys: str, **fields: Any) -> None:
    """Enqueue jobs with these keys, in one call."""
    broker.enqueue([job(key, **fields) for key in keys])


def keys(jobs: Sequence[Claim] | Sequence[JobView]) -> list[str]:
    return [each.key for each in jobs]


def bodies(job: Claim | JobView) -> list[str]:
    """What is in the payloads of a job, in order."""
    return [payload.body for payload in job.payloads]


def scores(job: Claim | JobView) -> dict[str, float]:
    """Each payload's score, in order."""
    return {payload.body: payload.score for payload in job.payloads}


def attempts(job: Claim | JobView) -> dict[str, int]:
    """How often each call was handed out, in order."""
    return {payload.body: payload.attempt for payload in job.payloads}


def places(broker: Broker, key: str, queue: str = "q") -> dict[str, list[str]]:
    """Where the payloads of a key are, by status."""
    return {view.status: bodies(view) for view in broker.inspect.find(queue, key)}


def declare_dead(broker: Broker, hand: ScriptedWorker) -> bool:
    """End a worker's lease as an observer does: with the counter that it saw last."""
    counter, _ = broker.leases()[hand.name]
    return broker.declare_dead(hand.name, counter)


def numbers(broker: Broker, queue: str = "q") -> QueueStats:
    """The statistics of one queue."""
    return next(stats for stats in broker.inspect.stats() if stats.queue == queue)


def check_numbers(broker: Broker, **expected: float) -> None:
    """Assert some of the statistics of the queue `q`, by name: a failure says which of them is wrong."""
    stats = numbers(broker)
    assert {name: getattr(stats, name) for name in expected} == expected


def only(broker: Broker, key: str, queue: str = "q") -> JobView:
    """The one job of a key."""
    found = broker.inspect.find(queue, key)
    assert len(found) == 1, f"{key} should be in one place, and is {[view.status for view in found]}"
    return found[0]


def every_key(hand: ScriptedWorker) -> list[str]:
    """The keys of all jobs that are due, in the order in which they are claimed, however few a turn brings."""
    found: list[str] = []
    claims = hand.claim()
    while claims:
        found += keys(claims)
        claims = hand.turn(1_000, *map(done, claims)).claims
    return found


class ScriptedWorker:
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

    def turn(self, limit: int, *settlements: Settlement, queue: str = "q", **fields: Any) -> Answer:
        """Take a turn; `fields` are any others that a turn has."""
        self.seq += 1
        self.last = Turn(self.name, queue, self.seq, settlements, limit, **fields)
        return self.broker.turn(self.last)

    def again(self) -> Answer:
        """Repeat the last turn, as if its answer had been lost."""
        assert self.last is not None
        return self.broker.turn(self.last)

    def claim(self, limit: int = 1_000, *, queue: str = "q", **fields: Any) -> list[Claim]:
        return self.turn(limit, queue=queue, **fields).claims

    def one(self, queue: str = "q", **fields: Any) -> Claim:
        """Claim the only job that is due, or the first with the limit 1."""
        claims = self.claim(queue=queue, **fields)
        assert len(claims) == 1, f"one job should be due, and there are {keys(claims)}"
        return claims[0]

    def settle(self, *settlements: Settlement, queue: str = "q") -> list[str]:
        """Settle, and return the keys refused."""
        return self.turn(0, *settlements, queue=queue).refused
