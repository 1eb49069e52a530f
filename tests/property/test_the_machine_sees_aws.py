"""The state machine of SQS detects mistakes in the AWS broker: each of these has one, and some sequence shows it."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.aws.broken_brokers import (
    BuryingLoses,
    DelayedJobsAreDropped,
    DeletedBeforeItRuns,
    NeverDeleted,
    NoGroups,
    NotKeptHidden,
)
from tests.support.aws.message_machine import MessageMachine
from tests.support.aws.simulated_aws import SimulatedAWS

pytestmark = pytest.mark.property


@pytest.mark.parametrize(
    "broken",
    [BuryingLoses, DelayedJobsAreDropped, DeletedBeforeItRuns, NeverDeleted, NoGroups, NotKeptHidden],
    ids=lambda broken: broken.__name__,
)
def test_a_broken_broker_is_seen(broken: type[SimulatedAWS]) -> None:
    class BrokenMachine(MessageMachine):
        broker_class = broken

    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            BrokenMachine,
            settings=settings(
                max_examples=400,  # ends with the first that shows the mistake
                stateful_step_count=30,
                derandomize=True,
                database=None,
                deadline=None,
                phases=[Phase.generate],
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
