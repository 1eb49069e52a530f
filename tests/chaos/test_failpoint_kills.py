"""Worker processes are killed with -9 at failpoints: no call is lost, overlaps or overtakes another.

`make test` runs a small version, with a kill at every failpoint. `make chaos` runs the large one: 100,000 calls of
1,000 keys, 3 worker processes and 50 kills.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.chaos import FROM_OUTSIDE, Size, places_of, run
from tests.support.servers import LOGGED, RedisServer, servers

pytestmark = pytest.mark.chaos

LARGE = Size(jobs=100_000, keys=1_000, kills=50, takes_s=0.002)
SMALL = Size(jobs=2_500, keys=50, kills=9, takes_s=0.02)


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'jobs.db'}"
        return
    server = RedisServer.start(servers()["valkey"], tmp_path, *LOGGED)
    yield server.url
    server.end()


def test_killing_workers_loses_nothing(tmp_path: Path, url: str) -> None:
    size = LARGE if os.environ.get("LANEWAY_CHAOS") else SMALL
    outcome = run(tmp_path, url, size)
    print(outcome)
    assert outcome.findings == []
    assert sum(outcome.kills.values()) == size.kills
    assert set(places_of(url)) <= set(outcome.kills)
    assert outcome.kills.get(FROM_OUTSIDE, 0) <= size.kills // 5
    assert outcome.repeats <= size.kills * 100
    assert outcome.seconds < 300
