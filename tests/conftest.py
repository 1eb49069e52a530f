"""Fixtures and hooks for all tests: shared Redis servers, a shared cluster, and reports in UTF-8."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before the import below, so that failed asserts in the shared parts say what they saw.
pytest.register_assert_rewrite("tests.support")

from tests.support.servers import RedisCluster, RedisServer, servers  # noqa: E402

# The programs that tests start import `tests.support`, wherever they are started.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent.parent), os.getenv("PYTHONPATH")]))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[None]:
    """Reports travel between processes as UTF-8, and some tests print lone surrogates on purpose."""
    report = yield
    report.sections = [(name, text.encode("utf-8", "backslashreplace").decode()) for name, text in report.sections]
    return report


def pytest_collection_finish() -> None:
    """Tests, modules and imports stay until the end. The garbage collector need not walk through them each time."""
    gc.freeze()


@pytest.fixture(scope="session")
def redis_servers() -> Iterator[dict[str, RedisServer]]:
    """The servers that tests of this process share, by name; each is started for the first test that wants it."""
    started: dict[str, RedisServer] = {}
    yield started
    for server in started.values():
        server.end()


@pytest.fixture(params=servers())
def redis_server(
    request: pytest.FixtureRequest, redis_servers: dict[str, RedisServer], tmp_path_factory: pytest.TempPathFactory
) -> RedisServer:
    """An empty Valkey, and an empty Redis where there is one. Tests that harm or configure it start their own."""
    name = request.param
    if name not in redis_servers:
        # With a log, because `check` has something to say about servers that keep nothing.
        redis_servers[name] = RedisServer.start(servers()[name], tmp_path_factory.mktemp(name), "--appendonly", "yes")
    redis_servers[name].flush()
    return redis_servers[name]


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    cluster = RedisCluster.start(servers()["valkey"], tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.end()


@pytest.fixture
def redis_cluster(shared_cluster: RedisCluster) -> RedisCluster:
    """An empty cluster of three Valkeys. Tests that harm or configure it start their own."""
    shared_cluster.flush()
    return shared_cluster
