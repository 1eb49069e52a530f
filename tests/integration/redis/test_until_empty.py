"""Tests of `until_empty` with workers on several nodes: a worker ends when its own shards are empty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from laneway import Laneway
from tests.support.node_checks import (
    check_a_busy_node_does_not_keep_a_worker,
    check_others_jobs_do_not_keep_a_worker,
    check_what_runs_keeps_those_who_serve_its_shard,
)
from tests.support.servers import RedisServer

pytestmark = pytest.mark.integration


@pytest.fixture
def app(redis_server: RedisServer) -> Iterator[Laneway]:
    app = Laneway(redis_server.url)
    yield app
    app.close()


def test_a_worker_ends_though_something_is_due_for_another_node(app: Laneway) -> None:
    check_others_jobs_do_not_keep_a_worker(app)


def test_a_worker_does_not_end_while_a_job_of_its_shards_runs(app: Laneway) -> None:
    check_what_runs_keeps_those_who_serve_its_shard(app)


def test_a_worker_ends_though_another_node_is_busy(app: Laneway) -> None:
    check_a_busy_node_does_not_keep_a_worker(app)
