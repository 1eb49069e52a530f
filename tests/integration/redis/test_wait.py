"""Tests of blocking waits for a list element: an element, a timeout, a nudge or an error ends a wait."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from laneway.brokers.redis.client.server import RedisClient
from laneway.errors import BrokerAwayError
from tests.support.redis_fixtures import Opener
from tests.support.servers import RedisServer, servers, wait_until

pytestmark = pytest.mark.integration

#: Longer than any test may take.
LONG_S = 300.0


class Waits:
    """Waits in threads, and what became of them."""

    def __init__(self) -> None:
        self.ends: queue.Queue[object] = queue.Queue()
        self.threads: list[threading.Thread] = []

    def begin(self, caller: RedisClient, *keys: str, timeout_s: float = LONG_S) -> None:
        def wait() -> None:
            try:
                self.ends.put(caller.wait(keys, timeout_s))
            except Exception as error:
                self.ends.put(error)

        self.threads.append(threading.Thread(target=wait))
        self.threads[-1].start()

    def next(self) -> object:
        return self.ends.get(timeout=60)


@pytest.fixture
def waits() -> Iterator[Waits]:
    waits = Waits()
    yield waits
    for thread in waits.threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer.start(servers()["valkey"], tmp_path)
    yield server
    server.end()


def blocked(server: RedisServer, count: int) -> None:
    """Wait until so many wait on the server."""
    with server.client() as client:
        wait_until(lambda: client.info("clients")["blocked_clients"] == count, lambda: str(client.client_list()))


def test_an_element_ends_one_wait(redis_server: RedisServer, open_url: Opener, waits: Waits) -> None:
    server = open_url(redis_server.url)
    waits.begin(server, "a", "b")
    waits.begin(server, "a", "b")
    blocked(redis_server, 2)
    server.do("RPUSH", "b", "x")
    assert waits.next() == {b"b"}
    blocked(redis_server, 1)
    assert server.do("EXISTS", "b") == 0
    server.nudge()
    assert waits.next() == set()
    server.do("RPUSH", "a", "x")
    assert server.wait(["a"], 0) == {b"a"}  # one that lies there is taken at once
    assert server.wait(["a"], 0) == set()


def test_a_nudge_ends_all_waits_and_no_later_one(redis_server: RedisServer, open_url: Opener, waits: Waits) -> None:
    server = open_url(redis_server.url)
    for _ in range(3):
        for _ in range(3):
            waits.begin(server, "a")
        blocked(redis_server, 3)
        server.nudge()
        assert [waits.next() for _ in range(3)] == [set()] * 3
        server.nudge()
        waits.begin(server, "a")
        blocked(redis_server, 1)
        server.do("RPUSH", "a", "x")
        assert waits.next() == {b"a"}


def test_a_nudge_loses_no_element(redis_server: RedisServer, open_url: Opener, waits: Waits) -> None:
    """Elements come while waits are nudged: each is either taken, and told, or still there."""
    server = open_url(redis_server.url)
    told = 0
    for _ in range(100):
        waits.begin(server, "a", timeout_s=60)
        blocked(redis_server, 1)
        pushing = threading.Thread(target=server.do, args=("RPUSH", "a", "x"))
        pushing.start()
        server.nudge()
        pushing.join()
        told += waits.next() == {b"a"}
        told += sum(1 for _ in iter(lambda: server.do("LPOP", "a"), None))
    assert told == 100


def test_a_nudge_that_comes_before_the_wait_has_begun_on_the_server(
    redis_server: RedisServer, open_url: Opener, waits: Waits
) -> None:
    for _ in range(30):
        server = open_url(redis_server.url)
        waits.begin(server, "a")
        while not waits.ends.qsize():
            server.nudge()
        assert waits.next() == set()


def test_closing_ends_it(redis_server: RedisServer, open_url: Opener, waits: Waits) -> None:
    server = open_url(redis_server.url)
    waits.begin(server, "a")
    blocked(redis_server, 1)
    server.close()
    assert waits.next() == set()


def test_a_server_that_dies_is_away(own: RedisServer, open_url: Opener, waits: Waits) -> None:
    server = open_url(own.url)
    waits.begin(server, "a")
    blocked(own, 1)
    own.kill()
    assert isinstance(waits.next(), BrokerAwayError)


def test_a_server_that_becomes_a_replica_is_away(own: RedisServer, open_url: Opener, waits: Waits) -> None:
    server = open_url(own.url)
    waits.begin(server, "a")
    blocked(own, 1)
    server.do("REPLICAOF", "127.0.0.1", 1)
    assert isinstance(waits.next(), BrokerAwayError)


def test_a_server_that_stands_still_is_away_after_the_timeout(own: RedisServer, open_url: Opener, waits: Waits) -> None:
    server = open_url(f"{own.url}?timeout=0.3")
    waits.begin(server, "a", timeout_s=0.5)
    blocked(own, 1)
    own.stop()
    error = waits.next()
    assert isinstance(error, BrokerAwayError)
    assert "late" in str(error)
    own.cont()
    assert server.wait(["a"], 0.01) == set()


@pytest.mark.parametrize("wait_first", [True, False])
def test_a_nudge_ends_a_wait_on_a_server_that_stands_still(
    own: RedisServer, open_url: Opener, waits: Waits, wait_first: bool
) -> None:
    server = open_url(f"{own.url}?timeout=60")
    began = time.monotonic()
    if wait_first:
        waits.begin(server, "a")
        blocked(own, 1)
    own.stop()
    if not wait_first:
        waits.begin(server, "a")
        _while(lambda: not waits.ends.qsize(), server.nudge)
    server.nudge()
    assert waits.next() == set()
    assert time.monotonic() - began < 30  # far from the 60 s and 300 s that it would take


def test_without_the_right_to_unblock_a_nudge_still_ends_it(own: RedisServer, open_url: Opener, waits: Waits) -> None:
    with own.client() as client:
        client.execute_command("ACL SETUSER", "plain", "on", ">pw", "~*", "+@all", "-@dangerous", "-client")
    server = open_url(own.url.replace("//", "//plain:pw@"))
    waits.begin(server, "a")
    blocked(own, 1)
    server.nudge()
    assert waits.next() == set()
    blocked(own, 0)


def _while(true: Callable[[], bool], do: Callable[[], None]) -> None:
    until = time.monotonic() + 30
    while true() and time.monotonic() < until:
        do()
