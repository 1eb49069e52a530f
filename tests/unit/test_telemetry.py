"""Telemetry: which subscribers receive an event. The events themselves are tested where they happen."""

from __future__ import annotations

import math

import pytest

from laneway.telemetry import JobsEnqueued, RunEnded, Telemetry

pytestmark = pytest.mark.unit

END = RunEnded("q", "task", "key", 1, "retry", 0.5, error="it failed")


def test_who_wants_only_what_is_unusual_says_from_when_on_a_run_is_slow():
    telemetry = Telemetry()
    assert telemetry.slow_s == math.inf
    told: list[RunEnded] = []
    also: list[RunEnded] = []
    telemetry.subscribe_unusual(told.append, 10.0)
    telemetry.subscribe_unusual(also.append, 5.0)
    assert telemetry.slow_s == 5.0
    assert not telemetry.of(RunEnded)  # nobody has to build an event for what is usual
    telemetry.emit(END)
    telemetry.emit(JobsEnqueued("q", 1))
    assert told == also == [END]
    telemetry.unsubscribe_unusual(told.append)
    telemetry.unsubscribe_unusual(also.append)
    telemetry.emit(END)
    assert (told, telemetry.slow_s) == ([END], math.inf)
