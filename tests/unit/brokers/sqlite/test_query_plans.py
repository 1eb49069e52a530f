"""No statement scans a whole table, because a table may hold millions of jobs."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from laneway.brokers.sqlite import SQLiteBroker
from laneway.brokers.sqlite.database import read_statements
from laneway.brokers.sqlite.inspect import turned

pytestmark = pytest.mark.unit

STATEMENTS = read_statements("queries")
LARGE = {"jobs", "morgue", "payloads", "endings", "subscriptions"}

#: Statements that may read a whole table or a whole queue, and why.
ALLOWED = {
    # Counting is looking at each; nobody waits for it but a person.
    "stats",
    # An index of what runs at this moment: as long as the workers are many, not as the queue is long.
    "list_running_by_time",
    "list_running_by_key",
    "claims_of_the_dead",
    "untidy",
    "count_running",
    "claims_without_worker",
    # It ends at the first row that it finds.
    "any_endings",
    # Once, when resharding begins.
    "reshard_begin",
    # Somebody asks whether the file is well.
    "orphans",
    "strays",
    "mistimed",
    "jobs_without_payloads",
    "dead_without_payloads",
    "queued_and_running",
    "unreadable_filters",
    "drop_unreadable_filters",
    # Somebody asks for all of them.
    "subscriptions",
}


@pytest.fixture
def db(path: Path, broker: SQLiteBroker) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


def plan(db: sqlite3.Connection, statement: str) -> list[str]:
    names = re.findall(r":(\w+)", re.sub(r"--.*", "", statement))
    values = dict.fromkeys(names, 0) if names else (0,) * statement.count("?")
    return [row[3] for row in db.execute("EXPLAIN QUERY PLAN " + statement, values)]


def long_reads(statement: str, details: list[str]) -> set[str]:
    """The steps that read a large table, or all of it that is one queue's, from end to end."""
    aliases = {alias: table for table, alias in re.findall(r"(?:FROM|JOIN|,)\s+(\w+)\s+(\w+)", statement)}
    found = set()
    for detail in details:
        match = re.match(r"(SCAN|SEARCH) (\w+)(?:.*(\(.*\)))?", detail)
        if not match or aliases.get(match[2], match[2]) not in LARGE:
            continue
        if match[1] == "SCAN" or match[3] in ("(queue=?)", "(worker>?)"):
            found.add(detail)
    return found


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_reads_a_large_table_from_end_to_end(db: sqlite3.Connection, name: str) -> None:
    assert bool(long_reads(STATEMENTS[name], plan(db, STATEMENTS[name]))) == (name in ALLOWED)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM jobs WHERE payload = :a",
        "SELECT * FROM jobs j WHERE j.payload = :a",
        "SELECT * FROM queues q JOIN jobs j ON j.queue = q.id WHERE q.name = :a",
        "DELETE FROM morgue WHERE error = :a",
        "UPDATE payloads SET attempt = 1 WHERE headers = :a",
    ],
)
def test_the_check_sees_a_long_read(db: sqlite3.Connection, statement: str) -> None:
    assert long_reads(statement, plan(db, statement))


@pytest.mark.parametrize("turn", [str, turned])
@pytest.mark.parametrize("name", [name for name in STATEMENTS if name.startswith("list_") and "running" not in name])
def test_a_page_is_read_in_order_without_sorting(db: sqlite3.Connection, name: str, turn: Callable[[str], str]) -> None:
    """A page of a long listing costs what the page is long."""
    assert not any("TEMP B-TREE" in detail for detail in plan(db, turn(STATEMENTS[name])))


def test_the_subscriptions_of_a_topic_are_found_by_index_and_in_order(db: sqlite3.Connection) -> None:
    """It is asked at every publishing, however many other topics there are."""
    assert plan(db, STATEMENTS["subscriptions_of"]) == ["SEARCH subscriptions USING PRIMARY KEY (topic=?)"]
    assert not any("TEMP B-TREE" in detail for detail in plan(db, STATEMENTS["subscriptions"]))


def test_the_due_jobs_of_a_shard_are_read_in_order_without_sorting(db: sqlite3.Connection) -> None:
    """Only what the shards give, `limit` each, is sorted."""
    details = plan(db, STATEMENTS["claim"])
    assert any("INDEX jobs_due (queue=? AND shard=? AND priority=? AND perform_at<?)" in d for d in details)
    assert sum("TEMP B-TREE" in detail for detail in details) == 1
