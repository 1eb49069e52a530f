"""Tests of the Redis servers that other tests use: start, restart, data as configured, and no processes left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest
import redis

from tests.support.servers import DURABLE, SLOTS, RedisCluster, RedisServer, servers, wait_until

Start = Callable[..., RedisServer]


@pytest.fixture(params=servers())
def binary(request: pytest.FixtureRequest) -> Path:
    return servers()[request.param]


@pytest.fixture
def start(binary: Path, tmp_path: Path) -> Iterator[Start]:
    """Start a server of the test's own, which ends with it."""
    started: list[RedisServer] = []

    def start(*options: str) -> RedisServer:
        started.append(RedisServer.start(binary, tmp_path, *options))
        return started[-1]

    yield start
    for server in started:
        server.end()


def test_a_server_answers_on_its_port_and_on_its_socket(start: Start) -> None:
    server = start()
    with redis.Redis.from_url(server.url) as client, redis.Redis(unix_socket_path=str(server.socket)) as other:
        client.set("a", 1)
        assert other.get("a") == b"1"
        assert client.info("server")["process_id"] == server.pid


def test_a_killed_server_comes_back_on_its_port_with_all_it_has_answered_for(start: Start) -> None:
    server = start(*DURABLE)
    before = server.pid
    with server.client() as client:
        client.set("a", 1)
    server.kill()
    assert not server.alive()
    with server.client(retry=None) as client, pytest.raises(redis.ConnectionError):
        client.ping()
    server.restart()
    with redis.Redis.from_url(server.url) as client:
        assert client.get("a") == b"1"
    assert server.pid != before


def test_a_server_keeps_nothing_unless_it_is_told_to(start: Start) -> None:
    server = start()
    with server.client() as client:
        client.set("a", 1)
    server.restart()
    with server.client() as client:
        assert client.dbsize() == 0


def test_a_stopped_server_answers_late(start: Start) -> None:
    server = start()
    with server.client(socket_timeout=0.1, retry=None) as client:
        client.ping()
        server.stop()
        with pytest.raises(redis.TimeoutError):
            client.ping()
    server.cont()
    with server.client() as client:
        assert client.ping()


def test_options_are_the_servers_own(start: Start) -> None:
    server = start("--requirepass", "secret", "--maxmemory", "50mb")
    with server.client(password="secret") as client:
        assert client.config_get("maxmemory") == {"maxmemory": str(50 * 1024**2)}


def test_a_server_that_cannot_start_says_why(start: Start) -> None:
    with pytest.raises(AssertionError, match="no-such-option"):
        start("--no-such-option", "1")


def test_a_server_outlives_the_thread_that_started_it(start: Start) -> None:
    server = start()
    thread = Thread(target=server.restart)
    thread.start()
    thread.join()
    with server.client() as client:
        assert client.ping()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the kernel has no such signal, and atexit must do")
def test_a_server_ends_with_the_tests_however_they_end(binary: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.support.servers import RedisServer\n"
        "server = RedisServer.start(Path(sys.argv[1]), Path(sys.argv[2]))\n"
        "print(server.pid, flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", script, str(binary), str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        server = int(tests.stdout.readline())
        os.kill(server, 0)
        tests.send_signal(signal.SIGKILL)
    try:
        wait_until(lambda: not Path(f"/proc/{server}/exe").exists(), lambda: f"{server} is still there.")
    except AssertionError:
        os.kill(server, signal.SIGKILL)  # a failing test is to leave nothing behind, either
        raise


def test_tests_that_share_a_server_find_it_empty(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        assert client.dbsize() == 0
        client.set("left", "behind")


test_and_so_does_the_next = test_tests_that_share_a_server_find_it_empty


def test_a_cluster_serves_every_slot(redis_cluster: RedisCluster) -> None:
    keys = keys_of_all(redis_cluster)
    with redis_cluster.client() as client:
        assert sorted(client.keyslot(key) * 3 // SLOTS for key in keys) == [0, 1, 2]
        for key in keys:
            client.set(key, key)
    for key, node in zip(keys, redis_cluster.nodes, strict=True):
        with node.client() as alone:
            assert alone.keys() == [key.encode()]


def test_a_killed_node_takes_only_its_slots_along_and_brings_them_back(binary: Path, tmp_path: Path) -> None:
    cluster = RedisCluster.start(binary, tmp_path, node_timeout_ms=1000)
    try:
        keys = keys_of_all(cluster)
        with cluster.client() as client:
            for key in keys:
                client.set(key, key)
        cluster.kill(1)
        with cluster.nodes[0].client() as client:
            wait_until(lambda: fails(client) == 1, lambda: "The others have not noticed.")
            assert client.get(keys[0]) == keys[0].encode()
        cluster.restart(1)
        cluster.wait_ok()
        with cluster.client() as client:
            assert [client.get(key) for key in keys] == [key.encode() for key in keys]
    finally:
        cluster.end()


def keys_of_all(cluster: RedisCluster) -> list[str]:
    """A key for each node, in the order of the nodes."""
    found: dict[int, str] = {}
    with cluster.client() as client:
        for number in range(100):
            found.setdefault(client.keyslot(f"key-{number}") * len(cluster.nodes) // SLOTS, f"key-{number}")
    return [found[node] for node in range(len(cluster.nodes))]


def fails(client: redis.Redis) -> int:
    """How many nodes this one has given up."""
    return sum("fail" in node["flags"].split(",") for node in client.execute_command("CLUSTER NODES").values())
