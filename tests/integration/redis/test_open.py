"""Tests that after `app.open()` the first enqueue costs what a later one costs, on a server and on a Cluster."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from laneway import BrokerAwayError, Laneway
from tests.support.opened_app import first_enqueue
from tests.support.servers import RedisCluster, RedisServer, free_port


def calls(client: Any) -> dict[str, int]:
    """How often a server has carried out each command and accepted a connection."""
    stats = {name: value["calls"] for name, value in client.info("commandstats").items()}
    return stats | {"connections": client.info("stats")["total_connections_received"]}


@pytest.mark.parametrize("forks", [False, True], ids=["", "in a forked process"])
def test_the_first_enqueue_finds_everything_ready(redis_server: RedisServer, client: Any, forks: bool) -> None:
    client.script_flush()
    before: list[dict[str, int]] = []
    assert first_enqueue(redis_server.url, forks=forks, between=lambda: before.append(calls(client))) == []
    after, opened = calls(client), before[0]
    assert after["cmdstat_evalsha"] - opened["cmdstat_evalsha"] == 3
    assert (after["cmdstat_eval"], after["connections"]) == (opened["cmdstat_eval"], opened["connections"])


@pytest.mark.parametrize("forks", [False, True], ids=["", "in a forked process"])
def test_nor_does_it_connect_or_load_on_a_cluster(redis_cluster: RedisCluster, forks: bool) -> None:
    clients = [node.client() for node in redis_cluster.nodes]

    def totals() -> list[int]:
        """Scripts loaded and connections accepted, for each node."""
        return [calls(client).get(name, 0) for client in clients for name in ("cmdstat_eval", "connections")]

    try:
        for client in clients:
            client.script_flush()
        before: list[list[int]] = []
        found = first_enqueue(redis_cluster.url, forks=forks, between=lambda: before.append(totals()))
        assert found == []
        assert before == [totals()]
    finally:
        for client in clients:
            client.close()


def test_a_closed_app_is_opened_again(redis_server: RedisServer, client: Any) -> None:
    app = Laneway(redis_server.url)
    app.task(lambda: None, name="nothing")
    for _ in range(2):
        app.open()
        count = calls(client)["connections"]
        app.open()
        assert calls(client)["connections"] == count
        app.close()
        app.open()
        assert calls(client)["connections"] == count + 1
        app.close()


@pytest.mark.parametrize("has_task", [True, False], ids=["", "to an app without tasks"])
def test_a_server_that_is_away_is_reported(has_task: bool) -> None:
    app = Laneway(f"redis://127.0.0.1:{free_port()}")
    if has_task:
        app.task(lambda: None, name="nothing")
    with pytest.raises(BrokerAwayError, match="is away; see that it runs"):
        app.open()


ENQUEUE = """
import sys
if sys.argv[2] == "without hiredis":
    sys.modules["hiredis"] = None
from laneway import Laneway
app = Laneway(sys.argv[1])
app.task(lambda: None, name="nothing")
assert app.registry.find("nothing").enqueue().status() == "queued"
app.close()
print("redis" in sys.modules)
"""


@pytest.mark.parametrize("how", ["with hiredis", "without hiredis"])
def test_only_without_hiredis_is_redis_py_loaded(redis_server: RedisServer, how: str) -> None:
    command = [sys.executable, "-c", ENQUEUE, redis_server.url, how]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == f"{how == 'without hiredis'}\n"
