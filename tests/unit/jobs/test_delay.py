"""Due times: every time and delay that a caller may give, and every one that is refused."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from laneway import EnqueueError, Laneway, Retry
from laneway.brokers.sqlite import MemoryBroker
from laneway.clock import ManualClock

pytestmark = pytest.mark.unit

NOW = 1_700_000_000.0
CENTURY = timedelta(days=36_525)


@pytest.fixture
def app():
    return Laneway(broker=MemoryBroker(clock=ManualClock(NOW)))


@pytest.fixture
def noop(app):
    @app.task
    def noop(): ...

    return noop


@pytest.mark.parametrize(
    ("delay", "due"),
    [
        (0, NOW),
        (-5, NOW),
        (-(10**400), NOW),
        (timedelta(seconds=-1), NOW),
        (1, NOW + 1),
        (0.25, NOW + 0.25),
        (timedelta(days=90), NOW + 90 * 86_400),
        (CENTURY, NOW + CENTURY.total_seconds()),
    ],
    ids=range(8),
)
def test_a_delay_counts_from_the_brokers_now(noop, stored, delay, due):
    handle = noop.using(delay=delay).enqueue()
    assert stored()[0].perform_at == due
    assert handle.status() == ("delayed" if due > NOW else "queued")


@pytest.mark.parametrize(
    ("perform_at", "due"),
    [
        (NOW + 5, NOW + 5),
        (5, 5.0),
        (0, 0.0),
        (-3.5, -3.5),
        (datetime(2024, 1, 1, tzinfo=UTC), 1_704_067_200.0),
        (datetime(2024, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 1_704_067_200.0),
        (datetime(1960, 1, 1, tzinfo=UTC), -315_619_200.0),
        (99_999_999_999, 99_999_999_999.0),
    ],
)
def test_a_time_is_stored_as_given_past_included(noop, stored, perform_at, due):
    noop.using(perform_at=perform_at).enqueue()
    assert stored()[0].perform_at == due


BAD = [
    ({"delay": float("nan")}, "delay must be a finite number of seconds, not nan"),
    ({"delay": float("inf")}, "delay must be a finite number of seconds, not inf"),
    ({"delay": float("-inf")}, "delay must be a finite number of seconds, not -inf"),
    ({"delay": CENTURY + timedelta(seconds=1)}, "delay is over 100 years; give seconds, not milliseconds"),
    ({"delay": 10**400}, "delay is over 100 years"),
    ({"delay": timedelta.max}, "delay is over 100 years"),
    ({"delay": True}, "delay must be seconds or a timedelta, not bool"),
    ({"delay": "5"}, "delay must be seconds or a timedelta, not str"),
    ({"delay": Decimal(5)}, "delay must be seconds or a timedelta, not Decimal"),
    ({"delay": datetime(2024, 1, 1, tzinfo=UTC)}, "delay must be seconds or a timedelta, not datetime"),
    ({"perform_at": float("nan")}, "perform_at must be a finite number of unix seconds, not nan"),
    ({"perform_at": float("inf")}, "perform_at must be a finite number of unix seconds, not inf"),
    ({"perform_at": datetime(2024, 1, 1)}, "perform_at is a datetime without a time zone; give an aware one"),
    ({"perform_at": 1e11}, "give unix seconds, not milliseconds"),
    ({"perform_at": 1_700_000_000_000}, "give unix seconds, not milliseconds"),
    ({"perform_at": 10**400}, "give unix seconds, not milliseconds"),
    ({"perform_at": -(10**400)}, "perform_at is too long ago"),
    ({"perform_at": datetime(9999, 1, 1, tzinfo=UTC)}, "perform_at is later than the year 5138"),
    ({"perform_at": False}, "perform_at must be unix seconds or an aware datetime, not bool"),
    ({"perform_at": "2024-01-01"}, "perform_at must be unix seconds or an aware datetime, not str"),
    ({"perform_at": date(2024, 1, 1)}, "perform_at must be unix seconds or an aware datetime, not date"),
    ({"perform_at": timedelta(5)}, "perform_at must be unix seconds or an aware datetime, not timedelta"),
    ({"delay": 5, "perform_at": 5}, "Give a delay or a perform_at, not both."),
    ({"delay": 0, "perform_at": 0}, "Give a delay or a perform_at, not both."),
]


@pytest.mark.parametrize(("options", "sentence"), BAD, ids=range(len(BAD)))
def test_what_cannot_be_a_time_is_refused_everywhere(app, noop, refused, options, sentence):
    with refused(sentence):
        noop.using(**options).enqueue()
    with refused(sentence):
        app.using(**options)
    handle = noop.using(perform_at=5).enqueue()
    with pytest.raises(EnqueueError, match=sentence):
        handle.reschedule(**options)
    assert app.broker.inspect.find("default", handle.id)[0].perform_at == 5


def test_using_again_adds_to_what_was_used_before(noop, stored):
    slow = noop.using(queue="slow").using(delay=60)
    slow.enqueue()
    slow.using(perform_at=7).enqueue()
    slow.using(queue="other").enqueue()
    slow.using(delay=0).enqueue()
    noop.enqueue()
    assert [(job.queue, job.perform_at) for job in stored()] == [
        ("slow", NOW + 60),
        ("slow", 7),
        ("other", NOW + 60),
        ("slow", NOW),
        ("default", NOW),
    ]


def test_retry_takes_a_delay_too():
    assert Retry().after_s is None
    assert Retry(after=timedelta(minutes=1)).after_s == 60
    assert Retry("later", after=-1).after_s == 0
    with pytest.raises(EnqueueError, match=r"Retry\(after=…\) must be a finite number"):
        Retry(after=float("nan"))
