"""The marks of the conformance tests are right: each test uses the features that it is marked with, and no other.

Tiers and kinds of jobs are seen by the verbs that a test uses. The other features are ways in which a broker behaves.
AWS lacks them, so a test that is marked with one fails there; otherwise its rule holds on AWS, and the mark hides it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from laneway.broker import TIERS, Capabilities, Turn, complete
from laneway.clock import Clock
from laneway.errors import LanewayError
from laneway.jobs.data import Kind, NewJob
from laneway.testing.conformance import BrokerConformance, EnqueueTests
from laneway.testing.conformance.fixtures import MakeBroker, marks_of, needs
from tests.conformance.suite_check import run
from tests.conformance.test_aws import CAPABILITIES as AWS
from tests.conformance.test_aws import _aws_environment, _descriptions_of_aws, open_broker
from tests.support.aws.servers import FakeServer
from tests.support.second_broker import SecondBroker

__all__ = ["_aws_environment", "_descriptions_of_aws"]

pytestmark = pytest.mark.conformance


class FeatureRecorder:
    """Passes every verb on to a broker, and notes which features are used."""

    def __init__(self, inner: SecondBroker, used: set[str]) -> None:
        self._inner = inner
        self._used = used

    def enqueue(self, jobs: list[NewJob]) -> None:
        self._inner.enqueue(jobs)
        self._note(jobs)

    def turn(self, turn: Turn) -> Any:
        answer = self._inner.turn(turn)
        for settlement in turn.settlements:
            self._note(settlement.outbox or [])
        return answer

    def _note(self, jobs: list[NewJob]) -> None:
        """What is refused by every broker needs no feature, so this comes after storing."""
        if any(job.kind is Kind.KEYED for job in jobs):
            self._used.add("keyed")
        if any(job.kind is Kind.COLLECTING for job in jobs):
            self._used.add("collecting")
        if any(job.priority for job in jobs):
            self._used.add("priorities")

    def __getattr__(self, name: str) -> Any:
        if name in TIERS:
            return TierRecorder(self._inner, name, self._used)
        return getattr(self._inner, name)


class TierRecorder:
    """A tier that is noted as soon as a verb of it is used."""

    def __init__(self, inner: SecondBroker, tier: str, used: set[str]) -> None:
        self._inner = inner
        self._tier = tier
        self._used = used

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        verbs: Callable[..., Any] = getattr(self._inner, verb)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._used.add(self._tier)
            return verbs(*args, **kwargs)

        return call


class TestMarks(BrokerConformance):
    capabilities = SecondBroker.capabilities
    used: set[str]

    @pytest.fixture(autouse=True)
    def compare(self, request: pytest.FixtureRequest) -> Any:
        self.used = set()
        yield
        seen = {*TIERS, "keyed", "collecting", "priorities"}
        marks = {mark for mark in marks_of(request.function) if mark in seen}
        # A test with parameters may use a feature for some of them only.
        assert self.used == marks or ("callspec" in vars(request.node) and self.used < marks)

    @pytest.fixture
    def make_broker(self) -> MakeBroker:
        return lambda clock: FeatureRecorder(SecondBroker(clock), self.used)


def test_a_class_leaves_out_what_its_broker_lacks() -> None:
    class Lacking(EnqueueTests):
        capabilities = Capabilities(shared=False, lacks={"inspect": "It cannot."})

    left = {name for name in vars(EnqueueTests) if name.startswith("test_") and getattr(Lacking, name) is not None}
    core = {
        name for name, test in inspect.getmembers(EnqueueTests, inspect.isfunction) if "inspect" not in marks_of(test)
    }
    assert left == {name for name in core if name.startswith("test_")}
    assert left
    assert left < {name for name in vars(EnqueueTests) if name.startswith("test_")}


def test_a_mark_of_a_class_is_added_to_those_of_its_tests() -> None:
    @needs("events")
    class Marked:
        @needs("inspect")
        def test_one(self) -> None: ...

        def test_other(self) -> None: ...

    assert marks_of(Marked.test_one) == {"events", "inspect"}
    assert marks_of(Marked.test_other) == {"events"}


#: Kinds of jobs and tiers that AWS refuses: a test that needs one of them fails there whatever else it is marked with.
REFUSED = {"collecting", "priorities", "shards"}
#: They pass on the fake, and say what SQS does not promise: the order of delivery, and that a plain job is stored once.
NOT_PROMISED = {
    "test_a_key_that_is_queued_is_not_stored_twice",
    "test_a_released_key_keeps_its_place",
    "test_jobs_come_in_the_order_in_which_they_are_due",
}
#: They store ten thousand jobs, which takes seconds on the fake.
LONG = {"test_ten_thousand_jobs_are_counted", "test_ten_thousand_jobs_come_out_in_order"}


#: How a test fails that finds too little: a lease or a view is missing, for example.
FAILURES = (AssertionError, LanewayError, LookupError, ValueError, pytest.fail.Exception)


def behaviours(test: object) -> frozenset[str]:
    """The features for which AWS leaves a test out, if they are ways of behaving."""
    marks = frozenset(marks_of(test) & AWS.lacks.keys())
    return frozenset() if marks & REFUSED or marks_of(test, "lacks") else marks


HIDDEN = [name for name, test in inspect.getmembers(BrokerConformance, inspect.isfunction) if behaviours(test)]


def first_values(test: Any) -> dict[str, Any]:
    """The first values of each list with which pytest would run a test."""
    lists = [mark.args for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    return {name: values[0] for name, values in lists}


@pytest.mark.parametrize("name", sorted({*HIDDEN} - NOT_PROMISED - LONG))
def test_what_aws_leaves_out_fails_there(name: str) -> None:
    test, servers = getattr(BrokerConformance, name), list[FakeServer]()
    values = first_values(test)
    assert inspect.signature(test).parameters.keys() <= {"self", "broker", "clock", "make_broker", *values}

    def make(clock: Clock) -> Any:
        servers.append(FakeServer.start(clock))
        return complete(open_broker(servers[-1], clock))

    try:
        with pytest.raises(FAILURES):
            run(name, make, **values)
    finally:
        for server in servers:
            server.end()


def test_the_exceptions_are_left_out_by_aws() -> None:
    assert {*HIDDEN} >= NOT_PROMISED | LONG
