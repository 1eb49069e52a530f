"""Tasks that SQS does not support are refused when they are declared, before a broker is opened and without boto3."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Any

import pytest

from laneway import Key, Laneway
from laneway.broker import Capabilities, Feature, Refusal
from laneway.brokers.sqlite import MemoryBroker
from laneway.config import TaskOptions
from laneway.errors import DeclarationError
from laneway.jobs.data import Kind
from laneway.urls import URL_VARIABLES, declared_capabilities

pytestmark = pytest.mark.unit

GATHER = "SQS cannot gather payloads; use Redis or SQLite for collecting tasks"
QUEUE_URL = "https://sqs.eu-central-1.amazonaws.com/123456789012/mail"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in URL_VARIABLES:
        monkeypatch.delenv(variable, raising=False)


def no_clock(options: TaskOptions, kind: Kind) -> str | None:
    return "there is no clock here; leave time_limit out." if options.time_limit else None


class Picky(MemoryBroker):
    """A third-party broker that does not take tasks with a time limit."""

    capabilities = Capabilities(shared=False, refusal=no_clock)
    closed = False

    def close(self) -> None:
        self.closed = True


def timed() -> None: ...


def declare(app: Laneway) -> Any:
    @app.collect
    def totals(batch: Any) -> None: ...

    return totals


@pytest.mark.parametrize("variable", ["LANEWAY_URL", "SQS_QUEUE_URL"])
def test_the_environment_counts_when_no_url_was_given(monkeypatch: pytest.MonkeyPatch, variable: str):
    app = Laneway()
    monkeypatch.setenv(variable, QUEUE_URL)
    with pytest.raises(DeclarationError, match=f"Task totals: {GATHER}"):
        declare(app)
    assert len(app.registry) == 0


def test_other_brokers_take_collecting_tasks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SQS_QUEUE_URL", QUEUE_URL)
    declare(Laneway("memory:"))
    declare(Laneway(broker=MemoryBroker()))


def test_a_broker_that_was_given_is_asked_itself():
    app = Laneway(broker=Picky())
    declare(app)
    with pytest.raises(DeclarationError, match="Task timed: there is no clock here"):
        app.task(time_limit=5)(timed)


def test_tasks_are_looked_at_again_when_the_app_moves(monkeypatch: pytest.MonkeyPatch):
    app = Laneway("memory:")
    app.task(time_limit=5)(timed)
    before, picky = app.broker, Picky()
    monkeypatch.setattr("laneway.enqueue.pipeline.open_broker", lambda url, source: picky)
    with pytest.raises(DeclarationError, match="Task timed: there is no clock here"):
        app.use("picky:")
    assert app.broker is before
    assert picky.closed


def test_tasks_are_looked_at_again_when_the_broker_is_opened(monkeypatch: pytest.MonkeyPatch):
    app = Laneway()
    app.task(time_limit=5)(timed)
    monkeypatch.setattr("laneway.enqueue.pipeline.open_broker", lambda url, source: Picky())
    with pytest.raises(DeclarationError, match="Task timed: there is no clock here"):
        _ = app.broker


@pytest.mark.parametrize("url", ["sqs://", "SQS://mail?region=eu-central-1", QUEUE_URL, "http://localhost:4566/0/mail"])
def test_every_url_of_sqs_is_known(url: str):
    capabilities = declared_capabilities(url)
    assert capabilities is not None
    assert GATHER in capabilities.lacks["collecting"]
    assert capabilities.refusal is not None


@pytest.mark.parametrize("url", ["memory:", "sqlite:///sqs.db", "redis://https", "strangers:", "", "no url"])
def test_no_other_url_is(url: str):
    capabilities = declared_capabilities(url)
    assert capabilities is None or (capabilities.refusal, capabilities.lacks) == (None, {})


def refusal_of(url: str) -> Refusal:
    capabilities = declared_capabilities(url)
    assert capabilities is not None
    assert capabilities.refusal is not None
    return capabilities.refusal


@pytest.mark.parametrize(
    ("options", "kind", "why"),
    [
        (TaskOptions(), Kind.PLAIN, None),
        (TaskOptions(aliases=("old",), max_payloads=1_000, isolation="fresh"), Kind.KEYED, None),
        (TaskOptions(time_limit=43_200), Kind.PLAIN, None),
        (TaskOptions(time_limit=43_201), Kind.PLAIN, "for 12 hours at most"),
        (TaskOptions(queue="q" * 69), Kind.PLAIN, None),
        (TaskOptions(queue="q" * 70), Kind.PLAIN, "69 characters or fewer"),
        (TaskOptions(queue="q" * 64), Kind.KEYED, None),
        (TaskOptions(queue="q" * 65), Kind.KEYED, "64 characters or fewer"),
    ],
)
def test_what_sqs_refuses(options: TaskOptions, kind: Kind, why: str | None):
    said = refusal_of("sqs://")(options, kind)
    assert said is None if why is None else why in str(said)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (TaskOptions(queue="q" * 64), None),
        (TaskOptions(queue="q" * 65), "begins with the prefix shop- of the URL and ends with -deadletter"),
        (TaskOptions(), None),
    ],
)
def test_a_prefix_counts_too(options: TaskOptions, why: str | None):
    said = refusal_of("sqs://?region=eu-central-1&prefix=shop-")(options, Kind.PLAIN)
    assert said is None if why is None else why in str(said)


@pytest.mark.parametrize("feature", ["collecting", "events"])
def test_what_a_broker_lacks_is_refused_with_its_reason(feature: Feature):
    broker = MemoryBroker()
    if feature == "events":
        del broker.events
    broker.capabilities = Capabilities(shared=False, lacks={feature: "there is no room for it here."})
    app = Laneway(broker=broker, name="shop")
    app.task(timed)
    with pytest.raises(DeclarationError, match=r"^Task \w+: there is no room for it here\.$"):
        declare(app) if feature == "collecting" else app.listener("placed", source="mail", name="on_placed")(print)
    assert len(app.registry) == 1


def test_a_listeners_queue_with_its_prefix_is_refused_when_it_is_declared():
    app = Laneway("sqs://?prefix=production-", name="warehouse")
    with pytest.raises(DeclarationError, match=r"begins with the prefix production- of the URL"):

        @app.listener("an-order-was-repaid", source="the-shop-of-the-year")
        def ship(order: dict[str, Any]) -> None: ...

    assert len(app.registry) == 0


def test_a_task_with_a_key_is_known_to_be_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LANEWAY_URL", "sqs://")
    app = Laneway()
    queue = "q" * 65

    @app.task(queue=queue)
    def plain(key: str) -> None: ...

    with pytest.raises(DeclarationError, match=r"Task keyed: SQS takes names"):

        @app.task(queue=queue)
        def keyed(key: Annotated[str, Key]) -> None: ...


def test_boto3_is_not_needed_for_it():
    code = "import sys; sys.modules['boto3'] = sys.modules['botocore'] = None; import laneway.brokers.aws.unsupported"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
