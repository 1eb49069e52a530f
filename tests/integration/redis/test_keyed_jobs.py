"""Tests of calls of one key with a worker, on a Redis server and on a Cluster."""

from __future__ import annotations

from contextlib import closing

import pytest

from laneway import Laneway
from tests.support.scenarios import a_key_runs_once_at_a_time
from tests.support.servers import RedisCluster, RedisServer

pytestmark = pytest.mark.integration


def test_a_key_that_two_queues_enqueue_runs_once_at_a_time(redis_server: RedisServer) -> None:
    with closing(Laneway(redis_server.url)) as app:
        a_key_runs_once_at_a_time(app)


def test_so_it_does_on_a_cluster(redis_cluster: RedisCluster) -> None:
    with closing(Laneway(redis_cluster.url)) as app:
        a_key_runs_once_at_a_time(app)
