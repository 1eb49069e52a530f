"""A turn hands out a limited number of characters, so that large bodies do not fill the worker's memory."""

from __future__ import annotations

import pytest

from laneway.broker import MAX_BODY, Turn
from laneway.brokers.sqlite import SQLiteBroker
from laneway.brokers.sqlite.turn import CLAIM_CHARS
from laneway.jobs.data import NewJob, WorkerView
from laneway.jobs.settlement import done

pytestmark = pytest.mark.unit


def test_large_bodies_come_in_several_turns_in_order_and_uncounted(broker: SQLiteBroker) -> None:
    count = 3 * CLAIM_CHARS // MAX_BODY
    broker.enqueue([NewJob(queue="q", key=f"{number:03}", body="x" * MAX_BODY) for number in range(count)])
    broker.join(WorkerView(id="w", host="h", pid=1, queues=["q"], concurrency=1, lease_s=30, started_at=0, seen_at=0))
    seen: list[str] = []
    settlements: list = []
    for seq in range(1, 10):
        claims = broker.turn(Turn("w", "q", seq, settlements, 1000)).claims
        if not claims:
            break
        assert sum(len(claim.payloads[0].body) for claim in claims) < CLAIM_CHARS + MAX_BODY
        assert {claim.attempt for claim in claims} == {1}
        seen += [claim.key for claim in claims]
        settlements = [done(claim) for claim in claims]
    assert seen == [f"{number:03}" for number in range(count)]


def test_one_body_is_always_handed_out(broker: SQLiteBroker) -> None:
    broker.enqueue([NewJob(queue="q", key="only", body="x" * (2 * CLAIM_CHARS))])
    broker.join(WorkerView(id="w", host="h", pid=1, queues=["q"], concurrency=1, lease_s=30, started_at=0, seen_at=0))
    assert [claim.key for claim in broker.turn(Turn("w", "q", 1, [], 10)).claims] == ["only"]
