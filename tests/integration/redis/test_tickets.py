"""Tests of tickets of the Ruby original on a Redis server and on a Cluster: they wait for their due time."""

from __future__ import annotations

from contextlib import closing

import pytest

from laneway import Laneway
from tests.support.scenarios import a_ticket_waits_for_its_time
from tests.support.servers import RedisCluster, RedisServer

pytestmark = pytest.mark.integration


def test_a_ticket_of_the_ruby_original_waits_for_its_time(redis_server: RedisServer) -> None:
    with closing(Laneway(redis_server.url)) as app:
        a_ticket_waits_for_its_time(app)


def test_so_it_does_on_a_cluster(redis_cluster: RedisCluster) -> None:
    with closing(Laneway(redis_cluster.url)) as app:
        a_ticket_waits_for_its_time(app)
