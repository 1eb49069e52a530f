"""Metrics for Prometheus: the counters, and the broker's queues as they are now. Needs the extra `prometheus`.

A thread of its own asks the broker. A scrape waits for it for at most a second, and scrapes in quick succession share
an answer. If the broker is away, the scrape reports that and all counters. `prometheus_client` is imported only when
metrics are served.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...errors import BrokerRefusedError, ConfigError
from .counters import BUCKETS, COUNTERS, GAUGES, HISTOGRAMS, Snapshot
from .http import Reply

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from ...broker import Broker
    from ...jobs.data import QueueStats

#: Seconds that a scrape waits for the broker, and seconds for which an answer is reused.
PATIENCE_S = 1.0
FRESH_S = 2.0

#: The name of each metric (without `laneway_`, and without the `_total` of counters), and its help text.
NAMES: dict[str, tuple[str, str]] = {
    "jobs": ("jobs", "Jobs whose run has ended, by verdict; a batch counts each of its keys."),
    "enqueued": ("jobs_enqueued", "Jobs that these processes have stored, those enqueued by runs included."),
    "refused": ("settlements_refused", "Runs whose end came too late: others had taken them over."),
    "outboxes_refused": (
        "outboxes_refused",
        "Runs that failed because the broker refused what they sent.",
    ),
    "abandoned": ("runs_abandoned", "Runs that ended their worker."),
    "reclaimed": ("claims_reclaimed", "Claims of dead workers that were given back."),
    "leases_ended": ("leases_lost", "Times that a worker was taken for dead while it lived."),
    "broker_away": ("broker_outages", "Times that the broker was away."),
    "broker_away_s": ("broker_away_seconds", "Seconds that the broker was away, summed over processes."),
    "processes_ended": ("processes_ended", "Processes of the supervisor that have ended."),
    "deaths": ("deaths", "Runs that had begun when their process died."),
    "duration_s": ("run_duration_seconds", "How long runs took; a batch is one run."),
    "wait_s": ("run_wait_seconds", "How long jobs waited from when they were due to the start of their run."),
    "running": ("runs_running", "Runs under way."),
}
#: The same for the broker's statistics of a queue: gauges, and two counters.
QUEUE_GAUGES: dict[str, tuple[str, str]] = {
    "length": ("queue_length", "Jobs in the queue, delayed ones included, running ones not."),
    "delayed": ("queue_delayed", "Jobs in the queue that are not due yet."),
    "retries": ("queue_retries", "Jobs in the queue that have failed."),
    "dead": ("queue_dead", "Jobs in the morgue."),
    "busy": ("queue_busy", "Jobs that are being run, by any worker."),
    "lag": ("queue_lag_seconds", "Seconds by which the most overdue job is late."),
    "paused": ("queue_paused", "1 while the queue is paused."),
}
QUEUE_COUNTERS: dict[str, tuple[str, str]] = {
    "processed": ("queue_processed", "Jobs done since the queue was made, by any worker."),
    "failed": ("queue_failed", "Runs that failed since the queue was made, by any worker."),
}


def metrics_routes(snapshot: Callable[[], Snapshot], broker: Broker) -> dict[str, Callable[[], Reply]]:
    """The route `/metrics`: a snapshot, and the broker's queues. Raises ConfigError if the extra is not installed."""
    try:
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
    except ImportError as error:
        raise ConfigError(
            "Metrics need the package prometheus-client; install it with: pip install 'laneway[prometheus]'."
        ) from error

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(snapshot, BrokerReader(broker)))
    return {"/metrics": lambda: (200, CONTENT_TYPE_LATEST, generate_latest(registry))}


class BrokerSnapshot:
    """One answer of the broker: its queues, and the number of live workers, if the broker counts them."""

    def __init__(self, queues: list[QueueStats], workers: int | None) -> None:
        self.queues = queues
        self.workers = workers


class BrokerReader:
    """Reads the broker. It never waits long, and never asks twice at the same time."""

    def __init__(self, broker: Broker, *, patience_s: float = PATIENCE_S, fresh_s: float = FRESH_S) -> None:
        self._broker = broker
        self._patience_s = patience_s
        self._fresh_s = fresh_s
        self._lock = threading.Lock()
        self._asking: threading.Event | None = None
        self._seen: BrokerSnapshot | None = None
        self._seen_at = float("-inf")

    def read(self) -> BrokerSnapshot | None:
        """The broker's state, at most `fresh_s` seconds old; None if the broker does not answer."""
        with self._lock:
            if time.monotonic() - self._seen_at < self._fresh_s:
                return self._seen
            if self._asking is None:
                self._asking = threading.Event()
                threading.Thread(target=self._ask, args=(self._asking,), name="laneway-metrics", daemon=True).start()
            answered = self._asking
        return self._seen if answered.wait(self._patience_s) else None

    def _ask(self, answered: threading.Event) -> None:
        try:
            seen: BrokerSnapshot | None = BrokerSnapshot(self._stats(), self._workers())
        except Exception:
            seen = None  # the workers report what is wrong
        with self._lock:
            self._seen, self._asking = seen, None
            self._seen_at = time.monotonic()
        answered.set()

    def _stats(self) -> list[QueueStats]:
        if self._broker.capabilities.has("inspect"):
            return self._broker.inspect.stats()
        self._broker.leases()  # only to see that the broker answers
        return []

    def _workers(self) -> int | None:
        try:
            return sum(not worker.dead for worker in self._broker.inspect.workers())
        except BrokerRefusedError:
            return None


class Collector:
    """Builds the metrics for prometheus_client at each scrape."""

    def __init__(self, snapshot: Callable[[], Snapshot], broker: BrokerReader) -> None:
        self._snapshot = snapshot
        self._broker = broker

    def collect(self) -> Iterator[Metric]:
        """All metric families. A family without samples has only its name."""
        yield from _counted(self._snapshot())
        yield from _seen(self._broker.read())


def _counted(snapshot: Snapshot) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    for name, labels in COUNTERS.items():
        family = CounterMetricFamily(*_named(NAMES[name]), labels=labels)
        rows = snapshot.get(name, [])
        for *values, count in rows if rows or labels else [[0]]:  # one without labels starts at 0
            family.add_metric(_texts(values), count)
        yield family
    for name, labels in GAUGES.items():
        gauge = GaugeMetricFamily(*_named(NAMES[name]), labels=labels)
        for *values, count in snapshot.get(name, []):
            gauge.add_metric(_texts(values), count)
        yield gauge
    for name, labels in HISTOGRAMS.items():
        histogram = HistogramMetricFamily(*_named(NAMES[name]), labels=labels)
        for *values, counts in snapshot.get(name, []):
            histogram.add_metric(_texts(values), _buckets(counts[:-1]), counts[-1])
        yield histogram


def _seen(seen: BrokerSnapshot | None) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    yield GaugeMetricFamily("laneway_broker_up", "1 if the broker has answered just now.", value=seen is not None)
    if seen is None:
        return
    if seen.workers is not None:
        yield GaugeMetricFamily("laneway_workers", "Workers that live, of all supervisors.", value=seen.workers)
    for field, named in QUEUE_GAUGES.items():
        gauge = GaugeMetricFamily(*_named(named), labels=["queue"])
        for queue in seen.queues:
            gauge.add_metric([queue.queue], getattr(queue, field))
        yield gauge
    for field, named in QUEUE_COUNTERS.items():
        counter = CounterMetricFamily(*_named(named), labels=["queue"])
        for queue in seen.queues:
            counter.add_metric([queue.queue], getattr(queue, field))
        yield counter


def _named(named: tuple[str, str]) -> tuple[str, str]:
    return f"laneway_{named[0]}", named[1]


def _texts(labels: list[Any]) -> list[str]:
    # A task's name may be any printable text, and a lone surrogate cannot be sent.
    return [str(label).encode(errors="replace").decode() for label in labels]


def _buckets(counts: list[int]) -> list[tuple[str, float]]:
    """Cumulative buckets, as Prometheus wants them: each includes all lower ones."""
    found, total = [], 0
    for bound, count in zip([*map(str, BUCKETS), "+Inf"], counts, strict=True):
        total += count
        found.append((bound, float(total)))
    return found
