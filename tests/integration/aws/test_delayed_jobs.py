"""Tests of the waiter tables, which store delayed jobs: finding them, their items, and the operations on an item."""

from __future__ import annotations

import logging
import math
from typing import Any
from zlib import crc32

import pytest

from laneway.brokers.aws.dynamodb.delayed_jobs import CLAIM_S
from laneway.brokers.aws.dynamodb.items import INDEX, LARGEST_ITEM, RUBY, DelayedItem
from laneway.brokers.aws.dynamodb.retry_state import RetryState
from laneway.brokers.aws.sqs.message import MessageNote
from laneway.clock import ManualClock
from laneway.errors import BrokerAwayError, BrokerError, EnqueueError
from laneway.jobs.data import WorkerView
from tests.support.aws.delay_table import Waiters, waiting
from tests.support.aws.endpoints import Place

NOW = 1_700_000_000.0

KEYS = [{"AttributeName": "scheduler", "KeyType": "HASH"}, {"AttributeName": "job_id", "KeyType": "RANGE"}]
INDEXES = [
    {
        "IndexName": INDEX,
        "KeySchema": [KEYS[0], {"AttributeName": "perform_at", "KeyType": "RANGE"}],
        "Projection": {"ProjectionType": "ALL"},
    }
]
TYPES = [
    {"AttributeName": name, "AttributeType": kind}
    for name, kind in (("scheduler", "S"), ("job_id", "S"), ("perform_at", "N"))
]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def waiters(aws: Place, clock: ManualClock) -> Waiters:
    return Waiters(aws, clock)


# -- which tables there are ----------------------------------------------------------------------------


def test_a_table_made_later_is_found_within_a_minute(waiters: Waiters, clock: ManualClock) -> None:
    assert waiters.tables.of("q") is None
    waiters.make_table()
    asked = waiters.requests("dynamodb")
    assert waiters.tables.of("q") is None
    assert waiters.requests("dynamodb") == asked
    clock.advance(60)
    assert waiters.table().name == "q"


def test_a_table_that_was_found_is_not_looked_for_again_until_it_is_gone(waiters: Waiters, clock: ManualClock) -> None:
    waiters.make_table()
    table = waiters.table()
    clock.advance(3_600)
    assert waiters.table() is table
    waiters.clients.dynamodb("delete_table", TableName="q")
    with pytest.raises(BrokerError, match="laneway aws create"):
        table.delayed.get("a")
    assert waiters.tables.of("q") is None


def test_tables_are_named_as_their_queues_with_prefix_and_suffix_or_shared(aws: Place) -> None:
    own = Waiters(aws, prefix="shop-", table_suffix="_waiter", default="main")
    assert own.tables.name("mails") == "shop-mails_waiter"
    assert own.tables.name("default") == "main_waiter"
    own.make_table("shop-mails_waiter")
    assert own.table("mails").name == "shop-mails_waiter"
    shared = Waiters(aws, table="jobs")
    shared.make_table("jobs")
    for queue in ("q", "default"):
        shared.tables.declare(queue)
        assert shared.table(queue).name == "jobs"
    assert [table.name for table in shared.tables.known()] == ["jobs"]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"KeySchema": KEYS[:1], "AttributeDefinitions": TYPES[:1], "LocalSecondaryIndexes": None}, "keys"),
        ({"LocalSecondaryIndexes": None, "AttributeDefinitions": TYPES[:2]}, "index"),
        (
            {"AttributeDefinitions": [*TYPES[:2], {"AttributeName": "perform_at", "AttributeType": "S"}]},
            "number perform_at",
        ),
        ({"LocalSecondaryIndexes": [{**INDEXES[0], "Projection": {"ProjectionType": "KEYS_ONLY"}}]}, "all attributes"),
    ],
)
def test_a_table_that_is_no_waiter_table_is_not_used_and_said_to_be_none_once(
    moto: Place, clock: ManualClock, caplog: pytest.LogCaptureFixture, changes: dict[str, Any], word: str
) -> None:
    waiters = Waiters(moto, clock)
    wanted = {"KeySchema": KEYS, "AttributeDefinitions": TYPES, "LocalSecondaryIndexes": INDEXES} | changes
    given = {part: value for part, value in wanted.items() if value}
    waiters.clients.dynamodb("create_table", TableName="q", BillingMode="PAY_PER_REQUEST", **given)
    for _ in range(2):
        assert waiters.tables.of("q") is None
        clock.advance(61)
    (problem,) = waiters.tables.problems()
    assert problem.startswith("The table q is not used for delayed jobs")
    assert word in problem
    assert [record.getMessage() for record in caplog.records] == [problem]


def test_a_table_that_the_url_names_and_is_not_there_is_told_once_and_so_is_that_it_is_there(
    fake: Place, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    waiters = Waiters(fake, clock, table="nothere")
    with caplog.at_level(logging.INFO, "laneway"):
        for _ in range(2):
            for queue in ("q", "mail"):
                assert waiters.tables.of(queue) is None
            clock.advance(61)
        [record] = caplog.records
        assert record.levelno == logging.WARNING
        told = record.getMessage()
        assert told.startswith("There is no table nothere, which the URL names")
        for word in ("15 minutes", "keyed", "paused", "workers", "laneway aws create"):
            assert word in told
        caplog.clear()
        waiters.make_table("nothere")
        for _ in range(2):
            assert waiters.tables.of("q") is not None
            clock.advance(61)
        [record] = caplog.records
        assert "nothere" in record.getMessage()


def test_that_a_table_of_a_queues_own_is_not_there_is_nothing_to_tell(
    fake: Place, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    waiters = Waiters(fake, clock)
    assert waiters.tables.of("q") is None
    waiters.make_table()
    clock.advance(61)
    with caplog.at_level(logging.INFO, "laneway"):
        assert waiters.tables.of("q") is not None
    assert caplog.messages == []


# -- items ---------------------------------------------------------------------------------------------


def test_an_item_holds_the_message_as_it_would_have_been_sent(waiters: Waiters) -> None:
    waiters.make_table()
    foreign = {"trace": {"DataType": "Binary", "BinaryValue": b"\0\xff"}}
    item = waiting("a1", NOW + 86_400.25, retry_count=3, error="Boom: ü")
    item.outgoing.attributes = foreign
    waiters.table().delayed.put([item])
    (row,) = [row for row in waiters.rows() if "perform_at" in row]
    assert set(row) == {
        *("scheduler", "job_id", "perform_at", "queue", "sqs_message_body", "sqs_message_attributes"),
    }
    assert row["scheduler"] == {"S": f"laneway-{crc32(b'a1') % 4}"}
    assert row["job_id"] == {"S": "a1"}
    assert float(row["perform_at"]["N"]) == NOW + 86_400.25
    assert row["sqs_message_body"] == {"S": '{"_job_class":"Send","_job_params":{"n":1}}'}
    assert row["queue"] == {"S": "q"}
    assert row["sqs_message_attributes"]["M"]["laneway"]["M"]["DataType"] == {"S": "String"}
    found = waiters.table().delayed.get("a1")
    assert found is not None
    assert found.outgoing == item.outgoing
    assert found.outgoing.attributes == foreign
    assert (found.queue, found.fifo, found.perform_at, found.claim) == ("q", False, NOW + 86_400.25, "")


def test_a_keyed_call_is_for_the_fifo_queue(waiters: Waiters) -> None:
    waiters.make_table()
    waiters.table().delayed.put([waiting("c1", NOW, key="order-1")])
    found = waiters.table().delayed.get("c1")
    assert found is not None
    assert found.fifo
    assert found.outgoing.note.key == "order-1"


@pytest.mark.parametrize("at", [-1.5, 0.0, 1e-300, -1e300, 99_999_999_999.5])
def test_any_time_can_be_stored(waiters: Waiters, at: float) -> None:
    waiters.make_table()
    waiters.table().delayed.put([waiting("a", at)])
    found = waiters.table().delayed.get("a")
    assert found is not None
    assert math.isclose(found.perform_at, max(at, -9e125), abs_tol=1e-100)
    assert waiters.table().delayed.claim(found, "me", NOW)


def test_many_are_stored_in_twenty_fives_and_found_again(waiters: Waiters) -> None:
    waiters.make_table()
    table = waiters.table()
    table.delayed.put([waiting("first", NOW)])
    before = waiters.requests("dynamodb")
    table.delayed.put([waiting(f"j{n}", NOW + n) for n in range(60)] + [waiting("j0", NOW + 100)])
    assert waiters.requests("dynamodb") - before == 3
    found = table.delayed.get_all([f"j{n}" for n in range(60)] + ["none", ""])
    assert len(found) == 60
    assert found["j0"].perform_at == NOW + 100


def test_an_item_that_is_too_large_is_refused_with_all_that_was_to_be_stored_with_it(waiters: Waiters) -> None:
    waiters.make_table()
    large = waiting("big", NOW, body="ü" * (LARGEST_ITEM // 2))
    with pytest.raises(EnqueueError, match=r"'big'.*409600") as caught:
        waiters.table().delayed.put([waiting("small", NOW), large])
    assert caught.value.place == ("q", "big")
    assert waiters.rows() == []
    waiters.table().delayed.put([waiting("fits", NOW, body="x" * 390_000)])
    assert waiters.waiting_ids() == ["fits"]


def test_nobodys_items_are_stranded_when_the_number_of_partitions_changes(aws: Place, clock: ManualClock) -> None:
    many = Waiters(aws, clock, partitions=5)
    few = Waiters(aws, clock, partitions=2)
    many.make_table()
    many.table().delayed.put([waiting(f"m{n}", NOW) for n in range(10)])
    few.table().delayed.put([waiting(f"f{n}", NOW) for n in range(10)])
    for waiters in (many, few):
        table = waiters.table()
        assert table.delayed.partitions() == [*(f"laneway-{n}" for n in range(5)), RUBY]
        assert len(list(table.delayed.due(NOW))) == 20
        assert len(table.delayed.get_all([f"{kind}{n}" for kind in "mf" for n in range(10)])) == 20


def test_an_item_that_cannot_be_read_is_told_of_once_and_left(
    waiters: Waiters, caplog: pytest.LogCaptureFixture
) -> None:
    waiters.make_table()
    row = {"scheduler": {"S": "laneway-0"}, "job_id": {"S": "odd"}, "perform_at": {"N": "1"}, "queue": {"S": "q"}}
    waiters.clients.dynamodb("put_item", TableName="q", Item=row)
    for _ in range(2):
        assert list(waiters.table().delayed.due(NOW)) == []
    assert waiters.waiting_ids() == ["odd"]
    (record,) = caplog.records
    assert "laneway-0/odd" in record.getMessage()


# -- claiming ------------------------------------------------------------------------------------------


def held(waiters: Waiters, id: str = "a") -> DelayedItem:
    found = waiters.table().delayed.get(id)
    assert found is not None
    return found


def test_a_claim_is_repeatable_and_exclusive_until_it_ends(waiters: Waiters) -> None:
    waiters.make_table()
    table = waiters.table()
    table.delayed.put([waiting("a", NOW)])
    item = held(waiters)
    assert table.delayed.claim(item, "me", NOW)
    assert table.delayed.claim(item, "me", NOW + 1)
    assert not table.delayed.claim(item, "you", NOW + CLAIM_S)
    assert not table.delayed.done(item, "you")
    assert table.delayed.claim(item, "you", NOW + CLAIM_S + 2)
    assert not table.delayed.done(item, "me")
    assert table.delayed.done(item, "you")
    assert not table.delayed.done(item, "you")
    assert not table.delayed.claim(item, "me", NOW)
    assert waiters.waiting_ids() == []


def test_a_claim_that_was_given_back_is_anybodys(waiters: Waiters) -> None:
    waiters.make_table()
    table = waiters.table()
    table.delayed.put([waiting("a", NOW)])
    item = held(waiters)
    assert table.delayed.claim(item, "me", NOW)
    assert not table.delayed.release(item, "you")
    assert table.delayed.release(item, "me")
    assert table.delayed.claim(item, "you", NOW)


def test_an_item_that_was_moved_or_stored_anew_is_not_claimed_as_it_was_seen(waiters: Waiters) -> None:
    waiters.make_table()
    table = waiters.table()
    table.delayed.put([waiting("a", NOW)])
    seen = held(waiters)
    assert table.delayed.move("a", NOW + 5_000, NOW)
    assert not table.delayed.claim(seen, "me", NOW)
    # A retry is stored under the same id while whoever sent the job before has not come to delete it.
    seen = held(waiters)
    assert table.delayed.claim(seen, "me", NOW)
    table.delayed.put([waiting("a", NOW + 9_000, retry_count=1)])
    assert not table.delayed.done(seen, "me")
    assert held(waiters).outgoing.note.retry_count == 1


def test_removing_and_moving_are_refused_while_somebody_is_sending(waiters: Waiters) -> None:
    waiters.make_table()
    table = waiters.table()
    table.delayed.put([waiting("a", NOW + 10)])
    assert table.delayed.claim(held(waiters), "me", NOW)
    assert not table.delayed.remove("a", NOW + 1)
    assert not table.delayed.move("a", NOW + 99, NOW + 1)
    later = NOW + CLAIM_S + 1
    assert table.delayed.move("a", NOW + 99, later)
    assert table.delayed.remove("a", later)
    assert not table.delayed.remove("a", later)
    assert not table.delayed.move("a", NOW, later)
    assert waiters.waiting_ids() == []


def test_moving_changes_the_time_in_the_message_too(waiters: Waiters) -> None:
    waiters.make_table()
    table = waiters.table()
    table.delayed.put([waiting("a", NOW + 10, headers={"h": "1"})])
    assert table.delayed.move("a", NOW + 99.5, NOW)
    item = held(waiters)
    assert item.perform_at == NOW + 99.5
    assert item.outgoing.note == MessageNote("a", due=NOW + 99.5, headers={"h": "1"})


# -- listing -------------------------------------------------------------------------------------------


def test_items_are_read_in_order_of_time_over_all_partitions_and_queues(aws: Place, clock: ManualClock) -> None:
    waiters = Waiters(aws, clock, table="jobs")
    waiters.make_table("jobs")
    table = waiters.table()
    ids = [f"j{n:02}" for n in range(12)]
    table.delayed.put([waiting(id, NOW + n // 3) for n, id in enumerate(ids)])
    table.delayed.put([waiting(f"o{n:02}", NOW + n, queue="other") for n in range(6)])
    assert [item.job_id for item in table.delayed.due() if item.queue == "q"] == ids
    assert [item.job_id for item in table.delayed.due(NOW + 1)] == [*ids[:3], "o00", *ids[3:6], "o01"]


# -- the other rows ------------------------------------------------------------------------------------


def test_states_of_jobs(waiters: Waiters) -> None:
    waiters.make_table()
    table = waiters.table()
    assert table.retry_states.get_all([]) == {}
    state = RetryState(retry_count=2, attempt=4, deaths=1, error="Boom", not_before=NOW + 5.5)
    table.retry_states.save("a", state)
    assert table.retry_states.get_all(["a", "b", "a"]) == {"a": state}
    for _ in range(2):  # the answer was lost
        for id in ("a", "b"):
            table.retry_states.add_death(id, "worker-1")
    table.retry_states.add_death("a", "worker-2")
    assert {id: each.deaths for id, each in table.retry_states.get_all(["a", "b"]).items()} == {"a": 3, "b": 1}
    assert table.retry_states.get_all(["b"])["b"].retry_count == -1
    table.retry_states.forget(["a", "b", "none"])
    assert table.retry_states.get_all(["a", "b"]) == {}


def test_no_other_row_is_taken_for_a_job(waiters: Waiters, clock: ManualClock) -> None:
    waiters.make_table()
    table = waiters.table()
    table.retry_states.save("a", RetryState())
    table.queues.count_runs("q", 1, 1)
    table.workers.save(view("w"), NOW)
    assert table.locks.hold("fifo", "me", NOW, 10)
    assert list(table.delayed.due()) == []
    assert table.queues.names() == ["q"]


def test_a_lock_is_one_holders_until_it_ends_or_is_let_go(waiters: Waiters) -> None:
    waiters.make_table()
    table = waiters.table()
    assert table.locks.hold("fifo", "me", NOW, 10)
    assert table.locks.hold("fifo", "me", NOW + 5, 10)
    assert not table.locks.hold("fifo", "you", NOW + 14, 10)
    table.locks.release("fifo", "you")
    assert table.locks.hold("fifo", "you", NOW + 16, 10)
    table.locks.release("fifo", "you")
    assert table.locks.hold("fifo", "me", NOW, 10)


def view(id: str) -> WorkerView:
    return WorkerView(
        id=id, host="h", pid=1, queues=["q"], concurrency=5, lease_s=30, started_at=NOW, seen_at=NOW, shards={"q": [1]}
    )


def test_removing_can_be_repeated_at_once_by_whoever_got_no_answer(waiters: Waiters) -> None:
    waiters.make_table()
    table = waiters.table()
    table.delayed.put([waiting("a", NOW + 10)])
    ask = waiters.clients.dynamodb

    def lost(operation: str, **params: Any) -> dict[str, Any]:
        answer = ask(operation, **params)
        if operation == "update_item":
            raise BrokerAwayError("no answer")
        return answer

    waiters.clients.dynamodb = lost  # type: ignore[method-assign]  # every call still reaches the server
    with pytest.raises(BrokerAwayError):
        table.delayed.remove("a", NOW)
    waiters.clients.dynamodb = ask  # type: ignore[method-assign]
    assert not table.delayed.claim(held(waiters), "a poller", NOW + 1)
    assert table.delayed.remove("a", NOW + 1)
    assert waiters.waiting_ids() == []
