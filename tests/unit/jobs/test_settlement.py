"""Settlements: the arithmetic of retries, and the settlement for each way a run can end."""

from __future__ import annotations

import random

import pytest

from laneway.jobs.data import Claim, NewJob, Payload
from laneway.jobs.settlement import Settlement, buried, default_retry_in, done, exhausted, failed, postponed, released

pytestmark = pytest.mark.unit


def claim(retry_count: int = -1) -> Claim:
    return Claim("default", 1, "key", 7, 0.0, retry_count, 1, 0, [Payload("{}")])


@pytest.mark.parametrize("max_retry_count", [0, 1, 25])
def test_a_job_that_always_fails_runs_once_more_than_it_may_be_retried(max_retry_count):
    retry_count, runs, delays = -1, 0, []
    while True:
        runs += 1
        settlement = failed(claim(retry_count), "boom", max_retry_count, 10.0 + retry_count)
        assert settlement.retry_count == retry_count + 1
        assert settlement.error == "boom"
        if settlement.verdict == "bury":
            break
        assert settlement.verdict == "retry"
        delays.append(settlement.delay_s)
        retry_count = settlement.retry_count
    assert runs == max_retry_count + 1
    assert len(delays) == max_retry_count


@pytest.mark.parametrize(
    ("retry_count", "max_retry_count", "over"),
    [(0, 0, True), (0, 1, False), (1, 1, True), (24, 25, False), (25, 25, True), (26, 25, True)],
)
def test_retries_are_used_up_when_the_count_has_reached_the_most(retry_count, max_retry_count, over):
    assert exhausted(retry_count, max_retry_count) is over


@pytest.mark.parametrize("n", range(25))
def test_the_default_wait_grows_with_the_fourth_power_and_is_spread(monkeypatch, n):
    monkeypatch.setattr(random, "randrange", lambda top: 0)
    assert default_retry_in(n) == n**4 + 15
    monkeypatch.setattr(random, "randrange", lambda top: top - 1)
    assert default_retry_in(n) == n**4 + 15 + 29 * (n + 1)


@pytest.mark.parametrize(
    ("max_retry_count", "days"),
    [(14, 1), (16, 2), (18, 3), (19, 5), (20, 6), (21, 8), (22, 10), (23, 13), (24, 16), (25, 20)],
)
def test_a_job_lives_as_many_days_as_the_seeds_say(monkeypatch, max_retry_count, days):
    monkeypatch.setattr(random, "randrange", lambda top: top // 2)
    assert sum(default_retry_in(n) for n in range(max_retry_count)) // 86_400 == days


def test_a_success_sends_what_the_run_enqueued():
    job = NewJob(queue="default", key="a", body="{}")
    assert done(claim(3), [job]) == Settlement(claim(3), "done", outbox=[job], done=1)
    assert done(claim(), []).outbox is None


def test_a_burial_counts_as_a_failure_and_waits_for_nothing():
    assert buried(claim(2), "no") == Settlement(claim(2), "bury", 0.0, 3, "no", buried=1)


def test_a_postponement_counts_as_nothing_and_sends_nothing():
    assert postponed(claim(2), 0.0) == Settlement(claim(2), "postpone", 0.0, 2)
    assert postponed(claim(), 9.0).outbox is None


def test_what_never_started_goes_back_as_it_was():
    assert released(claim(2)) == Settlement(claim(2), "release", 0.0, 2)
