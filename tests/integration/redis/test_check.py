"""Tests of the findings of `laneway check` about the settings of a Redis server, on servers with such settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from laneway.brokers.redis import repair
from laneway.brokers.redis.client.server import RedisClient
from laneway.errors import BrokerAwayError
from tests.support.redis_fixtures import Opener
from tests.support.servers import DURABLE, RedisCluster, RedisServer, servers, wait_until

pytestmark = pytest.mark.integration

Start = Callable[..., RedisServer]


def problems(server: RedisClient) -> list[str]:
    return [finding.text for finding in repair.problems(server)]


@pytest.fixture(params=servers())
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    started: list[RedisServer] = []

    def start(*options: str) -> RedisServer:
        started.append(RedisServer.start(servers()[request.param], tmp_path, *options))
        return started[-1]

    yield start
    for server in started:
        server.end()


@pytest.mark.parametrize(
    ("options", "sentences"),
    [
        (DURABLE, []),
        (("--appendonly", "yes"), []),
        ((), ["keeps nothing on disk, so that a restart loses all jobs; set appendonly yes."]),
        (("--save", "3600 1"), ["keeps snapshots only (save 3600 1), so that a crash loses the jobs since the last"]),
        (("--appendonly", "yes", "--appendfsync", "no"), ["(appendfsync no), so that a crash of the machine"]),
        (
            (*DURABLE, "--maxmemory-policy", "allkeys-lru"),
            ["throws away keys, jobs among them, when its memory is full (maxmemory-policy allkeys-lru)"],
        ),
        ((*DURABLE, "--maxmemory", "1000"), ["of its memory ("]),
        ((*DURABLE, "--maxmemory", "10gb"), []),
        (("--cluster-enabled", "yes", *DURABLE), ["is a node of a Redis Cluster; use a redis+cluster: URL for it."]),
        ((*DURABLE, "--replicaof", "127.0.0.1 1"), ["is a replica, which cannot be written to; give the URL of the"]),
    ],
)
def test_what_is_unsafe(start: Start, open_url: Opener, options: tuple[str, ...], sentences: list[str]) -> None:
    own = start(*options)
    found = problems(open_url(own.url))
    assert len(found) == len(sentences), found
    for problem, sentence in zip(found, sentences, strict=True):
        assert problem.startswith(f"Redis at 127.0.0.1:{own.port} ")
        assert sentence in problem


def test_a_snapshot_that_failed(start: Start, tmp_path: Path, open_url: Opener) -> None:
    own = start("--save", "3600 1", "--appendonly", "yes", "--dbfilename", "here.rdb")
    server = open_url(own.url)
    server.do("SET", "k", "v")
    (tmp_path / "here.rdb").mkdir()  # a file cannot take its place
    server.do("BGSAVE")
    wait_until(lambda: b"rdb_last_bgsave_status:err" in server.do("INFO", "persistence"), str)
    assert ["failed to save a snapshot the last time" in problem for problem in problems(server)] == [True]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (DURABLE, "does not let its appendfsync be read; see that it is everysec or always."),
        ((), "keeps no log (appendonly no) and does not let its save points be read"),
    ],
)
def test_where_config_is_forbidden_the_rest_is_seen(
    start: Start, open_url: Opener, options: tuple[str, ...], sentence: str
) -> None:
    own = start(*options, "--maxmemory-policy", "volatile-lru")
    open_url(own.url).do("ACL", "SETUSER", "me", "on", ">pw", "~*", "+@all", "-config")
    evicts, unread = problems(open_url(own.url.replace("//", "//me:pw@")))
    assert "maxmemory-policy volatile-lru" in evicts
    assert sentence in unread


def test_a_server_that_is_away_is_no_problem_of_settings(open_url: Opener) -> None:
    with pytest.raises(BrokerAwayError):
        problems(open_url("redis://127.0.0.1:1"))


def test_every_server_of_a_cluster_is_looked_at(tmp_path: Path, open_url: Opener) -> None:
    cluster = RedisCluster.start(servers()["valkey"], tmp_path)
    try:
        server = open_url(cluster.url)
        assert problems(server) == []
        with cluster.nodes[1].client() as client:
            client.config_set("maxmemory-policy", "allkeys-random")
        (found,) = problems(server)
        assert found.startswith(f"Redis at 127.0.0.1:{cluster.nodes[1].port} throws away keys")
        cluster.kill(2)
        away = [problem for problem in problems(server) if "is away" in problem]
        assert [f"127.0.0.1:{cluster.nodes[2].port}" in problem for problem in away] == [True]
    finally:
        cluster.end()
