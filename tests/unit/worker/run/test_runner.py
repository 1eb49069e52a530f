"""When a runner stops between two calls of a key, and which calls it gives back. No threads, no broker."""

from __future__ import annotations

from typing import Annotated

import pytest

from laneway import Context, Key
from laneway.jobs.data import Claim, Kind, Payload
from laneway.jobs.settlement import OUTBOX_LIMIT, Settlement
from laneway.worker.run.runner import SLICE_S
from tests.support.worker_fixtures import Bench

pytestmark = pytest.mark.unit


class Calls(Bench):
    """One runner, its clock, and a claim of five calls; `during` happens in the call with that number."""

    def __init__(self) -> None:
        super().__init__()
        self.during = {}

        @self.app.task(context=True)
        def work(context: Context, key: Annotated[str, Key], number: int) -> None:
            self.ran.append(number)
            self.during.get(number, lambda context: None)(context)

        self.work = work

    def go(self) -> tuple[Settlement, float | None]:
        jobs = [self.app.outgoing(self.work, ("a", number), {}) for number in range(5)]
        payloads = [Payload(job.body, 0.0, job.identity, 1) for job in jobs]
        run = self.runner.read(
            self.lane, Claim("default", 1, "a", 7, 0.0, -1, 1, 0, payloads, kind=Kind.KEYED, worker="me")
        )
        while run is not None:
            run = self.runner.execute(run)
        assert not self.runner.running
        [finished] = self.lane.finished
        return finished


@pytest.fixture
def bench() -> Calls:
    return Calls()


def test_all_is_settled_at_once(bench):
    settlement, duration_s = bench.go()
    assert bench.ran == [0, 1, 2, 3, 4]
    assert (settlement.verdict, settlement.done, duration_s) == ("done", 5, 0.0)


def test_the_rest_is_given_back_when_the_slice_is_used_up(bench):
    for number in range(5):
        bench.during[number] = lambda context: bench.clock.advance(SLICE_S * 0.4)
    settlement, duration_s = bench.go()
    assert bench.ran == [0, 1, 2]
    assert (settlement.verdict, settlement.done) == ("release", 3)
    assert duration_s == pytest.approx(SLICE_S * 1.2), "what it ran for counts when the lane adapts"


def test_a_long_call_ends_before_the_rest_is_given_back(bench):
    bench.during[0] = lambda context: bench.clock.advance(20)
    settlement, _ = bench.go()
    assert (bench.ran, settlement.verdict, settlement.done) == ([0], "release", 1)


def test_nothing_is_begun_when_the_lease_may_have_ended(bench):
    def cut_off(context):
        bench.valid_until = bench.clock.monotonic()

    bench.during[1] = cut_off
    settlement, _ = bench.go()
    assert (bench.ran, settlement.verdict, settlement.done) == ([0, 1], "release", 2)


def test_nothing_is_begun_under_another_id_than_it_was_claimed_with(bench):
    """The lease was lost and there is a new one: it says nothing of claims that were made before."""

    def rejoin(context):
        bench.worker = "me again"

    bench.during[0] = rejoin
    settlement, _ = bench.go()
    assert (bench.ran, settlement.verdict, settlement.done) == ([0], "release", 1)


def test_nothing_is_begun_when_the_worker_is_stopping(bench):
    def stop(context):
        bench.runner.stop()

    bench.during[2] = stop
    settlement, _ = bench.go()
    assert (bench.ran, settlement.verdict, settlement.done) == ([0, 1, 2], "release", 3)


def test_a_stopping_worker_does_not_begin_a_claim(bench):
    bench.runner.stop()
    settlement, duration_s = bench.go()
    assert (bench.ran, settlement.verdict, settlement.done, duration_s) == ([], "release", 0, None)


def test_calls_that_enqueue_very_much_are_settled_before_the_next(bench):
    def enqueue(context):
        context.outbox.extend([None] * (OUTBOX_LIMIT // 2))

    for number in range(5):
        bench.during[number] = enqueue
    settlement, _ = bench.go()
    assert (bench.ran, settlement.verdict, settlement.done) == ([0, 1], "release", 2)
    assert len(settlement.outbox) == OUTBOX_LIMIT


def test_what_succeeded_before_a_failure_is_settled_with_it(bench):
    def fail(context):
        raise ValueError("third")

    bench.during[2] = fail
    settlement, _ = bench.go()
    assert bench.ran == [0, 1, 2]
    assert (settlement.verdict, settlement.done, settlement.retry_count) == ("retry", 2, 0)
