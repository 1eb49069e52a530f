"""QueueRows: counters and pauses of queues, which SQS does not have: rows `queue:…` under `laneway`.

They have no `perform_at`, so they are never taken for delayed jobs.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from boto3.dynamodb.conditions import Attr, Key

from .client import Expressions, RowClient, RowKey

_PREFIX = "queue:"


class QueueCounters(msgspec.Struct, frozen=True):
    """The counters of a queue, and whether it is paused."""

    paused: bool = False
    processed: int = 0
    failed: int = 0


class QueueRows:
    """The rows about queues in a table."""

    def __init__(self, rows: RowClient) -> None:
        self._rows = rows

    def get(self, queue: str) -> QueueCounters:
        return self.get_all([queue])[queue]

    def get_all(self, queues: Collection[str]) -> dict[str, QueueCounters]:
        """The rows of these queues. A queue without a row was never paused, and nothing was counted."""
        found = {queue: QueueCounters() for queue in queues}
        for row in self._rows.get_all(map(_key_of, found)):
            found[row["job_id"].removeprefix(_PREFIX)] = QueueCounters(
                paused=row.get("paused", False),
                processed=int(row.get("processed", 0)),
                failed=int(row.get("failed", 0)),
            )
        return found

    def names(self) -> list[str]:
        """The queues with a row: those that were paused, or that a worker has run jobs of."""
        rows = self._rows.query("laneway", Key("job_id").begins_with(_PREFIX))
        return [row["job_id"].removeprefix(_PREFIX) for row in rows]

    def count_runs(self, queue: str, processed: int, failed: int) -> None:
        """Add to the counters of a queue. If an answer is lost and the request repeated, it counts twice."""
        self._rows.update(_key_of(queue), Expressions().add(processed=processed, failed=failed))

    def set_paused(self, queue: str, paused: bool) -> bool:
        """Pause or resume a queue. False: nothing changed."""
        changes = Attr("paused").eq(not paused)
        if paused:
            changes |= Attr("paused").not_exists()
        return self._rows.update(_key_of(queue), Expressions().set(paused=paused).when(changes))


def _key_of(queue: str) -> RowKey:
    return "laneway", _PREFIX + queue
