"""Two listeners in two processes each receive every event exactly once; a failing listener retries alone.

`make chaos` publishes 10,000 events on every broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.aws.servers import FakeProcess
from tests.support.event_delivery import hearing, wait_for
from tests.support.servers import RedisCluster, RedisServer, servers
from tests.support.worker_processes import LARGE

pytestmark = pytest.mark.chaos

EVENTS = 10_000 if LARGE else 300
BROKERS = ["sqlite", "redis", "cluster", "sqs"] if LARGE else ["sqlite", "redis"]


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")  # a short name: the path of a server's socket has a limit
    if request.param == "sqlite":
        yield f"sqlite:///{folder / 'jobs.db'}"
        return
    server: RedisServer | RedisCluster | FakeProcess
    if request.param == "sqs":
        request.getfixturevalue("_aws_environment")
        server = FakeProcess.start()
        url = server.url()
    else:
        kind = RedisServer if request.param == "redis" else RedisCluster
        server = kind.start(servers()["valkey"], folder)
        url = server.url
    yield url
    server.end()


@pytest.mark.parametrize("url", BROKERS, indirect=True)
def test_two_processes_hear_of_each_event_once_and_one_that_fails_retries_alone(url: str, tmp_path: Path) -> None:
    numbers = list(range(EVENTS))
    with hearing(url, tmp_path, fails=True) as (app, (mailer, stock)):
        for number in numbers[: EVENTS // 10]:
            app.publish("placed", number)
        for start in range(EVENTS // 10, EVENTS, 100):
            app.publish_many("placed", numbers[start : start + 100])
        wait_for([mailer, stock], [EVENTS, 2 * EVENTS])
    # They have ended, so nothing more can come.
    assert mailer.lines("heard") == numbers
    assert mailer.lines("failed") == []
    assert (stock.lines("failed"), stock.lines("heard")) == (numbers, numbers)
