"""The Redis broker passes the conformance suite on Valkey, on Redis and on a Cluster of each.

It connects as a user with no more permissions than docs/brokers.md lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from laneway.brokers.redis import RedisBroker
from laneway.brokers.redis.client.server import Server
from laneway.brokers.redis.settings import RedisSettings
from laneway.testing.conformance import BrokerConformance
from laneway.testing.conformance.fixtures import MakeBroker
from laneway.urls import Url
from tests.support.servers import RedisCluster, RedisServer, servers

pytestmark = pytest.mark.conformance

PAGE = Path(__file__).parent.parent.parent / "docs" / "brokers.md"


def documented_user() -> list[str]:
    """The ACL command of the page, as its words."""
    found = re.search(r"^    (ACL SETUSER .*\n(?:        .*\n)*)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert found, "docs/brokers.md has no ACL command"
    return found[1].split()


class TestRedisBroker(BrokerConformance):
    capabilities = RedisBroker.capabilities

    @pytest.fixture
    def make_broker(self, redis_server: RedisServer) -> MakeBroker:
        redis_server.order(*documented_user())
        client = redis.Redis(port=redis_server.port, username="laneway", password="password")
        return lambda clock: RedisBroker(Server.of(client), clock=clock)


@pytest.fixture(scope="module", params=servers())
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """A Cluster of three Valkeys, and one of three Redis where there is one."""
    cluster = RedisCluster.start(servers()[request.param], tmp_path_factory.mktemp("cluster"))
    yield cluster
    cluster.end()


class TestRedisBrokerOnACluster(BrokerConformance):
    capabilities = RedisBroker.capabilities

    @pytest.fixture
    def make_broker(self, cluster: RedisCluster) -> MakeBroker:
        cluster.flush()
        for node in cluster.nodes:
            node.order(*documented_user(), "+cluster|slots", "+cluster|info")
        url = cluster.url.replace("//", "//laneway:password@")
        return lambda clock: RedisBroker(RedisSettings.from_url(Url.parse(url), environ={}).open(), clock=clock)
