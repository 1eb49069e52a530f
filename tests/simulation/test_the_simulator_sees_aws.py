"""The simulator detects mistakes in the AWS broker: each of these has one, and a checker reports it."""

from __future__ import annotations

import pytest

from tests.support.aws.broken_brokers import (
    BuryingLoses,
    DelayedJobsAreDropped,
    DeletedBeforeItRuns,
    LostSendIsTakenForDone,
    NeverDeleted,
    NoGroups,
    NotKeptHidden,
    PauseIsNotRead,
)
from tests.support.aws.simulated_aws import OnFake, SimulatedAWS
from tests.support.simulator import simulate

pytestmark = pytest.mark.simulation

MISTAKES: dict[type[SimulatedAWS], str] = {
    NeverDeleted: "no end",
    DeletedBeforeItRuns: "has not ended and is not in the morgue",
    NoGroups: "while call",
    DelayedJobsAreDropped: "is neither waiting",
    BuryingLoses: "is neither waiting",
    NotKeptHidden: "while call",
    LostSendIsTakenForDone: "is neither waiting",
    PauseIsNotRead: "was handed out while",
}


@pytest.mark.parametrize(("broken", "phrase"), MISTAKES.items(), ids=[broken.__name__ for broken in MISTAKES])
def test_a_broken_broker_is_seen(broken: type[SimulatedAWS], phrase: str) -> None:
    for seed in range(40):
        report = simulate(seed, OnFake(broken), steps=200)
        if any(phrase in finding for finding in report.findings):
            return
    pytest.fail("No seed shows it.")
