"""Whatever goes wrong in whatever order, nothing is lost, overlaps, overtakes or is settled too late.

`make test` runs a few seeds; `python -m laneway.testing.simulator --seeds 1000` as many as you like.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from laneway.testing.simulator import Report, in_memory, main, on_sqlite, simulate

pytestmark = pytest.mark.simulation

SEEDS = int(os.environ.get("LANEWAY_SEEDS", "30"))


@pytest.fixture(params=["sqlite", "memory"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int], Report]:
    def run(seed: int, name: str = "jobs") -> Report:
        connect = in_memory() if request.param == "memory" else on_sqlite(tmp_path / f"{name}-{seed}.db")
        return simulate(seed, connect, steps=300)

    return run


def test_nothing_goes_wrong(run: Callable[[int], Report]) -> None:
    reports = [run(seed) for seed in range(SEEDS)]
    assert {report.seed: report.findings for report in reports if report.findings} == {}
    # And it was put to the test.
    assert sum(report.accepted for report in reports) > 50 * SEEDS
    assert sum(report.crashes for report in reports) > SEEDS
    assert sum(report.pauses for report in reports) > SEEDS
    assert sum(report.refused for report in reports) > SEEDS / 4
    assert sum(report.repeats for report in reports) > SEEDS / 2
    assert sum(report.reshardings for report in reports) > SEEDS
    assert sum(report.deaths for report in reports) > SEEDS / 4
    assert sum(report.paused_turns for report in reports) > SEEDS


def test_a_seed_says_everything(run: Callable[..., Report]) -> None:
    first, again, other = run(7), run(7, "again"), run(8)
    assert first == again
    assert first.digest != other.digest


def test_it_can_be_run_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--first", "5", "--steps", "50", "--broker", "memory"]) == 0
    assert capsys.readouterr().out.startswith("2 seeds, ")
