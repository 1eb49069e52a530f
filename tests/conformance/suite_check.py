"""Checks that a conformance test passes for a correct broker and fails for a broken one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from laneway.clock import Clock, ManualClock
from laneway.testing.conformance import BrokerConformance
from tests.support.second_broker import SecondBroker


def run(test: str, make_broker: Callable[[Clock], Any], **values: object) -> None:
    """Run one test of the suite by hand; `values` are what pytest would give it of a list."""
    clock = ManualClock()
    broker = make_broker(clock)
    broker.declare("q", 5)
    method = getattr(BrokerConformance(), test)
    given = {"broker": broker, "clock": clock, "make_broker": make_broker, **values}
    method(**{name: given[name] for name in inspect.signature(method).parameters})


def check_seen(
    broken: Callable[[Clock], Any], test: str, *, whole: Callable[[Clock], Any] = SecondBroker, **values: object
) -> None:
    """The test is green for a whole broker, and red for the broken one."""
    run(test, whole, **values)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        run(test, broken, **values)
