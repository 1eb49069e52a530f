"""Counters: counting from telemetry events, and adding up the counts of several processes."""

from __future__ import annotations

import json

import pytest

from laneway.telemetry import (
    BrokerAway,
    BrokerBack,
    JobsEnqueued,
    LeaseEnded,
    OutboxRefused,
    ProcessEnded,
    Reclaimed,
    RunAbandoned,
    RunEnded,
    RunStarted,
    SettlementRefused,
    Telemetry,
)
from laneway.worker.observe.counters import (
    BUCKETS,
    COUNTERS,
    GAUGES,
    HISTOGRAMS,
    CounterTotal,
    RunCounters,
    ended,
    merge,
)

pytestmark = pytest.mark.unit


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture
def tally(telemetry: Telemetry) -> RunCounters:
    made = RunCounters(telemetry)
    made.start()
    return made


def start(run: int = 1, waited_s: float = 0.0) -> RunStarted:
    return RunStarted("q", "t", "k", 1, run=run, waited_s=waited_s)


def end(run: int = 1, verdict="done", duration_s: float = 0.0, keys: int = 1, more: bool = False) -> RunEnded:
    return RunEnded("q", "t", "k", 1, verdict, duration_s, keys=keys, run=run, more=more)


def value(snapshot, name, *labels):
    return next((row[-1] for row in snapshot.get(name, []) if tuple(row[:-1]) == labels), None)


def test_runs_are_counted_by_queue_task_and_verdict(telemetry, tally):
    for number, verdict in enumerate(["done", "done", "retry", "bury"], 1):
        telemetry.emit(start(number))
        telemetry.emit(end(number, verdict))
    found = tally.snapshot()
    assert value(found, "jobs", "q", "t", "done") == 2
    assert value(found, "jobs", "q", "t", "retry") == 1
    assert value(found, "jobs", "q", "t", "bury") == 1
    assert value(found, "running", "q", "t") == 0


def test_what_runs_now_is_counted(telemetry, tally):
    telemetry.emit(start(1))
    telemetry.emit(start(2))
    telemetry.emit(end(1))
    assert value(tally.snapshot(), "running", "q", "t") == 1
    telemetry.emit(RunAbandoned("q", "t", "k", 1, 0.0, "e", SystemExit(), run=2))
    assert value(tally.snapshot(), "running", "q", "t") == 0
    assert value(tally.snapshot(), "abandoned", "q", "t") == 1


def test_a_batch_is_one_run_and_as_many_jobs_as_it_has_keys(telemetry, tally):
    telemetry.emit(start())
    telemetry.emit(end(verdict="retry", more=True, duration_s=2))
    telemetry.emit(end(verdict="done", keys=9, duration_s=2))
    found = tally.snapshot()
    assert value(found, "jobs", "q", "t", "done") == 9
    assert value(found, "running", "q", "t") == 0
    assert sum(value(found, "duration_s", "q", "t")[:-1]) == 1
    assert value(found, "duration_s", "q", "t")[-1] == 2


def test_what_never_started_does_not_run_and_took_no_time(telemetry, tally):
    telemetry.emit(end(run=0, verdict="retry"))
    found = tally.snapshot()
    assert value(found, "jobs", "q", "t", "retry") == 1
    assert value(found, "running", "q", "t") is None
    assert value(found, "duration_s", "q", "t") is None


def test_seconds_fall_into_buckets(telemetry, tally):
    for seconds in (0.0, 0.001, 0.0011, 3600, 3601):
        telemetry.emit(start(waited_s=seconds))
    *buckets, total = value(tally.snapshot(), "wait_s", "q", "t")
    assert len(buckets) == len(BUCKETS) + 1
    assert (buckets[0], buckets[1], buckets[-2], buckets[-1]) == (2, 1, 1, 1)
    assert total == pytest.approx(7201.0021)


def test_the_rest_is_counted_too(telemetry, tally):
    telemetry.emit(JobsEnqueued("q", 3))
    telemetry.emit(JobsEnqueued("q", 4))
    telemetry.emit(SettlementRefused("q", ["a", "b"]))
    telemetry.emit(Reclaimed(5, ["w"]))
    telemetry.emit(LeaseEnded("w"))
    telemetry.emit(ProcessEnded(1, 10, "was killed", False, 2, 0.0))
    telemetry.emit(ProcessEnded(1, 11, "ended", True, 0, None))
    found = tally.snapshot()
    assert value(found, "enqueued", "q") == 7
    assert value(found, "refused", "q") == 2
    assert value(found, "reclaimed") == 5
    assert value(found, "leases_ended") == 1
    assert value(found, "processes_ended", "no") == 1
    assert value(found, "processes_ended", "yes") == 1
    assert value(found, "deaths") == 2


def test_the_time_that_the_broker_is_away_grows_while_it_is(telemetry, tally, monkeypatch):
    now = 100.0
    monkeypatch.setattr("laneway.worker.observe.counters.monotonic", lambda: now)
    telemetry.emit(BrokerAway("gone"))
    now = 103.0
    assert value(tally.snapshot(), "broker_away_s") == 3.0
    telemetry.emit(BrokerBack(3.5))
    now = 200.0
    assert value(tally.snapshot(), "broker_away_s") == 3.5
    telemetry.emit(BrokerAway("again"))
    now = 201.0
    assert value(tally.snapshot(), "broker_away_s") == 4.5
    assert value(tally.snapshot(), "broker_away") == 2


def test_nothing_is_counted_before_it_starts_or_after_it_stops(telemetry):
    tally = RunCounters(telemetry)
    telemetry.emit(JobsEnqueued("q", 1))
    assert not telemetry.of(RunStarted)
    tally.start()
    telemetry.emit(JobsEnqueued("q", 1))
    tally.stop()
    telemetry.emit(JobsEnqueued("q", 1))
    assert value(tally.snapshot(), "enqueued", "q") == 1
    assert not telemetry.of(RunStarted)


def full(telemetry: Telemetry) -> None:
    """Let everything happen once."""
    telemetry.emit(start(waited_s=1))
    telemetry.emit(end(duration_s=2))
    telemetry.emit(start(2))
    telemetry.emit(RunAbandoned("q", "t", "k", 1, 0.0, "e", SystemExit(), run=2))
    telemetry.emit(start(3))
    telemetry.emit(JobsEnqueued("q", 1))
    telemetry.emit(SettlementRefused("q", ["a"]))
    telemetry.emit(OutboxRefused("q", "t", "k", 1, "retry", 1.0, "e", ValueError()))
    telemetry.emit(Reclaimed(1, []))
    telemetry.emit(LeaseEnded("w"))
    telemetry.emit(BrokerAway("gone"))
    telemetry.emit(BrokerBack(1.0))
    telemetry.emit(ProcessEnded(1, 10, "was killed", False, 1, 0.0))


def test_every_name_is_filled_by_some_event_and_survives_json(telemetry, tally):
    full(telemetry)
    found = tally.snapshot()
    assert found.keys() == COUNTERS.keys() | HISTOGRAMS.keys() | GAUGES.keys()
    assert json.loads(json.dumps(found)) == found
    for name, labels in (COUNTERS | HISTOGRAMS | GAUGES).items():
        assert all(len(row) == len(labels) + 1 for row in found[name])


def test_snapshots_add_up_and_stay_as_they_are(telemetry, tally):
    full(telemetry)
    one = tally.snapshot()
    before = json.dumps(one)
    both = merge([one, json.loads(before)])
    assert value(both, "jobs", "q", "t", "done") == 2
    assert value(both, "running", "q", "t") == 2
    assert value(both, "duration_s", "q", "t")[-1] == 4
    assert json.dumps(one) == before
    assert merge([]) == {}
    assert merge([one]) == one


def test_a_histogram_of_another_version_is_left_out(telemetry, tally):
    full(telemetry)
    one = tally.snapshot()
    assert merge([one, {"duration_s": [["q", "t", [1, 2.0]]]}]) == one


def test_what_an_ended_process_had_counted_is_kept(telemetry, tally):
    full(telemetry)
    total = CounterTotal()
    total.update("child 1", tally.snapshot())
    total.update("child 1", tally.snapshot())  # the last word counts, not the sum of what it said
    total.update("child 2", tally.snapshot())
    before = total.snapshot()
    assert value(before, "jobs", "q", "t", "done") == 2
    assert value(before, "running", "q", "t") == 2
    total.ended("child 1")
    total.ended("child 1")
    after = total.snapshot()
    assert value(after, "running", "q", "t") == 1
    assert ended(after) == ended(before)
    total.update("child 1", {"jobs": [["q", "t", "done", 1]]})  # another one in its place
    assert value(total.snapshot(), "jobs", "q", "t", "done") == 3
