"""Whatever fails in whatever order: no job is lost, overlaps, overtakes another or is settled too late.

`make test` runs a few seeds; `python -m tests.support.simulator --seeds 1000` runs as many as you choose.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.servers import LOGGED, RedisServer, servers
from tests.support.simulator import (
    Connect,
    SimulationReport,
    in_memory,
    main,
    on_fake,
    on_redis,
    on_second_broker,
    on_sqlite,
    simulate,
)

pytestmark = pytest.mark.simulation

MANY = os.environ.get("LANEWAY_SEEDS")
#: One on Redis takes as long as two on SQLite, and as long as twenty on the second broker.
SEEDS = {"second": 15, "fake": 25, "sqlite": 30, "memory": 5, "valkey": 6, "redis": 2}
#: Those that need no server.
LOCAL: dict[str, Callable[[Path], Connect]] = {
    "sqlite": on_sqlite,
    "memory": lambda path: in_memory(),
    "second": lambda path: on_second_broker(),
    "fake": lambda path: on_fake(),
}


@pytest.fixture(params=[*LOCAL, *servers()])
def seeds(request: pytest.FixtureRequest) -> range:
    """How many; the broker is their parameter."""
    return range(int(MANY or SEEDS[request.param]))


@pytest.fixture
def run(request: pytest.FixtureRequest, seeds: range, tmp_path: Path) -> Iterator[Callable[..., SimulationReport]]:
    broker = request.node.callspec.params["seeds"]
    server = RedisServer.start(servers()[broker], tmp_path, *LOGGED) if broker in servers() else None

    def connect(name: str) -> Connect:
        if server is not None:
            return on_redis(f"{server.url}?prefix={name}")
        return LOCAL[broker](tmp_path / f"{name}.db")

    yield lambda seed, name="jobs": simulate(seed, connect(f"{name}-{seed}"), steps=300)
    if server is not None:
        server.end()


def test_nothing_goes_wrong(seeds: range, run: Callable[[int], SimulationReport]) -> None:
    reports = [run(seed) for seed in seeds]
    assert {report.seed: report.findings for report in reports if report.findings} == {}
    # And it was put to the test.
    assert sum(report.accepted for report in reports) > 50 * len(seeds)
    assert sum(report.crashes for report in reports) > len(seeds)
    assert sum(report.pauses for report in reports) > len(seeds)
    assert sum(report.refused for report in reports) > len(seeds) / 4
    assert sum(report.repeats for report in reports) > len(seeds) / 2
    # Verbs are cut off where they are several requests. Such a broker has no shards.
    assert sum(report.reshardings or report.cuts for report in reports) > len(seeds)
    assert sum(report.deaths for report in reports) > len(seeds) / 4
    assert sum(report.paused_turns for report in reports) > len(seeds)


def test_a_seed_says_everything(run: Callable[..., SimulationReport]) -> None:
    first, again, other = run(7), run(7, "again"), run(8)
    assert first == again
    assert first.digest != other.digest


@pytest.mark.parametrize("broker", ["memory", "fake"])
def test_it_can_be_run_by_hand(broker: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--first", "5", "--steps", "50", "--broker", broker]) == 0
    assert capsys.readouterr().out.startswith("2 seeds, ")
