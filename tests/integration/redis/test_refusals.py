"""Tests of a server that responds with a refusal: the error names the missing right or setting and the fix."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from laneway import Laneway
from laneway.brokers.redis import RedisBroker
from laneway.errors import BrokerAwayError, BrokerError
from laneway.testing.conformance.fixtures import put
from laneway.urls import Url
from tests.conformance.test_redis import documented_user
from tests.support.servers import RedisServer, servers, wait_until
from tests.support.worker_fixtures import Running

pytestmark = pytest.mark.integration

#: What a broker can do for a user with only some of the documented rights.
User = Callable[..., RedisBroker]


@pytest.fixture
def user(redis_server: RedisServer) -> Iterator[User]:
    """The broker of a user that has the documented rights without some of them, and with others."""
    opened: list[RedisBroker] = []

    def user(*others: str, without: str = "") -> RedisBroker:
        rights = [right for right in documented_user() if right != without]
        with redis_server.client() as admin:
            admin.execute_command(*rights, *others)
        url = redis_server.url.replace("//", "//laneway:password@")
        opened.append(RedisBroker.from_url(Url.parse(url)))
        return opened[-1]

    yield user
    for broker in opened:
        broker.close()
    with redis_server.client() as admin:
        admin.execute_command("ACL", "DELUSER", "laneway")


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(BrokerError) as caught:
        call()
    assert not isinstance(caught.value, BrokerAwayError)
    assert str(caught.value).startswith(("Redis at 127.0.0.1:", "The Redis Cluster at 127.0.0.1:"))
    return str(caught.value)


@pytest.mark.parametrize("right", ["+time", "+@write", "+@scripting", "+@read"])
def test_a_right_that_is_missing(user: User, right: str) -> None:
    broker = user(without=right)
    sentence = refused(lambda: put(broker, "a"))
    assert "forbids this user " in sentence
    assert "give the user all rights that docs/brokers.md lists under Permissions (" in sentence
    if right == "+time":
        assert "+time" in sentence


@pytest.mark.parametrize("keys", ["~{laneway}*", "~{laneway:*"])
def test_keys_that_are_forbidden(user: User, keys: str) -> None:
    broker = user(without=keys)
    assert "forbids this user some of the keys that begin with {prefix}" in refused(lambda: put(broker, "a"))


def test_a_worker_that_may_not_wait_says_so_and_runs_jobs(user: User, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    app = Laneway(broker=user("-blpop"))
    ran: list[int] = []

    @app.task
    def ping() -> None:
        ran.append(1)

    with Running(app):
        wait_until(lambda: "does not let it wait for jobs" in caplog.text, lambda: caplog.text)
        ping.enqueue()
        wait_until(lambda: ran, lambda: caplog.text)
    assert "so it looks every second: " in caplog.text
    assert "the command blpop (+blpop)" in caplog.text
    assert len(caplog.records) == 1


def test_a_database_that_there_is_not(redis_server: RedisServer) -> None:
    broker = RedisBroker.from_url(Url.parse(redis_server.url.removesuffix("/0") + "/99"))
    sentence = refused(broker.inspect.queues)
    assert "has no database of the number in the URL; give a smaller one, or 0 and a prefix=…" in sentence
    broker.close()


def test_a_database_of_a_node_of_a_cluster(tmp_path: Path) -> None:
    node = RedisServer.start(servers()["redis"], tmp_path, "--cluster-enabled", "yes")
    broker = RedisBroker.from_url(Url.parse(f"redis://127.0.0.1:{node.port}/1"))
    try:
        assert "is a node of a Redis Cluster; use a redis+cluster: URL for it" in refused(broker.inspect.queues)
    finally:
        broker.close()
        node.end()


def test_a_password_for_a_server_that_has_none(redis_server: RedisServer) -> None:
    broker = RedisBroker.from_url(Url.parse(redis_server.url.replace("//", "//:canary@")))
    sentence = refused(broker.inspect.queues)
    assert "was given a password and has none for its default user; leave it out of the URL and of LANEWAY_" in sentence
    assert "canary" not in sentence
    broker.close()
