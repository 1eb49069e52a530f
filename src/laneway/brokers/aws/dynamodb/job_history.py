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

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from zlib import crc32

import msgspec

from ....jobs.data import Status
from ...shared import REMEMBER_ENDED_S
from .client import Item, TableClient, key, number, real, text

#: A table with a local index takes about 1,000 writes a second under one hash value. The number is fixed, so that
#: whoever looks for a record need not know what somebody else's was when it was written.
SPREAD = 64
#: An hour more than is promised: the clocks of those who write and those who look differ.
KEPT_S = REMEMBER_ENDED_S + 3_600.0
#: SQS keeps a dead letter for 14 days at most.
DEAD_KEPT_S = 15 * 86_400.0
#: DynamoDB takes no longer range key, in bytes. Only a stranger's id may be longer, and nobody here has a handle on it.
LONGEST_ID = 1_024
_THREADS = 8


class HistoryRow(msgspec.Struct, frozen=True):
    """What became of a job, and when."""

    status: Status
    at: float


class HistoryRows(TableClient):
    """The rows of a table that are about jobs that have ended. Without `records=on` there are none."""

    def record(self, queue: str, records: Mapping[str, HistoryRow]) -> None:
        """Keep how jobs ended, in twenty-fives, in place of what was kept. May be repeated."""
        if not self.settings.records:
            return
        items = [_item_of(queue, id, each) for id, each in records.items() if _fits(id)]
        self.write(
            [{"PutRequest": {"Item": item}} for item in items],
            lambda rest: f"How {len(rest)} jobs of the queue {queue} ended was not kept; they are not settled before.",
        )

    def amend(self, queue: str, id: str, record: HistoryRow, *, died_at: float | None = None) -> None:
        """Keep something else of one job. With `died_at`, when it was buried, only if it has not ended again since."""
        if not self.settings.records or not _fits(id):
            return
        wanted = _item_of(queue, id, record)
        fields = ("queue", "status", "at", "expires_at")
        values = {f":{name}": wanted[name] for name in fields}
        update = {
            "Key": _key_of(id),
            "UpdateExpression": "SET " + ", ".join(f"#{name} = :{name}" for name in fields),
            "ExpressionAttributeNames": {f"#{name}": name for name in fields},
            "ExpressionAttributeValues": values,
        }
        if died_at is None:
            self.call("update_item", **update)
            return
        values |= {":dead": {"S": "dead"}, ":died": number(died_at)}
        self.write_if("update_item", "attribute_not_exists(#status) OR (#status = :dead AND #at <= :died)", **update)

    def amend_dead(self, queue: str, deaths: Mapping[str, float], status: Status) -> None:
        """Keep something else of dead jobs, unless they have ended once more since: by their ids, when they died.

        One request each, because DynamoDB has no batches with conditions; several at once.
        """
        if not self.settings.records or not deaths:
            return
        record = HistoryRow(status, self.clock.now())
        with ThreadPoolExecutor(min(_THREADS, len(deaths)), "laneway-records") as pool:
            for _ in pool.map(lambda death: self.amend(queue, death[0], record, died_at=death[1]), deaths.items()):
                pass

    def record_of(self, id: str) -> HistoryRow | None:
        """What became of a job. One that has expired and is still there is as true as ever."""
        item = next(self.items([_key_of(id)]), None)
        if item is None:
            return None
        return msgspec.convert({"status": text(item, "status"), "at": real(item, "at")}, HistoryRow)


def _fits(id: str) -> bool:
    return 0 < len(id.encode()) <= LONGEST_ID


def _key_of(id: str) -> Item:
    return key(f"laneway-records-{crc32(id.encode()) % SPREAD}", id)


def _item_of(queue: str, id: str, record: HistoryRow) -> Item:
    kept_s = DEAD_KEPT_S if record.status == "dead" else KEPT_S
    return {
        **_key_of(id),
        "queue": {"S": queue},
        "status": {"S": record.status},
        "at": number(record.at),
        "expires_at": number(int(record.at + kept_s)),
    }
