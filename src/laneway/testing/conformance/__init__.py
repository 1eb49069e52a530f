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

from .collecting import Collecting, Merging, WaitsForQuiet  # noqa: E402 - see above
from .enqueue import Enqueueing  # noqa: E402
from .events import Copies, Subscribing  # noqa: E402
from .inspect import Looking  # noqa: E402
from .keyed_jobs import Heads, Keyed  # noqa: E402
from .leases import Deaths, Leases  # noqa: E402
from .listing import Listings, Sorting  # noqa: E402
from .morgue import Morgue  # noqa: E402
from .operate import Acting, Single  # noqa: E402
from .pause import Pausing  # noqa: E402
from .repeats import Repeats  # noqa: E402
from .reshard import Reshards  # noqa: E402
from .settle import Settling  # noqa: E402
from .turn import Batches, Turns  # noqa: E402
from .wait import Waiting  # noqa: E402

__all__ = ["BrokerConformance"]


class _Plain(Enqueueing, Turns, Settling, Leases, Looking, Listings, Acting, Waiting, Pausing):
    """What is promised of every job."""


class _Ordered(
    Keyed, Heads, Collecting, Merging, WaitsForQuiet, Morgue, Single, Sorting, Batches, Reshards, Repeats, Deaths
):
    """What is promised of keyed and collecting jobs beyond that."""


class _Events(Subscribing, Copies):
    """What is promised of events: who wants them, and that all of these get them."""


class BrokerConformance(_Plain, _Ordered, _Events):
    """Every rule of the broker contract. Subclass it and override the fixture `make_broker`."""
