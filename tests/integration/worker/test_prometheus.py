"""`/metrics`: the counts of a real worker, the broker's numbers, and a broker that does not answer."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from laneway import Batch, Context, Laneway
from laneway.broker import Capabilities
from laneway.errors import BrokerAwayError, ConfigError
from laneway.worker.observe.counters import COUNTERS, GAUGES, HISTOGRAMS, RunCounters
from laneway.worker.observe.http import StatusServer
from laneway.worker.observe.prometheus import NAMES, QUEUE_COUNTERS, QUEUE_GAUGES, BrokerReader, metrics_routes
from tests.support.worker_fixtures import PATIENCE_S, Running, drain
from tests.unit.worker.observe.test_http import ask

OPERATING = (Path(__file__).parents[3] / "docs" / "operating.md").read_text(encoding="utf-8")


class Scrape:
    """The samples of one answer."""

    def __init__(self, body: bytes) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(body.decode())}

    def value(self, name: str, **labels: str) -> float | None:
        for family in self.families.values():
            for sample in family.samples:
                if sample.name == f"laneway_{name}" and sample.labels == labels:
                    return sample.value
        return None


@pytest.fixture
def tally(app):
    made = RunCounters(app.telemetry)
    made.start()
    return made


@pytest.fixture
def scrape(app, tally):
    route = metrics_routes(tally.snapshot, app.broker)["/metrics"]
    return lambda: Scrape(route()[2])


def test_what_a_worker_did_is_there(app, tally, scrape):
    @app.task(context=True, max_retry_count=0)
    def work(context: Context, well: bool) -> None:
        if not well:
            raise ValueError("canary")
        context.enqueue(later.using(delay=3600))

    @app.task
    def later() -> None: ...

    @app.collect(shards=1, batch_size=10)
    def gather(batch: Batch[str]) -> None: ...

    work.enqueue_many([(True,), (True,), (False,)])
    gather.enqueue_many([("a", "x"), ("b", "x")])
    drain(app)
    found = scrape()
    assert found.value("jobs_total", queue="default", task="work", verdict="done") == 2
    assert found.value("jobs_total", queue="default", task="work", verdict="bury") == 1
    assert found.value("jobs_total", queue="gather", task="gather", verdict="done") == 2
    assert found.value("run_duration_seconds_count", queue="default", task="work") == 3
    assert found.value("run_duration_seconds_bucket", queue="default", task="work", le="+Inf") == 3
    assert found.value("run_duration_seconds_count", queue="gather", task="gather") == 1
    assert found.value("run_wait_seconds_count", queue="default", task="work") == 3
    assert found.value("runs_running", queue="default", task="work") == 0
    assert found.value("jobs_enqueued_total", queue="default") == 5  # three, and two by the runs
    assert found.value("jobs_enqueued_total", queue="gather") == 2
    assert found.value("claims_reclaimed_total") == 0
    assert found.value("broker_up") == 1
    assert found.value("queue_length", queue="default") == 2
    assert found.value("queue_delayed", queue="default") == 2
    assert found.value("queue_dead", queue="default") == 1
    assert found.value("queue_processed_total", queue="default") == 2
    assert found.value("queue_lag_seconds", queue="default") == 0
    assert found.value("queue_paused", queue="default") == 0


def test_it_is_served_while_a_worker_runs(app, tally):
    begun, go_on = threading.Event(), threading.Event()

    @app.task
    def work() -> None:
        begun.set()
        go_on.wait(PATIENCE_S)

    server = StatusServer(0, metrics_routes(tally.snapshot, app.broker))
    server.start()
    try:
        with Running(app):
            work.enqueue()
            assert begun.wait(PATIENCE_S)
            status, headers, body = ask(server, "/metrics")
            go_on.set()
    finally:
        go_on.set()
        server.stop()
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=")
    found = Scrape(body)
    assert found.value("runs_running", queue="default", task="work") == 1
    assert found.value("workers") == 1
    assert found.value("queue_busy", queue="default") == 1


class Away:
    """A broker that does not answer."""

    capabilities = Capabilities(shared=True)

    def __init__(self) -> None:
        self.inspect = self
        self.asked = 0

    def stats(self):
        self.asked += 1
        raise BrokerAwayError("gone")


class Hanging(Away):
    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def stats(self):
        self.asked += 1
        assert self.go_on.wait(PATIENCE_S)
        return []

    def workers(self):
        return []


def test_a_broker_that_is_away_is_told_and_the_rest_is_there(tally):
    found = Scrape(metrics_routes(tally.snapshot, Away())["/metrics"]()[2])
    assert found.value("broker_up") == 0
    assert found.value("broker_outages_total") == 0
    assert "laneway_queue_length" not in found.families
    assert found.value("workers") is None


def test_a_broker_that_hangs_is_asked_once_and_not_waited_for():
    broker = Hanging()
    reader = BrokerReader(broker, patience_s=0.01)
    threads = threading.active_count()
    assert [reader.read() for _ in range(5)] == [None] * 5
    assert broker.asked == 1
    assert threading.active_count() == threads + 1
    broker.go_on.set()
    patient = BrokerReader(broker, patience_s=PATIENCE_S)
    assert patient.read() is not None


def test_an_answer_is_shown_for_a_while():
    broker = Hanging()
    broker.go_on.set()
    reader = BrokerReader(broker, patience_s=PATIENCE_S, fresh_s=PATIENCE_S)
    assert reader.read() is reader.read()
    assert broker.asked == 1
    always = BrokerReader(broker, patience_s=PATIENCE_S, fresh_s=0.0)
    assert always.read() is not always.read()


def test_a_task_may_be_named_as_it_likes(app, tally, scrape):
    @app.task(name='say "hi" \\ für 100% 日本')
    def odd() -> None: ...

    odd.enqueue()
    drain(app)
    assert scrape().value("jobs_total", queue="default", task='say "hi" \\ für 100% 日本', verdict="done") == 1


def test_without_the_extra_it_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    app = Laneway("memory:")
    with pytest.raises(ConfigError, match=r"pip install 'laneway\[prometheus\]'\.$"):
        metrics_routes(dict, app.broker)


def test_every_metric_is_on_the_page_and_no_other():
    assert NAMES.keys() == COUNTERS.keys() | HISTOGRAMS.keys() | GAUGES.keys()
    names = {f"laneway_{NAMES[name][0]}_total" for name in COUNTERS}
    names |= {f"laneway_{NAMES[name][0]}" for name in (*HISTOGRAMS, *GAUGES)}
    names |= {f"laneway_{name}" for name, _ in QUEUE_GAUGES.values()}
    names |= {f"laneway_{name}_total" for name, _ in QUEUE_COUNTERS.values()}
    names |= {"laneway_broker_up", "laneway_workers"}
    assert set(re.findall(r"^\| `(laneway_\w+)` ", OPERATING, flags=re.MULTILINE)) == names


def test_the_labels_are_as_the_page_says(app, tally, scrape):
    @app.task
    def work() -> None: ...

    work.enqueue()
    drain(app)
    page = dict(re.findall(r"^\| `(laneway_\w+)` \| ([^|]*) \|", OPERATING, flags=re.MULTILINE))
    for family in scrape().families.values():
        for sample in family.samples:
            name = re.sub(r"_(bucket|count|sum)$", "", sample.name)
            assert set(sample.labels) - {"le"} == set(re.findall(r"`(\w+)`", page[name])), name
