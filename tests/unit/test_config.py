"""Configuration: where the broker URL comes from, which URLs and options are valid, and no secret is printed."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from laneway import ConfigError, Laneway, Middleware
from laneway.brokers.sqlite import MemoryBroker, SQLiteBroker
from laneway.config import WorkerOptions
from laneway.urls import URL_VARIABLES, Url, open_broker, resolve_url, without_secrets

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in URL_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("given", "environ", "found"),
    [
        ("memory:", {"LANEWAY_URL": "sqlite:///a.db"}, ("memory:", "the url given")),
        (None, {"LANEWAY_URL": "a:", "SQS_QUEUE_URL": "b:", "REDIS_URL": "c:"}, ("a:", "LANEWAY_URL")),
        (None, {"SQS_QUEUE_URL": "b:", "REDIS_URL": "c:"}, ("b:", "SQS_QUEUE_URL")),
        (None, {"REDIS_URL": "c:"}, ("c:", "REDIS_URL")),
        (None, {"LANEWAY_URL": "", "REDIS_URL": "c:"}, ("c:", "REDIS_URL")),
        (None, {}, ("sqlite:///laneway.db", "the default")),
    ],
)
def test_the_url_comes_from_the_first_place_that_has_one(given, environ, found):
    assert resolve_url(given, environ) == found


def test_the_environment_is_read_when_the_broker_is_first_used(monkeypatch, tmp_path):
    app = Laneway()
    monkeypatch.setenv("LANEWAY_URL", "memory:")
    assert isinstance(app.broker, MemoryBroker)
    assert app.broker is app.broker


@pytest.mark.parametrize("scheme", ["sqlite", "sqlite3", "SQLite"])
def test_a_sqlite_url_names_a_file(tmp_path, scheme):
    broker = open_broker(f"{scheme}:///{tmp_path}/a.db")
    assert isinstance(broker, SQLiteBroker)
    broker.close()


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        (
            "laneway.db",
            "'laneway.db' is not a broker URL; give one such as sqlite:///laneway.db, redis://host:6379/0 or memory:.",
        ),
        ("", "is not a broker URL"),
        ("://host", "is not a broker URL"),
        ("re dis://:secret@host", "'re dis://…@host' is not a broker URL"),
        ("memory:x", "A memory URL is just memory:"),
        ("memory:?a=1", "The memory broker has no option 'a'; it knows none."),
        ("sqlite:", "A sqlite URL needs a path"),
        ("sqlite:///a.db?mode=fast", "The sqlite broker has no option 'mode'; it knows synchronous, timeout."),
        ("carrier-pigeon://:secret@loft", "No broker for 'carrier-pigeon' URLs is installed (the url given)"),
    ],
)
def test_a_bad_url_is_refused_in_a_sentence_without_its_secrets(url, sentence):
    with pytest.raises(ConfigError) as caught:
        open_broker(url)
    assert sentence in str(caught.value)
    assert "secret" not in str(caught.value)


def test_the_sentence_names_the_variable_that_the_url_came_from(monkeypatch):
    monkeypatch.setenv("SQS_QUEUE_URL", "smoke://queue")
    with pytest.raises(ConfigError, match=r"No broker for 'smoke' URLs is installed \(SQS_QUEUE_URL\)"):
        _ = Laneway().broker


@pytest.mark.parametrize(
    ("url", "printed"),
    [
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("redis://host/0?password=secret", "redis://host/0"),
        ("redis://:secret@host:6379/0", "redis://…@host:6379/0"),
        ("redis://user:secret@host:6379/0?x=1", "redis://…@host:6379/0"),
        ("redis://:secret/secret@host/0", "redis://…@host/0"),
        ("redis://:secret?secret@host/0", "redis://…@host/0"),
        ("redis://:secret#secret@host/0", "redis://…@host/0"),
        ("redis://:secret@secret@host/0", "redis://…@host/0"),
        ("redis://:secret@host:port", "redis://…@host:port"),
        ("redis//:secret@host:6379/0", "redis…@host:6379/0"),
        ("redis;//:secret@host", "redis…@host"),
        ("redis:secret@host", "redis…@host"),
        ("redis:/:secret@host", "redis…@host"),
        ("redis:///:secret@host", "redis://…@host"),
        ("redis+unix:///:secret@/run/a.sock", "redis+unix://…@/run/a.sock"),
        (":secret@host:6379", "…@host:6379"),
        ("user:secret@host", "…@host"),
        ("sqlite:////srv/me@home/a.db", "sqlite:////srv/me@home/a.db"),
        ("memory:", "memory:"),
        ("https://sqs.eu-west-1.amazonaws.com/1/q", "https://sqs.eu-west-1.amazonaws.com/1/q"),
    ],
)
def test_no_secret_is_printed(url, printed, monkeypatch):
    assert without_secrets(url) == printed
    monkeypatch.setenv("LANEWAY_URL", url)
    assert Laneway().url == printed
    assert "secret" not in repr(Laneway())
    said = ""
    try:
        Laneway(url)
    except ConfigError as error:
        said = str(error)
    assert "secret" not in said


def entry_points(**kinds):
    def found(*, group):
        assert group == "laneway.brokers"
        return metadata.EntryPoints([metadata.EntryPoint(kind, value, group) for kind, value in kinds.items()])

    return found


class Pigeons(MemoryBroker):
    @classmethod
    def from_url(cls, url: Url):
        cls.url = url
        return cls()


def make_pigeons(url: Url) -> Pigeons:
    return Pigeons.from_url(url)


def test_a_third_party_broker_comes_by_its_entry_point(monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", entry_points(pigeon="third_party:make_pigeons"))
    monkeypatch.setitem(sys.modules, "third_party", SimpleNamespace(make_pigeons=make_pigeons))
    broker = open_broker("pigeon://loft?speed=5")
    assert isinstance(broker, Pigeons)
    assert (broker.url.scheme, broker.url.rest, broker.url.options) == ("pigeon", "//loft", {"speed": "5"})


def test_a_third_party_broker_that_does_not_load_is_named(monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", entry_points(pigeon="nowhere_at_all:make"))
    with pytest.raises(ConfigError, match=r"The broker for 'pigeon' URLs .* cannot be loaded from nowhere_at_all:make"):
        open_broker("pigeon:")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (
            lambda url: int("loft"),
            r"cannot be made by third_party:make: invalid literal for int\(\) with base 10: 'loft'$",
        ),
        (5, r"cannot be made by third_party:make: 'int' object is not callable$"),
        (lambda url: None, r"is not returned by third_party:make\.$"),
        (lambda url: url.take(("speed",)), r"^The pigeon broker has no option 'spede'"),
    ],
)
def test_a_third_party_broker_that_cannot_be_made_is_named(monkeypatch, make, sentence):
    monkeypatch.setattr("importlib.metadata.entry_points", entry_points(pigeon="third_party:make"))
    monkeypatch.setitem(sys.modules, "third_party", SimpleNamespace(make=make))
    with pytest.raises(ConfigError, match=sentence):
        open_broker("pigeon://loft?spede=5")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"url": "memory:", "broker": MemoryBroker()}, "Give a url or a broker, not both"),
        ({"url": Path("laneway.db")}, "url must be text such as sqlite:///laneway.db, not PosixPath"),
        ({"name": "my shop"}, "name must be 1 to 80 letters"),
        ({"env": ""}, "env must be 1 to 80 letters"),
        ({"name": "", "env": ""}, "name must be .* env must be"),
    ],
)
def test_a_bad_app_is_refused(arguments, sentence):
    with pytest.raises(ConfigError, match=sentence):
        Laneway(**arguments)


def test_a_ready_broker_is_printed_by_its_kind():
    assert repr(Laneway(broker=MemoryBroker(), name="shop")) == "<Laneway shop on MemoryBroker>"


def test_the_modules_named_are_imported_and_a_missing_one_is_an_error(monkeypatch, tmp_path):
    (tmp_path / "some_tasks_of_mine.py").write_text("loaded = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    Laneway("memory:", imports=["some_tasks_of_mine"]).load()
    with pytest.raises(ModuleNotFoundError):
        Laneway("memory:", imports=["no_tasks_of_mine"]).load()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"concurrency": 0}, "concurrency must be a whole number from 1 to 10000, not 0."),
        ({"concurrency": True}, "concurrency must be a whole number"),
        ({"concurrency": "5"}, "concurrency must be a whole number"),
        ({"queues": "mail"}, "queues must be a list of names, not the text 'mail'."),
        ({"queues": ["a b"]}, "queue must be 1 to 80 letters"),
        ({"shutdown_timeout_s": -1}, "shutdown_timeout_s must be 0 or more seconds, not -1."),
        ({"shutdown_timeout_s": float("nan")}, "shutdown_timeout_s must be 0 or more seconds"),
        ({"lease_s": "30"}, "lease_s must be at least 0.1 seconds"),
        ({"slow_s": None}, "slow_s must be 0 or more seconds"),
    ],
)
def test_a_bad_option_of_the_worker_is_a_sentence(options, sentence):
    [problem] = WorkerOptions(**options).validate()
    assert sentence in problem
    assert WorkerOptions().validate() == []


def test_middleware_is_given_as_instances():
    class Tenant(Middleware): ...

    with pytest.raises(ConfigError, match=r"give Tenant\(\), not"):
        Laneway("memory:", middleware=[Tenant])


def test_imports_are_a_list():
    with pytest.raises(ConfigError, match=r"imports must be a list of modules, such as \['shop'\]"):
        Laneway("memory:", imports="shop")
