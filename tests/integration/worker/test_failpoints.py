"""Failpoints: which ones a job passes, and how the environment arms them in a process."""

from __future__ import annotations

import pytest

from laneway import ConfigError, failpoints
from laneway.failpoints import PLACES, arm_from_environment


@pytest.fixture(autouse=True)
def disarmed():
    yield
    failpoints.armed.clear()


def test_a_job_passes_the_places_in_order(app, drain):
    passed = []

    @app.task
    def work() -> None:
        passed.append("work")

    work.enqueue()
    for place in ("after claim", "mid job", "before settle", "after settle"):
        failpoints.armed[place] = lambda place=place: passed.append(place)
    assert drain(app) == 0
    assert passed[:5] == ["after claim", "mid job", "work", "before settle", "after settle"]


def test_an_exception_in_the_middle_of_a_job_is_a_failure(app, drain):
    @app.task(max_retry_count=0)
    def work() -> None:
        raise AssertionError("is not reached")

    def fail() -> None:
        raise ValueError("mid job")

    failpoints.armed["mid job"] = fail
    handle = work.enqueue()
    assert drain(app) == 0
    assert handle.status() == "dead"


def test_the_environment_arms_with_chances():
    killed = []
    environ = {"LANEWAY_FAILPOINTS": "after claim=kill:1, mid job=kill:0,during renew=kill:0.5"}
    arm_from_environment({**environ, "LANEWAY_FAILPOINTS_SEED": "7"}, kill=lambda: killed.append(1))
    assert set(failpoints.armed) == {"after claim", "mid job", "during renew"}
    failpoints.reach("after claim")
    assert killed == [1]
    for _ in range(100):
        failpoints.reach("mid job")
    assert killed == [1]
    for _ in range(100):
        failpoints.reach("during renew")
    assert 20 < len(killed) < 80


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nowhere=kill:1", "there is no place 'nowhere'"),
        ("mid job", "write place=kill:0.01"),
        ("mid job=kill", "write place=kill:0.01"),
        ("mid job=pause:1", "write place=kill:0.01"),
        ("mid job=kill:2", "a probability from 0 to 1"),
        ("mid job=kill:nan", "a probability from 0 to 1"),
    ],
)
def test_what_cannot_be_armed_is_refused_and_nothing_armed(text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        arm_from_environment({"LANEWAY_FAILPOINTS": f"after claim=kill:1,{text}"})
    assert failpoints.armed == {}


def test_the_places_are_those_of_the_promise():
    promised = {"after claim", "mid job", "before settle", "inside settle", "after settle", "during renew"}
    assert promised < set(PLACES)
