"""BrokerConformance: the broker contract as tests. A broker that passes them may be used with Laneway.

Test your broker with pytest:

    import pytest
    from laneway.testing.conformance import BrokerConformance

    class TestMyBroker(BrokerConformance):
        capabilities = MyBroker.capabilities

        @pytest.fixture
        def make_broker(self, tmp_path):
            return lambda clock: MyBroker(tmp_path / "jobs", clock=clock)

`make_broker` gets a `laneway.clock.Clock` and returns an empty broker that takes the time from it. The capabilities
choose the tests: one that is marked `@needs(feature)` runs only on a broker that has the feature. The tests without
a mark use the core verbs alone. docs/writing-a-broker.md says which class of tests goes with which verbs.
All modules need pytest, which Laneway itself does not install.

- `fixtures`: BrokerFixtures, builders of jobs, and ScriptedWorker
- `enqueue`: `declare` and `enqueue`
- `turn`: which jobs a turn claims, and in which order; batches of one shard
- `settle`: the effect of each verdict; only the holder of a claim settles it
- `keyed_jobs`: the calls of a key: order, failures, retries
- `collecting`: the values of a key: order by score, merging, debounce
- `repeats`: a repeated verb changes nothing; no payload is lost or doubled
- `leases`: leases, reclaimed claims, and the counting of deaths
- `morgue`: bury, revive and delete by payload; run_now, bury_failed, delete_failed
- `operate`: cancel, reschedule, revive and delete; one payload among those of its key
- `inspect`: status, find, stats, lags, workers, check, repair
- `listing`: listings page by page, in every order
- `pause`: pausing and resuming a queue
- `wait`: an idle worker wakes when there is work
- `events`: subscriptions, and the copies of an event
- `reshard`: changing the shard count of a queue in use
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
from .enqueue import EnqueueTests, RefusalTests  # noqa: E402
from .events import EventCopyTests, SubscriptionTests  # noqa: E402
from .inspect import InspectTests  # noqa: E402
from .keyed_jobs import KeyedJobTests, KeyHeadClaimTests, KeyHeadTests  # noqa: E402
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

__all__ = [
    "BatchTests",
    "BrokerConformance",
    "CollectingTests",
    "DeathTests",
    "DebounceTests",
    "EnqueueTests",
    "EventCopyTests",
    "InspectTests",
    "KeyHeadClaimTests",
    "KeyHeadTests",
    "KeyedJobTests",
    "LeaseTests",
    "ListingOrderTests",
    "ListingTests",
    "MergeTests",
    "MorgueTests",
    "OperateTests",
    "PauseTests",
    "PayloadTests",
    "RefusalTests",
    "RepeatTests",
    "ReshardTests",
    "SettleTests",
    "SubscriptionTests",
    "TurnTests",
    "WaitTests",
]


class BrokerConformance(
    EnqueueTests,
    RefusalTests,
    TurnTests,
    BatchTests,
    SettleTests,
    LeaseTests,
    DeathTests,
    WaitTests,
    OperateTests,
    PayloadTests,
    KeyedJobTests,
    KeyHeadClaimTests,
    KeyHeadTests,
    CollectingTests,
    MergeTests,
    DebounceTests,
    MorgueTests,
    InspectTests,
    ListingTests,
    ListingOrderTests,
    PauseTests,
    RepeatTests,
    SubscriptionTests,
    EventCopyTests,
    ReshardTests,
):
    """Every rule of the broker contract, as far as the broker's capabilities reach."""
