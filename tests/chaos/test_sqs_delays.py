"""Delays on SQS of a second to 400 days, on a manual clock: each job runs once, when it is due.

`make chaos` has thousands of jobs, `make test` some.
"""

from __future__ import annotations

import math
import random

import pytest

from laneway.jobs.data import NewJob
from laneway.testing.conformance.fixtures import call, job
from tests.chaos.sqs_timeline import Timeline, timeline
from tests.support.worker_processes import LARGE

pytestmark = pytest.mark.chaos

DAY_S = 86_400.0
POLL_S = 300.0


def check(line: Timeline, due: dict[str, float], late_s: float) -> None:
    """Each has run once, never early, and no later than that."""
    assert {id: len(times) for id, times in line.runs.items()} == dict.fromkeys(due, 1)
    lateness = [line.runs[id][0] - at for id, at in due.items()]
    print(f"{len(due)} jobs, from {min(lateness):.3f} to {max(lateness):.3f} s late")
    assert min(lateness) >= 0
    assert max(lateness) <= late_s
    assert all(queue.counts.all == 0 for queue in line.server.queues.values())


def random_delays(count: int, longest_s: float) -> list[float]:
    """As many short ones as long ones, from a second on."""
    chance = random.Random(13)
    return [math.exp(chance.uniform(0, math.log(longest_s))) for _ in range(count - 1)] + [longest_s]


def delayed(delays: list[float], now: float) -> tuple[list[NewJob], dict[str, float]]:
    jobs = [job(f"j{n}", delay_s=delay_s) for n, delay_s in enumerate(delays)]
    return jobs, {each.key: now + each.delay_s for each in jobs}


def test_delays_of_30_days_cost_little() -> None:
    """At most 4 requests to DynamoDB and half a request to SQS each, beside the rounds that find nothing."""
    count = 10_000 if LARGE else 150
    with timeline() as line:
        now = line.clock.now()
        times = [now + 30 * DAY_S + hour * 3_600 for hour in range(3)]
        jobs = [job(f"j{n}", perform_at=times[n % 3]) for n in range(count)]
        line.server.requests.clear()
        line.broker.enqueue(jobs)
        line.run(count)
        check(line, {each.key: each.perform_at or 0.0 for each in jobs}, POLL_S + 1)
        assert not line._waiting()
        idle = (line.rounds - line.fruitful) * 6  # how many partitions there are, and what lies in each
        dynamodb, sqs = (line.requests("dynamodb") - idle) / count, line.requests("sqs") / count
        print(f"{dynamodb:.2f} requests to DynamoDB and {sqs:.2f} to SQS for each of {count} jobs")
        print(f"{line.rounds} rounds, {line.fruitful} of them with something to send: {dict(line.server.requests)}")
        assert dynamodb <= 4
        assert sqs <= 0.5


def test_each_delay_ends_when_it_should() -> None:
    delays = random_delays(10_000 if LARGE else 60, 400 * DAY_S)
    with timeline() as line:
        jobs, due = delayed(delays, line.clock.now())
        line.broker.enqueue(jobs)
        line.run(len(jobs))
        check(line, due, 1.0)


def test_delays_of_keyed_calls_end_when_they_should_and_keep_their_order() -> None:
    delays = random_delays(2_000 if LARGE else 15, 400 * DAY_S)
    with timeline() as line:
        now = line.clock.now()
        calls = [call(f"k{n % 5}", f"c{n}", delay_s=delay_s) for n, delay_s in enumerate(delays)]
        line.broker.enqueue(calls)
        line.run(len(calls))
        check(line, {each.identity: now + each.delay_s for each in calls}, 1.0)
        assert line.order == [each.identity for each in sorted(calls, key=lambda each: each.delay_s)]


def test_without_a_table_delays_end_when_they_should_hop_by_hop() -> None:
    longest_s = (30 if LARGE else 1) * DAY_S
    delays = random_delays(100 if LARGE else 10, longest_s)
    with timeline(table=False) as line:
        jobs, due = delayed(delays, line.clock.now())
        line.broker.enqueue(jobs)
        line.run(len(jobs))
        check(line, due, 1.0)
        assert line.server.requests["sqs.SendMessageBatch"] >= longest_s / 900
