"""DelayedJobs: the delayed jobs of a table: puts, finds, claims, moves and removes them.

Nothing leaves the table before it is stored in its next place. A process claims an item before it sends or removes
it, by a conditional update that may be repeated; moving an item is such an update, too. So a lost answer strands no
item, and the claim of a process that died expires. `items` defines the format of a row.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from boto3.dynamodb.conditions import Attr, ConditionBase, Key

from ....jobs.data import Status
from .client import Expressions, Row, RowClient
from .items import (
    INDEX,
    DelayedItem,
    UnreadableError,
    item_of,
    moved_note,
    partition_names,
    partition_of,
    row_of,
)
from .job_history import HistoryRow, HistoryRows

if TYPE_CHECKING:
    from ..account import Account

#: Seconds for which a claimed item cannot be claimed by another process.
CLAIM_S = 120.0
#: Every process claims under this name to remove a job. So a removal can be repeated after a lost answer or a crash.
_REMOVING = "removing"
#: How often a verb reads an item again that another process changes meanwhile.
_TRIES = 5
#: The row that says how many partitions have items.
_PARTITIONS = ("laneway", "partitions")
#: Later than any due time.
NEVER = 1e12


class DelayedJobs:
    """The delayed jobs of one table."""

    def __init__(self, account: Account, rows: RowClient, history: HistoryRows, home: str) -> None:
        """`home` is the queue whose table it is; empty if several queues share it."""
        self._account = account
        self._rows = rows
        self._history = history
        self._home = home
        self._announced = 0

    # -- storing ---------------------------------------------------------------------------------------

    def put(self, items: Sequence[DelayedItem]) -> None:
        """Store jobs, 25 per request, and replace items with the same ids. If that fails midway, the error names the
        jobs that were not stored. Raises EnqueueError, and stores nothing, if one is too large for DynamoDB."""
        size = self._account.settings.partitions
        rows = {item.job_id: row_of(item, size) for item in items}
        if self._announced < size:
            self._announce(size)
        self._rows.put_all(rows.values(), _not_stored)
        self._account.pollers.notify(self._rows.name, (item.perform_at for item in items if item.stays))

    def partitions(self) -> list[str]:
        """All partitions that may have items, whatever number of partitions they were stored with."""
        row = self._rows.get(_PARTITIONS) or {}
        return partition_names(max(self._account.settings.partitions, int(row.get("size", 0))))

    def _announce(self, size: int) -> None:
        """Make all pollers read this many partitions from now on, before the first item is stored in a new one."""
        grows = Attr("size").not_exists() | Attr("size").lt(size)
        self._rows.update(_PARTITIONS, Expressions().set(size=size).when(grows))
        self._announced = size

    # -- reading ---------------------------------------------------------------------------------------

    def due(self, until: float = NEVER) -> Iterator[DelayedItem]:
        """The items that are due by `until`, by due time."""
        parts = [
            self._read(self._rows.query(partition, Key("perform_at").lte(until), index=INDEX))
            for partition in self.partitions()
        ]
        return heapq.merge(*parts, key=lambda item: (item.perform_at, item.job_id))

    def get(self, job_id: str) -> DelayedItem | None:
        """The job with this id, if it is in this table."""
        return self.get_all([job_id]).get(job_id)

    def get_all(self, job_ids: Iterable[str]) -> dict[str, DelayedItem]:
        """The jobs with these ids that are in this table, by id."""
        wanted = dict.fromkeys(id for id in job_ids if id)
        size = self._account.settings.partitions
        home = {id: partition_of(id, size) for id in wanted}
        found = {item.job_id: item for item in self._read(self._rows.get_all((home[id], id) for id in wanted))}
        missing = [id for id in wanted if id not in found]
        if missing:
            # Stored with another number of partitions, or by a third party.
            partitions = self.partitions()
            others = [(partition, id) for id in missing for partition in partitions if partition != home[id]]
            for item in self._read(self._rows.get_all(others)):
                found.setdefault(item.job_id, item)
        return found

    def _read(self, rows: Iterable[Row]) -> Iterator[DelayedItem]:
        """Decode rows. A row that is not a job is left in the table, and logged once."""
        for row in rows:
            try:
                yield item_of(row, self._account.settings, self._home)
            except UnreadableError as error:
                name, table = f"{row['scheduler']}/{row['job_id']}", self._rows.name
                self._account.log_once(
                    f"item {table} {name}",
                    f"the item {name} of the table {table} cannot be sent, and stays there: {error}",
                )

    # -- claiming --------------------------------------------------------------------------------------

    def claim(self, item: DelayedItem, holder: str, now: float) -> bool:
        """Claim an item for a while, if it is unclaimed and its due time has not changed. May be repeated."""
        is_free = _is_unclaimed(now) | Attr("claim").eq(holder)
        claim = Expressions().set(claim=holder, claim_until=now + CLAIM_S)
        return self._rows.update(item.row_key, claim.when(Attr("perform_at").eq(item.stored_at) & is_free))

    def release(self, item: DelayedItem, holder: str) -> bool:
        """Release a claim: the item was not sent, and another process may try."""
        release = Expressions().remove("claim", "claim_until")
        return self._rows.update(item.row_key, release.when(Attr("claim").eq(holder)))

    def done(self, item: DelayedItem, holder: str) -> bool:
        """Delete an item that is stored in its next place. False: `holder` has no claim on it any more."""
        return self._rows.delete(item.row_key, Attr("claim").eq(holder))

    # -- removing and moving ---------------------------------------------------------------------------

    def remove(self, job_id: str, now: float, status: Status = "gone") -> bool:
        """Remove a job for good. `status` is its status from then on. False: it is not in this table, or being sent."""
        for _ in range(_TRIES):
            item = self.get(job_id)
            if item is None or item.claimed(now, by_others_than=_REMOVING):
                return False
            # Claimed first, although a conditional delete would take only one request. If the answer to that delete
            # were lost, its repeat could not tell our delete from that of another process that sent the job.
            if self.claim(item, _REMOVING, now):
                # If we die here, a poller sends the job after the claim has expired. While it is in the table, the
                # history row does not count.
                self._history.amend(item.queue, job_id, HistoryRow(status, now))
                return self.done(item, _REMOVING) or self.get(job_id) is None
        return False

    def move(self, job_id: str, perform_at: float, now: float) -> bool:
        """Change the due time of a job. False: the job is not in this table, or being sent."""
        for _ in range(_TRIES):
            item = self.get(job_id)
            if item is None or item.claimed(now):
                return False
            if self._move(item, perform_at, now):
                if item.stays and perform_at > now:
                    self._account.pollers.notify(self._rows.name, [perform_at])
                return True
        return False

    def _move(self, item: DelayedItem, perform_at: float, now: float) -> bool:
        changes: dict[str, float | str] = {"perform_at": perform_at}
        note = moved_note(item, perform_at)
        if note is not None:
            changes["sqs_message_attributes.laneway.StringValue"] = note
        # If the answer to an earlier try was lost, the item may have been moved already.
        is_known = Attr("perform_at").is_in([item.stored_at, perform_at])
        move = Expressions().set(**changes).remove("claim", "claim_until")
        return self._rows.update(item.row_key, move.when(is_known & _is_unclaimed(now)))


def _is_unclaimed(now: float) -> ConditionBase:
    return Attr("claim").not_exists() | Attr("claim_until").lt(now)


def _not_stored(ids: list[str]) -> str:
    """Names the jobs that a `put` did not store."""
    return f"These jobs were not stored: {', '.join(ids[:10])}{f' and {len(ids) - 10} more' if len(ids) > 10 else ''}."
