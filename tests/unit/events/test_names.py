"""Names of topics and queues: the same as in the Ruby and JavaScript originals, and where the parts come from."""

from __future__ import annotations

import pytest

from laneway import ConfigError, Laneway
from laneway.events.event import EventNames, Subscription, copy_key
from laneway.events.names import is_development, names_of, queue_problem, topic_problem

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("names", "source", "topic"),
    [
        (EventNames(env="staging"), "srcapp", "eventboss-srcapp-transaction_change-staging"),
        (EventNames(env="staging"), None, "eventboss-transaction_change-staging"),
        (EventNames(), "srcapp", "eventboss-srcapp-transaction_change"),
        (EventNames(), None, "eventboss-transaction_change"),
        (EventNames("bus", "production"), "srcapp", "bus-srcapp-transaction_change-production"),
    ],
)
def test_they_are_those_of_the_originals(names, source, topic):
    assert names.topic("transaction_change", source) == topic
    assert names.queue("destapp", "transaction_change", source) == f"destapp-{topic}"


def test_copies_of_an_event_are_told_apart_by_their_queues():
    assert copy_key("17", "a-eventboss-b") == "17@a-eventboss-b"


def test_the_environment_says_which_env_it_is(monkeypatch):
    monkeypatch.setenv("LANEWAY_ENV", "staging")
    assert (Laneway("memory:").env, Laneway("memory:").names) == ("staging", EventNames("eventboss", "staging"))
    assert Laneway("memory:", env="test").env == "test"
    monkeypatch.setenv("LANEWAY_ENV", "")
    assert Laneway("memory:").env is None


def test_an_app_may_have_another_infix():
    app = Laneway("memory:", infix="bus", env="test")
    assert (app.infix, app.names) == ("bus", EventNames("bus", "test"))


@pytest.mark.parametrize(
    ("text", "means"), [("1", True), ("true", True), ("On", True), ("", False), ("0", False), ("no", False)]
)
def test_the_environment_says_whether_it_is_development(monkeypatch, text, means):
    monkeypatch.setenv("LANEWAY_DEVELOPMENT", text)
    assert Laneway("memory:").development is means
    assert Laneway("memory:", development=not means).development is not means


def test_it_is_no_development_unless_somebody_says_so(monkeypatch):
    monkeypatch.delenv("LANEWAY_DEVELOPMENT", raising=False)
    assert Laneway("memory:").development is False


@pytest.mark.parametrize(
    ("options", "environ", "sentence"),
    [
        ({"env": "a b"}, {}, "env must be 1 to 80 letters, digits, '_' or '-', not 'a b'."),
        ({}, {"LANEWAY_ENV": "a.b"}, "LANEWAY_ENV must be 1 to 80 letters, digits, '_' or '-', not 'a.b'."),
        ({"infix": ""}, {}, "infix must be 1 to 80 letters, digits, '_' or '-', not ''."),
        ({"infix": None}, {}, "infix must be 1 to 80 letters, digits, '_' or '-', not None."),
        ({"development": "yes"}, {}, "development must be True or False, not 'yes'."),
        ({}, {"LANEWAY_DEVELOPMENT": "maybe"}, "LANEWAY_DEVELOPMENT must be 1 or 0, not 'maybe'."),
    ],
)
def test_what_cannot_be_is_refused_when_the_app_is_made(monkeypatch, options, environ, sentence):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as caught:
        Laneway("memory:", **options)
    assert str(caught.value) == sentence


def test_names_are_as_long_as_every_broker_can_take_them():
    assert (topic_problem("x" * 80), queue_problem("x" * 69)) == (None, None)
    for problem in (topic_problem("x" * 81), queue_problem("x" * 70)):
        assert problem is not None
        assert "are the most" in problem
        assert problem.endswith("the infix or the env.")


def test_the_environment_of_others_is_not_read():
    assert names_of("shop", "eventboss", None, {}) == EventNames()
    assert is_development(None, {}) is False


def test_a_subscription_is_known_by_what_is_in_it():
    assert Subscription("t", "q", {"a": ["b"]}) == Subscription("t", "q", {"a": ["b"]}) != Subscription("t", "q")
