"""Tests that all jobs sent by forked processes are stored: no process is mistaken for another."""

from __future__ import annotations

import multiprocessing

import pytest

from laneway import Laneway
from laneway.brokers.redis import RedisBroker
from laneway.testing.conformance.fixtures import call, job, numbers, value
from laneway.urls import Url
from tests.support.servers import RedisCluster, RedisServer

CHILDREN, EACH = 3, 20


def send(broker: RedisBroker, child: int) -> None:
    for n in range(EACH):
        broker.enqueue([job(f"plain-{child}-{n}")])
        broker.enqueue([call(f"keyed-{child}-{n}", "c"), value(f"collecting-{child}-{n}", "v")])
    broker.close()


def send_from_children(url: str) -> None:
    broker = RedisBroker.from_url(Url.parse(url))
    broker.declare("q", 5)
    broker.enqueue([job("before")])
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=send, args=(broker, child)) for child in range(CHILDREN)]
    for child in children:
        child.start()
    send(broker, CHILDREN)
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert numbers(broker).length == 1 + 3 * EACH * (CHILDREN + 1)
    broker.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # that is what it is about
def test_forked_processes_lose_nothing(redis_server: RedisServer) -> None:
    send_from_children(redis_server.url)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_nor_do_they_on_a_cluster(redis_cluster: RedisCluster) -> None:
    send_from_children(redis_cluster.url)


def test_a_wrong_url_keeps_its_password_to_itself() -> None:
    for url in ("redis:///:canary@host", "redis+unix:///:canary@/run/a.sock"):
        with pytest.raises(Exception, match="right after the //") as error:
            Laneway(url).broker.inspect.queues()
        assert "canary" not in str(error.value)
