"""Tests of client calls on a Redis Cluster: routing, scripts, waits, moved slots, dead servers and replicas."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from redis.crc import key_slot

from laneway.brokers.redis.client.cluster import ClusterServer
from laneway.brokers.redis.client.server import RedisClient
from laneway.brokers.redis.script import Script
from laneway.errors import BrokerAwayError, BrokerError
from tests.support.redis_fixtures import Opener
from tests.support.servers import SLOTS, RedisCluster, RedisServer, servers, wait_until

pytestmark = pytest.mark.integration

COUNT = Script("count", "return redis.call('INCR', KEYS[1])")
KEYS = [f"{{{n}}}:k" for n in range(60)]


def node_of(cluster: RedisCluster, key: str) -> RedisServer:
    return cluster.nodes[key_slot(key.encode()) * 3 // SLOTS]


def test_calls_go_to_the_server_of_their_key(redis_cluster: RedisCluster, open_url: Opener) -> None:
    server = open_url(redis_cluster.url)
    assert server.is_cluster
    assert [server.run(COUNT, [key], []) for key in KEYS] == [1] * 60
    assert server.run_all([(COUNT, [key], []) for key in KEYS]) == [2] * 60
    assert server.do_all([("GET", key) for key in KEYS]) == [b"2"] * 60
    assert server.do("PING") == b"PONG"
    assert {each.place for each in server.servers()} == {f"Redis at 127.0.0.1:{n.port}" for n in redis_cluster.nodes}


def test_scripts_that_a_server_has_forgotten_are_sent_again(redis_cluster: RedisCluster, open_url: Opener) -> None:
    server = open_url(redis_cluster.url)
    for round_ in (1, 2):
        with redis_cluster.nodes[round_].client() as client:
            client.script_flush()
        assert server.run_all([(COUNT, [key], []) for key in KEYS]) == [round_] * 60


def test_an_error_is_raised_when_all_have_been_called(redis_cluster: RedisCluster, open_url: Opener) -> None:
    server = open_url(redis_cluster.url)
    server.do("LPUSH", KEYS[7], "x")
    with pytest.raises(BrokerError, match="WRONGTYPE"):
        server.run_all([(COUNT, [key], []) for key in KEYS])
    assert server.do_all([("GET", key) for key in KEYS if key != KEYS[7]]) == [b"1"] * 59


def test_a_ready_client(redis_cluster: RedisCluster) -> None:
    with redis_cluster.client(decode_responses=True) as client:
        server = ClusterServer.of(client)
        try:
            assert server.run_all([(COUNT, [key], []) for key in KEYS]) == [1] * 60
        finally:
            server.close()


def test_waiting(redis_cluster: RedisCluster, open_url: Opener) -> None:
    server = open_url(redis_cluster.url)
    assert server.wait(["{w}:a", "{w}:b"], 0.01) == set()
    server.do("RPUSH", "{w}:b", "x")
    assert server.wait(["{w}:a", "{w}:b"], 60) == {b"{w}:b"}
    ended = threading.Event()

    def wait() -> None:
        server.wait(["{w}:a"], 300)
        ended.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    with node_of(redis_cluster, "{w}:a").client() as client:
        wait_until(lambda: client.info("clients")["blocked_clients"] == 1, str)
    server.nudge()
    assert ended.wait(60)
    waiting.join()


def test_a_wait_for_several_slots_loses_no_element(redis_cluster: RedisCluster, open_url: Opener) -> None:
    """The first element ends the waits for the other slots: theirs is either taken, and told, or still there."""
    server, pusher = open_url(redis_cluster.url), open_url(redis_cluster.url)
    lists = [f"{{{name}}}:w" for name in "abcd"]  # two of them are on one node
    assert len({key_slot(key.encode()) for key in lists}) == 4
    assert len({node_of(redis_cluster, key).port for key in lists}) == 3
    clients = [node.client() for node in redis_cluster.nodes]
    for pushed in (lists[:1], lists[1:3], lists[2:], lists) * 10:
        told: list[set[bytes]] = []
        waiting = threading.Thread(target=lambda told=told: told.append(server.wait(lists, 300)))
        waiting.start()
        wait_until(lambda: sum(client.info("clients")["blocked_clients"] for client in clients) == 4, str)
        pusher.do_all([("RPUSH", key, "x") for key in pushed])
        waiting.join(60)
        assert not waiting.is_alive()
        left = {key for key in lists if pusher.do("LPOP", key)}
        assert told[0], "something has ended it"
        assert sorted([key.decode() for key in told[0]] + list(left)) == pushed
        wait_until(lambda: sum(client.info("clients")["blocked_clients"] for client in clients) == 0, str)
    for client in clients:
        client.close()


def test_a_server_of_no_cluster_is_told(redis_server: RedisServer, open_url: Opener) -> None:
    with pytest.raises(BrokerError, match=r"is no Cluster; use a redis: URL"):
        open_url(redis_server.url.replace("redis:", "redis+cluster:")).do("GET", "k")


def test_a_cluster_is_no_single_server(redis_cluster: RedisCluster, open_url: Opener) -> None:
    server = open_url(redis_cluster.url.replace("+cluster", ""))
    with pytest.raises(BrokerError, match=r"is a node of a Redis Cluster; use a redis\+cluster: URL"):
        server.do_all([("GET", key) for key in KEYS])


def test_keys_are_followed_when_their_slot_has_moved(tmp_path: Path, open_url: Opener) -> None:
    cluster = RedisCluster.start(servers()["valkey"], tmp_path)
    try:
        server = open_url(cluster.url)
        for key in ("{a}:k", "{a}:w"):
            server.do("DEL", key)
        assert server.run(COUNT, ["{a}:k"], []) == 1
        slot = key_slot(b"{a}")
        old = node_of(cluster, "{a}:k")
        new = next(node for node in cluster.nodes if node is not old)
        with old.client() as source, new.client() as target:
            source_id, target_id = source.execute_command("CLUSTER MYID"), target.execute_command("CLUSTER MYID")
            target.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", source_id)
            source.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", target_id)
            source.execute_command("MIGRATE", "127.0.0.1", new.port, "", 0, 5000, "KEYS", "{a}:k")
            # The key is there and the slot still here. Others in the same pipeline are called.
            answers = server.try_all([(COUNT, [key], []) for key in ("{a}:k", "{b}:k", "{c}:k")])
            assert isinstance(answers[0], BrokerAwayError)
            assert answers[1:] == [1, 1]
            for step in (lambda: server.do("GET", "{a}:k"), lambda: server.wait(["{a}:k"], 60)):
                with pytest.raises(BrokerAwayError, match="is moving a slot to another node"):
                    step()
            for client in (target, source):
                client.execute_command("CLUSTER SETSLOT", slot, "NODE", target_id)
        assert server.run_all([(COUNT, [key], []) for key in ("{a}:k", "{b}:k")]) == [2, 2]
        assert server.run(COUNT, ["{a}:k"], []) == 3
        fresh = open_url(cluster.url)
        assert fresh.do("GET", "{a}:k") == b"3"
    finally:
        cluster.end()


def test_a_server_that_dies_takes_its_own_keys_with_it(tmp_path: Path, open_url: Opener) -> None:
    cluster = RedisCluster.start(servers()["valkey"], tmp_path)
    try:
        server = open_url(cluster.url)
        assert server.run_all([(COUNT, [key], []) for key in KEYS]) == [1] * 60
        number = 0
        lost = [key for key in KEYS if node_of(cluster, key) is cluster.nodes[number]]
        kept = [key for key in KEYS if key not in lost]
        assert lost
        assert kept
        cluster.kill(number)
        with pytest.raises(BrokerAwayError):
            server.run_all([(COUNT, [key], []) for key in KEYS])
        assert server.do_all([("GET", key) for key in kept]) == [b"2"] * len(kept)  # made in spite of the others
        with pytest.raises(BrokerAwayError):
            server.do("GET", lost[0])
        cluster.restart(number)
        cluster.wait_ok()
        assert server.do_all([("GET", key) for key in lost]) == [b"1"] * len(lost)
        for other in range(3):  # nothing is noticed of restarts between calls
            cluster.restart(other)
        cluster.wait_ok()
        assert server.run_all([(COUNT, [key], []) for key in lost]) == [2] * len(lost)
    finally:
        cluster.end()


def test_a_replica_takes_over(tmp_path: Path, open_url: Opener) -> None:
    cluster = RedisCluster.start(servers()["valkey"], tmp_path / "cluster")
    (tmp_path / "replica").mkdir()
    own = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no")
    replica = RedisServer.start(servers()["valkey"], tmp_path / "replica", *own)
    try:
        server = open_url(cluster.url)
        old = node_of(cluster, "{a}:k")
        assert server.run(COUNT, ["{a}:k"], []) == 1
        with replica.client() as copy, old.client() as client:
            copy.execute_command("CLUSTER MEET", "127.0.0.1", old.port)
            primary = client.execute_command("CLUSTER MYID")
            wait_until(lambda: _said_ok(copy, "CLUSTER REPLICATE", primary), str)
            wait_until(lambda: copy.info("replication")["master_link_status"] == "up", str)
            assert client.wait(1, 60_000) == 1
            wait_until(lambda: open_url(f"redis+cluster://127.0.0.1:{old.port}").replicas(), str)
        old.kill()
        with replica.client() as copy:
            copy.execute_command("CLUSTER FAILOVER", "TAKEOVER")
            wait_until(lambda: copy.info("replication")["role"] == "master", str)
        _until_answered(server)
        assert f"Redis at 127.0.0.1:{replica.port}" in {each.place for each in server.servers()}
    finally:
        replica.end()
        cluster.end()


def _said_ok(client: Any, *command: object) -> bool:
    try:
        client.execute_command(*command)
    except Exception:
        return False
    return True


def _until_answered(server: RedisClient) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            assert server.run(COUNT, ["{a}:k"], []) >= 2
            return
        except BrokerAwayError:  # the others still believe in the old one
            assert time.monotonic() < until
