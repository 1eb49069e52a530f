"""HistoryRows: how jobs ended: rows under `laneway-records-…`, by the job's id. Only with `records=on`.

    scheduler   laneway-records-0 … laneway-records-63, by the job's id
    job_id      the job's id: a plain job's key, a keyed call's own id
    queue       the Laneway queue
    status      done, dead, cancelled, gone (deleted), or queued (revived)
    at          when, in unix seconds
    expires_at  when the row may be deleted: after a day, for a dead job after 15 days

SQS shows no message, and forgets a message when it is deleted. The rows have no `perform_at`, so they are never
taken for delayed jobs. A row is written before its job leaves its place: if we die in between, the job runs again
and ends in the same row.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from zlib import crc32

import msgspec
from boto3.dynamodb.conditions import Attr

from ....jobs.data import Status
from ...shared import REMEMBER_ENDED_S
from .client import Expressions, Row, RowClient, RowKey

if TYPE_CHECKING:
    from ..account import Account

#: A table with a local index takes about 1,000 writes a second under one hash value. The number is fixed, so that a
#: reader finds the rows of every writer.
SPREAD = 64
#: An hour more than is promised: the clocks of writers and readers differ.
KEPT_S = REMEMBER_ENDED_S + 3_600.0
#: SQS keeps a dead letter for 14 days at most.
DEAD_KEPT_S = 15 * 86_400.0
#: The longest range key of DynamoDB, in bytes. Only a third-party id may be longer, and no handle has such an id.
LONGEST_ID = 1_024
_THREADS = 8


class HistoryRow(msgspec.Struct, frozen=True):
    """The last status of a job, and since when."""

    status: Status
    at: float


class HistoryRows:
    """The history rows in a table. Without `records=on` none is written."""

    def __init__(self, account: Account, rows: RowClient) -> None:
        self._account = account
        self._rows = rows

    def record(self, queue: str, records: Mapping[str, HistoryRow]) -> None:
        """Store how jobs ended, in place of their former rows. May be repeated."""
        if self._account.settings.records:
            rows = [
                {"scheduler": _partition_of(id), "job_id": id, **_fields(queue, record)}
                for id, record in records.items()
                if _fits(id)
            ]
            self._rows.put_all(
                rows,
                lambda rest: (
                    f"How {len(rest)} jobs of the queue {queue} ended was not kept; they are not settled before."
                ),
            )

    def amend(self, queue: str, id: str, record: HistoryRow, *, died_at: float | None = None) -> None:
        """Change the status of one job. With `died_at`, when it was buried, only if it has not ended again since."""
        if self._account.settings.records and _fits(id):
            change = Expressions().set(**_fields(queue, record))
            if died_at is not None:
                is_same_death = Attr("status").eq("dead") & Attr("at").lte(died_at)
                change.when(Attr("status").not_exists() | is_same_death)
            self._rows.update(_key_of(id), change)

    def amend_dead(self, queue: str, deaths: Mapping[str, float], status: Status) -> None:
        """Change the status of dead jobs, unless they have ended again since. `deaths` has the times of their burials.

        One request each, because DynamoDB has no batches with conditions; several in parallel.
        """
        if not self._account.settings.records or not deaths:
            return
        record = HistoryRow(status, self._account.clock.now())
        with ThreadPoolExecutor(min(_THREADS, len(deaths)), "laneway-records") as pool:
            for _ in pool.map(lambda death: self.amend(queue, death[0], record, died_at=death[1]), deaths.items()):
                pass

    def get(self, id: str) -> HistoryRow | None:
        """The row of a job. It counts until DynamoDB deletes it, also after its expiry."""
        row = self._rows.get(_key_of(id))
        return None if row is None else msgspec.convert(row, HistoryRow)


def record_ended(account: Account, queue: str, records: Mapping[str, HistoryRow]) -> None:
    """Store how jobs of a queue ended, if `records=on`. Only the table stores it: other processes read it."""
    if not account.settings.records:
        return
    table = account.tables.of(queue)
    if table is not None:
        table.history.record(queue, records)
    else:
        account.log_once(
            f"records without a table {queue}",
            f"how jobs of the queue {queue} end is not kept although records=on is in the URL, because there is no "
            f"table {account.tables.name(queue)}; make it with `laneway aws create`",
            level=logging.WARNING,
        )


def _fits(id: str) -> bool:
    return 0 < len(id.encode()) <= LONGEST_ID


def _partition_of(id: str) -> str:
    return f"laneway-records-{crc32(id.encode()) % SPREAD}"


def _key_of(id: str) -> RowKey:
    return _partition_of(id), id


def _fields(queue: str, record: HistoryRow) -> Row:
    kept_s = DEAD_KEPT_S if record.status == "dead" else KEPT_S
    return {"queue": queue, "status": record.status, "at": record.at, "expires_at": int(record.at + kept_s)}
