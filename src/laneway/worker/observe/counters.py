"""`RunCounters`: counts telemetry events for metrics; `CounterTotal`: adds up the counts of several processes.

A snapshot is plain data that JSON can hold, so that children can send theirs to the supervisor. Counters and
histograms include processes that have ended, so they never go down; gauges include live processes only. Nothing is
counted before `start`, and no label ever holds a job's arguments.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable
from time import monotonic
from typing import Any

from ...telemetry import (
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

#: Upper bounds in seconds, from a no-op to a job of an hour; what is longer is counted beyond the last.
BUCKETS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)

#: What is counted, and by which labels.
COUNTERS: dict[str, tuple[str, ...]] = {
    "jobs": ("queue", "task", "verdict"),
    "enqueued": ("queue",),
    "refused": ("queue",),
    "outboxes_refused": ("queue", "task"),
    "abandoned": ("queue", "task"),
    "reclaimed": (),
    "leases_ended": (),
    "broker_away": (),
    "broker_away_s": (),
    "processes_ended": ("orderly",),
    "deaths": (),
}
HISTOGRAMS: dict[str, tuple[str, ...]] = {"duration_s": ("queue", "task"), "wait_s": ("queue", "task")}
GAUGES: dict[str, tuple[str, ...]] = {"running": ("queue", "task")}

#: By name: rows of labels and what they have come to. A histogram's is a list: the buckets, and the sum at its end.
Snapshot = dict[str, list[list[Any]]]

Labels = tuple[str, ...]


class RunCounters:
    """Counts what an app's telemetry tells."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._lock = threading.Lock()
        self._counts: dict[str, dict[Labels, float]] = {name: {} for name in (*COUNTERS, *GAUGES)}
        self._histograms: dict[str, dict[Labels, list[float]]] = {name: {} for name in HISTOGRAMS}
        self._away_since: float | None = None
        self._subscribed: dict[type, Any] = {
            RunStarted: self._run_started,
            RunEnded: self._run_ended,
            RunAbandoned: self._run_abandoned,
            JobsEnqueued: lambda event: self._add("enqueued", (event.queue,), event.count),
            OutboxRefused: lambda event: self._add("outboxes_refused", (event.queue, event.task)),
            SettlementRefused: lambda event: self._add("refused", (event.queue,), len(event.keys)),
            Reclaimed: lambda event: self._add("reclaimed", (), event.count),
            LeaseEnded: lambda event: self._add("leases_ended", ()),
            BrokerAway: self._broker_away,
            BrokerBack: self._broker_back,
            ProcessEnded: self._process_ended,
        }

    def start(self) -> None:
        """Begin to count."""
        for kind, callback in self._subscribed.items():
            self._telemetry.subscribe(kind, callback)

    def stop(self) -> None:
        """Count no more; what was counted stays."""
        for kind, callback in self._subscribed.items():
            self._telemetry.unsubscribe(kind, callback)

    def snapshot(self) -> Snapshot:
        """All that was counted until now."""
        with self._lock:
            found: Snapshot = {
                name: [[*labels, value] for labels, value in counts.items()] for name, counts in self._counts.items()
            }
            for name, histograms in self._histograms.items():
                found[name] = [[*labels, list(values)] for labels, values in histograms.items()]
            if self._away_since is not None:
                so_far = self._counts["broker_away_s"].get((), 0.0)
                found["broker_away_s"] = [[so_far + monotonic() - self._away_since]]
        return {name: rows for name, rows in found.items() if rows}

    # -- events ----------------------------------------------------------------------------------------

    def _run_started(self, event: RunStarted) -> None:
        labels = (event.queue, event.task)
        with self._lock:
            self._count("running", labels)
            self._observe("wait_s", labels, event.waited_s)

    def _run_ended(self, event: RunEnded) -> None:
        labels = (event.queue, event.task)
        with self._lock:
            self._count("jobs", (*labels, event.verdict), event.keys)
            if event.run and not event.more:  # a batch is one run, however its keys ended
                self._count("running", labels, -1)
                self._observe("duration_s", labels, event.duration_s)

    def _run_abandoned(self, event: RunAbandoned) -> None:
        labels = (event.queue, event.task)
        with self._lock:
            self._count("abandoned", labels)
            if event.run:
                self._count("running", labels, -1)

    def _broker_away(self, event: BrokerAway) -> None:
        with self._lock:
            if self._away_since is None:  # else it is only known better what is wrong
                self._count("broker_away", ())
                self._away_since = monotonic()

    def _broker_back(self, event: BrokerBack) -> None:
        with self._lock:
            # Counted from when it was first missed, which was before it was told: never less than shown meanwhile.
            self._count("broker_away_s", (), event.away_s)
            self._away_since = None

    def _process_ended(self, event: ProcessEnded) -> None:
        with self._lock:
            self._count("processes_ended", ("yes" if event.orderly else "no",))
            self._count("deaths", (), event.blamed)

    def _add(self, name: str, labels: Labels, value: float = 1) -> None:
        with self._lock:
            self._count(name, labels, value)

    def _count(self, name: str, labels: Labels, value: float = 1) -> None:
        counts = self._counts[name]
        counts[labels] = counts.get(labels, 0) + value

    def _observe(self, name: str, labels: Labels, seconds: float) -> None:
        found = self._histograms[name].get(labels)
        if found is None:
            found = self._histograms[name][labels] = [0] * (len(BUCKETS) + 1) + [0.0]
        found[bisect_left(BUCKETS, seconds)] += 1
        found[-1] += seconds


def merge(snapshots: Iterable[Snapshot]) -> Snapshot:
    """Several snapshots added up; what is not understood, of another version perhaps, is left out."""
    sums: dict[str, dict[tuple[Any, ...], Any]] = {}
    for snapshot in snapshots:
        for name, rows in snapshot.items():
            found = sums.setdefault(name, {})
            for *labels, value in rows:
                place = tuple(labels)
                if not isinstance(value, list):
                    found[place] = found.get(place, 0) + value
                elif place not in found:
                    found[place] = list(value)
                elif len(found[place]) == len(value):
                    found[place] = [one + other for one, other in zip(found[place], value, strict=True)]
    return {name: [[*labels, value] for labels, value in found.items()] for name, found in sums.items()}


def ended(snapshot: Snapshot) -> Snapshot:
    """What is kept of the snapshot of a process that has ended: nothing runs in it any more."""
    return {name: rows for name, rows in snapshot.items() if name not in GAUGES}


class CounterTotal:
    """The snapshots of several processes as one: of each the last that it told, of ended ones what they had counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._living: dict[object, Snapshot] = {}
        self._ended: Snapshot = {}

    def update(self, process: object, snapshot: Snapshot) -> None:
        """This is what a process has counted until now."""
        with self._lock:
            self._living[process] = snapshot

    def ended(self, process: object) -> None:
        """A process has ended; a new one needs another name, or has to be told of after this."""
        with self._lock:
            if snapshot := self._living.pop(process, None):
                self._ended = merge([self._ended, ended(snapshot)])

    def snapshot(self) -> Snapshot:
        """All of them together."""
        with self._lock:
            return merge([self._ended, *self._living.values()])
