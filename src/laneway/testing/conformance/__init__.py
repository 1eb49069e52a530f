"""The definition of a broker, as tests: what passes them may be used as one.

Hold yours against it with pytest:

    import pytest
    from laneway.testing.conformance import BrokerConformance

    class TestMyBroker(BrokerConformance):
        @pytest.fixture
        def make_broker(self, tmp_path):
            return lambda clock: MyBroker(tmp_path / "jobs", clock=clock)

`make_broker` is given a `laneway.clock.Clock` and returns an empty broker that tells the time by it; it is called
once or twice a test. All files need pytest, which Laneway itself does not install.
"""

from __future__ import annotations

import pytest

# Before the imports below, so that failed asserts say what they saw.
_MODULES = (
    "fixtures",
    "collecting",
    "enqueue",
    "events",
    "inspect",
    "keyed_jobs",
    "leases",
    "listing",
    "morgue",
    "operate",
    "pause",
    "repeats",
    "reshard",
    "settle",
    "turn",
    "wait",
)
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in _MODULES))

from .collecting import CollectingTests, DebounceTests, MergeTests  # noqa: E402 - see above
from .enqueue import EnqueueTests  # noqa: E402
from .events import EventCopyTests, SubscriptionTests  # noqa: E402
from .inspect import InspectTests  # noqa: E402
from .keyed_jobs import KeyedJobTests, KeyHeadTests  # noqa: E402
from .leases import DeathTests, LeaseTests  # noqa: E402
from .listing import ListingOrderTests, ListingTests  # noqa: E402
from .morgue import MorgueTests  # noqa: E402
from .operate import OperateTests, PayloadTests  # noqa: E402
from .pause import PauseTests  # noqa: E402
from .repeats import RepeatTests  # noqa: E402
from .reshard import ReshardTests  # noqa: E402
from .settle import SettleTests  # noqa: E402
from .turn import BatchTests, TurnTests  # noqa: E402
from .wait import WaitTests  # noqa: E402

__all__ = ["BrokerConformance"]


class _Plain(
    EnqueueTests, TurnTests, SettleTests, LeaseTests, InspectTests, ListingTests, OperateTests, WaitTests, PauseTests
):
    """What is promised of every job."""


class _Ordered(
    KeyedJobTests,
    KeyHeadTests,
    CollectingTests,
    MergeTests,
    DebounceTests,
    MorgueTests,
    PayloadTests,
    ListingOrderTests,
    BatchTests,
    ReshardTests,
    RepeatTests,
    DeathTests,
):
    """What is promised of keyed and collecting jobs beyond that."""


class _Events(SubscriptionTests, EventCopyTests):
    """What is promised of events: who wants them, and that all of these get them."""


class BrokerConformance(_Plain, _Ordered, _Events):
    """Every rule of the broker contract. Subclass it and override the fixture `make_broker`."""
