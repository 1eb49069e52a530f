"""Worker processes on a Redis Cluster are killed while their runs send calls to a queue on another node.

Some are killed when what a run has sent is in the outbox and not delivered. No call is lost, stored twice, overlaps or
overtakes another of its key. `make test` runs a small version, `make chaos` the large one: 100,000 calls, half of them
sent by runs, 3 worker processes and 50 kills.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.crc import key_slot

from tests.chaos.chaos import Size, places_of, run
from tests.support.history import read_history
from tests.support.servers import SLOTS, RedisCluster, servers
from tests.support.worker_processes import LARGE

pytestmark = pytest.mark.chaos

# Few keys: each is run often, and its next run may send something before what it has sent is delivered.
SIZE = (
    Size(jobs=50_000, keys=100, kills=50, takes_s=0.002, sends=True)
    if LARGE
    else Size(jobs=600, keys=12, kills=9, takes_s=0.02, sends=True)
)


@pytest.fixture(params=servers() if LARGE else ["valkey"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    cluster = RedisCluster.start(servers()[request.param], tmp_path, "--appendfsync", "everysec")
    yield cluster.url
    cluster.end()


def test_killing_workers_loses_nothing_that_their_runs_send(tmp_path: Path, url: str) -> None:
    nodes = {key_slot(f"laneway:{queue}:0".encode()) * 3 // SLOTS for queue in ("orders", "sent-orders")}
    assert len(nodes) == 2
    outcome = run(tmp_path, url, SIZE)
    print(outcome)
    assert outcome.findings == []
    assert sum(outcome.kills.values()) == SIZE.kills
    assert set(places_of(url)) <= set(outcome.kills)
    begun = Counter((event.job, event.attempt) for event in read_history(tmp_path / "history") if event.what == "S")
    assert [each for each, times in begun.items() if times > 1] == [], "stored twice, or its attempt was not counted"
    assert outcome.repeats <= SIZE.kills * 100
