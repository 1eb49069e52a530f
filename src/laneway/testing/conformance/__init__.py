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
    "acting",
    "batches",
    "collecting",
    "deaths",
    "enqueue",
    "events",
    "inspect",
    "keyed",
    "keyed_jobs",
    "leases",
    "listing",
    "listings",
    "merging",
    "morgue",
    "operate",
    "pause",
    "quiet",
    "repeats",
    "reshard",
    "settle",
    "subscribing",
    "turn",
    "wait",
)
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in _MODULES))

from .acting import Acting  # noqa: E402 - see above
from .batches import Batches  # noqa: E402
from .collecting import Collecting  # noqa: E402
from .deaths import Deaths  # noqa: E402
from .enqueue import Enqueueing  # noqa: E402
from .events import Copies  # noqa: E402
from .inspect import Looking  # noqa: E402
from .keyed import Keyed  # noqa: E402
from .keyed_jobs import Heads  # noqa: E402
from .leases import Leases  # noqa: E402
from .listing import Sorting  # noqa: E402
from .listings import Listings  # noqa: E402
from .merging import Merging  # noqa: E402
from .morgue import Morgue  # noqa: E402
from .operate import Single  # noqa: E402
from .pause import Pausing  # noqa: E402
from .quiet import WaitsForQuiet  # noqa: E402
from .repeats import Repeats  # noqa: E402
from .reshard import Reshards  # noqa: E402
from .settle import Settling  # noqa: E402
from .subscribing import Subscribing  # noqa: E402
from .turn import Turns  # noqa: E402
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
