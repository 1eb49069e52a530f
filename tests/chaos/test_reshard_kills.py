"""Workers join and are killed while the shard count of their queue changes: no call is lost, overlaps or overtakes.

`make test` runs a small version. In the large one, 40 workers join and 32 are killed. Half of the 60,000 calls are sent
by the others, to a queue that on a Cluster is on another node.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.chaos import Size, run
from tests.support.servers import LOGGED, RedisCluster, RedisServer, servers
from tests.support.worker_processes import LARGE

pytestmark = pytest.mark.chaos

# The lease is longer than elsewhere: so many processes, on few cores, may renew late, and then others take over.
SIZE = (
    Size(jobs=30_000, keys=500, kills=32, takes_s=0.002, sends=True, reshards=True, lease_s=6.0)
    if LARGE
    else Size(jobs=400, keys=40, kills=4, takes_s=0.01, sends=True, reshards=True)
)
WORKERS = 8 if LARGE else 3


@pytest.fixture(
    params=[(name, where) for name in (servers() if LARGE else ["valkey"]) for where in ("server", "cluster")]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    name, where = request.param
    start = RedisServer.start if where == "server" else RedisCluster.start
    server = start(servers()[name], tmp_path, *LOGGED)
    yield server.url
    server.end()


def test_killing_workers_while_the_queue_is_resharded_loses_nothing(tmp_path: Path, url: str) -> None:
    outcome = run(tmp_path, url, SIZE, workers=WORKERS)
    print(outcome)
    assert outcome.findings == []
    assert sum(outcome.kills.values()) == SIZE.kills
    assert outcome.reshardings > (3 if LARGE else 0), "the faster the machine, the fewer there are"
    assert outcome.repeats <= SIZE.kills * 100
